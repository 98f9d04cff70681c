"""Reading the files of a range and writing their records anew: the one part of a job that another engine may do.

A *rewrite* is a function from ranges to what was written for each, see :data:`Rewrite`; plans and commits don't know
which it was. Here it is pyarrow, one range after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.compaction.encoding import ROW_GROUP_BYTES, DataFileWriter
from sparklog.compaction.units import FileRange
from sparklog.delta.actions import AddFile
from sparklog.delta.log import DeltaLog
from sparklog.errors import CorruptRecordError, InvalidArgumentError, ObjectNotFoundError, SparklogError
from sparklog.log.encode import open_parquet
from sparklog.log.reading import conform, object_path
from sparklog.log.schema import DATA_SCHEMA
from sparklog.log.segments import Segment, overlapping
from sparklog.paths import new_data_file

__all__ = ["PRODUCER", "OpenRange", "Rewrite", "Rewritten", "RewrittenFile", "rewrite_with_arrow", "upload"]

PRODUCER = "producer"
"""As a compression: what the first of the files has. Source: Kafka ``compression.type``."""
_CODECS: Mapping[str, str] = {
    "none": "none",
    "uncompressed": "none",
    "snappy": "snappy",
    "gzip": "gzip",
    "zstd": "zstd",
    "lz4": "lz4",
    "lz4_raw": "lz4",
}
"""By the names of Kafka's settings and of Parquet's metadata."""
_OTHER_CODEC = "zstd"
_Deltas = npt.NDArray[np.int64]
_Piece = tuple[str, pa.Table, int]
"""The path of a file, records of it as they are there, and what is to be added to their offset deltas."""
_MAX_ROWS = 65_536
_PIECE_BYTES = 4 * 1024 * 1024
"""Of records that are handed on together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenFile:
    """A file that lies in the store, but in no log: what the commit that publishes it has to say of it."""

    path: str
    """Relative to the table's folder."""
    partition: int
    base_offset: int
    size_bytes: int
    modification_ms: int
    """Wall time of the upload."""
    stats: Mapping[str, Any]
    """As Delta's ``add`` holds them."""

    def to_add(self, *, data_change: bool) -> AddFile:
        """The action that publishes the file."""
        return AddFile(
            path=self.path,
            partition_values={"partition": str(self.partition), "base_offset": str(self.base_offset)},
            size_bytes=self.size_bytes,
            modification_ms=self.modification_ms,
            data_change=data_change,
            stats=self.stats,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """What became of one range."""

    range: FileRange
    files: tuple[RewrittenFile, ...]
    """Uploaded and durable; what they hold lies within the range. None where no record is left."""
    began_ticks_ms: float
    """Of the log's clock, before the first upload: a day later the files aren't published any more (rule L10)."""
    error: SparklogError | None = None
    """Why there are no files: a file of the range is gone, or isn't understood."""


Rewrite = Callable[[DeltaLog, Sequence[FileRange], str], Generator[Rewritten, None, None]]
"""Writes the records of each range into one file, in any order of the ranges.

Its arguments: the topic's log, the ranges, the topic's ``compression.type``. Whoever goes through the ranges one by one
does none in vain: those that somebody else has changed by then are passed over. It yields each range as soon as it is
uploaded; one whose files are gone or corrupt with the error, and raises for everything else. Closed early, it ends what
is still at work.
"""


def rewrite_with_arrow(
    log: DeltaLog, ranges: Sequence[FileRange], compression: str
) -> Generator[Rewritten, None, None]:
    """A :data:`Rewrite` in this process, one range after the other. Threads gain nothing: with small files most of the
    time is spent in Python.

    Memory: the files of a range as they are stored, the new file, and two row groups; a file whose rows aren't in
    order, and files that overlap, are decoded whole, whatever their size: only other engines write such.
    """
    return (_attempt(log, found, compression) for found in ranges)


def _attempt(log: DeltaLog, found: FileRange, compression: str) -> Rewritten:
    began = log.clock.ticks_ms()
    try:
        files = (_rewrite(log, found, compression),)
    except (CorruptRecordError, InvalidArgumentError, ObjectNotFoundError) as error:
        return Rewritten(range=found, files=(), began_ticks_ms=began, error=error)
    return Rewritten(range=found, files=files, began_ticks_ms=began)


def _rewrite(log: DeltaLog, found: FileRange, compression: str) -> RewrittenFile:
    records = OpenRange.read(log, found)
    writer = records.writer(compression)
    for piece in records.pieces(once=True):
        writer.write(piece)
    if writer.record_count != found.record_count:
        raise CorruptRecordError(
            f"{log.table}, partition {found.partition}, offsets {found.first_offset} to {found.last_offset}: found "
            f"{writer.record_count} records, the log tells of {found.record_count}"
        )
    return upload(log, found, writer)


def upload(log: DeltaLog, found: FileRange, writer: DataFileWriter) -> RewrittenFile:
    """Finish a file and put it, durably, under a new name."""
    data, stats = writer.close()
    path = new_data_file(found.partition)
    log.store.put(object_path(log.table, path), data, sync=True)
    return RewrittenFile(
        path=path,
        partition=found.partition,
        base_offset=found.base_offset,
        size_bytes=len(data),
        modification_ms=log.clock.now_ms(),
        stats=stats,
    )


class OpenRange:
    """The records of a range, piece by piece in offset order. Its files are in memory as they are stored."""

    def __init__(self, table: str, found: FileRange, files: Mapping[str, pq.ParquetFile]) -> None:
        self._table = table
        self._range = found
        self._files = dict(files)
        self.base_offset = found.base_offset
        """What the records are numbered from."""
        first = self._files[found.segments[0].path]
        self._codec = _codec_of(first)
        self._with_headers = any("headers" in file.schema_arrow.names for file in self._files.values())

    @classmethod
    def read(cls, log: DeltaLog, found: FileRange) -> OpenRange:
        """Read the files. Raises ``ObjectNotFoundError``, ``CorruptRecordError``, ``InvalidArgumentError``."""
        paths = [object_path(log.table, segment.path) for segment in found.segments]
        files: dict[str, pq.ParquetFile] = {}
        for segment, path, data in zip(found.segments, paths, log.store.read_many(paths), strict=True):
            if data is None:
                raise ObjectNotFoundError(f"data file {path}: no such object")
            files[segment.path] = _open(path, data)
        return cls(log.table, found, files)

    def part(self, found: FileRange) -> OpenRange:
        """A range within this one, as if it had been read by itself."""
        return OpenRange(self._table, found, {segment.path: self._files[segment.path] for segment in found.segments})

    def writer(self, compression: str) -> DataFileWriter:
        """A writer for these records, or for a part of them.

        Args:
            compression: of the topic: a codec, or :data:`PRODUCER`.
        """
        codec = self._codec if compression == PRODUCER else _CODECS[compression]
        return DataFileWriter(compression=codec, with_headers=self._with_headers)

    def pieces(self, columns: Sequence[str] = DATA_SCHEMA.names, *, once: bool = False) -> Iterator[pa.Table]:
        """The records with ``columns`` of ``DATA_SCHEMA``, of which ``offset_delta`` is one: here it is relative to the
        range's ``base_offset``. ``headers`` are left out where no file has them.

        Args:
            once: forget each file that was read.
        Raises:
            CorruptRecordError: a file is no Parquet, or its records aren't where the log tells.
        """
        wanted = [name for name in columns if name != "headers" or self._with_headers]
        schema = pa.schema([DATA_SCHEMA.field(name) for name in wanted])
        last, size = -1, 0
        gathered: list[_Piece] = []
        for piece in self._unit_pieces(schema, once=once):
            gathered.append(piece)
            size += piece[1].nbytes
            if size >= _PIECE_BYTES:
                last, together = self._together(gathered, last)
                yield together
                gathered, size = [], 0
        if gathered:
            yield self._together(gathered, last)[1]

    def _unit_pieces(self, schema: pa.Schema, *, once: bool) -> Iterator[_Piece]:
        for segments in overlapping(self._range.segments):
            if len(segments) == 1:
                yield from self._file_pieces(segments[0], schema)
            else:
                found = [piece for segment in segments for piece in self._file_pieces(segment, schema)]
                yield segments[0].path, self._numbered(found)[0].sort_by("offset_delta"), 0
            if once:
                for segment in segments:
                    del self._files[segment.path]

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
                f"{self._table}, partition {self._range.partition}, offsets {self._range.first_offset} to "
                f"{self._range.last_offset}: a data file holds offsets that other records have"
            )
        return (int(deltas[-1]) if len(deltas) else last), table

    def _numbered(self, pieces: Sequence[_Piece]) -> tuple[pa.Table, _Deltas]:
        """Pieces as one, by deltas that are relative to the range's base offset. Raises where a record has none."""
        table = pa.concat_tables([records for _, records, _ in pieces]).combine_chunks()
        if table["offset_delta"].null_count:
            for path, records, _ in pieces:
                self._check_numbers(path, records)
        shifts = np.array([shift for _, _, shift in pieces], np.int64)
        deltas = table["offset_delta"].to_numpy() + np.repeat(shifts, [records.num_rows for _, records, _ in pieces])
        at = table.schema.get_field_index("offset_delta")
        return table.set_column(at, DATA_SCHEMA.field("offset_delta"), pa.array(deltas)), deltas

    def _file_pieces(self, segment: Segment, schema: pa.Schema) -> Iterator[_Piece]:
        """The records of a file: a small one at once, as it is; a large one by offset, in pieces if its rows are in
        order."""
        path, file, shift = segment.path, self._files[segment.path], (segment.base_offset or 0) - self.base_offset
        if _size_bytes(file) <= ROW_GROUP_BYTES:
            yield path, _read_whole(path, file, schema), shift
            return
        numbers = _read_whole(path, file, pa.schema([DATA_SCHEMA.field("offset_delta")]))
        self._check_numbers(path, numbers)
        if _ascending(numbers["offset_delta"].to_numpy()):
            for piece in _read_pieces(path, file, schema):
                yield path, piece, shift
        else:
            yield path, _read_whole(path, file, schema).sort_by("offset_delta"), shift

    def _check_numbers(self, path: str, records: pa.Table) -> None:
        if records["offset_delta"].null_count:
            raise CorruptRecordError(f"{self._table}: data file {path} doesn't number all its records")


