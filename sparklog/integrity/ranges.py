"""Ranges of offsets: first (inclusive) to end (exclusive). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

__all__ = ["Range", "RangeSet", "within", "without"]

Range = tuple[int, int]
"""First (inclusive) and end (exclusive) of a run of offsets."""

_FEW = 1_000


@dataclass(slots=True)
class RangeSet:
    """Offsets, as few ranges. Adding those that follow one another costs nothing; memory is bounded by the number of
    ranges that don't touch."""

    _ranges: list[Range] = field(default_factory=list)
    _merge_at: int = _FEW

    def add(self, first: int, end: int) -> None:
        """Put ``first`` … ``end - 1`` in; nothing where there is none."""
        if end <= first:
            return
        if self._ranges and self._ranges[-1][0] <= first <= self._ranges[-1][1]:
            self._ranges[-1] = (self._ranges[-1][0], max(self._ranges[-1][1], end))
            return
        self._ranges.append((first, end))
        if len(self._ranges) >= self._merge_at:
            self._ranges = _merged(self._ranges)
            self._merge_at = max(_FEW, 2 * len(self._ranges))

    def ranges(self) -> list[Range]:
        """Sorted; none touches another."""
        self._ranges = _merged(self._ranges)
        return list(self._ranges)


def without(wanted: Iterable[Range], gone: Sequence[Range]) -> list[Range]:
    """The ranges of ``wanted`` without those of ``gone``; both sorted, each without overlaps."""
    left: list[Range] = []
    at = 0
    for first, end in wanted:
        while at < len(gone) and gone[at][1] <= first:
            at += 1
        here = at
        while here < len(gone) and gone[here][0] < end:
            if gone[here][0] > first:
                left.append((first, gone[here][0]))
            first = max(first, gone[here][1])
            here += 1
        if first < end:
            left.append((first, end))
    return left


def within(ranges: Iterable[Range], first: int, end: int) -> list[Range]:
    """The parts of ``ranges`` that lie in ``first`` … ``end - 1``."""
    cut = ((max(low, first), min(high, end)) for low, high in ranges)
    return [(low, high) for low, high in cut if low < high]


def _merged(ranges: Iterable[Range]) -> list[Range]:
    merged: list[Range] = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((first, end))
    return merged
