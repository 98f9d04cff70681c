"""Reading the records of segments piece by piece, so that a file of any size is read in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.delta.log import DeltaLog
from sparklog.delta.parquet_reading import open_parquet
from sparklog.errors import CorruptRecordError, ObjectNotFoundError
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.plain_reading import read_plain_columns
from sparklog.log.data.range_file import AHEAD_BYTES, WHOLE_FILE_BYTES, RangeFile
from sparklog.log.data.record_reading import conform
from sparklog.log.data.schema import DATA_SCHEMA, HEADERS, RECORD_SCHEMA
from sparklog.log.data.segments import Segment
from sparklog.log.data.value_columns import DATA

__all__ = [
    "RECORD_SCHEMA",
    "WHOLE_FILE_BYTES",
    "WHOLE_PIECES",
    "OpenSegments",
    "RowGroup",
    "is_read_whole",
    "open_segments",
    "record_schema",
]


def record_schema(values: pa.StructType | None) -> pa.Schema:
    """The columns that a consumer reads of a record; with ``data`` behind the others where values are typed."""
    return RECORD_SCHEMA if values is None else RECORD_SCHEMA.append(pa.field(DATA, values))


_COLUMNS = ("offset_delta", *RECORD_SCHEMA.names[1:])
_OWN = pa.schema([DATA_SCHEMA.field(name) for name in _COLUMNS])
_OWN_WITHOUT_HEADERS = pa.schema([DATA_SCHEMA.field(name) for name in _COLUMNS if name != "headers"])
_BUFFER_BYTES = 512 * 1024
"""The buffer of each column's stream of a file that is read by ranges."""
_SCAN_ROWS = 65_536
_MAX_ROWS = 65_536
WHOLE_PIECES = 4
"""A file of no more is decoded at once: to do so is faster than in pieces."""
_FEW_ROWS = 1_024
"""In a piece whose size once decoded its encoded size doesn't tell."""
_COUNTED = pa.array(np.arange(_FEW_ROWS))
_PLAIN = frozenset({"PLAIN", "RLE", "BIT_PACKED", "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY"})
"""Encodings whose decoded size is about the encoded one; a dictionary may stand for much more."""


@dataclass(slots=True)
class OpenSegments:
    """Segments that are being read."""

    pieces: Iterator[pa.RecordBatch]
    """Record batches of :data:`RECORD_SCHEMA`, in ascending order of offset within and between pieces; none is
    empty."""
    held_bytes: int
    """About how much is kept in memory beside the pieces that were returned."""


def is_read_whole(segments: Sequence[Segment], *, whole_file_bytes: int = WHOLE_FILE_BYTES) -> bool:
    """Are the bytes of these segments, which overlap or are but one, to be read before they are opened?"""
    return len(segments) > 1 or segments[0].size_bytes <= whole_file_bytes


def open_segments(
    log: DeltaLog,
    segments: Sequence[Segment],
    data: Sequence[Any] | None,
    *,
    start_offset: int,
    piece_bytes: int,
    values: pa.StructType | None = None,
) -> OpenSegments:
    """Read segments whose ranges overlap, or a single one, from ``start_offset`` on.

    A file whose rows aren't in order, and segments that overlap, are decoded whole, whatever their size, and then
    sorted piece by piece: only other engines write such. All else is decoded in pieces of about ``piece_bytes``, or at
    once where it isn't more than four times as much.

    Args:
        data: the files, as the store's ``read_buffers`` has them, None for one that is gone; without it the only
            segment is read by ranges.
        piece_bytes: of a piece once decoded; a single larger record is a piece.
        values: the type of a typed topic's values: the pieces have the column ``data`` behind all others.
    Raises:
        CorruptRecordError: a file is no Parquet or doesn't number its records; names it. Also from the pieces.
        ObjectNotFoundError: a file is gone (rule L10, orphans). Also from the pieces.
    """
    schema = record_schema(values)
    if len(segments) == 1:
        return _open_file(log, segments[0], data[0] if data else None, data is None, start_offset, piece_bytes, schema)
    parts: list[pa.RecordBatch] = []
    for number, segment in enumerate(segments):
        path = object_path(log.table, segment.path)
        found = data[number] if data else log.store.read(path)
        parquet = _open_parquet(path, _present(path, found), segment)
        table = _decode(path, lambda parquet=parquet: parquet.read(_columns_of(parquet, schema), use_threads=False))
        parts += _parts(path, table, segment, schema)
    return _in_pieces(parts, start_offset, piece_bytes)


