"""A topic's live files in few bytes: what a process keeps of topics in which nothing happens. Pure.

A :class:`~sparklog.log.data.segments.Segment` takes some 700 bytes of memory, here a file takes 170.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass

from sparklog.log.data.segments import Segment, SegmentIndex

__all__ = ["PackedFiles", "TimedRange", "pack"]

_NONE = -(2**63)
_LEAST, _GREATEST = _NONE + 1, 2**63 - 1
_SEPARATOR = "\0"
_WIDTH = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedRange:
    """A run of offsets of a partition, and the times of its records."""

    first_offset: int
    """Inclusive."""
    last_offset: int
    """Inclusive."""
    min_ms: int
    """The smallest timestamp, ms since the epoch."""
    max_ms: int

    def time_at(self, offset: int) -> int:
        """The timestamp at an offset: exact where all records have the same, else by its place between the first and
        the last offset; never outside of the two timestamps."""
        span = self.last_offset - self.first_offset
        if span <= 0 or offset <= self.first_offset:
            return self.min_ms
        share = min(1.0, (offset - self.first_offset) / span)
        return self.min_ms + round((self.max_ms - self.min_ms) * share)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedFiles:
    """Live files, ordered by partition and first offset."""

    paths: bytes
    """Their paths, one after the other."""
    numbers: array[int]
    """File by file, a number for each field of ``Segment`` but the path, in its order; then the greatest offset of all
    files of its partition up to this one."""

    def __len__(self) -> int:
        return len(self.numbers) // _WIDTH

    def unpack(self, packed: SegmentIndex | None = None) -> SegmentIndex:
        """The files as they were packed, of what was known of refused ones.

        Args:
            packed: the index that stands for them meanwhile; None: nothing is refused.
        """
        paths = self.paths.decode().split(_SEPARATOR) if len(self) else []
        files = (_segment(path, self._row(number)) for number, path in enumerate(paths))
        packed = SegmentIndex() if packed is None else packed
        return SegmentIndex.of(files, rewrites=packed.rewrites, table=packed.table)

    def range_at(self, partition: int, offset: int) -> TimedRange | None:
        """The offsets and times of the file that holds the first record of ``partition`` at ``offset`` or beyond; None
        where there is none, or where its times are unknown."""
        files = range(len(self))
        begin, end = (bisect_left(files, wanted, key=self._partition) for wanted in (partition, partition + 1))
        at = bisect_left(files, offset, begin, end, key=self._greatest_offset)
        if at == end:
            return None
        _, base, _, _, _, low, high, min_ms, max_ms, *_ = self._row(at)
        if _NONE in (min_ms, max_ms):
            return None
        return TimedRange(first_offset=base + low, last_offset=base + high, min_ms=min_ms, max_ms=max_ms)

    def _row(self, number: int) -> list[int]:
        return self.numbers[number * _WIDTH : (number + 1) * _WIDTH].tolist()

    def _partition(self, number: int) -> int:
        return self.numbers[number * _WIDTH]

    def _greatest_offset(self, number: int) -> int:
        return self.numbers[(number + 1) * _WIDTH - 1]


def pack(index: SegmentIndex) -> PackedFiles:
    """The live files of an index. A number beyond 64 bits, as another engine may claim it, becomes the nearest one."""
    segments = sorted(index.by_path.values(), key=_place)
    numbers = array("q")
    partition, greatest = _NONE, _NONE
    for one in segments:
        fields = (
            one.partition,
            one.base_offset,
            one.size_bytes,
            one.modification_ms,
            one.record_count,
            one.min_offset_delta,
            one.max_offset_delta,
            one.min_timestamp_ms,
            one.max_timestamp_ms,
            one.delta_version,
        )
        row = [_NONE if number is None else number for number in fields]
        if None in fields or min(row) < _LEAST or max(row) > _GREATEST:
            row = [_packed(number) for number in fields]
        if row[0] != partition:
            partition, greatest = row[0], _NONE
        if one.base_offset is not None and _NONE not in (row[5], row[6]):
            greatest = max(greatest, _packed(row[1] + row[6]))
        numbers.extend([*row, greatest])
    return PackedFiles(paths=_SEPARATOR.join(one.path for one in segments).encode(), numbers=numbers)


def _segment(path: str, row: list[int]) -> Segment:
    partition, base_offset, size, modified, count, low, high, min_ms, max_ms, version, _ = row
    return Segment(
        path=path,
        partition=_unpacked(partition),
        base_offset=_unpacked(base_offset),
        size_bytes=size,
        modification_ms=modified,
        record_count=_unpacked(count),
        min_offset_delta=_unpacked(low),
        max_offset_delta=_unpacked(high),
        min_timestamp_ms=_unpacked(min_ms),
        max_timestamp_ms=_unpacked(max_ms),
        delta_version=version,
    )


def _place(segment: Segment) -> tuple[int, int, int]:
    partition = _NONE if segment.partition is None else _packed(segment.partition)
    return partition, segment.first_offset, segment.last_offset


def _packed(number: int | None) -> int:
    return _NONE if number is None else min(max(number, _LEAST), _GREATEST)


def _unpacked(number: int) -> int | None:
    return None if number == _NONE else number
