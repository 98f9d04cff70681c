"""Reading the records of a range of files, piece by piece in offset order, in bounded memory.

Small files are read as a whole, many at once. A large one, which only other engines write, is read by ranges of bytes,
a few rows of each column at a time, whatever its size and that of its row groups.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.compaction.encoding import ROW_GROUP_BYTES
from sparklog.compaction.file_ranges import FileRange
from sparklog.compaction.sorting import RUN_BYTES, by_offset
from sparklog.delta.log import DeltaLog
from sparklog.delta.parquet_reading import open_parquet
from sparklog.errors import CorruptRecordError, InvalidArgumentError, InvalidRecordError, ObjectNotFoundError
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.range_file import RangeFile
from sparklog.log.data.record_reading import conform, kind_of
from sparklog.log.data.record_streaming import RowGroup
from sparklog.log.data.schema import DATA_SCHEMA
from sparklog.log.data.segments import Segment, overlapping
from sparklog.log.data.table_schema import CHANGE_COLUMNS, PARTITION_COLUMNS, STAGE_COLUMN
from sparklog.log.data.value_columns import DATA, SCHEMA_ID, is_tombstone, stored_type
from sparklog.paths import STAGE_PREFIX
from sparklog.schemas import merged_type

__all__ = ["ALL_COLUMNS", "PRODUCER", "TOMBSTONE", "OpenRange"]

ALL_COLUMNS = (*DATA_SCHEMA.names, DATA, SCHEMA_ID)
"""The columns of a topic's data files; the last two of typed ones alone."""
TOMBSTONE = "is_tombstone"
"""The column, made of others, that says whether a record is a tombstone."""
PRODUCER = "producer"
"""A value for the compression: that of the first of the files, and snappy where that has none, as sequencing does.
Source: Kafka ``compression.type``; an uncompressed file doesn't show whether its writer wanted no compression."""
_CODECS: Mapping[str, str] = {
    "none": "none",
    "uncompressed": "none",
    "snappy": "snappy",
    "gzip": "gzip",
    "zstd": "zstd",
    "lz4": "lz4",
    "lz4_raw": "lz4",
}
"""Codecs by the names of Kafka's settings and of Parquet's metadata."""
_OTHER_CODEC = "zstd"
_CODEC_OF_UNCOMPRESSED = "snappy"
_WHOLE_BYTES = 32 * 1024 * 1024
"""A file of no more is read as a whole …"""
_WINDOW_BYTES = 64 * 1024 * 1024
"""… and many at once, of so many bytes together."""
_BUFFER_BYTES = 2 * 1024 * 1024
"""The buffer of each column of a file that is read by ranges; each is a request."""
_PIECE_BYTES = 4 * 1024 * 1024
"""The size of records that are handed on together."""
_SCAN_ROWS = 65_536

Deltas = npt.NDArray[np.int64]
_OF_INGEST = re.compile(rf"/{STAGE_PREFIX}[0-9a-f]{{32}}/")
"""In the path of a data file that an ingest wrote: its stage."""

_Piece = tuple[str, pa.Table, int]
"""The path of a file, records of it as they are there, and what is to be added to their offset deltas."""