def _open_file(
    log: DeltaLog,
    segment: Segment,
    data: Any,
    by_ranges: bool,
    start_offset: int,
    piece_bytes: int,
    schema: pa.Schema,
) -> OpenSegments:
    path = object_path(log.table, segment.path)
    if data is not None and schema is RECORD_SCHEMA and segment.record_count is not None:
        plain = read_plain_columns(data, segment.record_count, WHOLE_PIECES * piece_bytes)
        if plain is not None:
            return _whole(_from(_numbered(segment.base_offset or 0, plain), start_offset))
    file = RangeFile(log.store, path, segment.size_bytes) if by_ranges else None
    source: Any = _present(path, data) if file is None else file
    parquet = _open_parquet(path, source, segment, buffer_bytes=_BUFFER_BYTES if by_ranges else 0)
    columns = ("offset_delta", *schema.names[1:])
    groups: list[RowGroup] = []
    is_small = _is_tiny(parquet.metadata, WHOLE_PIECES * piece_bytes)
    if not is_small:
        groups = [RowGroup.of(parquet, number, columns) for number in range(parquet.metadata.num_row_groups)]
        size_bytes = sum(group.size_bytes for group in groups)
        is_small = size_bytes <= WHOLE_PIECES * piece_bytes and not any(group.expands for group in groups)
    last_offsets = None if is_small else _decode(path, lambda: _last_offsets(path, parquet, segment))
    if last_offsets is None:
        table = _decode(path, lambda: parquet.read([*columns], use_threads=False))
        if is_small:
            return _whole(_records(path, table, segment, start_offset, schema))
        return _in_pieces(_parts(path, table, segment, schema), start_offset, piece_bytes)
    if isinstance(data, memoryview):  # of memory that others of its files are in: a stream may be open for long
        parquet = _open_parquet(path, bytes(data), segment)
    wanted = [number for number, last in enumerate(last_offsets) if last >= start_offset]
    held = segment.size_bytes
    if file is not None:
        buffered = (len(columns) + 1) * _BUFFER_BYTES + (AHEAD_BYTES if log.store.is_remote else 0)
        held = max(buffered, *(group.size_bytes for group in groups))  # the column chunks of a sealed file are whole
    return OpenSegments(_stream(path, parquet, file, segment, groups, wanted, start_offset, piece_bytes, schema), held)


def _whole(batch: pa.RecordBatch) -> OpenSegments:
    return OpenSegments(iter([batch] if batch.num_rows else []), 0)


def _numbered(first: int, columns: Sequence[pa.Array]) -> pa.RecordBatch:
    """Timestamps, keys and values as records, from an offset on."""
    count = len(columns[0])
    offsets = pa.array(np.arange(first, first + count))
    return pa.RecordBatch.from_arrays([offsets, *columns, pa.nulls(count, HEADERS)], schema=RECORD_SCHEMA)


def _from(batch: pa.RecordBatch, start_offset: int) -> pa.RecordBatch:
    """The records of a batch, whose offsets ascend one by one, from ``start_offset`` on."""
    if not batch.num_rows:
        return batch
    return batch.slice(min(batch.num_rows, max(0, start_offset - batch.column(0)[0].as_py())))


def _parts(path: str, table: pa.Table, segment: Segment, schema: pa.Schema) -> list[pa.RecordBatch]:
    """The rows of a data file as records, as they stand, in the pieces that the table has; none is empty."""
    batches = (pa.Table.from_batches([batch]) for batch in table.to_batches() if batch.num_rows)
    return [_unsorted(path, batch, segment, schema) for batch in batches]


