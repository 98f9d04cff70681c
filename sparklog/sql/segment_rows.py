"""The records of segments as columns of a query: several files at once, and of each the columns that are needed."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparklog.delta.log import DeltaLog
from sparklog.delta.parquet_reading import open_parquet
from sparklog.errors import CorruptRecordError, ObjectNotFoundError
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.record_reading import conform, kind_of
from sparklog.log.data.segments import Segment
from sparklog.log.data.value_columns import DATA
from sparklog.log.state import TopicState
from sparklog.sql.core_reading import read_columns
from sparklog.sql.files import is_local
from sparklog.sql.row_groups import groups_to_read

__all__ = ["TEXTS", "RowSource", "SegmentRows", "live_segments", "read_batches"]

TEXTS = pa.dictionary(pa.int32(), pa.string())
"""Texts as numbers into a dictionary."""
_BATCH_ROWS = 122_880
"""Rows of a batch at most. Source: DuckDB's row group, the unit that its threads share work by."""
_SMALL_FILE_BYTES = 8 * 1024 * 1024
"""Files up to this size are read in one step, whatever their row groups …"""
_SMALL_FILTERED_BYTES = 1024 * 1024
"""… or, where a filter may rule out row groups, only those up to this one."""
_JOINED_ROWS = 262_144
"""Rows that are read in one step, of as many small files. A step costs some hundred microseconds, and the more of them
there are, the more threads wait for each other."""
_JOINED_BYTES = 16 * 1024 * 1024
"""The size of such files or row groups, which bounds what a step holds."""
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
    missing: Callable[[str], ObjectNotFoundError]
    """Makes the error that a file isn't there, of its path."""

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
        schema: a field of a value that is a string may be :data:`TEXTS` here.
        filter: an expression, of columns that aren't; row groups of larger files that it rules out are not read. Rows
            are not filtered.
    Raises:
        ObjectNotFoundError: a file was deleted; names the file, the topic and the version.
        CorruptRecordError: a file is truncated or no Parquet, has another number of records than the log states, or
            doesn't number them; names the file.
        OSError: what Arrow says of a file that can't be read.
    """
    readers = (os.cpu_count() or 1) if source.is_local else _REMOTE_READERS
    pool = ThreadPoolExecutor(readers, thread_name_prefix="sparklog-sql")
    waiting: deque[Future[pa.Table]] = deque()
    try:
        for parts in _together(_parts(source, segments, schema, filter), is_joined=source.is_local):
            waiting.append(pool.submit(_read_together, source, parts, schema))
            if len(waiting) > 2 * readers:
                yield from waiting.popleft().result().to_batches(_BATCH_ROWS)
        while waiting:
            yield from waiting.popleft().result().to_batches(_BATCH_ROWS)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _Part:
    """A file, or row groups of one that follow each other."""

    rows: SegmentRows
    groups: Sequence[int] | None
    """None: all."""
    count: int
    """The number of their rows, as far as it is known."""
    size_bytes: int
    """The size of the file, or of the pages before they are compressed."""
    footer: Any = None
    """The file's, where it was read."""


def _parts(source: RowSource, segments: Iterable[SegmentRows], schema: pa.Schema, filter: Any) -> Iterator[_Part]:
    """The parts that are to be read: small files whole, of others the row groups that the filter leaves."""
    columns = _leaf_columns(source, schema)
    small = _SMALL_FILE_BYTES if filter is None or not columns else _SMALL_FILTERED_BYTES
    for rows in segments:
        count = rows.segment.record_count
        if rows.segment.size_bytes <= small:
            yield _Part(rows, None, _BATCH_ROWS if count is None else count, rows.segment.size_bytes)
            continue
        with _open(source, rows) as file:
            footer = file.metadata
        left = groups_to_read(footer, schema, filter, columns)
        yield from (_Part(rows, *counts, footer) for counts in _in_a_row(footer, left))