class OpenRange:
    """The records of a range, piece by piece in offset order. Small files are in memory as they are stored, a window of
    them at a time."""

    def __init__(self, log: DeltaLog, file_range: FileRange, files: Mapping[str, pq.ParquetFile] | None = None) -> None:
        self._log = log
        self._range = file_range
        self._windows = [*_windows(file_range.segments)]
        self._files = dict(files or {})
        """The files of one window, by path. Large ones are opened when they are needed."""
        self._in_memory: tuple[Mapping[str, pq.ParquetFile], pa.DataType | None] = ({}, None)
        """A window's files, and the type of their values."""
        self._with_headers: bool | None = None
        self.base_offset = file_range.base_offset
        """The offset that the records are numbered from."""

    @classmethod
    def read(cls, log: DeltaLog, file_range: FileRange) -> OpenRange:
        """Read the first files.

        Raises:
            ObjectNotFoundError: a file is gone. As what follows, later files may raise it when they are read.
            CorruptRecordError: one is no Parquet.
            InvalidArgumentError: one lies outside of the table.
            InvalidRecordError: one has values in columns that a topic doesn't have.
        """
        opened = cls(log, file_range)
        opened._file(file_range.segments[0])
        return opened

    def part(self, file_range: FileRange) -> OpenRange:
        """A range within this one, as if it had been read by itself; it takes over the files that are in memory."""
        if len(self._windows) > 1:
            self._files = {}
        paths = {segment.path for segment in file_range.segments}
        return OpenRange(self._log, file_range, {path: file for path, file in self._files.items() if path in paths})

    def codec(self, compression: str) -> str:
        """The codec of files that are written of these records.

        Args:
            compression: of the topic: a codec by Kafka's name, or :data:`PRODUCER`.
        """
        if compression != PRODUCER:
            return _CODECS[compression]
        metadata = self._file(self._range.segments[0])[1].metadata
        if metadata.num_row_groups == 0:
            return _OTHER_CODEC
        found = _CODECS.get(metadata.row_group(0).column(0).compression.lower(), _OTHER_CODEC)
        return _CODEC_OF_UNCOMPRESSED if found == "none" else found

    def has_headers(self) -> bool:
        """May a record have headers? Where not all files are in memory, it isn't looked for."""
        if self._with_headers is None:
            files = (self._file(segment)[1] for segment in self._range.segments)
            self._with_headers = len(self._windows) > 1 or any("headers" in file.schema_arrow.names for file in files)
        return self._with_headers

    def pieces(self, columns: Sequence[str] = ALL_COLUMNS, *, once: bool = False) -> Iterator[pa.Table]:
        """The records with ``columns`` of a topic, of which ``offset_delta`` is one: here it is relative to the range's
        ``base_offset``. ``headers`` are left out where no file has them, and ``data`` and ``schema_id`` where no file
        that is read together with the piece's has them.

        The column :data:`TOMBSTONE` says whether a record is one: it has nothing in ``value`` and in ``data``.

        Args:
            once: forget each file that was read.
        Raises:
            CorruptRecordError: a file is no Parquet, or its records aren't where the log has them.
        """
        wanted = [name for name in columns if name != "headers" or self.has_headers()]
        last, size = -1, 0
        gathered: list[_Piece] = []
        for piece in self._unit_pieces(wanted, once=once):
            if gathered and piece[1].schema != gathered[0][1].schema:  # the values of the files have more fields
                last, together = self._together(gathered, last)
                yield together
                gathered, size = [], 0
            gathered.append(piece)
            size += piece[1].nbytes
            if size >= _PIECE_BYTES:
                last, together = self._together(gathered, last)
                yield together
                gathered, size = [], 0
        if gathered:
            yield self._together(gathered, last)[1]

    def _unit_pieces(self, columns: Sequence[str], *, once: bool) -> Iterator[_Piece]:
        for segments in overlapping(self._range.segments):
            schema = self._schema(columns, segments)
            if len(segments) == 1:
                yield from self._file_pieces(segments[0], schema)
            else:
                yield from self._sorted(segments, schema)
            if once:
                for segment in segments:
                    self._files.pop(segment.path, None)

    def _schema(self, columns: Sequence[str], segments: Sequence[Segment]) -> pa.Schema:
        """The types of the columns of some files, and of those that are in memory with them."""
        values: pa.DataType | None = None
        if DATA in columns:
            files = [(segment.path, self._file(segment)[1]) for segment in segments]
            others = [file for path, file in files if path not in self._files]
            values = self._values_of(others, self._values_in_memory())
        fields = [
            pa.field(name, pa.bool_() if name == TOMBSTONE else kind_of(name, values))
            for name in columns
            if values is not None or name not in (DATA, SCHEMA_ID)
        ]
        return pa.schema(fields)

    def _values_in_memory(self) -> pa.DataType | None:
        """The type of the values of a window's files, looked at once: a look at all for each file took most of the time
        of a range of many."""
        if self._in_memory[0] is not self._files:
            self._in_memory = self._files, self._values_of(self._files.values(), None)
        return self._in_memory[1]

    def _values_of(self, files: Iterable[pq.ParquetFile], values: pa.DataType | None) -> pa.DataType | None:
        """The type of ``values`` and those of some files; None: they have none."""
        for file in files:
            schema = file.schema_arrow
            if DATA in schema.names:
                own = stored_type(schema.field(DATA).type)
                values = own if values is None else _merged(self._log.table, values, own)
        return values

    def _file_pieces(self, segment: Segment, schema: pa.Schema) -> Iterator[_Piece]:
        """The records of a file: a small one at once, as it is; a large one by offset."""
        path, file = self._file(segment)
        shift = (segment.base_offset or 0) - self.base_offset
        if _is_small(file):
            yield path, _read_whole(path, file, schema), shift
        elif self._is_in_order(path, file):
            for piece in _read_pieces(path, file, schema):
                yield path, piece, shift
        else:
            yield from self._sorted([segment], schema)

    def _is_in_order(self, path: str, file: pq.ParquetFile) -> bool:
        """Are the rows of a file by offset? Raises where a record has none."""
        last = -1
        numbers = pa.schema([DATA_SCHEMA.field("offset_delta")])
        for piece in _read_pieces(path, file, numbers, rows=_SCAN_ROWS):
            self._check_numbers(path, piece)
            deltas = piece["offset_delta"].to_numpy()
            if not _goes_on(deltas, last):
                return False
            last = int(deltas[-1]) if len(deltas) else last
        return True

    def _sorted(self, segments: Sequence[Segment], schema: pa.Schema) -> Iterator[_Piece]:
        """The records of files whose rows are in any order, or whose offsets overlap."""

        def unsorted() -> Iterator[pa.Table]:
            for segment in segments:
                path, file = self._file(segment)
                shift = (segment.base_offset or 0) - self.base_offset
                for piece in _read_pieces(path, file, schema):
                    yield self._numbered([(path, piece, shift)])[0]

        path = segments[0].path
        for together in by_offset(unsorted(), run_bytes=RUN_BYTES):
            yield path, together, 0

    def _together(self, pieces: Sequence[_Piece], last: int) -> tuple[int, pa.Table]:
        """Pieces as one, and its last offset delta. Raises unless it goes on after ``last``.

        What is looked at here is so for many small files at once: one by one it takes a third of all the time.
        """
        table, deltas = self._numbered(pieces)
        if not _goes_on(deltas, last):  # other engines write the rows of a file in any order
            sorted_pieces = [(path, records.sort_by("offset_delta"), shift) for path, records, shift in pieces]
            table, deltas = self._numbered(sorted_pieces)
        if not _goes_on(deltas, last):
            raise CorruptRecordError(
                f"{self._log.table}, partition {self._range.partition}, offsets {self._range.first_offset} to "
                f"{self._range.last_offset}: a data file holds offsets that other records have"
            )
        return (int(deltas[-1]) if len(deltas) else last), table

    def _numbered(self, pieces: Sequence[_Piece]) -> tuple[pa.Table, Deltas]:
        """Pieces as one, by deltas that are relative to the range's base offset. Raises where a record has none."""
        table = pa.concat_tables([records for _, records, _ in pieces]).combine_chunks()
        if table["offset_delta"].null_count:
            for path, records, _ in pieces:
                self._check_numbers(path, records)
        shifts = np.array([shift for _, _, shift in pieces], np.int64)
        deltas = table["offset_delta"].to_numpy() + np.repeat(shifts, [records.num_rows for _, records, _ in pieces])
        at = table.schema.get_field_index("offset_delta")
        return table.set_column(at, DATA_SCHEMA.field("offset_delta"), pa.array(deltas)), deltas

    def _check_numbers(self, path: str, records: pa.Table) -> None:
        if records["offset_delta"].null_count:
            raise CorruptRecordError(f"{self._log.table}: data file {path} doesn't number all its records")

    def _file(self, segment: Segment) -> tuple[str, pq.ParquetFile]:
        """A file's path in the store, and the file; a small one's window is read in place of another."""
        path = object_path(self._log.table, segment.path)
        file = self._files.get(segment.path)
        if file is not None:
            return path, file
        if segment.size_bytes > _WHOLE_BYTES:
            source = RangeFile(self._log.store, path, segment.size_bytes)
            return path, _open(path, source, segment.record_count, buffer_bytes=_BUFFER_BYTES)
        self._files = {}  # before more are read
        self._files = self._read(next(window for window in self._windows if segment in window))
        return path, self._files[segment.path]

    def _read(self, segments: Sequence[Segment]) -> dict[str, pq.ParquetFile]:
        paths = [object_path(self._log.table, segment.path) for segment in segments]
        files: dict[str, pq.ParquetFile] = {}
        for segment, path, data in zip(segments, paths, self._log.store.read_buffers(paths), strict=True):
            if data is None:
                raise ObjectNotFoundError(f"data file {path}: no such object")
            files[segment.path] = _open(path, data, segment.record_count)
        return files


