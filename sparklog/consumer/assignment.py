"""The partitions assigned to a consumer: positions, and chunks fetched ahead. No I/O; its owner's lock guards it."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from sparklog.config.consumer import ResetPolicy
from sparklog.consumer.plain_columns import PlainColumns
from sparklog.errors import SparklogError
from sparklog.log.data.few_rows import Rows, offset_at
from sparklog.model import TopicPartition

__all__ = ["HANDED_OVER", "Assignment", "Chunk", "Handover", "PartitionState"]


@dataclass(slots=True, kw_only=True)
class Chunk:
    """Records of a partition that were fetched together."""

    batch: Rows
    """Empty only where no records are left up to ``next_offset``."""
    next_offset: int
    """The position once all of it is taken."""
    size_bytes: int
    fetched_ticks_ms: float
    taken_count: int = 0
    columns: PlainColumns | None = field(init=False)
    """The columns of the batch; None: records are made of parts of it."""
    row_count: int = field(init=False)

    def __post_init__(self) -> None:
        self.columns = PlainColumns.of(self.batch)
        self.row_count = int(self.batch.num_rows)

    @property
    def left_count(self) -> int:
        """The number of its records that weren't taken yet."""
        return self.row_count - self.taken_count

    def offset_at(self, place: int) -> int:
        """The offset of one of its records."""
        return offset_at(self.batch, place) if self.columns is None else int(self.columns.offsets[place])

    def next_records(self, count: int) -> Rows:
        """Up to ``count`` of the records that weren't taken yet; they stay here."""
        return self.batch.slice(self.taken_count, count)


class Handover:
    """The records of one poll on their way to the caller.

    Positions move when they are handed over, all by one step, which is the last of the poll: what an interrupted poll
    had taken is in no position, and is not committed.
    """

    __slots__ = ("is_done", "states")

    def __init__(self, *, is_done: bool = False) -> None:
        self.is_done = is_done
        self.states: dict[TopicPartition, PartitionState] = {}
        """The partitions that it moves. None where it was done before: nothing waits for it."""

    def hand_out(self) -> None:
        """The caller has all that was taken so far; more may follow."""
        for state in self.states.values():
            if state.is_handed_by(self):
                state.hand_out(None)
        self.states.clear()

    @property
    def was_interrupted(self) -> bool:
        """Were records taken that the caller didn't get? Once the poll is over."""
        return bool(self.states) and not self.is_done


HANDED_OVER = Handover(is_done=True)


@dataclass(slots=True, kw_only=True)
class PartitionState:
    """A partition that is assigned."""

    partition: TopicPartition
    begin: ResetPolicy
    """The policy by which the position is found where there is none."""
    topic_id: str | None = None
    """The id of the topic that ``position`` belongs to; None before it was seen."""
    _positions: tuple[int | None, int | None, Handover] = field(default=(None, None, HANDED_OVER), init=False)
    """The position before a handover, that after it, and the handover."""
    fetch_offset: int | None = None
    """The offset that is fetched next."""
    paused: bool = False
    is_leaving: bool = False
    """Does the group take it away? Then nothing of it is fetched or returned any more."""
    epoch: int
    """Another one, never used before, when what is under way for this partition is no longer wanted."""
    turn: int = 0
    """The number of the read that gave its newest records; the fetcher's own."""
    chunks: deque[Chunk] = field(default_factory=deque)
    buffered_bytes: int = 0
    error: SparklogError | None = None
    """Why no more can be fetched; raised once the chunks are taken."""

    @property
    def position(self) -> int | None:
        """The offset that is returned next; None until it is found by ``begin``."""
        before, after, handover = self._positions
        return after if handover.is_done else before

    @position.setter
    def position(self, offset: int | None) -> None:
        self._positions = (offset, offset, HANDED_OVER)

    def move(self, offset: int, handover: Handover) -> None:
        """Go on at ``offset`` once the records before it are handed over."""
        if not handover.is_done:
            handover.states[self.partition] = self
        self._positions = (self.position, offset, handover)

    @property
    def is_handing_over(self) -> bool:
        """Were records taken that the caller doesn't have yet?"""
        return not self._positions[2].is_done

    def needs(self, last_offset: int) -> bool:
        """Are records up to ``last_offset`` to be fetched that weren't yet?"""
        is_fetched = not (self.paused or self.is_leaving or self.error is not None)
        return is_fetched and self.fetch_offset is not None and self.fetch_offset <= last_offset

    def is_handed_by(self, handover: Handover) -> bool:
        """Are the newest records that were taken those of this handover? Not once the partition was sought or taken
        away."""
        return self._positions[2] is handover

    def hand_out(self, offset: int | None) -> None:
        """The caller has the records before ``offset``, the rest of the handover is still on its way; None: the caller
        has all of it."""
        _, after, handover = self._positions
        self._positions = (after, after, HANDED_OVER) if offset is None else (offset, after, handover)

    @property
    def buffered_count(self) -> int:
        """The number of fetched records that the application has not got yet."""
        return sum(chunk.left_count for chunk in self.chunks)


