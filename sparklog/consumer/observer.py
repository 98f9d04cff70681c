"""The interface of an observer of a consumer. Only instrumented consumers have one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from sparklog.model import ConsumerRecord, TopicPartition

__all__ = ["ConsumerObserver"]


class ConsumerObserver(Protocol):
    """Called by the consumer, in its own thread; raises nothing."""

    def poll_begins(self) -> None:
        """The application polls."""

    def received(self, records: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> None:
        """Records are about to be returned by the poll; not those that are returned as Arrow data."""

    def consumed(self, partition: TopicPartition, record_count: int) -> None:
        """So many records of a partition are about to be returned by the poll, in whichever form."""

    def poll_ends(self, error: BaseException | None) -> None:
        """The poll returns to the application, or raises."""

    def commit(self, partitions: Collection[TopicPartition]) -> Callable[[BaseException | None], None]:
        """A commit begins. Returns what is called at its end, in whichever thread."""
