"""The live files of a topic as segments, and finding records among them from the log's own statistics. Pure.

Kafka's words: a segment is a run of offsets of one partition; here it is one data file.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from sparklog.delta.actions import AddFile
from sparklog.errors import CorruptLogError
from sparklog.iso_times import parse_time
from sparklog.log.data.refused import NO_REWRITES, ForeignRewrites, Stop

__all__ = [
    "Segment",
    "SegmentIndex",
    "can_format_timestamp",
    "format_timestamp",
    "is_sequenced",
    "overlapping",
    "parse_timestamp",
    "segment_of_add",
    "segment_of_row",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)
_DAY_MS = 86_400_000
_INT64 = 2**63
_OUR_LENGTH = len("1970-01-01T00:00:00.000Z")
_FEW = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A live data file of a topic."""

    path: str
    """Relative to the table's folder, percent-encoded as in the log."""
    partition: int | None
    """None where a foreign writer didn't say."""
    base_offset: int | None
    """None: written, but not yet in the log; no reader shows it."""
    size_bytes: int
    modification_ms: int
    record_count: int | None
    """Records, offset deltas and timestamps are None where the writer gave no statistics."""
    min_offset_delta: int | None
    max_offset_delta: int | None
    min_timestamp_ms: int | None
    max_timestamp_ms: int | None
    delta_version: int = -1
    """The commit that added it; -1 where only a checkpoint tells of it."""
    is_refused: bool = False
    """Another engine put it under offsets of its own: no reader shows it (rule F6, moved records)."""

    @property
    def has_stats(self) -> bool:
        """Does the log tell how many records the file has, which offsets, and how late they are?"""
        return None not in (self.record_count, self.min_offset_delta, self.max_offset_delta, self.max_timestamp_ms)

    @property
    def first_offset(self) -> int:
        """Offset of the first record (inclusive)."""
        return (self.base_offset or 0) + (self.min_offset_delta or 0)

    @property
    def last_offset(self) -> int:
        """Offset of the last record (inclusive)."""
        return (self.base_offset or 0) + (self.max_offset_delta or 0)

    def partition_values(self) -> dict[str, str | None]:
        """The partition values as Delta's log writes them."""
        return {
            "partition": None if self.partition is None else str(self.partition),
            "base_offset": None if self.base_offset is None else str(self.base_offset),
        }


def format_timestamp(timestamp_ms: int) -> str:
    """A timestamp as Delta statistics write it: ISO 8601, UTC, milliseconds."""
    seconds, left_ms = divmod(timestamp_ms, 1_000)
    return f"{_second(seconds)}.{left_ms:03}Z"


@lru_cache(maxsize=64)
def _second(since_epoch: int) -> str:
    return (_NAIVE_EPOCH + timedelta(seconds=since_epoch)).isoformat()


def can_format_timestamp(timestamp_ms: int) -> bool:
    """Does it lie in the years 1 to 9999? Another engine may have written one that doesn't."""
    return -62_135_596_800_000 <= timestamp_ms <= 253_402_300_799_999