def _windows(segments: Sequence[Segment]) -> Iterator[Sequence[Segment]]:
    """The small files, as many together as are in memory at once."""
    window: list[Segment] = []
    size = 0
    for segment in segments:
        if segment.size_bytes > _WHOLE_BYTES:
            continue
        if window and size + segment.size_bytes > _WINDOW_BYTES:
            yield window
            window, size = [], 0
        window.append(segment)
        size += segment.size_bytes
    if window:
        yield window


def _open(path: str, source: Any, rows: int | None, *, buffer_bytes: int = 0) -> pq.ParquetFile:
    file = _understood(path, lambda: open_parquet(source, rows=rows, buffer_size=buffer_bytes, pre_buffer=False))
    names = file.schema_arrow.names
    passed_over = {*ALL_COLUMNS, *PARTITION_COLUMNS, *CHANGE_COLUMNS}
    if _OF_INGEST.search(path):
        passed_over.add(STAGE_COLUMN)
    for name in names:
        if name not in passed_over:
            _check_is_null(path, file, name)
    return file


def _check_is_null(path: str, file: pq.ParquetFile, name: str) -> None:
    """Raise ``InvalidRecordError`` where a column that a topic doesn't have holds a value: a file that is written anew
    has no such column."""
    for batch in _batches(path, file, [name], rows=_SCAN_ROWS):
        if batch.num_rows and batch.column(0).null_count < batch.num_rows:
            raise InvalidRecordError(
                f"data file {path}: column {name!r} holds values, and a topic has no such column, so a rewritten file "
                "would lack them; once they are set to null, by an UPDATE in SQL, the file is rewritten"
            )


