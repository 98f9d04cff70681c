"""A topic's live files in few bytes: what a process keeps of topics in which nothing happens. Pure.

A :class:`~sparklog.log.data.segments.Segment` takes some 700 bytes of memory, here a file takes 160.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparklog.log.data.segments import Segment, SegmentIndex

__all__ = ["PackedFiles", "TimedRange", "pack"]

_NONE = -(2**63)
_LEAST, _GREATEST = _NONE + 1, 2**63 - 1
_SEPARATOR = "\0"


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
    numbers: npt.NDArray[np.int64]
    """A row for each field of ``Segment`` but the path, in its order, a column for each file."""

    def __len__(self) -> int:
        return int(self.numbers.shape[1])

    def unpack(self) -> SegmentIndex:
        """The files as they were packed."""
        if not len(self):
            return SegmentIndex.of(())
        paths = self.paths.decode().split(_SEPARATOR)
        rows = self.numbers.T.tolist()
        return SegmentIndex.of(_segment(path, row) for path, row in zip(paths, rows, strict=True))

    def range_at(self, partition: int, offset: int) -> TimedRange | None:
        """The offsets and times of the file that holds the first record of ``partition`` at ``offset`` or beyond; None
        where there is none, or where it doesn't tell its times."""
        begin, end = np.searchsorted(self.numbers[0], (partition, partition + 1))
        base, low, high = (self.numbers[row, begin:end] for row in (1, 5, 6))
        known = (base != _NONE) & (low != _NONE) & (high != _NONE)
        beyond = np.flatnonzero(known & (base + high >= offset))
        if not len(beyond):
            return None
        at = begin + int(beyond[0])
        row = [int(number) for number in self.numbers[:, at]]
        if _NONE in (row[7], row[8]):
            return None
        return TimedRange(first_offset=row[1] + row[5], last_offset=row[1] + row[6], min_ms=row[7], max_ms=row[8])


def pack(index: SegmentIndex) -> PackedFiles:
    """The live files of an index. A number beyond 64 bits, as another engine may claim it, becomes the nearest one."""
    segments = sorted(index.by_path.values(), key=_place)
    rows = [
        (
            _packed(one.partition),
            _packed(one.base_offset),
            _packed(one.size_bytes),
            _packed(one.modification_ms),
            _packed(one.record_count),
            _packed(one.min_offset_delta),
            _packed(one.max_offset_delta),
            _packed(one.min_timestamp_ms),
            _packed(one.max_timestamp_ms),
            _packed(one.delta_version),
        )
        for one in segments
    ]
    numbers = np.array(rows, np.int64).reshape(len(rows), 10).T.copy()
    return PackedFiles(paths=_SEPARATOR.join(one.path for one in segments).encode(), numbers=numbers)


def _segment(path: str, row: list[int]) -> Segment:
    partition, base_offset, size, modified, count, low, high, min_ms, max_ms, version = row
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
