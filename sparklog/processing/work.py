"""All records that a worker is processing: partitions, their records, and results that wait for their commit.

It knows no threads, no clients and no store: the worker and the driver of tests do what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from sparklog.clock import Clock
from sparklog.errors import (
    CorruptLogError,
    HandlerError,
    MessageSizeTooLargeError,
    NotATopicError,
    SparklogError,
    StorePermissionError,
    UnsupportedVersionError,
)
from sparklog.model import ConsumerRecord, OffsetAndMetadata, TopicPartition
from sparklog.processing.frontier import Entry, Frontier
from sparklog.processing.handling import Await, Handling
from sparklog.processing.lanes import Lanes
from sparklog.processing.moves import DeadLetter, Output, attempts_of, pointer_only
from sparklog.processing.subscriber import Subscriber
from sparklog.processing.waiting import WaitingRecords

if TYPE_CHECKING:
    from sparklog.opentelemetry.processing import ProcessTelemetry

__all__ = ["OF_THE_TOPIC", "Limits", "Passed", "Pending", "Station", "Work"]

OF_THE_TOPIC = (CorruptLogError, NotATopicError, StorePermissionError, UnsupportedVersionError)
"""Errors with which a topic can't be read or written, whatever is to be sent there, until somebody has repaired it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of what is read ahead; a poll may go beyond them by what it returns."""

    records: int = 10_000
    """Records of one partition, from the first that isn't done on; 1 or more."""
    size_bytes: int = 64 * 1024 * 1024
    """Bytes of the values of all partitions; 1 or more. Where there are delay topics, a quarter is for records that
    wait there; how many do hinders nothing else."""


@dataclass(frozen=True, slots=True)
class Station:
    """A subscriber, the lanes of its records, and the work on them."""

    subscriber: Subscriber
    lanes: Lanes
    handling: Handling

    def refuse(self, entry: Entry, output: Output, error: SparklogError) -> Sequence[Entry]:
        """Settle an entry of which an output can't be sent: it becomes a dead letter, or a smaller one; of a batch,
        whose outputs are those of all its records, each becomes one. Returns the entries that are to be sent now.

        Raises:
            HandlerError: it has nowhere to go, or the topic takes no record at all.
        """
        if entry.letter is None:
            is_of_the_topic = isinstance(error, OF_THE_TOPIC)
            return self.handling.refuse_output(entry, output, error, is_of_the_topic=is_of_the_topic)
        if isinstance(error, MessageSizeTooLargeError) and not entry.letter.is_value_omitted:
            output, entry.letter = pointer_only(entry.letter)
            entry.outputs = (output,)
            return (entry,)
        raise self.handling.nowhere_to_send(entry, output, error) from error


@dataclass(slots=True)
class Passed:
    """Entries of a frontier that follow one another."""

    first: int
    """The number of the first."""
    end: int
    """The number after that of the last."""
    offset: int
    """The offset to commit."""


