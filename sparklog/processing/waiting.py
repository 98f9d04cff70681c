"""Records of delay topics that aren't due: some are kept in memory, the rest is read again when there is room, or they
are due. So however many wait, nothing else waits for them (decision 0099). Pure, but for the time."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sparklog.clock import Clock
from sparklog.model import ConsumerRecord, TopicPartition
from sparklog.processing.moves import due_ms_of

__all__ = ["WaitingRecords"]

_RECORD_BYTES = 1_000
"""Bytes that a record counts beside its key, value and headers."""
_PART = 4
"""Waiting records have one of so many parts of ``Limits.size_bytes``."""


@dataclass(frozen=True, slots=True)
class _First:
    """The first record that was read and isn't kept."""

    due_ticks_ms: float
    size_bytes: int


@dataclass(slots=True)
class _Partition:
    """The records of one partition that wait."""

    kept: deque[tuple[float, int, int]] = field(default_factory=deque)
    """For each record that is kept and wasn't due: when it is, in ticks, its size, and that of its value."""
    kept_bytes: int = 0
    value_bytes: int = 0
    first: _First | None = None
    latest: deque[tuple[int, float]] = field(default_factory=deque)
    """Offsets up to which was read, and until when a record below waits at most, from when it was first read."""

    def let_go(self, now_ticks_ms: float) -> None:
        """Forget the records that are due by now: they are being worked on."""
        while self.kept and self.kept[0][0] <= now_ticks_ms:
            _, size, value_size = self.kept.popleft()
            self.kept_bytes -= size
            self.value_bytes -= value_size

    def until(self, offset: int, new_ticks_ms: float) -> float:
        """Until when the record at an offset waits at most."""
        return next((until for end, until in self.latest if offset < end), new_ticks_ms)

    def has_read(self, end: int, until_ticks_ms: float, *, needed_from: int) -> None:
        """Note what was read by now: up to ``end``, of which it will be read again from ``needed_from`` on."""
        if not self.latest or self.latest[-1][0] < end:
            self.latest.append((end, until_ticks_ms))
        while self.latest and self.latest[0][0] <= needed_from:
            self.latest.popleft()


class WaitingRecords:
    """The records that wait, of all delay partitions of one worker. For one thread.

    Args:
        delays_ms: by delay topic how long a record is to wait there.
        size_bytes: of all that the worker may keep in memory.
    """

    def __init__(self, clock: Clock, delays_ms: Mapping[str, int], size_bytes: int) -> None:
        self._clock = clock
        self._delays_ms = delays_ms
        self._room_bytes = size_bytes // _PART
        self._partitions: dict[TopicPartition, _Partition] = {}

    @property
    def room_bytes(self) -> int:
        """Bytes that are set aside for records that wait; 0 without delay partitions."""
        return self._room_bytes if self._partitions else 0

    def begin(self, partition: TopicPartition) -> None:
        """Begin with a partition of a delay topic."""
        self._partitions[partition] = _Partition()

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forget partitions that were taken away."""
        for partition in partitions:
            self._partitions.pop(partition, None)

    def take(
        self, at: TopicPartition, records: Sequence[ConsumerRecord]
    ) -> tuple[list[tuple[ConsumerRecord, float]], int | None]:
        """Take what was read next of a partition.

        Returns:
            The records that are due or kept, with the moment in ticks at which each is due; and the offset from which
            on the partition is to be read again, None: all are.
        """
        # Who moved it may have another clock: nothing waits for longer than its topic's delay since it was first read.
        now, partition = self._clock.ticks_ms(), self._partitions[at]
        to_ticks, newest = now - self._clock.now_ms(), now + self._delays_ms[at.topic]
        share = self._room_bytes // len(self._partitions)
        partition.let_go(now)
        partition.first = None
        taken: list[tuple[ConsumerRecord, float]] = []
        back: int | None = None
        for record in records:
            due = min(due_ms_of(record) + to_ticks, partition.until(record.offset, newest))
            if due > now:
                size, value_size = _size_of(record), max(0, record.serialized_value_size)
                if partition.kept_bytes + size > share:
                    partition.first, back = _First(due, size), record.offset
                    break
                partition.kept.append((due, size, value_size))
                partition.kept_bytes += size
                partition.value_bytes += value_size
            taken.append((record, due))
        end = records[-1].offset + 1
        partition.has_read(end, newest, needed_from=end if back is None else back)
        return taken, back

    def value_bytes(self) -> int:
        """Bytes of the values that are kept and aren't due."""
        now = self._clock.ticks_ms()
        for partition in self._partitions.values():
            partition.let_go(now)
        return sum(partition.value_bytes for partition in self._partitions.values())

    def held(self) -> set[TopicPartition]:
        """The partitions of which nothing is to be read now: there is no room for the next record, nor is it due."""
        return {at for at, _ in self._held()}

    def next_due_ticks_ms(self) -> float | None:
        """When the first record that isn't kept is due; None: all are kept."""
        return min((first.due_ticks_ms for _, first in self._held()), default=None)

    def _held(self) -> Iterator[tuple[TopicPartition, _First]]:
        now, share = self._clock.ticks_ms(), self._room_bytes // max(1, len(self._partitions))
        for at, partition in self._partitions.items():
            partition.let_go(now)
            first = partition.first
            if first is None or first.due_ticks_ms <= now:
                continue
            # Half of it is read at once: so that what is read again isn't much more than what is kept.
            if partition.kept_bytes > share // 2 or partition.kept_bytes + first.size_bytes > share:
                yield at, first


def _size_of(record: ConsumerRecord) -> int:
    sizes = record.serialized_key_size, record.serialized_value_size, record.serialized_header_size
    return _RECORD_BYTES + sum(max(0, size) for size in sizes)
