"""Finding records by time: the log's statistics show which files may contain them, and only few files are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sparklog.delta.log import DeltaLog
from sparklog.errors import ObjectNotFoundError
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.record_reading import find_timestamp, is_read_whole
from sparklog.log.data.segments import Segment, SegmentIndex, overlapping
from sparklog.log.head import TopicHead
from sparklog.model import OffsetAndTimestamp

__all__ = ["first_records_since"]

_MOST_BYTES = 64 * 1024 * 1024
"""The size of files that are read together."""


def first_records_since(
    log: DeltaLog, index: SegmentIndex, head: TopicHead, timestamps_ms: Mapping[int, int]
) -> dict[int, OffsetAndTimestamp | None]:
    """The first record of each partition that isn't older than the partition's timestamp; None where there is none.

    The files of all partitions are read together, one per partition where the statistics suffice.

    Args:
        timestamps_ms: by partition, which is one of the topic's; milliseconds since the epoch.
    Raises:
        ObjectNotFoundError: a file is gone (vacuumed): load the topic again (rule L10, orphans).
        CorruptRecordError, StoreError.
    """
    candidates = {
        partition: overlapping(
            index.from_timestamp(partition, at_ms, log_start_offset=head.log_start_offsets[partition])
        )
        for partition, at_ms in timestamps_ms.items()
    }
    first_by_partition: dict[int, OffsetAndTimestamp | None] = dict.fromkeys(timestamps_ms)
    wanted = _next_of(candidates, timestamps_ms)
    while wanted:
        undecided = []
        for together in _bounded(wanted):
            data = _read(log, together)
            for partition, segments in together.items():
                first = _first(log, segments, data, head, partition, timestamps_ms[partition])
                if first is None:
                    undecided.append(partition)
                else:
                    first_by_partition[partition] = first
        wanted = _next_of(candidates, undecided)
    return first_by_partition


Groups = Mapping[int, list[Segment]]
"""By partition: segments whose ranges of offsets overlap."""


def _next_of(candidates: Mapping[int, Iterator[list[Segment]]], partitions: Iterable[int]) -> Groups:
    upcoming = {partition: next(candidates[partition], None) for partition in partitions}
    return {partition: segments for partition, segments in upcoming.items() if segments is not None}


def _bounded(wanted: Groups) -> Iterator[Groups]:
    """The same in parts that are small enough to be read together."""
    together: dict[int, list[Segment]] = {}
    left_bytes = _MOST_BYTES
    for partition, segments in wanted.items():
        size_bytes = sum(segment.size_bytes for segment in segments if is_read_whole(segment))
        if together and size_bytes > left_bytes:
            yield together
            together, left_bytes = {}, _MOST_BYTES
        together[partition] = segments
        left_bytes -= size_bytes
    yield together


def _read(log: DeltaLog, groups: Groups) -> Mapping[str, bytes]:
    """The bytes of the groups' files by their paths; without those that are so large that they are read by ranges."""
    paths = [
        object_path(log.table, segment.path)
        for segments in groups.values()
        for segment in segments
        if is_read_whole(segment)
    ]
    data = {}
    for path, content in zip(paths, log.store.read_many(paths), strict=True):
        if content is None:
            raise ObjectNotFoundError(f"data file {path}: no such object")
        data[path] = content
    return data


def _first(
    log: DeltaLog, segments: list[Segment], data: Mapping[str, bytes], head: TopicHead, partition: int, at_ms: int
) -> OffsetAndTimestamp | None:
    start, end = head.log_start_offsets[partition], head.log_end_offsets[partition]
    records = []
    for segment in segments:
        known = data.get(object_path(log.table, segment.path))
        record = find_timestamp(log, segment, at_ms, start_offset=start, data=known)
        if record is not None and record[0] < end:
            records.append(record)
    if not records:
        return None
    offset, timestamp = min(records)
    return OffsetAndTimestamp(offset=offset, timestamp=timestamp)
