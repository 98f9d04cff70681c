"""Rows of a few plain records as Python's own values, and the reading of their files without Arrow.

To make a table, or to open a file, takes Arrow 12 and 57 µs where it was at it just before; five milliseconds later,
when its code and what it needs are in no cache any more, 170 and 320. Who handles a record at a time does without.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import pyarrow as pa

from sparklog.delta.parquet_seals import is_sealed
from sparklog.log.data.copied_rows import CopiedRows
from sparklog.log.data.parquet_bytes import (
    MAGIC,
    PAGE_SUM_BYTES,
    WRITER,
    data_page,
    footer_begin,
    page_header,
    run,
)
from sparklog.log.data.schema import HEADERS, PLAIN_RECORDS, RECORD_SCHEMA, TIMESTAMP

__all__ = ["FEW_RECORDS", "FewRows", "Rows", "as_batch", "decode_few_records", "offset_at"]

FEW_RECORDS = 16
"""So many are encoded one by one: of more, the compiled core is faster, and Arrow where there is none."""

_FIXED_BYTES = 64
"""About what a row takes in memory beside its key and value."""


@dataclass(frozen=True, slots=True, eq=False)
class FewRows:
    """Plain records, which have no headers, by column; nobody changes the lists."""

    offsets: Sequence[int]
    """Ascending: in their topic, or counted from 0 on where they have none yet."""
    timestamps_us: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]

    @property
    def num_rows(self) -> int:
        """How many they are; named as Arrow names it."""
        return len(self.offsets)

    @property
    def nbytes(self) -> int:
        """About the memory that they take; named as Arrow names it."""
        sizes = [len(each) for column in (self.keys, self.values) for each in column if each is not None]
        return sum(sizes) + _FIXED_BYTES * len(self.offsets)

    def slice(self, start: int, count: int | None = None) -> FewRows:
        """The rows from ``start`` on, at most ``count``."""
        rows = slice(start, None if count is None else start + count)
        if start == 0 and (count is None or count >= len(self.offsets)):
            return self
        return FewRows(self.offsets[rows], self.timestamps_us[rows], self.keys[rows], self.values[rows])

    @classmethod
    def together(cls, parts: Sequence[FewRows]) -> FewRows:
        """The rows of several parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            [each for part in parts for each in part.offsets],
            [each for part in parts for each in part.timestamps_us],
            [each for part in parts for each in part.keys],
            [each for part in parts for each in part.values],
        )

    def to_batch(self) -> pa.RecordBatch:
        """The rows as a batch of :data:`~sparklog.log.data.schema.RECORD_SCHEMA`."""
        columns = [pa.array(self.offsets, pa.int64()), *self._plain_columns(), pa.nulls(self.num_rows, HEADERS)]
        return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)

    def to_table(self) -> pa.Table:
        """The rows as a table of :data:`~sparklog.log.data.schema.PLAIN_RECORDS`, without their offsets."""
        return pa.Table.from_arrays(self._plain_columns(), schema=PLAIN_RECORDS)

    def _plain_columns(self) -> list[pa.Array]:
        times = pa.array(self.timestamps_us, pa.int64()).view(TIMESTAMP)
        return [times, pa.array(self.keys, pa.binary()), pa.array(self.values, pa.binary())]


Rows: TypeAlias = "pa.RecordBatch | FewRows | CopiedRows"
"""Records as a consumer has them: a batch of :data:`~sparklog.log.data.schema.RECORD_SCHEMA`, a few, or those of a file
as the core has copied them."""


def as_batch(rows: Rows) -> pa.RecordBatch:
    """Records as Arrow has them."""
    return rows.to_batch() if isinstance(rows, FewRows | CopiedRows) else rows


def offset_at(rows: Rows, place: int) -> int:
    """The offset of a row; -1 is the last one's place."""
    return rows.offsets[place] if isinstance(rows, FewRows | CopiedRows) else int(rows.column(0)[place].as_py())


