"""The segments of a checkpoint's live files, which are read as columns. Pure."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.log.data.segments import Segment, segment_of_row
from sparklog.log.data.stats_columns import stats_columns

__all__ = ["segments_of_table"]

_BOUNDS = pa.struct([("offset_delta", pa.int64()), ("timestamp", pa.string())])
_STATS = pa.schema([("numRecords", pa.int64()), ("minValues", _BOUNDS), ("maxValues", _BOUNDS)])


def segments_of_table(files: pa.Table | None) -> list[Segment]:
    """The segments of a checkpoint's files (:attr:`sparklog.delta.snapshot.Snapshot.files`), as :func:`segment_of_add`
    has them.

    Raises:
        CorruptLogError: the partition of a file makes no sense, or what should be its statistics; names the file.
    """
    segments: list[Segment] = []
    for batch in files.to_batches() if files is not None else ():
        try:
            segments += _segments_of_columns(batch)
        except pa.ArrowException:  # a value as only Python understands it: one by one it takes ten times as long
            segments += [segment_of_row(row) for row in batch.to_pylist()]
    return segments


def _segments_of_columns(batch: pa.RecordBatch) -> list[Segment]:
    stats = stats_columns(batch["stats"], _STATS)
    low, high = stats["minValues"], stats["maxValues"]
    columns = (
        batch["path"],
        _number_of(batch["partition_values"], "partition"),
        _number_of(batch["partition_values"], "base_offset"),
        batch["size_bytes"],
        batch["modification_time"],
        stats["numRecords"],
        pc.struct_field(low, "offset_delta"),
        pc.struct_field(high, "offset_delta"),
        _milliseconds_of(pc.struct_field(low, "timestamp")),
        _milliseconds_of(pc.struct_field(high, "timestamp")),
    )
    return [
        Segment(
            path=path,
            partition=partition,
            base_offset=base_offset,
            size_bytes=size,
            modification_ms=modified,
            record_count=count,
            min_offset_delta=min_delta,
            max_offset_delta=max_delta,
            min_timestamp_ms=min_time,
            max_timestamp_ms=max_time,
        )
        for path, partition, base_offset, size, modified, count, min_delta, max_delta, min_time, max_time in zip(
            *(column.to_pylist() for column in columns), strict=True
        )
    ]


def _number_of(partition_values: pa.Array, name: str) -> pa.Array:
    texts = pc.map_lookup(partition_values, pa.scalar(name), "first")
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts).cast(pa.int64())


def _milliseconds_of(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    times = pc.floor_temporal(texts.cast(pa.timestamp("us", "UTC")), unit="millisecond")
    return times.cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
