"""The results of a commit of offsets as kafka-python gives them: the answer, the future, the callback."""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparklog.model import OffsetAndMetadata, TopicPartition

__all__ = [
    "CommitFuture",
    "OffsetCommitPartition",
    "OffsetCommitResponse",
    "OffsetCommitTopic",
    "answering",
    "log_failure",
    "without_nulls",
]

_LOGGER = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Callback = Callable[[Any, Any], object]


@dataclass(frozen=True, slots=True)
class OffsetCommitPartition:
    """A partition whose offset was committed."""

    partition_index: int
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class OffsetCommitTopic:
    """A topic of which offsets were committed."""

    name: str
    partitions: tuple[OffsetCommitPartition, ...]


@dataclass(frozen=True, slots=True)
class OffsetCommitResponse:
    """All offsets were committed: whatever else happens is an exception."""

    topics: tuple[OffsetCommitTopic, ...]
    throttle_time_ms: int = 0

    @classmethod
    def of(cls, offsets: Offsets) -> OffsetCommitResponse:
        """The answer to a commit of ``offsets``."""
        numbers: dict[str, list[OffsetCommitPartition]] = {}
        for topic, partition in sorted(offsets):
            numbers.setdefault(topic, []).append(OffsetCommitPartition(partition))
        return cls(tuple(OffsetCommitTopic(topic, tuple(found)) for topic, found in numbers.items()))


class CommitFuture:
    """kafka-python's ``Future`` of a commit. Callbacks run in the thread that commits, or at once."""

    def __init__(self, done: concurrent.futures.Future[Any], offsets: Offsets) -> None:
        self._done = done
        self._offsets = offsets

    @property
    def is_done(self) -> bool:
        """Whether it succeeded or failed."""
        return self._done.done()

    def succeeded(self) -> bool:
        """Whether the offsets are committed."""
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        """Whether they weren't, and won't be."""
        return self.exception is not None

    def retriable(self) -> bool:
        """Whether it failed with an error after which the same commit may succeed."""
        return getattr(self.exception, "retriable", False) is True

    @property
    def exception(self) -> BaseException | None:
        """The error; None while it isn't done."""
        return self._done.exception() if self.is_done else None

    @property
    def value(self) -> OffsetCommitResponse | None:
        """The answer; None while it isn't done, and after an error."""
        return OffsetCommitResponse.of(self._offsets) if self.succeeded() else None

    def add_callback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> CommitFuture:
        """Call ``f(*args, response, **kwargs)`` when it succeeds."""
        self._done.add_done_callback(lambda _: self.succeeded() and f(*args, self.value, **kwargs))
        return self

    def add_errback(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> CommitFuture:
        """Call ``f(*args, error, **kwargs)`` when it fails."""
        self._done.add_done_callback(lambda _: self.failed() and f(*args, self.exception, **kwargs))
        return self

    def add_both(self, f: Callable[..., object], *args: Any, **kwargs: Any) -> CommitFuture:
        """Call ``f`` with the answer or with the error."""
        return self.add_callback(f, *args, **kwargs).add_errback(f, *args, **kwargs)


def answering(callback: Callback) -> Callable[[Offsets, Exception | None], object]:
    """kafka-python's ``callback(offsets, response)`` as sparklog calls one."""
    return lambda offsets, error: callback(offsets, OffsetCommitResponse.of(offsets) if error is None else error)


def log_failure(offsets: Offsets, response: object) -> None:
    """The callback of who gives none. Source: kafka-python ``_default_offset_commit_callback``."""
    if isinstance(response, Exception):
        _LOGGER.warning("commit of the offsets of %d partitions failed: %s", len(offsets), response)


def without_nulls(offsets: Mapping[TopicPartition, Any]) -> dict[TopicPartition, Any]:
    """Offsets to commit, as kafka-python takes them: metadata and leader epoch may be None."""
    return {partition: _without_nulls(committed) for partition, committed in offsets.items()}


def _without_nulls(committed: Any) -> Any:
    if not isinstance(committed, OffsetAndMetadata):
        return committed  # refused by whoever takes it
    epoch: int | None = committed.leader_epoch
    return OffsetAndMetadata(committed.offset, committed.metadata or "", -1 if epoch is None else epoch)