def _in_a_row(footer: Any, groups: Iterable[int]) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Row groups that follow each other, as many together as make a batch; the number of their rows, and their size."""
    together: tuple[int, ...] = ()
    count = size = 0
    for group in groups:
        row_group = footer.row_group(group)
        more, more_bytes = row_group.num_rows, row_group.total_byte_size
        is_next = bool(together) and group == together[-1] + 1
        if together and not (is_next and count + more <= _BATCH_ROWS and size + more_bytes <= _JOINED_BYTES):
            yield together, count, size
            together, count, size = (), 0, 0
        together += (group,)
        count += more
        size += more_bytes
    if together:
        yield together, count, size


def _together(parts: Iterable[_Part], *, is_joined: bool) -> Iterator[list[_Part]]:
    """Parts in groups of one, or of at most so many rows and bytes as are read in one step."""
    group: list[_Part] = []
    count = size = 0
    for part in parts:
        fits = count + part.count <= _JOINED_ROWS and size + part.size_bytes <= _JOINED_BYTES
        if group and not (is_joined and fits):
            yield group
            group, count, size = [], 0, 0
        group.append(part)
        count += part.count
        size += part.size_bytes
    if group:
        yield group


def _read_together(source: RowSource, parts: Sequence[_Part], schema: pa.Schema) -> pa.Table:
    columns = _columns_of_file(source, schema)
    is_alike = "partition" not in schema.names and "offset" not in schema.names
    is_alike = is_alike and bool(columns) and not any(part.rows.is_cut for part in parts)
    if is_alike:
        made = _read_by_core(source, parts, schema)
        if made is not None:
            return made
    texts, parts = _texts_to_read(source, parts, schema)
    read_as = _plain(schema, {source.columns[path[len(DATA) + 1 :]] for path in texts})
    if is_alike:
        read = [_read_file(source, part, columns, texts) for part in parts]
        kinds = _kinds(source, read_as)
        if all(dict(zip(table.schema.names, table.schema.types, strict=True)) == kinds for table in read):
            whole = pa.concat_tables(read)
            rows = parts[0].rows
            values = _conformed(source, rows, read_as, whole, needs_offsets=False)
            return _finished(_as_columns(source, rows, read_as, values, whole.num_rows), schema)
    tables = [_read(source, part, read_as, columns, texts) for part in parts]
    return _finished(tables[0] if len(tables) == 1 else pa.concat_tables(tables), schema)


def _read_by_core(source: RowSource, parts: Sequence[_Part], schema: pa.Schema) -> pa.Table | None:
    """The rows of whole files of this machine, none of which is cut; None: Arrow has to read them."""
    if not source.is_local or any(part.groups is not None for part in parts):
        return None
    wanted = {}
    for path, name in _leaf_columns(source, schema).items():
        kind = schema.field(name).type
        wanted[name] = path, pa.string() if kind == TEXTS else kind
    if len(wanted) < sum(name not in ("topic", "timestamp_type") for name in schema.names):
        return None  # keys, for instance
    if any(field.type == pa.string() and field.name in wanted for field in schema):
        return None  # texts that a filter is about
    files = [(part.rows.path, part.rows.segment.record_count) for part in parts]
    by_core = read_columns(source.filesystem, files, wanted)
    if by_core is None:
        return None
    rows = sum(count or 0 for _, count in files)
    return _as_columns(source, parts[0].rows, schema, by_core, rows)


def _texts_to_read(source: RowSource, parts: Sequence[_Part], schema: pa.Schema) -> tuple[list[str], Sequence[_Part]]:
    """The paths of the texts that are to be read as dictionaries, since a file has them so: the first of those that are
    read together stands for all. And the parts, the first with its footer."""
    wanted = {f"{DATA}.{field}" for field, column in source.columns.items() if _is_texts(schema, column)}
    if not wanted:
        return [], parts
    part = parts[0]
    if part.footer is None:
        with _open(source, part.rows) as file:
            part = replace(part, footer=file.metadata)
    if part.footer.num_row_groups == 0:
        return [], parts
    group = part.footer.row_group(part.groups[0] if part.groups else 0)
    chunks = (group.column(number) for number in range(group.num_columns))
    texts = [chunk.path_in_schema for chunk in chunks if chunk.path_in_schema in wanted and chunk.has_dictionary_page]
    return texts, [part, *parts[1:]]


def _is_texts(schema: pa.Schema, column: str) -> bool:
    return column in schema.names and schema.field(column).type == TEXTS


def _plain(schema: pa.Schema, texts: Collection[str]) -> pa.Schema:
    """The columns, those that aren't of these with texts as they are."""
    return pa.schema(
        [field.with_type(pa.string()) if field.type == TEXTS and field.name not in texts else field for field in schema]
    )


def _kinds(source: RowSource, schema: pa.Schema) -> dict[str, pa.DataType]:
    """The types of a file's columns, where it has them as the topic does."""
    kinds = {name: kind_of(name, None) for name in ("timestamp", "key", "value", "headers") if name in schema.names}
    fields = _fields(source, schema)
    return kinds | ({DATA: pa.struct(fields)} if fields else {})


def _fields(source: RowSource, schema: pa.Schema) -> list[pa.Field]:
    """The fields of the values that are columns of ``schema``, with the types that these have there."""
    columns = ((field, source.columns[field.name]) for field in source.values)
    return [field.with_type(schema.field(column).type) for field, column in columns if column in schema.names]