def decode_few_records(data: bytes, base_offset: int) -> FewRows | None:
    """The records of a file that :func:`~sparklog.log.data.few_records.encode_few_records` has put together; None: it
    is another one, or has changed since, and Arrow is to read it, or says what is wrong with it.

    Everything is compared that such a file is bound to have: the checksums of its seal, the numbers that each page
    begins with, the sizes of all pages, which end where the footer begins, its columns, its writer.
    """
    if data[:4] != MAGIC or data[-4:] != MAGIC:
        return None
    try:
        end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        count = data[end + _COUNT_AT] >> 1  # at most 63: one byte
        shape = _shape(count) if 0 < count <= FEW_RECORDS else None
        if shape is None or end < len(shape.begin) or not data.startswith(shape.begin):
            return None
        if not data.startswith(shape.footer_begin, end) or data.find(WRITER, end) < 0 or not is_sealed(data):
            return None
        at = len(shape.begin) + PAGE_SUM_BYTES
        if not data.startswith(shape.end_of_times, at):
            return None
        at += len(shape.end_of_times)
        times = list(struct.unpack_from(f"<{count}q", data, at))
        keys, at = _byte_arrays(data, at + 8 * count, shape)
        values, at = _byte_arrays(data, at, shape)
    except (_OtherFileError, IndexError, struct.error):
        return None
    if end - at != shape.end_bytes or not data.startswith(shape.of_producers, at):
        return None
    return FewRows(range(base_offset, base_offset + count), times, keys, values)


class _OtherFileError(Exception):
    """The file was put together by somebody else."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """The bytes that all files of so many records have in common."""

    count: int
    levels: bytes
    """The definition levels of a column without nulls."""
    no_levels: bytes
    """The definition levels of a column of nothing but nulls."""
    begin: bytes
    """All before the checksum of the timestamps."""
    end_of_times: bytes
    """All between that and the timestamps."""
    of_producers: bytes
    """All between the values and the checksum of the producer's ids."""
    end_bytes: int
    """The size of the last three columns."""
    footer_begin: bytes


_COUNT_AT = len(footer_begin(1)[0])
"""Where a footer has the number of records."""


@cache
def _shape(count: int) -> _Shape:
    levels, no_levels = (struct.pack("<I", len(found)) + found for found in (run(count, 1), run(count, 0)))
    (begin_8, end_8), narrow = page_header(count, len(levels) + 8 * count), page_header(count, len(levels) + 4 * count)
    offsets = data_page(count, (levels, struct.pack(f"<{count}q", *range(count))))
    return _Shape(
        count=count,
        levels=levels,
        no_levels=no_levels,
        begin=MAGIC + offsets + begin_8,
        end_of_times=end_8 + levels,
        of_producers=begin_8,
        end_bytes=len(offsets) + 2 * (sum(map(len, narrow)) + PAGE_SUM_BYTES + len(levels) + 4 * count),
        footer_begin=b"".join(footer_begin(count)),
    )


def _byte_arrays(data: bytes, at: int, shape: _Shape) -> tuple[list[bytes | None], int]:
    """The keys or values of a page, and where it ends."""
    size, after = _varint(data, at + 3)
    size >>= 1
    begin, end_of_header = page_header(shape.count, size)
    after = at + len(begin) + PAGE_SUM_BYTES
    if not data.startswith(begin, at) or not data.startswith(end_of_header, after):
        raise _OtherFileError
    at = after + len(end_of_header)
    end = at + size
    if data.startswith(shape.levels, at):
        at += len(shape.levels)
        present: Sequence[int] = (1,) * shape.count
    elif size == len(shape.no_levels) and data.startswith(shape.no_levels, at):
        return [None] * shape.count, end
    else:
        present, at = _levels(data, at, shape.count)
    found: list[bytes | None] = []
    for is_there in present:
        if not is_there:
            found.append(None)
            continue
        after = at + 4
        at = after + int.from_bytes(data[at:after], "little")
        if at > end:
            raise _OtherFileError
        found.append(data[after:at])
    if at != end:
        raise _OtherFileError
    return found, end


def _levels(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    """Which values are there: runs of equal levels; and where they end."""
    end = at + 4 + int.from_bytes(data[at : at + 4], "little")
    at += 4
    found: list[int] = []
    while at < end and len(found) <= count:
        length, level = data[at], data[at + 1]
        if length & 1 or level > 1:
            raise _OtherFileError
        found += [level] * (length >> 1)
        at += 2
    if at != end or len(found) != count:
        raise _OtherFileError
    return found, end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number as :func:`~sparklog.log.data.parquet_bytes.varint` writes it, and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 35:
            raise _OtherFileError
