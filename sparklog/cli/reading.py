"""Reading for ``sparklog consume``: what is there, or what is there and what comes, alone or as one of a group."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType

from sparklog.cli.signals import FAILED, Ending, Terminated
from sparklog.cli.start_positions import StartPosition, first_offsets
from sparklog.consumer import Consumer, ConsumerRebalanceListener
from sparklog.errors import SparklogError, UnknownTopicOrPartitionError
from sparklog.model import ConsumerRecord, OffsetAndMetadata, TopicPartition

__all__ = ["Grouped", "Plan", "followed", "present"]

_POLL_MS = 500
_POLL_RECORDS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan of which records to read."""

    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    """Empty for all."""
    start: StartPosition
    follow: bool
    """Go on beyond what was there at the beginning."""
    timeout_ms: int | None
    """To wait for a record."""
    max_count: int | None = None
    """The count of records after which reading ends."""


def _partitions(consumer: Consumer, plan: Plan) -> list[TopicPartition]:
    """The partitions that are meant. Raises ``UnknownTopicOrPartitionError``."""
    found = []
    for topic in plan.topics:
        numbers = consumer.partitions_for_topic(topic)
        if numbers is None:
            raise UnknownTopicOrPartitionError(f"unknown topic: {topic!r}")
        missing = sorted(set(plan.partitions) - numbers)
        if missing:
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} has no partition {missing[0]}; it has 0 to {len(numbers) - 1}"
            )
        found += [TopicPartition(topic, number) for number in plan.partitions or sorted(numbers)]
    return found


def present(consumer: Consumer, plan: Plan) -> Iterator[list[ConsumerRecord]]:
    """The records that are there now, poll by poll."""
    partitions = _partitions(consumer, plan)
    ends = consumer.end_offsets(partitions)
    starts = first_offsets(consumer, partitions, plan.start)
    rest = {at for at in partitions if starts[at] < ends[at]}
    if not rest:
        return
    consumer.assign(sorted(rest))
    for at in rest:
        consumer.seek(at, starts[at])
    patience = _Patience(plan.timeout_ms)
    while rest:
        polled = consumer.poll(timeout_ms=patience.next_ms(), max_records=_POLL_RECORDS)
        records = [record for at, found in polled.items() for record in found if record.offset < ends[at]]
        if records:
            yield records
        elif patience.is_over:
            return
        patience.saw(len(records))
        finished = {at for at in rest if consumer.position(at) >= ends[at]}
        if finished:
            consumer.pause(*finished)
            rest -= finished


def followed(consumer: Consumer, plan: Plan) -> Iterator[list[ConsumerRecord]]:
    """The records that are there and those that come, poll by poll, until nothing came for so long."""
    partitions = _partitions(consumer, plan)
    starts = first_offsets(consumer, partitions, plan.start)
    if plan.partitions:
        consumer.assign(partitions)
        for at, start in starts.items():
            consumer.seek(at, start)
    else:  # partitions that are added later are found
        consumer.subscribe(plan.topics, listener=_Begin(consumer, starts))
    patience = _Patience(plan.timeout_ms)
    while True:
        polled = consumer.poll(timeout_ms=patience.next_ms(), max_records=_POLL_RECORDS)
        records = [record for found in polled.values() for record in found]
        if records:
            yield records
        elif patience.is_over:
            return
        patience.saw(len(records))


class Grouped(ConsumerRebalanceListener):
    """The records that a member of a group reads, poll by poll. At its end exactly what was printed is committed.

    A poll counts as printed when the next one is asked for, or where everything ends well. A signal that comes while
    one is printed is raised then: what its reader has seen is committed.

    Args:
        ending: of the command.
        commits: whether to commit after an error, or an interruption, which is how it usually ends; the consumer by
            itself wouldn't.
    """

    def __init__(self, consumer: Consumer, plan: Plan, ending: Ending, *, commits: bool) -> None:
        self._consumer = consumer
        self._plan = plan
        self._ending = ending
        self._commits = commits
        self._printed: dict[TopicPartition, OffsetAndMetadata] = {}

    def __enter__(self) -> Grouped:
        return self

    def __iter__(self) -> Iterator[list[ConsumerRecord]]:
        plan, consumer = self._plan, self._consumer
        _partitions(consumer, plan)
        consumer.subscribe(plan.topics, listener=self)
        patience, left = _Patience(plan.timeout_ms), plan.max_count
        while left is None or left > 0:
            count = _POLL_RECORDS if left is None else min(_POLL_RECORDS, left)
            polled = consumer.poll(timeout_ms=patience.next_ms(), max_records=count)
            records = [record for found in polled.values() for record in found]
            if records:
                self._ending.hold(forced_code=FAILED)
                yield records
                self._printed.update({at: OffsetAndMetadata(found[-1].offset + 1) for at, found in polled.items()})
                self._ending.release()
            elif patience.is_over:
                return
            patience.saw(len(records))
            left = None if left is None else left - len(records)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        pass

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        for at in revoked:
            self._printed.pop(at, None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is not None and self._commits and self._printed:
                try:
                    self._consumer.commit(self._printed)
                except SparklogError:
                    if isinstance(error, Terminated):  # what was printed is read again: that is no orderly end
                        raise
        finally:
            self._consumer.__exit__(kind, error, traceback)


class _Begin(ConsumerRebalanceListener):
    """Lets each partition begin where it should; one that is added later at its beginning."""

    def __init__(self, consumer: Consumer, starts: Mapping[TopicPartition, int]) -> None:
        self._consumer = consumer
        self._starts = starts

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        for at in assigned:
            if at in self._starts:
                self._consumer.seek(at, self._starts[at])

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        pass


class _Patience:
    """The patience with which a command waits for a record."""

    def __init__(self, timeout_ms: int | None) -> None:
        self._timeout_ms = timeout_ms
        self._since_s = time.monotonic()

    def next_ms(self) -> float:
        """The time-out of the next poll."""
        return _POLL_MS if self._timeout_ms is None else min(_POLL_MS, max(0.0, self._left_ms()))

    @property
    def is_over(self) -> bool:
        return self._timeout_ms is not None and self._left_ms() <= 0

    def saw(self, count: int) -> None:
        """A poll returned so many records."""
        if count:
            self._since_s = time.monotonic()

    def _left_ms(self) -> float:
        return (self._timeout_ms or 0) - (time.monotonic() - self._since_s) * 1000
