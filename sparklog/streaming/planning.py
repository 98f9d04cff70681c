"""The plan of a query's reading: the files it reads, in how many tasks, and those it can leave out. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from sparklog.log.data.record_streaming import is_read_whole
from sparklog.log.data.segments import Segment, overlapping
from sparklog.log.typed_records import ValueReading

__all__ = ["Narrowing", "OffsetRange", "Task", "narrow_ranges", "split_into_tasks"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets of one partition that a query reads."""

    topic: str
    topic_id: str
    partition: int
    start: int
    """Inclusive."""
    end: int
    """Exclusive."""
    timestamp_type: int
    segments: tuple[Segment, ...] = ()
    """The segments with records in the range, by first offset."""
    values: ValueReading | None = None
    """How a typed topic's values are read."""

    @property
    def size(self) -> int:
        """The number of offsets in the range; there may be fewer records."""
        return max(0, self.end - self.start)


Task = OffsetRange
"""The offsets that one task of Spark reads."""


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The bounds that the filters of a query set to what is read; None: everything."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    lowest: dict[str, int] = field(default_factory=dict)
    """The lowest values of ``partition``, ``offset`` and ``timestamp`` (microseconds since the epoch), inclusive."""
    highest: dict[str, int] = field(default_factory=dict)
    """The same, inclusive."""

    def with_filter(self, column: str, operator: str, value: Any) -> Narrowing:
        """Narrowed by ``column operator value`` as well; what it can't make use of changes nothing.

        Args:
            operator: ``=``, ``in``, ``<``, ``<=``, ``>`` or ``>=``.
        """
        values = list(value) if operator == "in" else [value]
        if column == "topic" and operator in ("=", "in"):
            topics = frozenset(values)
            return replace(self, topics=topics if self.topics is None else self.topics & topics)
        numbers = [number for number in map(_number, values) if number is not None]
        if column not in ("partition", "offset", "timestamp") or len(numbers) < len(values) or not numbers:
            return self
        if column == "partition" and operator in ("=", "in"):
            partitions = frozenset(numbers)
            return replace(self, partitions=partitions if self.partitions is None else self.partitions & partitions)
        low, high = min(numbers), max(numbers)
        lowest, highest = dict(self.lowest), dict(self.highest)
        if operator in ("=", "in", ">=", ">"):
            bound = low + 1 if operator == ">" else low
            lowest[column] = max(bound, lowest.get(column, bound))
        if operator in ("=", "in", "<=", "<"):
            bound = high - 1 if operator == "<" else high
            highest[column] = min(bound, highest.get(column, bound))
        return replace(self, lowest=lowest, highest=highest)

    def excludes_partition(self, topic: str, partition: int) -> bool:
        """Is no record of this partition of ``topic`` wanted?"""
        return (
            (self.topics is not None and topic not in self.topics)
            or (self.partitions is not None and partition not in self.partitions)
            or not self.lowest.get("partition", 0) <= partition <= self.highest.get("partition", partition)
        )

    def excludes_segment(self, segment: Segment) -> bool:
        """Is none of its records within the times? Statistics are rounded down to milliseconds."""
        low, high = self.lowest.get("timestamp"), self.highest.get("timestamp")
        if low is not None and segment.max_timestamp_ms is not None and (segment.max_timestamp_ms + 1) * 1_000 <= low:
            return True
        return high is not None and segment.min_timestamp_ms is not None and segment.min_timestamp_ms * 1_000 > high


def narrow_ranges(ranges: Iterable[OffsetRange], filters: Narrowing) -> list[OffsetRange]:
    """The ranges, without what the filters exclude; empty ones are left out."""
    left = []
    for whole in ranges:
        if filters.excludes_partition(whole.topic, whole.partition):
            continue
        start = max(whole.start, filters.lowest.get("offset", whole.start))
        end = min(whole.end, filters.highest.get("offset", whole.end) + 1)
        segments = tuple(
            segment
            for segment in whole.segments
            if segment.first_offset < end and segment.last_offset >= start and not filters.excludes_segment(segment)
        )
        if start < end and segments:
            left.append(replace(whole, start=start, end=end, segments=segments))
    return left


def split_into_tasks(
    ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None = None
) -> list[Task]:
    """About ``min_partitions`` tasks, at least one for each range, and none of more than ``max_records`` offsets.

    For ``min_partitions`` a range has a share of the tasks in proportion to its offsets, and is cut between files;
    within a file only where it is so large that its parts can be read by themselves. For ``max_records`` it is cut
    wherever that is: a file that is cut is read by each of its tasks. Source: Spark ``KafkaOffsetRangeCalculator``.
    """
    total = sum(whole.size for whole in ranges)
    tasks = list(ranges)
    if min_partitions is not None and len(ranges) < min_partitions and total:
        tasks = [task for whole in ranges for task in _cut(whole, max(1, round(min_partitions * whole.size / total)))]
    if max_records is not None:
        tasks = [part for task in tasks for part in _of_at_most(task, max_records)]
    return tasks


def _of_at_most(whole: OffsetRange, max_records: int) -> list[Task]:
    parts = -(-whole.size // max_records)
    return _at(whole, (whole.start + whole.size * part // parts for part in range(1, parts)))


def _cut(whole: OffsetRange, parts: int) -> list[Task]:
    groups = list(overlapping(whole.segments))
    firsts = [group[0].first_offset for group in groups]
    cuts = set()
    for part in range(1, parts):
        wanted = whole.start + whole.size * part // parts
        at = max(0, bisect_left(firsts, wanted + 1) - 1)
        if is_read_whole(groups[at]):
            behind = firsts[at + 1] if at + 1 < len(firsts) else whole.end
            wanted = firsts[at] if wanted - firsts[at] <= behind - wanted else behind
        if whole.start < wanted < whole.end:
            cuts.add(wanted)
    return _at(whole, sorted(cuts))


def _at(whole: OffsetRange, cuts: Iterable[int]) -> list[Task]:
    """The parts of a range between ascending offsets within it; those without a file are left out."""
    bounds = [whole.start, *cuts, whole.end]
    tasks = []
    for start, end in pairwise(bounds):
        inside = tuple(s for s in whole.segments if s.first_offset < end and s.last_offset >= start)
        if inside:
            tasks.append(replace(whole, start=start, end=end, segments=inside))
    return tasks


def _number(value: Any) -> int | None:
    if isinstance(value, datetime):  # Spark's timestamps have a zone; one without is of another type
        return None if value.tzinfo is None else (value - _EPOCH) // timedelta(microseconds=1)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
