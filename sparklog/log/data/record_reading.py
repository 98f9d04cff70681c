"""Reading the records of segments: always in offset order, whatever order the rows of a file are in (rule F1, foreign
files)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.delta.log import DeltaLog
from sparklog.delta.parquet_reading import open_parquet
from sparklog.errors import CorruptRecordError, InvalidArgumentError, ObjectNotFoundError
from sparklog.log.data.encode import decode_file
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.range_file import WHOLE_FILE_BYTES, RangeFile
from sparklog.log.data.schema import DATA_SCHEMA, TIMESTAMP
from sparklog.log.data.segments import Segment
from sparklog.log.data.value_columns import DATA, SCHEMA_ID, conform_values

__all__ = [
    "complete_stats",
    "conform",
    "empty_records",
    "find_by_sequence",
    "find_timestamp",
    "is_read_whole",
    "kind_of",
    "milliseconds",
    "read_segment",
    "read_together",
]

_BUFFER_BYTES = 512 * 1024
"""The buffer of each column of a file that is read by ranges."""
_ALL = ("timestamp", "key", "value", "headers", "producer_id", "producer_epoch", "sequence")


def read_segment(
    log: DeltaLog,
    segment: Segment,
    *,
    start_offset: int = 0,
    columns: tuple[str, ...] = _ALL,
    data: bytes | None = None,
) -> pa.Table:
    """The records of a segment from ``start_offset`` on: a column ``offset`` (int64), then ``columns``, by offset.

    Args:
        data: the file's bytes, where they were read already.
    Raises:
        CorruptRecordError: the file is truncated or no Parquet, has another number of records than the log states, or
            doesn't number them; names the file.
        ObjectNotFoundError: the file is gone (vacuumed): load the topic again and plan anew (rule L10, orphans).
    """
    path = object_path(log.table, segment.path)
    wanted = ["offset_delta", *columns]
    if data is None:
        found = _read_columns(log, segment, wanted)
    else:
        found = decode_file(path, data, wanted, rows=segment.record_count)
    deltas = conform(path, found, "offset_delta")
    if deltas.null_count:
        raise CorruptRecordError(f"corrupt data file {path}: {deltas.null_count} of its records have no offset_delta")
    offsets = pc.add(deltas, pa.scalar(segment.base_offset or 0, pa.int64()))
    table = pa.table({"offset": offsets, **{name: conform(path, found, name) for name in columns}})
    if not _is_sorted(offsets):
        table = table.sort_by("offset")
    if start_offset > segment.first_offset:
        table = table.filter(pc.greater_equal(table["offset"], start_offset))
    return table


def read_together(log: DeltaLog, segments: Sequence[Segment], *, start_offset: int = 0) -> pa.Table:
    """The records of segments whose ranges overlap, by offset; as :func:`read_segment` of a single one."""
    tables = [read_segment(log, segment, start_offset=start_offset) for segment in segments]
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).sort_by("offset")


def empty_records() -> pa.Table:
    """The result of :func:`read_segment` for a segment without records."""
    fields = [pa.field("offset", pa.int64()), *(DATA_SCHEMA.field(name) for name in _ALL)]
    return pa.schema(fields).empty_table()


def conform(path: str, table: pa.Table, name: str, values: pa.DataType | None = None) -> pa.ChunkedArray:
    """A column of a data file as the topic's schema has it: another engine may have left it out (then it is null, as in
    every Delta reader) or have written it in another width. Raises ``CorruptRecordError``.

    Args:
        values: the type of a typed topic's ``data``; the fields that an older schema didn't have are null.
    """
    kind = kind_of(name, values)
    if name not in table.column_names:
        return pa.chunked_array([pa.nulls(table.num_rows, kind)])
    try:
        if name == DATA and table[name].type != kind:
            return pa.chunked_array([conform_values(chunk, kind) for chunk in table[name].chunks], kind)
        return table[name] if table[name].type == kind else table[name].cast(kind)
    except (pa.ArrowException, InvalidArgumentError) as error:
        raise CorruptRecordError(
            f"corrupt data file {path}: column {name} is {table[name].type}, expected {kind}"
        ) from error


def kind_of(name: str, values: pa.DataType | None) -> pa.DataType:
    """The type of a column of a topic's data files; of ``data`` it is ``values``."""
    if name == DATA and values is not None:
        return values
    return pa.int32() if name == SCHEMA_ID else DATA_SCHEMA.field(name).type


