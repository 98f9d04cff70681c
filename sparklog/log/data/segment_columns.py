"""The segments of a checkpoint's live files, which are read as columns. Pure."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from sparklog.log.data.segments import Segment, segment_of_row

__all__ = ["segments_of_table"]

_BOUNDS = pa.struct([("offset_delta", pa.int64()), ("timestamp", pa.string())])
_STATS = pa.schema([("numRecords", pa.int64()), ("minValues", _BOUNDS), ("maxValues", _BOUNDS)])


def segments_of_table(files: pa.Table | None) -> list[Segment]:
    """The segments of a checkpoint's files (:attr:`sparklog.delta.snapshot.Snapshot.files`), as :func:`segment_of_add`
    has them.

    Raises:
        CorruptLogError: the partition or the statistics of a file make no sense; names the file.
    """
    found: list[Segment] = []
    for batch in files.to_batches() if files is not None else ():
        try:
            found += _segments_of_columns(batch)
        except pa.ArrowException:  # a value as only Python understands it: one by one it takes ten times as long
            found += [segment_of_row(row) for row in batch.to_pylist()]
    return found


def _segments_of_columns(batch: pa.RecordBatch) -> list[Segment]:
    stats = _stats_of(batch["stats"])
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


def _stats_of(texts: pa.Array) -> pa.Table:
    """The statistics of the columns that segments know, a row for each text. Raises ``ArrowInvalid``."""
    texts = pc.if_else(pc.equal(pc.binary_length(pc.fill_null(texts, "")), 0), "{}", texts)
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), "\n")[0].as_buffer()
    table = pj.read_json(
        pa.BufferReader(lines),
        pj.ReadOptions(use_threads=False, block_size=lines.size + 1),
        pj.ParseOptions(explicit_schema=_STATS, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != len(texts):
        raise pa.ArrowInvalid(f"{table.num_rows} rows of {len(texts)} statistics")
    return table


def _number_of(partition_values: pa.Array, name: str) -> pa.Array:
    texts = pc.map_lookup(partition_values, pa.scalar(name), "first")
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts).cast(pa.int64())


def _milliseconds_of(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    times = pc.floor_temporal(texts.cast(pa.timestamp("us", "UTC")), unit="millisecond")
    return times.cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