def _is_small(file: pq.ParquetFile) -> bool:
    """Is a file to be decoded at once? Values in a dictionary take little of it, and much once they are decoded."""
    groups = range(file.metadata.num_row_groups)
    size = sum(int(file.metadata.row_group(number).total_byte_size) for number in groups)
    if size > ROW_GROUP_BYTES:
        return False
    is_tiny = size * file.metadata.num_rows <= ROW_GROUP_BYTES  # whatever stands for what
    return is_tiny or not any(RowGroup.of(file, number).expands for number in groups)


def _read_whole(path: str, file: pq.ParquetFile, schema: pa.Schema) -> pa.Table:
    return _conform(path, _understood(path, lambda: file.read(_to_read(file, schema), use_threads=False)), schema)


def _read_pieces(path: str, file: pq.ParquetFile, schema: pa.Schema, *, rows: int | None = None) -> Iterator[pa.Table]:
    """The records of a file as its rows are, a few at a time; ``rows`` where that is given."""
    present = _to_read(file, schema)
    for number in range(file.metadata.num_row_groups):
        shape = RowGroup.of(file, number, [name.partition(".")[0] for name in present])
        if not present:
            yield _conform(path, pa.table({"none": pa.nulls(shape.row_count)}), schema)
            continue
        at_once = rows or shape.rows_per_piece(_PIECE_BYTES)
        for batch in _batches(path, file, present, rows=at_once, groups=[number]):
            yield _conform(path, pa.Table.from_batches([batch]), schema)


def _batches(
    path: str, file: pq.ParquetFile, columns: Sequence[str], *, rows: int, groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Columns of a file, ``rows`` at a time; of some row groups, or all. Raises ``CorruptRecordError``."""
    found = _understood(path, lambda: file.iter_batches(rows, groups, [*columns], use_threads=False))
    while (batch := _understood(path, lambda: next(found, None))) is not None:
        yield batch


def _conform(path: str, table: pa.Table, schema: pa.Schema) -> pa.Table:
    if table.schema.equals(schema):
        return table
    if TOMBSTONE in schema.names:
        value = pa.table({"value": conform(path, table, "value")})
        table = table.append_column(
            TOMBSTONE, is_tombstone(value.append_column(DATA, table[DATA]) if DATA in table.schema.names else value)
        )
    # other engines order and type columns otherwise, and leave some out
    columns = {
        field.name: table[TOMBSTONE] if field.name == TOMBSTONE else conform(path, table, field.name, field.type)
        for field in schema
    }
    return pa.table(columns, schema=schema)


def _to_read(file: pq.ParquetFile, schema: pa.Schema) -> list[str]:
    """The columns of a file that a schema needs. One leaf of ``data`` shows whether a record is a tombstone."""
    names = file.schema_arrow.names
    found = [name for name in schema.names if name in names]
    if TOMBSTONE in schema.names:
        found += [name for name in ("value",) if name in names and name not in found]
        paths = [file.schema.column(at).path for at in range(len(file.schema))] if DATA in names else []
        found += [path for path in paths if path.startswith(f"{DATA}.")][:1]
    return found


def _merged(table: str, one: pa.DataType, other: pa.DataType) -> pa.DataType:
    try:
        return merged_type(one, other)
    except InvalidArgumentError as error:
        raise CorruptRecordError(f"{table}: {error}") from error


def _ascending(deltas: Deltas) -> bool:
    return bool(np.all(deltas[1:] > deltas[:-1]))


def _goes_on(deltas: Deltas, last: int) -> bool:
    return len(deltas) == 0 or (int(deltas[0]) > last and _ascending(deltas))


def _understood(path: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptRecordError(f"corrupt data file {path}: {error}") from error
