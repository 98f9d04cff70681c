"""All records that a worker is processing: partitions, their records, and results that wait for their commit.

It knows no threads, no clients and no store: the worker and the driver of tests do what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparklog.clock import Clock
from sparklog.errors import HandlerError, MessageSizeTooLargeError, SparklogError
from sparklog.model import ConsumerRecord, OffsetAndMetadata, TopicPartition
from sparklog.processing.frontier import Entry, Frontier
from sparklog.processing.handling import Await, Handling
from sparklog.processing.lanes import Lanes
from sparklog.processing.moves import DeadLetter, Output, attempts_of, due_ms_of, pointer_only
from sparklog.processing.subscriber import Subscriber

if TYPE_CHECKING:
    from sparklog.opentelemetry.processing import ProcessTelemetry

__all__ = ["Limits", "Passed", "Pending", "Station", "Work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of what is read ahead; a poll may go beyond them by what it returns."""

    records: int = 10_000
    """Records of one partition, from the first that isn't done on; 1 or more."""
    size_bytes: int = 64 * 1024 * 1024
    """Bytes of the values of all partitions; 1 or more."""


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
            HandlerError: it has nowhere to go.
        """
        if entry.letter is None:
            return self.handling.refuse_output(entry, output, error)
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

    def feed(self, polled: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> None:
        """Take up what was read next."""
        for partition, records in polled.items():
            frontier = self.frontiers.get(partition) or self._new_frontier(partition)
            if frontier.error is not None:
                continue
            if frontier.is_delayed:
                # Who moved it may have another clock: nothing waits for longer than its topic's delay from now on.
                now_ms = self._clock.now_ms()
                latest_ms, to_ticks = now_ms + self._delayed[partition.topic], self._clock.ticks_ms() - now_ms
                entries = [
                    Entry(record, frontier, attempts_of(record), min(due_ms_of(record), latest_ms) + to_ticks)
                    for record in records
                ]
            else:
                entries = [Entry(record, frontier) for record in records]
            frontier.add(entries, sum(max(0, record.serialized_value_size) for record in records))
            self._stations[partition.topic].lanes.add(entries)

    def wake_due(self) -> float | None:
        """Make ready what is due by now; when the next is due, in ticks, or None."""
        dues = [due for due in (station.lanes.wake_due() for station in self.stations) if due is not None]
        return min(dues, default=None)

    def collect(self) -> Pending:
        """Pass what is done up to the first that isn't, in each partition. Returns all that waits for its commit."""
        pending = self.pending
        for frontier in self.frontiers.values():
            passed = frontier.advance()
            if passed:
                pending.add(frontier, passed)
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
            self.halt([entry.frontier.partition])
            entry.frontier.stop(stopped)
            self.pending.keep([each for each in self.frontiers.values() if each.error is None])
            return stopped
        return None

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
        size_bytes = sum(frontier.in_flight_bytes for frontier in frontiers)
        if size_bytes >= (self._limits.size_bytes // 2 if paused else self._limits.size_bytes):
            return set(self.frontiers)
        most, half = self._limits.records, self._limits.records // 2
        return {
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
        self.pending.keep(self.frontiers.values())

    def _new_frontier(self, partition: TopicPartition) -> Frontier:
        if partition in self.frontiers:
            self.drop([partition])
        frontier = self.frontiers[partition] = Frontier(partition, is_delayed=partition.topic in self._delayed)
        return frontier
