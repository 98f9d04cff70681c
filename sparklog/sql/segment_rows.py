"""The records of segments as columns of a query: several files at once, and of each the columns that are needed."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparklog.delta.log import DeltaLog
from sparklog.errors import CorruptRecordError
from sparklog.log.data.encode import open_parquet
from sparklog.log.data.record_reading import conform, object_path
from sparklog.log.data.segments import Segment
from sparklog.log.data.value_columns import DATA
from sparklog.log.state import TopicState
from sparklog.sql.files import is_local
from sparklog.sql.row_groups import groups_to_read

__all__ = ["RowSource", "SegmentRows", "live_segments", "read_batches"]

_BATCH_ROWS = 122_880
"""Rows of a batch at most. Source: DuckDB's row group, the unit that its threads share work by."""
_SMALL_FILE_BYTES = 8 * 1024 * 1024
"""Files up to this size are read in one step, whatever their row groups."""
_JOINED_ROWS = 65_536
"""Rows that are read in one step, of as many small files. A step costs some hundred microseconds, as a file does."""
_REMOTE_READERS = 16


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """A segment, and which of its records there are."""

    path: str
    """The file's, in the file system."""
    segment: Segment
    partition: int
    log_start_offset: int
    """Records below it were deleted."""

    @property
    def is_cut(self) -> bool:
        """May it have records below the log start offset?"""
        return self.segment.first_offset < self.log_start_offset


@dataclass(frozen=True, slots=True)
class RowSource:
    """Whatever is the same for all segments of a topic."""

    filesystem: Any
    """A ``pyarrow.fs.SubTreeFileSystem``, for the files' paths."""
    topic: str
    timestamp_type: int
    values: pa.StructType
    """The fields of all values; none where the topic has no schema."""
    columns: Mapping[str, str]
    """The column of each field."""

    @property
    def is_local(self) -> bool:
        """Is no network between the files and this process?"""
        return is_local(self.filesystem)


def live_segments(log: DeltaLog, state: TopicState) -> list[SegmentRows]:
    """The live files of a whole topic that may have records at or above the log start offset of their partition."""
    return [
        SegmentRows(object_path(log.table, segment.path), segment, partition, start)
        for partition, start in enumerate(state.head.log_start_offsets)
        for segment in state.require_whole().index.from_offset(partition, start)
    ]


def read_batches(
    source: RowSource, segments: Iterable[SegmentRows], schema: pa.Schema, filter: Any
) -> Generator[pa.RecordBatch, None, None]:
    """The records of segments, in batches of any order, with the columns of ``schema``.

    Several files are read at once: a thread for each core reads small files together, and sixteen threads read from a
    store behind a network. No more is held in memory than what these read, and twice as much that waits.

    Args:
        filter: an expression; row groups of larger files that it rules out are not read. Rows are not filtered.
    Raises:
        CorruptRecordError: a file is truncated or no Parquet, or doesn't number its records; names the file.
        OSError: what Arrow says of a file that can't be read.
    """
    readers = (os.cpu_count() or 1) if source.is_local else _REMOTE_READERS
    pool = ThreadPoolExecutor(readers, thread_name_prefix="sparklog-sql")
    waiting: deque[Future[pa.Table]] = deque()
    try:
        for parts in _together(_parts(source, segments, schema, filter), _JOINED_ROWS if source.is_local else 0):
            waiting.append(pool.submit(_read_together, source, parts, schema))
            if len(waiting) > 2 * readers:
                yield from waiting.popleft().result().to_batches(_BATCH_ROWS)
        while waiting:
            yield from waiting.popleft().result().to_batches(_BATCH_ROWS)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _Part:
    """A file, or a row group of one."""

    rows: SegmentRows
    group: int | None
    count: int


def _parts(source: RowSource, segments: Iterable[SegmentRows], schema: pa.Schema, filter: Any) -> Iterator[_Part]:
    """The parts that are to be read: small files whole, of others the row groups that the filter leaves."""
    for rows in segments:
        count = rows.segment.record_count
        if rows.segment.size_bytes <= _SMALL_FILE_BYTES:
            yield _Part(rows, None, _BATCH_ROWS if count is None else count)
            continue
        with _open(source, rows.path) as file:
            metadata = file.metadata
        for group in groups_to_read(metadata, schema, filter, _leaf_columns(source, schema)):
            yield _Part(rows, group, metadata.row_group(group).num_rows)


