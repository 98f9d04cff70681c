"""Reading a file that another engine wrote, in bounded memory: its records piece by piece, as the topic has them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparklog.delta.parquet_reading import open_parquet
from sparklog.errors import CorruptRecordError, InvalidRecordError
from sparklog.log.data.range_file import RangeFile
from sparklog.log.data.record_reading import conform
from sparklog.log.data.record_streaming import RowGroup
from sparklog.log.data.schema import data_schema
from sparklog.log.data.table_schema import CHANGE_COLUMNS, PARTITION_COLUMNS
from sparklog.log.data.value_columns import DATA, unknown_fields, unknown_values
from sparklog.schemas import unreadable_leaf
from sparklog.storage.base import ObjectStore

__all__ = ["ForeignSource"]

_HELD_BYTES = 32 * 1024 * 1024
"""A smaller file is read at once and kept; a larger one is read by ranges, each time that it is gone through."""
_BUFFER_BYTES = 4 * 1024 * 1024
"""The buffer of each column that is read by ranges: one request to the store."""
_PIECE_BYTES = 4 * 1024 * 1024
_PIECE_ROWS = 65_536


class ForeignSource:
    """A foreign data file; may be gone through several times.

    Memory: the file itself up to 32 MiB, a buffer of 4 MiB for each column of a larger one, and a piece of about 4 MiB
    once decoded. A single page of the file is decoded whole, whatever its size; Parquet writers cut pages at 1 MiB.
    """

    def __init__(
        self,
        store: ObjectStore,
        path: str,
        size_bytes: int,
        *,
        before_piece: Callable[[], None],
        values: pa.StructType | None = None,
    ) -> None:
        """Open it.

        Args:
            path: in the store.
            size_bytes: as the log says.
            before_piece: is called before each piece that is decoded; what it raises ends the reading.
            values: the type of a typed topic's ``data``.
        Raises:
            CorruptRecordError: no Parquet, or truncated; names the file.
            ObjectNotFoundError, StoreError.
        """
        self.path = path
        self.size_bytes = size_bytes
        self._before_piece = before_piece
        self.schema = data_schema(values)
        """The columns that a file may have beside the table's partition columns."""
        self._values = values
        self.data: bytes | None = None
        """The file's bytes, where they are kept."""
        source: Any
        if size_bytes <= _HELD_BYTES:
            self.data = store.read(path)
            self.size_bytes = len(self.data)
            source, buffer_bytes = self.data, 0
        else:
            source, buffer_bytes = pa.PythonFile(RangeFile(store, path, size_bytes), mode="r"), _BUFFER_BYTES
        with self._decoding():
            self._parquet: pq.ParquetFile = open_parquet(source, buffer_size=buffer_bytes, pre_buffer=False)
            self._names: list[str] = self._parquet.schema_arrow.names
        if len(set(self._names)) < len(self._names):
            raise CorruptRecordError(f"corrupt data file {path}: several columns have one name: {self._names}")

    @property
    def record_count(self) -> int:
        """The number of records, from the footer of the file."""
        return int(self._parquet.metadata.num_rows)

    @property
    def decoded_bytes(self) -> int:
        """About what all records take once they are decoded, as far as the footer states it."""
        groups = range(self._parquet.metadata.num_row_groups)
        return sum(RowGroup.of(self._parquet, number, self.schema.names).size_bytes for number in groups)

    def has(self, name: str) -> bool:
        """Is the column in the file?"""
        return name in self._names

    def pieces(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """The records in the order of the rows; none of the pieces is empty.

        Args:
            names: the columns that are wanted, of :attr:`schema`; they come in the topic's types, and null where the
                file doesn't have them.
        Raises:
            CorruptRecordError: a column has a type that can't be the topic's, or can't be decoded; names the file.
            InvalidRecordError: headers of other names, or without a key; a value that a schema's types can't have.
            ObjectNotFoundError, StoreError.
        """
        schema = pa.schema([self.schema.field(name) for name in names])
        for piece in self._decoded([name for name in names if name in self._names]):
            table = pa.table({name: conform(self.path, piece, name, self._values) for name in names}, schema=schema)
            if "headers" in names:
                _check_headers(piece, table["headers"])
            if self._values is not None and DATA in names:
                _check_values(table[DATA])
            yield table

    def check_columns(self) -> None:
        """Raise ``InvalidRecordError`` where a column that no topic has holds a value: it would be lost.

        Columns of nothing but nulls are no error: once somebody has added a column to the table, every engine that
        names all columns of the table writes it.
        """
        expected = (*PARTITION_COLUMNS, *self.schema.names)
        if self._values is not None and DATA in self._names:
            self._check_fields(self._values)
        for name in self._names:
            if name in expected or name in CHANGE_COLUMNS or not self._has_values(name):
                continue
            meant = difflib.get_close_matches(name.lower(), self.schema.names, n=1)
            raise InvalidRecordError(
                f"its column {name!r} holds values, and a topic has no such column"
                + (f" (is {meant[0]!r} meant?)" if meant else "")
                + f"; expected {', '.join(expected)}"
            )

    def _check_fields(self, values: pa.StructType) -> None:
        """Raise ``InvalidRecordError`` where a field that no schema of the topic has holds a value: it would be lost.
        Nulls are no error, as in columns."""
        if not unknown_fields(self._parquet.schema_arrow.field(DATA).type, values):
            return
        unknown: dict[str, None] = {}
        for piece in self._decoded([DATA]):
            for chunk in piece[DATA].chunks:
                unknown.update(dict.fromkeys(unknown_values(chunk, values)))
        if unknown:
            raise InvalidRecordError(
                f"its column {DATA!r} has fields that no schema of the topic has: {', '.join(unknown)}; "
                f"expected {', '.join(field.name for field in values)}; a schema with them lets it in"
            )

    def _has_values(self, name: str) -> bool:
        groups = [self._parquet.metadata.row_group(number) for number in range(self._parquet.metadata.num_row_groups)]
        chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
        flat = [chunk for chunk in chunks if chunk.path_in_schema == name]
        counts = [
            chunk.statistics.null_count if chunk.statistics is not None and chunk.statistics.has_null_count else None
            for chunk in flat
        ]
        if flat and None not in counts:
            return any(bool(count < chunk.num_values) for count, chunk in zip(counts, flat, strict=True))
        return any(bool(piece[name].null_count < piece.num_rows) for piece in self._decoded([name]))

    def _decoded(self, names: list[str]) -> Iterator[pa.Table]:
        """These columns of the file as they are."""
        for number in range(self._parquet.metadata.num_row_groups):
            group = RowGroup.of(self._parquet, number, names)
            if group.row_count == 0:
                continue  # Arrow's writers make such of an empty table
            rows = group.rows_per_piece(_PIECE_BYTES)
            self._before_piece()
            with self._decoding():
                batches = self._parquet.iter_batches(rows, [number], names, use_threads=False)
            gathered: list[pa.RecordBatch] = []
            while (batch := self._next(batches)) is not None:
                gathered.append(batch)
                if _is_enough(gathered):
                    yield pa.Table.from_batches(gathered)
                    self._before_piece()
                    gathered = []
            if gathered:
                yield pa.Table.from_batches(gathered)

    def _next(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        with self._decoding():
            return next(batches, None)

    @contextmanager
    def _decoding(self) -> Iterator[None]:
        """Raise ``CorruptRecordError`` for what Arrow can't do with the file, so that it hinders no other file."""
        try:
            yield
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptRecordError(f"corrupt data file {self.path} ({self.size_bytes} bytes): {error}") from error


def _is_enough(batches: Sequence[pa.RecordBatch]) -> bool:
    """Are these small batches worth being handed on together?"""
    size_bytes, rows = sum(int(b.nbytes) for b in batches), sum(int(b.num_rows) for b in batches)
    return size_bytes >= _PIECE_BYTES or rows >= _PIECE_ROWS


def _check_values(values: pa.ChunkedArray) -> None:
    """A value that Python can't have would stop each consumer of dicts and of bytes."""
    for chunk in values.chunks:
        reason = unreadable_leaf(chunk, DATA)
        if reason is not None:
            raise InvalidRecordError(f"its column {reason}")


def _check_headers(given: pa.Table, headers: pa.ChunkedArray) -> None:
    """A cast fills fields of other names with null. Source of the second rule: Kafka ``RecordHeader``'s constructor."""
    if "headers" not in given.column_names or headers.null_count == len(headers):
        return
    kind = given["headers"].type
    item = getattr(kind, "value_type", None)
    names = {field.name for field in item} if item is not None and pa.types.is_struct(item) else set()
    if names != {"key", "value"} or pc.struct_field(pc.list_flatten(headers), "key").null_count:
        raise InvalidRecordError(
            f"its headers are {kind}, expected a list of key: string and value: binary, and no header without a key"
        )