def _finished(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table in one piece, with the types of ``schema``."""
    table = table.combine_chunks()
    for at, field in enumerate(schema):
        if table.schema.field(at).type != field.type:
            chunks = [_numbered(chunk) for chunk in table.column(at).chunks]
            table = table.set_column(at, field, pa.chunked_array(chunks, TEXTS))
    return table


def _numbered(texts: pa.Array) -> pa.DictionaryArray:
    """Texts that may all be different as a dictionary: each is its own entry, which costs no search for equal ones."""
    numbers = pa.array(np.arange(len(texts), dtype=np.int32))
    if texts.null_count:
        numbers = pc.if_else(texts.is_valid(), numbers, pa.scalar(None, pa.int32()))
    return pa.DictionaryArray.from_arrays(numbers, texts)


def _columns_of_file(source: RowSource, schema: pa.Schema) -> list[str]:
    """The names of a file's columns that these are made of."""
    own = {"offset": "offset_delta", **{name: name for name in ("timestamp", "key", "value", "headers")}}
    fields = {column: f"{DATA}.{field}" for field, column in source.columns.items()}
    return [(own | fields)[name] for name in schema.names if name in own or name in fields]


def _leaf_columns(source: RowSource, schema: pa.Schema) -> dict[str, str]:
    """The columns with bounds in a file's footer, by their paths there."""
    columns = {f"{DATA}.{field}": column for field, column in source.columns.items()} | {"timestamp": "timestamp"}
    return {path: column for path, column in columns.items() if column in schema.names}


def _open(source: RowSource, rows: SegmentRows, **options: Any) -> pq.ParquetFile:
    path, count = rows.path, rows.segment.record_count
    try:
        file = source.filesystem.open_input_file(path)
        return open_parquet(file, rows=count, pre_buffer=not source.is_local, **options)
    except FileNotFoundError as error:
        raise source.missing(path) from error
    except (pa.ArrowException, ValueError) as error:
        raise CorruptRecordError(f"corrupt data file {path}: {error}") from error


def _read(source: RowSource, part: _Part, schema: pa.Schema, physical: list[str], texts: Sequence[str]) -> pa.Table:
    """The rows of a part that are still there."""
    rows = part.rows
    needs_offsets = rows.is_cut or "offset" in schema.names
    wanted = [*physical, "offset_delta"] if needs_offsets and "offset_delta" not in physical else physical
    count = rows.segment.record_count
    if not wanted and part.groups is None and count is not None:
        return _as_columns(source, rows, schema, {}, count)
    file_columns = _read_file(source, part, wanted, texts)
    plain = _plain(schema, ())
    is_plain = not texts
    if texts and (
        DATA not in file_columns.schema.names or file_columns.schema.field(DATA).type != _kinds(source, schema)[DATA]
    ):
        file_columns, is_plain = _read_file(source, part, wanted, ()), True  # a file of another schema
    columns = _conformed(source, rows, plain if is_plain else schema, file_columns, needs_offsets=needs_offsets)
    if is_plain:
        encoded = (name for name in columns if _is_texts(schema, name))
        columns |= {name: columns[name].cast(TEXTS) for name in encoded}
    table = _as_columns(source, rows, schema, columns, file_columns.num_rows)
    if rows.is_cut:
        table = table.filter(pc.greater_equal(columns["offset"], rows.log_start_offset))
    return table


def _read_file(source: RowSource, part: _Part, columns: list[str], texts: Sequence[str]) -> pa.Table:
    """Columns of a part, as they are in the file; those of ``texts`` as dictionaries."""
    path = part.rows.path
    with _open(source, part.rows, read_dictionary=list(texts) or None, metadata=part.footer) as file:
        try:
            return _read_columns(file, columns, part.groups, has_texts=bool(texts))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptRecordError(f"corrupt data file {path}: {error}") from error


def _read_columns(
    file: pq.ParquetFile, columns: list[str], groups: Sequence[int] | None, *, has_texts: bool
) -> pa.Table:
    """Columns of some row groups; of all for None. ``has_texts``: some of them are read as dictionaries."""
    groups = range(file.num_row_groups) if groups is None else groups
    if not has_texts or len(groups) < 2:
        return file.read_row_groups([*groups], columns, use_threads=False)
    # Each has dictionaries of its own, and Arrow can't put those of texts in a struct together while it reads.
    return pa.concat_tables([file.read_row_group(group, columns, use_threads=False) for group in groups])


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
    fields = _fields(source, schema)
    if fields:
        values = conform(rows.path, found, DATA, pa.struct(fields))
        table = pa.Table.from_arrays([values], names=[DATA]).flatten()
        columns |= {source.columns[field.name]: table.column(at) for at, field in enumerate(fields)}
    return columns


def _as_columns(
    source: RowSource,
    rows: SegmentRows,
    schema: pa.Schema,
    columns: Mapping[str, pa.Array | pa.ChunkedArray],
    count: int,
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
