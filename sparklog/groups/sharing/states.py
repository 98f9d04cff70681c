"""The state of a share group in one partition: which records are available, locked by which member, or done. Pure.

Kafka's words (KIP-932): a record *in flight* lies between the start offset, below which everything is done with, and
the end offset, from which on nothing was acquired yet.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType

__all__ = ["Lock", "RecordState", "SharePartition", "StateRange", "empty_partition", "overwritten"]


class RecordState(enum.Enum):
    """The state of a record in flight. Source: KIP-932, In-flight records."""

    AVAILABLE = "available"
    """May be acquired, for the first time or again."""
    ACQUIRED = "acquired"
    """Locked for a member."""
    ACKNOWLEDGED = "acknowledged"
    """Processed, or not there: a gap that compaction left."""
    ARCHIVED = "archived"
    """Rejected, or tried as often as is allowed, or deleted by retention."""

    @property
    def is_final(self) -> bool:
        """Is the record never delivered again?"""
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRange:
    """Records next to each other, in one state."""

    first: int
    """Offset (inclusive)."""
    last: int
    """Offset (inclusive)."""
    state: RecordState
    delivery_count: int
    """How often these records were acquired; 0 in a final state, where nobody asks."""
    lock: int = 0
    """The number of the entry that locked them; 0 unless acquired."""

    @property
    def offset_count(self) -> int:
        """Offsets in it; compaction may have left fewer records."""
        return self.last - self.first + 1

    def follows(self, before: StateRange) -> bool:
        """May both be written as one range?"""
        return (self.first, self.state, self.delivery_count, self.lock) == (
            before.last + 1,
            before.state,
            before.delivery_count,
            before.lock,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """The member for which an entry locked records, and for how long."""

    member: str
    duration_ms: float
    """Positive; each observer counts it from its own first sight of the entry (rule G3, observed time)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartition:
    """The whole state of a group in one partition, as an entry of its log holds it."""

    topic_id: str
    start_offset: int
    """Everything below is done with."""
    ranges: tuple[StateRange, ...] = ()
    """In flight: contiguous from ``start_offset`` on, the first one not final, no two that could be one."""
    locks: Mapping[int, Lock] = field(default_factory=lambda: MappingProxyType({}))
    """The locks of the ranges that are acquired, by the number of the entry that locked them."""

    @property
    def end_offset(self) -> int:
        """Nothing was acquired from here on."""
        return self.ranges[-1].last + 1 if self.ranges else self.start_offset

    @property
    def open_count(self) -> int:
        """Offsets in flight that aren't done with."""
        return sum(each.offset_count for each in self.ranges if not each.state.is_final)

    def within(self, first: int, last: int) -> Iterator[StateRange]:
        """The parts of ranges between two offsets (both inclusive); none where ``last`` is below ``first``."""
        for at in range(bisect_left(self.ranges, first, key=lambda each: each.last), len(self.ranges)):
            each = self.ranges[at]
            low, high = max(first, each.first), min(last, each.last)
            if low > high:
                return
            yield each if (low, high) == (each.first, each.last) else replace(each, first=low, last=high)

    def holds(self, first: int, last: int, lock: int) -> bool:
        """Are all offsets from ``first`` to ``last`` (inclusive) locked by exactly that lock?"""
        parts = [*self.within(first, last)]
        return (
            lock > 0
            and sum(part.offset_count for part in parts) == last - first + 1
            and all(part.lock == lock for part in parts)
        )


def empty_partition(topic_id: str, start_offset: int) -> SharePartition:
    """A partition of which nothing is in flight."""
    return SharePartition(topic_id=topic_id, start_offset=start_offset)


def overwritten(
    partition: SharePartition, changes: Iterable[StateRange], *, locks: Mapping[int, Lock] | None = None
) -> SharePartition:
    """The partition with other ranges in some places, or after its end; the start moves over what is done with.

    Args:
        changes: within what is in flight, or beyond its end without leaving a gap; they don't overlap.
        locks: more of them, by the entry that makes them. Those that no range has any more are left out.
    Raises:
        ValueError: a change lies below the start, overlaps another or leaves a gap.
    """
    new = sorted(changes, key=lambda each: each.first)
    pieces: list[StateRange] = []
    at = partition.start_offset
    for change in new:
        if change.first < at or change.last < change.first:
            raise ValueError(f"offsets {change.first} to {change.last}: expected them from {at} on, in order")
        pieces += partition.within(at, change.first - 1)
        pieces.append(change)
        at = change.last + 1
    pieces += partition.within(at, partition.end_offset - 1)
    start, kept = partition.start_offset, [*_joined(pieces)]
    if kept and kept[0].first != start:
        raise ValueError(f"offsets from {kept[0].first} on: expected none left out after {start}")
    for before, after in pairwise(kept):
        if after.first != before.last + 1:
            raise ValueError(f"offsets from {after.first} on: expected none left out after {before.last + 1}")
    while kept and kept[0].state.is_final:
        start = kept.pop(0).last + 1
    used = {each.lock for each in kept}
    known = {**partition.locks, **(locks or {})}
    return replace(
        partition,
        start_offset=start,
        ranges=tuple(kept),
        locks=MappingProxyType({number: lock for number, lock in known.items() if number in used}),
    )


def _joined(pieces: Iterable[StateRange]) -> Iterator[StateRange]:
    """Ranges, those put together that may be one."""
    last: StateRange | None = None
    for piece in pieces:
        if last is not None and piece.follows(last):
            last = replace(last, last=piece.last)
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last