def _together(parts: Iterable[_Part], most_rows: int) -> Iterator[list[_Part]]:
    """Parts in groups of at most so many rows, or of one part."""
    group: list[_Part] = []
    count = 0
    for part in parts:
        if group and count + part.count > most_rows:
            yield group
            group, count = [], 0
        group.append(part)
        count += part.count
    if group:
        yield group


def _read_together(source: RowSource, parts: Sequence[_Part], schema: pa.Schema) -> pa.Table:
    columns = _columns_of_file(source, schema)
    tables = [_read(source, part.rows, schema, columns, part.group) for part in parts]
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()


def _columns_of_file(source: RowSource, schema: pa.Schema) -> list[str]:
    """The names of a file's columns that these are made of."""
    own = {"offset": "offset_delta", **{name: name for name in ("timestamp", "key", "value", "headers")}}
    fields = {column: f"{DATA}.{field}" for field, column in source.columns.items()}
    return [(own | fields)[name] for name in schema.names if name in own or name in fields]


def _leaf_columns(source: RowSource, schema: pa.Schema) -> dict[str, str]:
    """The columns with bounds in a file's footer, by their paths there."""
    found = {f"{DATA}.{field}": column for field, column in source.columns.items()} | {"timestamp": "timestamp"}
    return {path: column for path, column in found.items() if column in schema.names}


def _open(source: RowSource, path: str) -> pq.ParquetFile:
    try:
        return open_parquet(source.filesystem.open_input_file(path), pre_buffer=not source.is_local)
    except (pa.ArrowException, ValueError) as error:
        raise CorruptRecordError(f"corrupt data file {path}: {error}") from error


def _read(source: RowSource, rows: SegmentRows, schema: pa.Schema, physical: list[str], group: int | None) -> pa.Table:
    """The rows of one row group, or of a whole file, that are still there."""
    needs_offsets = rows.is_cut or "offset" in schema.names
    wanted = [*physical, "offset_delta"] if needs_offsets and "offset_delta" not in physical else physical
    count = rows.segment.record_count
    if not wanted and group is None and count is not None:
        return _as_columns(source, rows, schema, {}, count)
    with _open(source, rows.path) as file:
        try:
            found = _read_columns(file, wanted, group)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptRecordError(f"corrupt data file {rows.path}: {error}") from error
        count = file.metadata.num_rows if group is None else file.metadata.row_group(group).num_rows
    columns = _conformed(source, rows, schema, found, needs_offsets=needs_offsets)
    table = _as_columns(source, rows, schema, columns, count)
    if rows.is_cut:
        table = table.filter(pc.greater_equal(columns["offset"], rows.log_start_offset))
    return table


def _read_columns(file: pq.ParquetFile, columns: list[str], group: int | None) -> pa.Table:
    if group is None:
        return file.read(columns, use_threads=False)
    return file.read_row_group(group, columns, use_threads=False)


def _conformed(
    source: RowSource, rows: SegmentRows, schema: pa.Schema, found: pa.Table, *, needs_offsets: bool
) -> dict[str, pa.ChunkedArray]:
    """The columns that were read, as the topic has them."""
    own = ("timestamp", "key", "value", "headers")
    columns = {name: conform(rows.path, found, name) for name in own if name in schema.names}
    if needs_offsets:
        deltas = conform(rows.path, found, "offset_delta")
        if deltas.null_count:
            raise CorruptRecordError(
                f"corrupt data file {rows.path}: {deltas.null_count} of its records have no offset_delta"
            )
        columns["offset"] = pc.add(deltas, pa.scalar(rows.segment.base_offset or 0, pa.int64()))
    fields = [field for field in source.values if source.columns[field.name] in schema.names]
    if fields:
        values = conform(rows.path, found, DATA, pa.struct(fields))
        table = pa.Table.from_arrays([values], names=[DATA]).flatten()
        columns |= {source.columns[field.name]: table.column(at) for at, field in enumerate(fields)}
    return columns


def _as_columns(
    source: RowSource, rows: SegmentRows, schema: pa.Schema, columns: Mapping[str, pa.ChunkedArray], count: int
) -> pa.Table:
    """A table with the columns of ``schema``: those given, and constants."""
    constants = {
        "topic": source.topic,
        "partition": rows.partition,
        "timestamp_type": source.timestamp_type,
    }
    arrays = [
        columns[field.name] if field.name in columns else pa.repeat(pa.scalar(constants[field.name], field.type), count)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