def complete_stats(log: DeltaLog, segment: Segment) -> Segment:
    """A sequenced segment with the statistics that its writer left out, read from the file itself (rule F1, foreign
    files).

    A file that can't be read is returned as it is: whoever reads the segment gets the error that names it, and the
    other partitions stay readable.
    """
    if segment.has_stats or segment.base_offset is None:
        return segment
    try:
        path = object_path(log.table, segment.path)
        table = _read_columns(log, segment, ["offset_delta", "timestamp"])
        deltas = pc.min_max(conform(path, table, "offset_delta")).as_py()
        times = pc.min_max(milliseconds(conform(path, table, "timestamp"))).as_py()
    except (CorruptRecordError, InvalidArgumentError, ObjectNotFoundError):
        return segment
    return replace(
        segment,
        record_count=table.num_rows,
        min_offset_delta=deltas["min"],
        max_offset_delta=deltas["max"],
        min_timestamp_ms=times["min"],
        max_timestamp_ms=times["max"],
    )


def find_timestamp(
    log: DeltaLog, segment: Segment, timestamp_ms: int, *, start_offset: int, data: bytes | None = None
) -> tuple[int, int] | None:
    """Offset and timestamp (ms) of the first record of a segment that isn't older than ``timestamp_ms``; None without
    one. Arguments and errors as of :func:`read_segment`."""
    table = read_segment(log, segment, start_offset=start_offset, columns=("timestamp",), data=data)
    times = milliseconds(table["timestamp"])
    young = table.set_column(1, "timestamp", times).filter(pc.greater_equal(times, timestamp_ms))
    return None if young.num_rows == 0 else (young["offset"][0].as_py(), young["timestamp"][0].as_py())


def find_by_sequence(
    log: DeltaLog, segment: Segment, *, producer_id: int, producer_epoch: int, sequence: int
) -> int | None:
    """The offset of the record that a producer numbered ``sequence``; None if the segment doesn't hold it (rule L2,
    unknown)."""
    table = read_segment(log, segment, columns=("producer_id", "producer_epoch", "sequence"))
    same = pc.and_(
        pc.and_(pc.equal(table["producer_id"], producer_id), pc.equal(table["producer_epoch"], producer_epoch)),
        pc.equal(table["sequence"], sequence),
    )
    offsets = table["offset"].filter(same)
    return None if len(offsets) == 0 else offsets[0].as_py()


def milliseconds(timestamps: pa.ChunkedArray) -> pa.ChunkedArray:
    """Timestamps of the topic's schema as int64 milliseconds since the epoch, rounded down."""
    if timestamps.type == TIMESTAMP and not timestamps.null_count:  # floor_temporal asks for each one's time zone
        down = [pa.array(np.asarray(chunk.view(pa.int64())) // 1_000) for chunk in timestamps.chunks]
        return pa.chunked_array(down, pa.int64())
    return pc.floor_temporal(timestamps, unit="millisecond").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())


def is_read_whole(segment: Segment) -> bool:
    """Is a segment's file small enough to be read by one request? A larger one is read by ranges."""
    return segment.size_bytes <= WHOLE_FILE_BYTES


def _read_columns(log: DeltaLog, segment: Segment, columns: list[str]) -> pa.Table:
    """Columns of a data file as they are in it, those that it has; of a large file nothing else is read."""
    path = object_path(log.table, segment.path)
    if is_read_whole(segment):
        return decode_file(path, log.store.read(path), columns, rows=segment.record_count)
    source = RangeFile(log.store, path, segment.size_bytes)
    try:
        parquet = open_parquet(source, rows=segment.record_count, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        return parquet.read([name for name in columns if name in parquet.schema_arrow.names], use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptRecordError(f"corrupt data file {path} ({segment.size_bytes} bytes): {error}") from error


def _is_sorted(offsets: pa.ChunkedArray) -> bool:
    if len(offsets) < 2:
        return True
    array = offsets.combine_chunks()
    return bool(pc.all(pc.less(array[:-1], array[1:])).as_py())