class Assignment:
    """The partitions that are assigned, and the order in which their records are returned."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionState] = {}
        self._filled: dict[TopicPartition, PartitionState] = {}
        """Partitions with something to return, the next one first."""
        self.buffered_bytes = 0
        self.failed: dict[TopicPartition, PartitionState] = {}
        """Partitions with an error."""
        self._gap_ends: dict[TopicPartition, int] = {}
        """Where positions went that stepped over offsets without records."""
        self._epochs = count()

    def __contains__(self, partition: object) -> bool:
        return partition in self._states

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self._states.values())

    def __len__(self) -> int:
        return len(self._states)

    def get(self, partition: TopicPartition) -> PartitionState | None:
        """The state of a partition; None if it isn't assigned."""
        return self._states.get(partition)

    def partitions(self) -> set[TopicPartition]:
        """The partitions that are assigned; a copy."""
        return set(self._states)

    def topics(self) -> set[str]:
        """The topics of the partitions."""
        return {partition.topic for partition in self._states}

    def replace(self, wanted: Mapping[TopicPartition, ResetPolicy]) -> None:
        """Assign exactly these partitions, each with where to begin; those that stay keep their position."""
        for partition in self._states.keys() - wanted.keys():
            self._drop(self._states.pop(partition))
        for partition, begin in wanted.items():
            if partition not in self._states:
                self._states[partition] = PartitionState(partition=partition, begin=begin, epoch=next(self._epochs))

    def seek(self, state: PartitionState, offset: int) -> None:
        """Go on at ``offset``."""
        self._drop(state)
        state.position = state.fetch_offset = offset

    def begin_anew(self, state: PartitionState, begin: ResetPolicy) -> None:
        """Forget the position; ``begin`` tells where to go on."""
        self._drop(state)
        state.position = state.fetch_offset = None
        state.begin = begin

    def fail(self, state: PartitionState, error: SparklogError) -> None:
        """Fetch no more of a partition until the error was raised."""
        state.error = error
        self.failed[state.partition] = state

    def forgive(self, state: PartitionState) -> None:
        """Fetch a partition again: its error was raised."""
        state.error = None
        self.failed.pop(state.partition, None)

    def deliver(self, state: PartitionState, chunk: Chunk) -> None:
        """Append records to those that are buffered."""
        state.chunks.append(chunk)
        state.buffered_bytes += chunk.size_bytes
        self.buffered_bytes += chunk.size_bytes
        self._filled.setdefault(state.partition, state)

    def pause(self, state: PartitionState, *, keep_bytes: int) -> None:
        """Return and fetch no more of a partition. Its chunks are kept if those of all paused partitions then take no
        more than ``keep_bytes``: the rest of the room is for the others."""
        if state.paused:
            return
        state.paused = True
        if state.position is not None and self._paused_bytes() > keep_bytes:
            self.seek(state, state.position)

    def leave(self, state: PartitionState) -> None:
        """Return and fetch no more of a partition that the group takes away; what was fetched ahead makes room for
        those that stay. Its position stays as it is."""
        state.is_leaving = True
        if state.position is not None:
            self.seek(state, state.position)

    def is_too_much(self, state: PartitionState, size_bytes: int, *, keep_bytes: int) -> bool:
        """Was the partition paused while this was fetched, and would the paused ones keep more than ``keep_bytes``?"""
        return state.paused and self._paused_bytes() + size_bytes > keep_bytes

    def _paused_bytes(self) -> int:
        return sum(state.buffered_bytes for state in self._filled.values() if state.paused)

    def ready(self, only: Container[TopicPartition] | None = None) -> list[PartitionState]:
        """The partitions that have something to return, the next one first.

        A partition of which records are on their way to a caller waits for that: its records stay in order.

        Args:
            only: none but these; None: all.
        """
        return [
            state
            for state in self._filled.values()
            if not (state.paused or state.is_handing_over) and (only is None or state.partition in only)
        ]

    def give_back(self, handover: Handover) -> None:
        """Fetch again what was taken with ``handover`` and that no caller has."""
        for state in handover.states.values():
            if state.is_handed_by(handover) and state.is_handing_over and state.position is not None:
                self.seek(state, state.position)

    def put_first(self, state: PartitionState) -> None:
        """Return what a partition has before all others."""
        self._filled.pop(state.partition, None)
        self._filled = {state.partition: state, **self._filled}

    def put_last(self, state: PartitionState) -> None:
        """Return what a partition has after all others."""
        self._filled.pop(state.partition, None)
        self._filled[state.partition] = state

    def take(self, state: PartitionState, count: int, handover: Handover | None = HANDED_OVER) -> None:
        """Take the next ``count`` records of the first chunk.

        Args:
            handover: with it the position goes beyond them; None: it stays.
        """
        chunk = state.chunks[0]
        chunk.taken_count += count
        if chunk.left_count == 0:
            state.chunks.popleft()
            state.buffered_bytes -= chunk.size_bytes
            self.buffered_bytes -= chunk.size_bytes
        if handover is not None:
            is_empty = chunk.left_count == 0
            reached = chunk.next_offset if is_empty else chunk.offset_at(chunk.taken_count - 1) + 1
            state.move(reached, handover)
            if chunk.row_count == 0:
                self._gap_ends[state.partition] = reached
        if state.chunks:
            self.put_last(state)  # the others come first now
        else:
            del self._filled[state.partition]

    def take_gap_ends(self) -> dict[TopicPartition, int]:
        """Where positions are now that have stepped over offsets without records; each is told once."""
        found = {}
        for partition, end in [*self._gap_ends.items()]:
            state = self._states.get(partition)
            if state is not None and state.is_handing_over:
                continue
            del self._gap_ends[partition]
            if state is not None and state.position == end:
                found[partition] = end
        return found

    def begin_again(self) -> None:
        """Fetch all again from where the positions are: an interrupt may have ended a change in the middle."""
        for state in self._states.values():
            state.epoch = next(self._epochs)
            state.chunks.clear()
            state.buffered_bytes = 0
            state.position = state.fetch_offset = state.position
        self._filled = {}
        self.failed = {state.partition: state for state in self._states.values() if state.error is not None}
        self.buffered_bytes = 0

    def _drop(self, state: PartitionState) -> None:
        state.epoch = next(self._epochs)
        state.position = state.position  # what is on its way to a caller isn't wanted any more
        state.chunks.clear()
        self.buffered_bytes -= state.buffered_bytes
        state.buffered_bytes = 0
        self._filled.pop(state.partition, None)
        self.forgive(state)