def parse_timestamp(text: str) -> int:
    """Milliseconds since the epoch (rounded down) of a timestamp in Delta statistics, by whichever engine wrote it."""
    if len(text) == _OUR_LENGTH and text[10:20:3] == "T::." and text[20:23].isdigit() and text[23] == "Z":
        try:  # as we write it
            since = datetime.fromisoformat(text[:23]) - _NAIVE_EPOCH
            return since.days * _DAY_MS + since.seconds * 1_000 + since.microseconds // 1_000
        except ValueError:
            pass
    moment = parse_time(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def segment_of_add(add: AddFile, delta_version: int, *, table: str = "") -> Segment:
    """The segment that an ``add`` action tells of.

    Statistics that make no sense count for none, as those that a foreign writer left out (rule F1, foreign files).

    Args:
        table: for the error.
    Raises:
        CorruptLogError: the partition or the base offset makes no sense; names the table, the version and the file.
    """
    try:
        return _segment(add, delta_version)
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        where = f"version {delta_version} of {table}" if table else f"version {delta_version}"
        raise CorruptLogError(f"{where} adds {add.path} with what makes no sense: {error}") from error


def _segment(add: AddFile, delta_version: int) -> Segment:
    stats, values = add.stats or {}, add.partition_values
    low, high, count = stats.get("minValues"), stats.get("maxValues"), stats.get("numRecords")
    low, high = low if type(low) is dict else _bounds(low), high if type(high) is dict else _bounds(high)
    least, most = low.get("timestamp"), high.get("timestamp")
    first, last = low.get("offset_delta"), high.get("offset_delta")
    min_timestamp_ms = _time(least)
    return Segment(
        path=add.path,
        partition=_value(values, "partition"),
        base_offset=_value(values, "base_offset"),
        size_bytes=add.size_bytes,
        modification_ms=add.modification_ms,
        # the types are asked for here: this is done for each small commit
        record_count=count if type(count) is int and 0 <= count < _INT64 else _int(count, least=0),
        min_offset_delta=first if type(first) is int and -_INT64 <= first < _INT64 else _int(first),
        max_offset_delta=last if type(last) is int and -_INT64 <= last < _INT64 else _int(last),
        min_timestamp_ms=min_timestamp_ms,
        max_timestamp_ms=min_timestamp_ms if most == least else _time(most),  # of one record they are the same
        delta_version=delta_version,
    )


def segment_of_row(row: Mapping[str, Any]) -> Segment:
    """The segment of a checkpoint's live file (:attr:`sparklog.delta.snapshot.Snapshot.files`), as
    :func:`segment_of_add` has it.

    Raises:
        CorruptLogError: the partition makes no sense, or what should be statistics is no object; names the file.
    """
    try:
        stats = json.loads(row["stats"]) if row["stats"] else None
        if stats is not None and not isinstance(stats, dict):
            raise ValueError(f"statistics {row['stats']:.100}")
        add = AddFile(
            path=row["path"],
            partition_values=dict(row["partition_values"] or ()),
            size_bytes=row["size_bytes"],
            modification_ms=row["modification_time"],
            stats=stats,
        )
        return _segment(add, -1)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptLogError(f"a checkpoint tells of {row['path']} what makes no sense: {error}") from error


@dataclass(slots=True)
class SegmentIndex:
    """The live segments of a topic, by path and in offset order. Changed by one owner; a change costs O(log files)."""

    by_path: dict[str, Segment] = field(default_factory=dict)
    _ordered: dict[int, list[Segment]] = field(default_factory=dict)
    rewrites: ForeignRewrites = NO_REWRITES
    """The files that are refused, and the partitions that stop (rule F6, moved records)."""
    table: str = ""
    """For errors."""

    @classmethod
    def of(
        cls, segments: Iterable[Segment], *, rewrites: ForeignRewrites = NO_REWRITES, table: str = ""
    ) -> SegmentIndex:
        """An index of the live files ``segments``; those without offsets, and those that are refused, are known by
        their path alone."""
        index = cls(rewrites=rewrites, table=table)
        refused = rewrites.refused
        if refused:
            segments = (replace(one, is_refused=True) if one.path in refused else one for one in segments)
        index.by_path = {segment.path: segment for segment in segments}
        for segment in index.by_path.values():
            if is_sequenced(segment):
                index._ordered.setdefault(segment.partition or 0, []).append(segment)
        for ordered in index._ordered.values():
            ordered.sort(key=_order)
        return index

    def add(self, segment: Segment) -> None:
        """Add a segment; one of the same path is replaced (that is how sequencing publishes a file)."""
        if segment.path in self.by_path:
            self.remove(segment.path)
        refused = self.rewrites.refused
        if refused and segment.path in refused:
            segment = replace(segment, is_refused=True)
        self.by_path[segment.path] = segment
        if segment.base_offset is not None and segment.partition is not None and not segment.is_refused:
            ordered = self._ordered.setdefault(segment.partition, [])
            # Appended, as nearly all are; where that isn't so, the whole order tells.
            if not ordered or ordered[-1].first_offset < segment.first_offset or _order(ordered[-1]) < _order(segment):
                ordered.append(segment)
            else:
                insort(ordered, segment, key=_order)

    def remove(self, path: str) -> None:
        """Forget a segment; one that isn't there is no error."""
        segment = self.by_path.pop(path, None)
        if segment is not None and is_sequenced(segment):
            ordered = self._ordered[segment.partition or 0]
            del ordered[bisect_left(ordered, _order(segment), key=_order)]

    def remove_all(self, paths: Iterable[str]) -> None:
        """Forget many segments at a cost in proportion to all, not to their product."""
        gone = {path for path in paths if path in self.by_path}
        if len(gone) <= _FEW:
            for path in gone:
                self.remove(path)
            return
        touched = {self.by_path.pop(path).partition for path in gone}
        for partition in self._ordered.keys() & touched:
            self._ordered[partition] = [segment for segment in self._ordered[partition] if segment.path not in gone]

    def __len__(self) -> int:
        return len(self.by_path)

    def unsequenced(self) -> list[Segment]:
        """The files that no offset was given to yet, in no order."""
        return [segment for segment in self.by_path.values() if segment.base_offset is None]

    def refused(self) -> list[Segment]:
        """The live files that are refused, in no order."""
        by_path = self.by_path
        return [by_path[path] for path in self.rewrites.refused if path in by_path]

    def stopped(self) -> dict[int, Stop]:
        """The partitions that are neither read nor maintained, with the reasons (rule F6, moved records)."""
        return self.rewrites.stopped(self.by_path) if self.rewrites.stops else {}

    def without(self, paths: Collection[str]) -> SegmentIndex:
        """The index as if some of the files were removed; to be read, while this one doesn't change."""
        if not paths:
            return self
        by_path = {path: one for path, one in self.by_path.items() if path not in paths}
        ordered = {number: [one for one in some if one.path not in paths] for number, some in self._ordered.items()}
        return SegmentIndex(by_path=by_path, _ordered=ordered, rewrites=self.rewrites, table=self.table)

    def partitions(self, *, with_stopped: bool = False) -> list[int]:
        """The partitions that have segments; those that stop are left out, as nobody may maintain them."""
        stopped = {} if with_stopped else self.stopped()
        return sorted(number for number, ordered in self._ordered.items() if ordered and number not in stopped)

    def partition(self, partition: int) -> list[Segment]:
        """The segments of a partition in offset order; a copy."""
        return list(self._ordered.get(partition, ()))

    def from_offset(self, partition: int, offset: int) -> Iterator[Segment]:
        """The segments of a partition that hold a record at ``offset`` or beyond, by their first offset.

        Raises:
            CorruptLogError: another engine moved records of the partition, which a reader would pass over.
        """
        if self.rewrites.stops:
            self._check_not_stopped(partition)
        ordered = self._ordered.get(partition, [])
        if ordered and ordered[-1].base_offset == offset and _is_last_from(ordered, offset):
            return iter(ordered[-1:])  # that of a reader who has read all before it
        at = bisect_right(ordered, (offset, -1, ""), key=_order)
        start = max(0, at - 1)
        # Only files that share a base offset can overlap (see overlapping), and they stand together.
        while 0 < start < at and ordered[start - 1].base_offset == ordered[start].base_offset:
            start -= 1
        return (segment for segment in ordered[start:] if segment.last_offset >= offset)

    def from_timestamp(self, partition: int, timestamp_ms: int, *, log_start_offset: int = 0) -> Iterator[Segment]:
        """The segments that may hold a record not older than ``timestamp_ms``, in offset order.

        With CreateTime, timestamps may go backwards: a segment's maximum is a bound, not an order. Raises as
        :meth:`from_offset`.
        """
        if self.rewrites.stops:
            self._check_not_stopped(partition)
        return (
            segment
            for segment in self._ordered.get(partition, ())
            if segment.last_offset >= log_start_offset
            and (segment.max_timestamp_ms is None or segment.max_timestamp_ms >= timestamp_ms)
        )

    def _check_not_stopped(self, partition: int) -> None:
        stop = self.stopped().get(partition)
        if stop is not None:
            raise stop.error(self.table)

    def end_offset(self, partition: int) -> int:
        """One more than the greatest offset among the live files; 0 where there is none. Only ever a lower bound of the
        log end offset (rule L6, start and end)."""
        return max((segment.last_offset + 1 for segment in self._ordered.get(partition, ())), default=0)


def overlapping(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    """Segments by their first offset, those together whose ranges of offsets overlap; most stand alone.

    Files that share a base offset start out in disjoint ranges (rule F1, foreign files), but another engine's OPTIMIZE
    may pack the first and the third of them into one file.
    """
    together: list[Segment] = []
    last_offset = -1
    for segment in segments:
        if together and segment.first_offset > last_offset:
            yield together
            together = []
        together.append(segment)
        last_offset = max(last_offset, segment.last_offset)
    if together:
        yield together


def is_sequenced(segment: Segment) -> bool:
    """Has the file a partition and offsets, and isn't refused? Else no reader shows it."""
    return segment.base_offset is not None and segment.partition is not None and not segment.is_refused


def _is_last_from(ordered: list[Segment], offset: int) -> bool:
    """Does the last segment begin at an offset, which is its base offset, and lie all others before it? False: who
    knows."""
    last = ordered[-1]
    if last.min_offset_delta or (last.max_offset_delta or 0) < 0:
        return False
    if len(ordered) > 1 and ordered[-2].last_offset >= offset:
        return False
    return len(ordered) < 3 or ordered[-3].base_offset != ordered[-2].base_offset


def _order(segment: Segment) -> tuple[int, int, str]:
    return (segment.first_offset, segment.last_offset, segment.path)


def _value(partition_values: Mapping[str, Any], name: str) -> int | None:
    """A partition value; None where there is none. Raises ``ValueError``."""
    value = partition_values.get(name)
    if value is None or value == "":
        return None
    try:
        number = int(value)
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"{name} is {value!r:.100}, expected a whole number") from None
    if not -_INT64 <= number < _INT64:
        raise ValueError(f"{name} is {value!r:.100}, expected a number of 64 bits")
    return number


def _bounds(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _int(value: Any, *, least: int = -(2**63)) -> int | None:
    try:
        number = None if value is None or value == "" else int(value)
    except (ValueError, TypeError, OverflowError):  # no usable statistics (rule F1, foreign files)
        return None
    return number if number is not None and least <= number < _INT64 else None


def _time(value: Any) -> int | None:
    try:
        return parse_timestamp(value) if isinstance(value, str) else None
    except (ValueError, OverflowError):  # e.g. a year beyond 9999: no usable statistics (rule F1, foreign files)
        return None
