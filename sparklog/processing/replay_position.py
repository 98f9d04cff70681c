"""Which dead letters of a partition were replayed: an offset below which all were, and ranges beyond it.

Pure: :mod:`sparklog.processing.replay_store` keeps positions.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sparklog.errors import InvalidArgumentError
from sparklog.model import OffsetAndMetadata

__all__ = ["CHUNK", "IN_TOPIC", "Ranges", "ReplayPosition", "chunks_of"]

Ranges = tuple[tuple[int, int], ...]
"""Offsets as (first, last), both inclusive; ascending, and no two of them touch."""

CHUNK = 4_096
"""Ranges are kept by chunks of so many offsets: what a replay adds rewrites a few of them."""
IN_TOPIC = "replayed: the topic replayed-letters has the ranges"
"""The metadata of a group's offset beyond which letters were replayed: versions that kept ranges there refuse it."""
_EARLIER = re.compile(r"replayed:(\d+-\d+(,\d+-\d+)*)?")
"""The metadata that earlier versions wrote."""


@dataclass(frozen=True, slots=True)
class ReplayPosition:
    """The letters of one partition that were replayed."""

    offset: int = 0
    """Everything below was."""
    ranges: Ranges = ()
    """Offsets beyond that were. Between two letters of a range that follow one another there is no other letter."""

    @classmethod
    def of(cls, committed: OffsetAndMetadata | None) -> ReplayPosition:
        """The position that a group's committed offset alone says.

        Raises:
            InvalidArgumentError: another program committed it.
        """
        if committed is None:
            return cls()
        if committed.metadata in ("", IN_TOPIC):
            return cls(committed.offset)
        if _EARLIER.fullmatch(committed.metadata) is None:
            raise InvalidArgumentError(
                f"the group's committed metadata is {committed.metadata!r}, expected that of a replay: "
                "give another --group"
            )
        ranges = committed.metadata.removeprefix("replayed:")
        pairs = [each.split("-") for each in ranges.split(",") if each]
        return cls(committed.offset).with_ranges((int(first), int(last)) for first, last in pairs)

    @property
    def committable(self) -> OffsetAndMetadata:
        """The offset as the group commits it, with metadata if there are ranges beyond it."""
        return OffsetAndMetadata(self.offset, IN_TOPIC if self.ranges else "")

    def holds(self, offset: int) -> bool:
        """Was the letter at this offset replayed?"""
        if offset < self.offset:
            return True
        at = bisect_right(self.ranges, offset, key=_first) - 1
        return at >= 0 and offset <= self.ranges[at][1]

    def after(self, replayed: Iterable[int], passed: Iterable[int], *, since: int | None = None) -> ReplayPosition:
        """The position after more was replayed.

        Args:
            replayed: offsets of letters that are replayed now, in any order.
            passed: of all letters from ``since`` to the last among them, ascending.
            since: by default the position's own offset.
        """
        now = set(replayed)
        runs: list[tuple[int, int]] = []
        next_offset = self.offset if since is None else since
        for offset in passed:
            if offset in now or self.holds(offset):
                runs.append((next_offset, offset))  # there is no letter between the one before and this one
            next_offset = offset + 1
        return self.with_ranges(runs)

    def from_log_start(self, start: int) -> ReplayPosition:
        """The position once all letters below a log start are gone."""
        return ReplayPosition(max(self.offset, start), self.ranges).with_ranges(())

    def joined(self, other: ReplayPosition) -> ReplayPosition:
        """The letters that one of two positions holds."""
        return ReplayPosition(max(self.offset, other.offset), self.ranges).with_ranges(other.ranges)

    def with_ranges(self, more: Iterable[tuple[int, int]]) -> ReplayPosition:
        """The position with further offsets, as (first, last)."""
        added = sorted(more)
        ranges = self.ranges
        if added:
            low = bisect_left(ranges, added[0][0] - 1, key=_last)
            high = bisect_right(ranges, max(map(_last, added)) + 1, key=_first)
            ranges = (*ranges[:low], *_joined(sorted([*ranges[low:high], *added])), *ranges[high:])
        offset, gone = self.offset, 0
        while gone < len(ranges) and ranges[gone][0] <= offset:
            offset = max(offset, ranges[gone][1] + 1)
            gone += 1
        return ReplayPosition(offset, ranges[gone:])


def chunks_of(position: ReplayPosition, low: int, high: int) -> dict[int, Ranges]:
    """The ranges of a position, cut at the chunks' borders: by the first offset of each chunk that has any.

    Args:
        low, high: offsets, both inclusive; chunks without any of these are left out.
    """
    begin, end = low // CHUNK * CHUNK, high // CHUNK * CHUNK + CHUNK - 1
    ranges = position.ranges
    found: dict[int, list[tuple[int, int]]] = {}
    for first, last in ranges[bisect_left(ranges, begin, key=_last) : bisect_right(ranges, end, key=_first)]:
        for chunk in range(max(first, begin) // CHUNK * CHUNK, min(last, end) + 1, CHUNK):
            found.setdefault(chunk, []).append((max(first, chunk), min(last, chunk + CHUNK - 1)))
    return {chunk: tuple(pairs) for chunk, pairs in found.items()}


def _joined(pairs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ascending pairs, with those that overlap or touch as one."""
    first = last = -2
    for begin, end in pairs:
        if first >= 0 and begin <= last + 1:
            last = max(last, end)
            continue
        if first >= 0:
            yield first, last
        first, last = begin, end
    if first >= 0:
        yield first, last


def _first(pair: tuple[int, int]) -> int:
    return pair[0]


def _last(pair: tuple[int, int]) -> int:
    return pair[1]