def _open(path: str, data: bytes) -> pq.ParquetFile:
    return _understood(path, lambda: open_parquet(pa.BufferReader(data)))


def _read_whole(path: str, file: pq.ParquetFile, schema: pa.Schema) -> pa.Table:
    return _conform(path, _understood(path, lambda: file.read(schema.names, use_threads=False)), schema)


def _read_pieces(path: str, file: pq.ParquetFile, schema: pa.Schema) -> Iterator[pa.Table]:
    rows = max(1, min(_MAX_ROWS, file.metadata.num_rows * _PIECE_BYTES // _size_bytes(file)))
    batches = _understood(path, lambda: file.iter_batches(rows, columns=schema.names, use_threads=False))
    while (batch := _understood(path, lambda: next(batches, None))) is not None:
        yield _conform(path, pa.Table.from_batches([batch]), schema)


def _conform(path: str, table: pa.Table, schema: pa.Schema) -> pa.Table:
    if table.schema.equals(schema):
        return table
    # other engines order and type columns otherwise, and leave some out
    return pa.table({name: conform(path, table, name) for name in schema.names}, schema=schema)


def _size_bytes(parquet: pq.ParquetFile) -> int:
    """Encoded but not compressed."""
    groups = (parquet.metadata.row_group(at) for at in range(parquet.metadata.num_row_groups))
    return sum(int(group.total_byte_size) for group in groups)


def _ascending(deltas: _Deltas) -> bool:
    return bool(np.all(deltas[1:] > deltas[:-1]))


def _goes_on(deltas: _Deltas, last: int) -> bool:
    return len(deltas) == 0 or (int(deltas[0]) > last and _ascending(deltas))


def _codec_of(parquet: pq.ParquetFile) -> str:
    if parquet.metadata.num_row_groups == 0:
        return _OTHER_CODEC
    return _CODECS.get(parquet.metadata.row_group(0).column(0).compression.lower(), _OTHER_CODEC)


def _understood(path: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptRecordError(f"corrupt data file {path}: {error}") from error
