"""The bytes of a data file of a few records, put together by hand: Arrow's writer takes a quarter of a millisecond to
set itself up, whatever it writes. One page a column, plain values."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple

from sparklog.log.data.parquet_bytes import MAGIC, Chunk, bounds, data_page, footer, run

__all__ = ["encode_few_records"]


def encode_few_records(
    *,
    timestamps_us: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    producer_id: int,
    producer_epoch: int,
    sequences: Sequence[int],
) -> bytes:
    """A data file of these records, at least one, without headers. All sequences are of one length."""
    count = len(timestamps_us)
    shape = _shape(count)
    present, of_8, of_4 = shape.present, shape.of_8, shape.of_4
    key_page, value_page = _byte_arrays(keys, present), _byte_arrays(values, present)
    key_header, value_header = data_page(count, len(key_page)), data_page(count, len(value_page))
    wide, narrow = shape.size_8, shape.size_4
    low_us, high_us = (timestamps_us[0],) * 2 if count == 1 else (min(timestamps_us), max(timestamps_us))
    low, high = (sequences[0],) * 2 if count == 1 else (min(sequences), max(sequences))
    end = footer(
        count,
        (
            Chunk(wide, shape.offset_bounds),
            Chunk(wide, bounds("<q", low_us, high_us)),
            Chunk(len(key_header) + len(key_page)),
            Chunk(len(value_header) + len(value_page)),
            Chunk(wide, bounds("<q", producer_id, producer_id)),
            Chunk(narrow),
            Chunk(narrow, bounds("<i", low, high)),
        ),
    )
    parts = (
        *(shape.begin, struct.pack(shape.int64, *timestamps_us), key_header, key_page, value_header, value_page),
        *(of_8, struct.pack("<q", producer_id) * count, of_4, struct.pack("<i", producer_epoch) * count),
        *(of_4, struct.pack(shape.int32, *sequences), end),
    )
    return b"".join(parts)


class _Shape(NamedTuple):
    """The bytes that all files of so many records have in common."""

    present: bytes
    """The definition levels of a column without nulls."""
    begin: bytes
    """All before the timestamps."""
    of_8: bytes
    """All before the numbers of a column of eight bytes each …"""
    of_4: bytes
    """… and of four."""
    size_8: int
    """The size of such a column …"""
    size_4: int
    """… and of one of four bytes each."""
    offset_bounds: bytes
    int64: str
    """The numbers of such a column, as ``struct`` has them …"""
    int32: str
    """… and of one of four bytes each."""


@cache
def _shape(count: int) -> _Shape:
    present = _levels([True] * count)
    of_8, of_4 = (data_page(count, len(present) + width * count) + present for width in (8, 4))
    int64, int32 = f"<{count}q", f"<{count}i"
    return _Shape(
        present=present,
        begin=MAGIC + of_8 + struct.pack(int64, *range(count)) + of_8,
        of_8=of_8,
        of_4=of_4,
        size_8=len(of_8) + 8 * count,
        size_4=len(of_4) + 4 * count,
        offset_bounds=bounds("<q", 0, count - 1),
        int64=int64,
        int32=int32,
    )


def _byte_arrays(column: Sequence[bytes | None], present: bytes) -> bytes:
    """A page. ``present``: the definition levels of a column without nulls."""
    found = [present if None not in column else _levels([value is not None for value in column])]
    for value in column:
        if value is not None:
            found += (_pack_length(len(value)), value)
    return b"".join(found)


def _levels(present: Sequence[bool]) -> bytes:
    """Which values are there: definition levels in runs of equal ones."""
    runs = b"".join(run(len([*same]), level) for level, same in groupby(present))
    return struct.pack("<I", len(runs)) + runs


_pack_length = struct.Struct("<I").pack