@dataclass(slots=True)
class Pending:
    """Records that are done, and wait for their commit: all are committed together."""

    passed: dict[Frontier, Passed] = field(default_factory=dict)
    """The entries of each partition that are done."""
    moves: list[Entry] = field(default_factory=list)
    """Entries that send something: of each partition those below its offset, in order."""

    def add(self, frontier: Frontier, entries: Sequence[Entry]) -> None:
        """Add what a frontier has passed, which is at least one entry."""
        first = frontier.passed - len(entries)
        found = self.passed.setdefault(frontier, Passed(first, first, 0))
        found.end, found.offset = frontier.passed, entries[-1].record.offset + 1
        moves = [entry for entry in entries if entry.outputs]
        if moves:
            for number, entry in enumerate(entries, first):
                entry.number = number
            self.moves += moves

    def add_gap(self, frontier: Frontier, end: int) -> None:
        """Add that nothing is left of a frontier up to an offset: all its entries were passed."""
        self.passed.setdefault(frontier, Passed(frontier.passed, frontier.passed, 0)).offset = end

    def keep(self, frontiers: Collection[Frontier]) -> None:
        """Forget what is done of partitions that were taken away."""
        self.passed = {frontier: passed for frontier, passed in self.passed.items() if frontier in frontiers}
        self.moves = [entry for entry in self.moves if entry.frontier in frontiers]

    def replace(self, entry: Entry, by: Sequence[Entry]) -> None:
        """Let other entries of its partition, or itself, send something in place of an entry."""
        at = self.moves.index(entry)
        self.moves[at : at + 1] = by

    def leave_out(self, entry: Entry) -> None:
        """Leave out an entry, and all behind it in its partition."""
        frontier, number = entry.frontier, entry.number
        passed = self.passed[frontier]
        if number <= passed.first:
            del self.passed[frontier]
        else:
            passed.end, passed.offset = number, entry.record.offset
        self.moves = [each for each in self.moves if each.frontier is not frontier or each.number < number]

    @property
    def count(self) -> int:
        """Entries."""
        return sum(passed.end - passed.first for passed in self.passed.values())

    @property
    def gaps(self) -> int:
        """Partitions of which only offsets without records were passed."""
        return sum(passed.first == passed.end for passed in self.passed.values())

    @property
    def offsets(self) -> dict[Frontier, int]:
        """The next offset of each partition that something is done in."""
        return {frontier: passed.offset for frontier, passed in self.passed.items()}

    @property
    def committable(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets as clients take them."""
        return {frontier.partition: OffsetAndMetadata(offset) for frontier, offset in self.offsets.items()}

    @property
    def letters(self) -> list[DeadLetter]:
        """Records that go to the dead letters."""
        return [entry.letter for entry in self.moves if entry.letter is not None]


class Work:
    """For one thread, but for the stations' lanes and handling."""

    def __init__(
        self,
        subscribers: Sequence[Subscriber],
        *,
        group_id: str,
        clock: Clock,
        limits: Limits,
        run_async: Await,
        telemetry: ProcessTelemetry | None = None,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._stations: dict[str, Station] = {}
        self._delayed: dict[str, int] = {}
        """By delay topic: milliseconds that a record is to wait there."""
        self._sources: dict[str, str] = {}
        """By delay topic: the topic whose records wait there."""
        self._source_ids: dict[str, str] = {}
        """By topic whose records wait somewhere: its id, as far as it is known."""
        self._waiting = WaitingRecords(clock, self._delayed, limits.size_bytes)
        self._is_full = False
        self.frontiers: dict[TopicPartition, Frontier] = {}
        self.pending = Pending()
        self.stations: list[Station] = []
        for subscriber in subscribers:
            lanes = Lanes(subscriber.order_by, clock, most=subscriber.most_at_once)
            handling = Handling(subscriber, group_id=group_id, clock=clock, run_async=run_async, telemetry=telemetry)
            station = Station(subscriber, lanes, handling)
            self.stations.append(station)
            self._stations.update(dict.fromkeys(subscriber.topics, station))
            for topic in subscriber.topics:
                self._delayed.update(subscriber.retry.longest_waits_ms(topic))
            self._sources.update(subscriber.delay_topics())
            self._stations.update(dict.fromkeys(subscriber.delay_topics(), station))

    @property
    def topics(self) -> list[str]:
        """All topics that are read, those of delays among them."""
        return sorted(self._stations)

    @property
    def in_flight(self) -> int:
        """Records that were read and aren't done, or wait behind one that isn't."""
        return sum(frontier.in_flight for frontier in self.frontiers.values())

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Begin with partitions; what was under way in them is forgotten."""
        for partition in partitions:
            self._new_frontier(partition)

    def feed(
        self,
        polled: Mapping[TopicPartition, Sequence[ConsumerRecord]],
        topic_ids: Mapping[TopicPartition, str] = MappingProxyType({}),
        gap_ends: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> dict[TopicPartition, int]:
        """Take up what was read next.

        Args:
            topic_ids: of the topics of partitions, as far as they are known.
            gap_ends: of partitions of which no records are left beyond what was read so far: up to which offset.
        Returns:
            The offsets from which on partitions are to be read again: what waits there isn't kept.
        """
        back: dict[TopicPartition, int] = {}
        for partition, records in polled.items():
            frontier = self.frontiers.get(partition) or self._new_frontier(partition)
            if frontier.error is not None:
                continue
            if frontier.is_delayed:
                taken, again = self._waiting.take(partition, records)
                entries = [Entry(record, frontier, attempts_of(record), due) for record, due in taken]
                if again is not None:
                    back[partition] = again
            else:
                topic_id = topic_ids.get(partition)
                if topic_id is not None and frontier.topic_id not in (None, topic_id):
                    frontier = self._new_frontier(partition)  # what is under way is of a topic that was deleted
                frontier.topic_id = topic_id or frontier.topic_id
                entries = [Entry(record, frontier) for record in records]
            frontier.add(entries, sum(max(0, entry.record.serialized_value_size) for entry in entries))
            self._stations[partition.topic].lanes.add(entries)
        for partition in gap_ends.keys() - back.keys():
            (self.frontiers.get(partition) or self._new_frontier(partition)).add_gap(gap_ends[partition])
        return back

    def sources_due(self, polled: Collection[TopicPartition] = ()) -> set[str]:
        """The topics of which records are due in delay topics, or were just read there."""
        if not self._sources:
            return set()
        now = self._clock.ticks_ms()
        due = [at for at, frontier in self.frontiers.items() if frontier.is_delayed and frontier.is_due(now)]
        return {self._sources[at.topic] for at in (*due, *polled) if at.topic in self._sources}

    def note_source(self, topic: str, topic_id: str) -> None:
        """Note the id of a topic of which records wait in delay topics: those of another one of its name are passed
        over."""
        self._source_ids[topic] = topic_id
        for at, frontier in self.frontiers.items():
            if self._sources.get(at.topic) == topic:
                frontier.topic_id = topic_id

    def wake_due(self) -> float | None:
        """Make ready what is due by now; when the next is due, in ticks, or None."""
        dues = [self._waiting.next_due_ticks_ms(), *(station.lanes.wake_due() for station in self.stations)]
        return min((due for due in dues if due is not None), default=None)

    def collect(self) -> Pending:
        """Pass what is done up to the first that isn't, in each partition. Returns all that waits for its commit."""
        pending = self.pending
        for frontier in self.frontiers.values():
            passed = frontier.advance()
            if passed:
                pending.add(frontier, passed)
            gap_end = frontier.pass_gap()
            if gap_end is not None:
                pending.add_gap(frontier, gap_end)
            if frontier.stuck is not None:
                self._stop(frontier, frontier.stuck)
        return pending

    def take(self) -> Pending:
        """Take the collected work, and start collecting again: the caller commits it or gives it back."""
        taken, self.pending = self.collect(), Pending()
        return taken

    def give_back(self, taken: Pending) -> None:
        """Take back what wasn't committed, and is to be with all that was done since."""
        newer = self.pending
        for frontier, passed in newer.passed.items():
            first = taken.passed.get(frontier, passed).first
            taken.passed[frontier] = Passed(first, passed.end, passed.offset)
        self.pending = Pending(taken.passed, taken.moves + newer.moves)
        self.pending.keep(self.frontiers.values())

    def refuse(self, taken: Pending, entry: Entry, output: Output, error: SparklogError) -> HandlerError | None:
        """Settle an entry of ``taken`` of which an output can't be sent: it becomes a dead letter, or a smaller one.
        One that has nowhere to go stops its partition alone: returns why."""
        try:
            taken.replace(entry, self._stations[entry.frontier.partition.topic].refuse(entry, output, error))
        except HandlerError as stopped:
            taken.leave_out(entry.batch[0] if entry.batch else entry)
            self._stop(entry.frontier, stopped)
            self.pending.keep([each for each in self.frontiers.values() if each is not entry.frontier])
            return stopped
        return None

    def stop_behind(self, entry: Entry, output: Output, error: SparklogError) -> HandlerError:
        """Stop the partition of an entry that is committed, while the topic of an output takes nothing. Returns why."""
        stopped = self._stations[entry.frontier.partition.topic].handling.not_visible_yet(entry, output, error)
        self._stop(entry.frontier, stopped)
        self.pending.keep([each for each in self.frontiers.values() if each is not entry.frontier])
        return stopped

    def handler_of(self, entry: Entry) -> str:
        """The name of an entry's handler."""
        return self._stations[entry.frontier.partition.topic].subscriber.name

    @property
    def stopped(self) -> dict[TopicPartition, HandlerError]:
        """The partitions that go no further, and why."""
        return {at: each.error for at, each in list(self.frontiers.items()) if each.error is not None}

    def full(self, paused: Collection[TopicPartition]) -> set[TopicPartition]:
        """The partitions of which no more should be read now.

        Args:
            paused: those that were full: they stay so until half of it is done.
        """
        frontiers = self.frontiers.values()
        size_bytes = sum(frontier.in_flight_bytes for frontier in frontiers) - self._waiting.value_bytes()
        limit = self._limits.size_bytes - self._waiting.room_bytes
        self._is_full = size_bytes >= (limit // 2 if self._is_full and paused else limit)
        if self._is_full:
            return set(self.frontiers)
        most, half = self._limits.records, self._limits.records // 2
        return self._waiting.held() | {
            frontier.partition
            for frontier in frontiers
            if frontier.in_flight >= most or (frontier.in_flight > half and frontier.partition in paused)
        }

    def halt(self, partitions: Collection[TopicPartition]) -> Callable[[], bool]:
        """Begin nothing more of partitions. Returns a function that says whether something of them is still being
        handled."""
        for partition in partitions:
            if partition in self.frontiers:
                self.frontiers[partition].is_live = False
        stations = {id(station): station for station in (self._stations[each.topic] for each in partitions)}
        for station in stations.values():
            station.lanes.drop(partitions)
        return lambda: any(station.lanes.is_running(partitions) for station in stations.values())

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget partitions, with what is done of them and isn't committed."""
        self.halt(partitions)
        for partition in partitions:
            self.frontiers.pop(partition, None)
        self._waiting.forget(partitions)
        self.pending.keep(self.frontiers.values())

    def _stop(self, frontier: Frontier, error: HandlerError) -> None:
        """Go no further in a partition; what it has passed is committed."""
        frontier.stop(error)
        if self.frontiers.get(frontier.partition) is frontier:  # else the partition was taken away, and came back
            self.halt([frontier.partition])
            self._waiting.forget([frontier.partition])

    def _new_frontier(self, partition: TopicPartition) -> Frontier:
        if partition in self.frontiers:
            self.drop([partition])
        frontier = self.frontiers[partition] = Frontier(partition, is_delayed=partition.topic in self._delayed)
        if frontier.is_delayed:
            frontier.topic_id = self._source_ids.get(self._sources[partition.topic])
            self._waiting.begin(partition)
        return frontier