def _in_pieces(parts: Sequence[pa.RecordBatch], start_offset: int, piece_bytes: int) -> OpenSegments:
    """Records in no order, piece by piece in the order of their offsets: to put them together, and a sorted copy of
    them, would each take as much memory again."""
    if not parts:
        return OpenSegments(iter(()), 0)
    offsets = np.concatenate([part.column(0).to_numpy() for part in parts])
    order = np.argsort(offsets, kind="stable")
    order = order[np.searchsorted(offsets[order], start_offset) :]
    held = sum(part.nbytes for part in parts)
    rows = max(1, min(_MAX_ROWS, len(offsets) * piece_bytes // max(1, held)))
    ends = np.cumsum([part.num_rows for part in parts])
    pieces = (_picked(parts, ends, order[at : at + rows]) for at in range(0, len(order), rows))
    return OpenSegments(pieces, held)


def _picked(
    parts: Sequence[pa.RecordBatch], ends: npt.NDArray[np.int64], places: npt.NDArray[np.int64]
) -> pa.RecordBatch:
    """The rows at some places, at least one, counted over all parts.

    Args:
        ends: of each part, the place behind it.
    """
    part_of = np.searchsorted(ends, places, side="right")
    by_part = np.argsort(part_of, kind="stable")
    picked = []
    for number in np.unique(part_of).tolist():
        before = int(ends[number]) - parts[number].num_rows
        picked.append(parts[number].take(pa.array(places[part_of == number] - before)))
    if len(picked) == 1:
        return picked[0]
    back = np.empty_like(by_part)
    back[by_part] = np.arange(len(by_part))
    return pa.concat_batches(picked).take(pa.array(back))


def _is_tiny(footer: pq.FileMetaData, most_bytes: int) -> bool:
    """Is a file small once decoded, however it is encoded? If each row took as much as all of it, it would be.

    To look at the columns takes a fifth of the time in which a file of a few records is read.
    """
    return bool(footer.num_row_groups == 1 and footer.num_rows * footer.row_group(0).total_byte_size <= most_bytes)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The size of a row group, as the footer of its data file has it."""

    row_count: int
    size_bytes: int
    """The size of the columns that are read: encoded but not compressed."""
    expands: bool
    """May the columns take much more memory once they are decoded?"""

    @classmethod
    def of(cls, parquet: pq.ParquetFile, number: int, columns: Sequence[str] = _COLUMNS) -> RowGroup:
        """Read the size of row group ``number`` from the footer, as far as ``columns`` are read."""
        group = parquet.metadata.row_group(number)
        size, expands = 0, False
        for column in (group.column(at) for at in range(group.num_columns)):
            if column.path_in_schema.partition(".")[0] in columns:
                size += column.total_uncompressed_size
                is_binary = column.physical_type == "BYTE_ARRAY"
                # A column of nothing but nulls is nominally in a dictionary.
                if is_binary and column.total_uncompressed_size > _FEW_ROWS:
                    expands = expands or not _PLAIN.issuperset(column.encodings)
        return cls(group.num_rows, size, expands)

    def rows_per_piece(self, piece_bytes: int) -> int:
        """The number of rows to decode at once, so that they take about ``piece_bytes``; at least one."""
        rows = self.row_count * piece_bytes // max(1, self.size_bytes)
        return max(1, min(rows, _FEW_ROWS if self.expands else _MAX_ROWS))


def _stream(
    path: str,
    parquet: pq.ParquetFile,
    file: RangeFile | None,
    segment: Segment,
    groups: Sequence[RowGroup],
    wanted: Sequence[int],
    start_offset: int,
    piece_bytes: int,
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    expected: list[int] = []
    for place, number in enumerate(wanted):
        if file is not None and number not in expected:
            expected = _expected_together(groups, wanted[place:])
            file.expect([chunk for each in expected for chunk in _column_chunks(parquet, each, schema)])
        batches = parquet.iter_batches(
            groups[number].rows_per_piece(piece_bytes), [number], _columns_of(parquet, schema), use_threads=False
        )
        while (batch := _decode(path, lambda batches=batches: next(batches, None))) is not None:
            records = _records(path, pa.Table.from_batches([batch]), segment, start_offset, schema)
            if records.num_rows:
                yield records


def _expected_together(groups: Sequence[RowGroup], wanted: Sequence[int]) -> list[int]:
    """The first of the wanted row groups, and of those behind it as many as are held at once: all of them are fetched
    by requests side by side."""
    sizes = np.cumsum([groups[number].size_bytes for number in wanted])
    return list(wanted[: max(1, int(np.searchsorted(sizes, AHEAD_BYTES, side="right")))])


def _column_chunks(parquet: pq.ParquetFile, number: int, schema: pa.Schema) -> list[tuple[int, int]]:
    """Where the columns of a row group that are read lie in the file: first byte (inclusive) and last (exclusive)."""
    group = parquet.metadata.row_group(number)
    chunks = []
    columns = ("offset_delta", *schema.names[1:])
    for column in (group.column(at) for at in range(group.num_columns)):
        if column.path_in_schema.partition(".")[0] in columns:
            start = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
            chunks.append((start, start + column.total_compressed_size))
    return chunks


def _last_offsets(path: str, parquet: pq.ParquetFile, segment: Segment) -> list[int] | None:
    """The last offset of each row group; None if the rows of the file aren't in order."""
    last_offsets: list[int] = []
    last = -1
    for number in range(parquet.metadata.num_row_groups):
        for batch in parquet.iter_batches(
            _SCAN_ROWS, [number], _present_columns(parquet, ["offset_delta"]), use_threads=False
        ):
            deltas = conform(path, pa.Table.from_batches([batch]), "offset_delta")
            offsets = _offsets(path, deltas, segment)
            if len(offsets) == 0:
                continue
            if offsets[0] <= last or not _ascending(offsets):
                return None
            last = int(offsets[-1])
        last_offsets.append(last)
    return last_offsets


def _records(path: str, table: pa.Table, segment: Segment, start_offset: int, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a data file as records, by offset, from ``start_offset`` on."""
    columns = _columns_as(path, table, schema)
    deltas, first = columns[0], segment.base_offset or 0
    count = len(deltas)
    if first >= start_offset and count <= _FEW_ROWS and deltas.equals(_COUNTED.slice(0, count)):
        # As in most small files: nothing to sort, and nothing to leave out.
        offsets = np.arange(first, first + count)
        return pa.RecordBatch.from_arrays([pa.array(offsets), *columns[1:]], schema=schema)
    batch = _unsorted(path, table, segment, schema, columns)
    offsets = batch.column(0).to_numpy()
    if not _ascending(offsets):
        batch = _sorted(pa.Table.from_batches([batch]))
        offsets = batch.column(0).to_numpy()
    if count and offsets[0] < start_offset:
        batch = batch.slice(int(np.searchsorted(offsets, start_offset)))
    return batch


def _unsorted(
    path: str, table: pa.Table, segment: Segment, schema: pa.Schema, columns: Sequence[pa.Array] | None = None
) -> pa.RecordBatch:
    """The rows of a data file as records, as they stand. ``columns``: of :func:`_columns_as`, where they are known."""
    columns = columns or _columns_as(path, table, schema)
    offsets = _offsets(path, columns[0], segment)
    return pa.RecordBatch.from_arrays([pa.array(offsets), *columns[1:]], schema=schema)


def _columns_as(path: str, table: pa.Table, schema: pa.Schema) -> list[pa.Array]:
    """The columns ``offset_delta`` and those of ``schema`` behind ``offset``."""
    columns = _own_columns(table) if schema is RECORD_SCHEMA else None
    if columns is None:
        kinds = [DATA_SCHEMA.field("offset_delta"), *list(schema)[1:]]
        columns = [_one_array(conform(path, table, field.name, field.type)) for field in kinds]
    return columns


def _own_columns(table: pa.Table) -> list[pa.Array] | None:
    """:data:`_COLUMNS` of a file that has them as sparklog writes them; None for another."""
    if table.schema.equals(_OWN_WITHOUT_HEADERS):
        columns = [_one_array(column) for column in table.columns]
        return [*columns, pa.nulls(table.num_rows, HEADERS)]
    if table.schema.equals(_OWN):
        return [_one_array(column) for column in table.columns]
    return None


def _sorted(table: pa.Table) -> pa.RecordBatch:
    ordered = table.sort_by("offset")
    return pa.RecordBatch.from_arrays([_one_array(column) for column in ordered.columns], schema=table.schema)


def _offsets(path: str, deltas: pa.Array | pa.ChunkedArray, segment: Segment) -> npt.NDArray[np.int64]:
    if deltas.null_count:
        raise CorruptRecordError(f"corrupt data file {path}: {deltas.null_count} of its records have no offset_delta")
    offsets: npt.NDArray[np.int64] = deltas.to_numpy() + (segment.base_offset or 0)
    return offsets


def _ascending(offsets: npt.NDArray[np.int64]) -> bool:
    return bool((offsets[1:] > offsets[:-1]).all())


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _open_parquet(path: str, source: Any, segment: Segment, *, buffer_bytes: int = 0) -> pq.ParquetFile:
    rows = segment.record_count
    return _decode(path, lambda: open_parquet(source, rows=rows, buffer_size=buffer_bytes, pre_buffer=False))


def _columns_of(parquet: pq.ParquetFile, schema: pa.Schema) -> list[str]:
    return _present_columns(parquet, ("offset_delta", *schema.names[1:]))


def _present_columns(parquet: pq.ParquetFile, names: Sequence[str]) -> list[str]:
    """Another engine may have left some out."""
    present = parquet.schema_arrow.names
    return [name for name in names if name in present]


def _decode(path: str, read: Any) -> Any:
    try:
        return read()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptRecordError(f"corrupt data file {path}: {error}") from error


def _present(path: str, data: Any) -> Any:
    if data is None:
        raise ObjectNotFoundError(f"data file {path}: no such object")
    return data
