"""Ranges of a partition's files, in offset order: units of files that overlap, and runs of them that jobs rewrite."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sparklog.log.data.segments import Segment, SegmentIndex, overlapping
from sparklog.log.data.value_columns import Leaf

__all__ = ["DEFAULT_FILE_BYTES", "FileRange", "FileUnit", "file_units", "unreadable_files"]

DEFAULT_FILE_BYTES = 128 * 1024 * 1024
"""Source: Delta's ``OPTIMIZE`` aims at a gigabyte; here a file is put as one object out of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRange:
    """A run of files of one partition, none between them: what one job rewrites at a time."""

    partition: int
    segments: tuple[Segment, ...]
    """In offset order, at least one."""
    file_bytes: int = DEFAULT_FILE_BYTES
    """How large a file may become that is written of it."""
    leaves: tuple[Leaf, ...] = ()
    """The leaves of a typed topic's values that such a file has statistics of."""

    @property
    def base_offset(self) -> int:
        """The offset that the rewritten records are numbered from; not greater than any of their offsets."""
        return min(segment.base_offset or 0 for segment in self.segments)

    @property
    def first_offset(self) -> int:
        """Inclusive."""
        return min(segment.first_offset for segment in self.segments)

    @property
    def last_offset(self) -> int:
        """Inclusive."""
        return max(segment.last_offset for segment in self.segments)

    @property
    def size_bytes(self) -> int:
        """The size of all its files."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def record_count(self) -> int:
        """The number of records of all its files; a file that can't be read counts as none."""
        return sum(segment.record_count or 0 for segment in self.segments)

    def part(self, units: Iterable[FileUnit]) -> FileRange:
        """Units that stand next to each other, as a range whose files are written as this one's."""
        return replace(self, segments=tuple(segment for unit in units for segment in unit.segments))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileUnit:
    """Files of a partition whose ranges of offsets overlap, and which are only dealt with together; mostly one file."""

    segments: tuple[Segment, ...]
    first_offset: int
    """Inclusive."""
    last_offset: int
    """Inclusive."""
    size_bytes: int
    record_count: int
    """0 for a file that can't be read, see :attr:`is_known`."""
    largest_timestamp_ms: int
    """The largest timestamp of its records; where a file has none, when it was written. Source: Kafka
    ``LogSegment.largestTimestamp``."""
    smallest_timestamp_ms: int
    """The smallest timestamp of its records; where a file has none, when it was written."""
    is_known: bool
    """Are the offsets of all its files known? A file of unknown offsets must not be removed or rewritten."""

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> FileUnit:
        """The unit of these files, with their bounds and sums."""
        files = tuple(segments)
        if len(files) == 1:  # nearly all
            [only] = files
            return cls(
                segments=files,
                first_offset=only.first_offset,
                last_offset=only.last_offset,
                size_bytes=only.size_bytes,
                record_count=only.record_count or 0,
                largest_timestamp_ms=_timestamp_ms(only, only.max_timestamp_ms),
                smallest_timestamp_ms=_timestamp_ms(only, only.min_timestamp_ms),
                is_known=_tells_its_offsets(only),
            )
        return cls(
            segments=files,
            first_offset=min(segment.first_offset for segment in files),
            last_offset=max(segment.last_offset for segment in files),
            size_bytes=sum(segment.size_bytes for segment in files),
            record_count=sum(segment.record_count or 0 for segment in files),
            largest_timestamp_ms=max(_timestamp_ms(segment, segment.max_timestamp_ms) for segment in files),
            smallest_timestamp_ms=min(_timestamp_ms(segment, segment.min_timestamp_ms) for segment in files),
            is_known=all(_tells_its_offsets(segment) for segment in files),
        )

    @property
    def has_stats(self) -> bool:
        """Are the timestamps of its files also known?"""
        return all(segment.has_stats for segment in self.segments)


def file_units(segments: Iterable[Segment]) -> list[FileUnit]:
    """The units of a partition's segments, which come in offset order."""
    return [FileUnit.of(together) for together in overlapping(segments)]


def unreadable_files(index: SegmentIndex) -> tuple[str, ...]:
    """The paths of the live files whose offsets are unknown, because they can't be read: no
    job goes beyond one."""
    files = (segment for partition in index.partitions() for segment in index.partition(partition))
    return tuple(segment.path for segment in files if not _tells_its_offsets(segment))


def _tells_its_offsets(segment: Segment) -> bool:
    return None not in (segment.record_count, segment.min_offset_delta, segment.max_offset_delta)


def _timestamp_ms(segment: Segment, timestamp_ms: int | None) -> int:
    return segment.modification_ms if timestamp_ms is None or timestamp_ms < 0 else timestamp_ms
