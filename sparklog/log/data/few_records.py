"""The bytes of a data file of a few records, put together by hand: Arrow's writer takes a quarter of a millisecond to
set itself up, whatever it writes. One page a column, plain values."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import groupby
from typing import Any, NamedTuple

from sparklog.delta.parquet_pages import EMPTY_PAGE_SUM, page_header
from sparklog.delta.parquet_seals import seal_pages
from sparklog.log.data.parquet_bytes import MAGIC, Chunk, bounds, footer, run

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
    key_page, value_page = _byte_arrays(keys, shape.present), _byte_arrays(values, shape.present)
    key_header, value_header, pages, footer_at, *footers = _frame(count, len(key_page), len(value_page))
    producer, producer_bounds = _of_producer(count, producer_id, producer_epoch)
    low_us, high_us = (timestamps_us[0],) * 2 if count == 1 else (min(timestamps_us), max(timestamps_us))
    low, high = (sequences[0],) * 2 if count == 1 else (min(sequences), max(sequences))
    to_times, to_producer, to_sequences, end = footers
    parts = (
        *(shape.begin, struct.pack(shape.int64, *timestamps_us), key_header, key_page, value_header, value_page),
        *(producer, struct.pack(shape.int32, *sequences)),
        *(to_times, bounds("<q", low_us, high_us), to_producer, producer_bounds),
        *(to_sequences, bounds("<i", low, high), end),
    )
    return seal_pages(b"".join(parts), pages, footer_at)


_WIDE_HOLE, _NARROW_HOLE = (b"\xff" * len(bounds(kind, 0, 0)) for kind in ("<q", "<i"))
"""The places of bounds in a footer, which has no such bytes but for those."""


@lru_cache(maxsize=1024)
def _frame(count: int, key_bytes: int, value_bytes: int) -> tuple[Any, ...]:
    """The parts that all files of so many records have in common whose keys and values take pages of these sizes: the
    headers of both; where the checksums and the pages are that :func:`seal_pages` adds; where the footer begins; and
    its parts between the bounds of times, producer and sequences."""
    shape = _shape(count)
    key_header, value_header = _header(count, key_bytes), _header(count, value_bytes)
    wide, narrow = shape.size_8, shape.size_4
    sizes = (wide, wide, len(key_header) + key_bytes, len(value_header) + value_bytes, wide, narrow, narrow)
    of_columns = (shape.offset_bounds, _WIDE_HOLE, b"", b"", _WIDE_HOLE, b"", _NARROW_HOLE)
    whole = footer(count, [Chunk(size, of_column) for size, of_column in zip(sizes, of_columns, strict=True)])
    of_8, of_4 = len(shape.present) + 8 * count, len(shape.present) + 4 * count
    pages, stop = [], len(MAGIC)
    for size, content in zip(sizes, (of_8, of_8, key_bytes, value_bytes, of_8, of_4, of_4), strict=True):
        stop += size
        before, _ = page_header(count, content)
        pages += [stop - size + len(before), stop - content, stop]
    to_times, to_producer, rest = whole.split(_WIDE_HOLE)
    to_sequences, end = rest.split(_NARROW_HOLE)
    return key_header, value_header, tuple(pages), stop, to_times, to_producer, to_sequences, end


def _header(count: int, size_bytes: int) -> bytes:
    """The header of a page, without its checksum."""
    return EMPTY_PAGE_SUM.join(page_header(count, size_bytes))


@lru_cache(maxsize=64)
def _of_producer(count: int, producer_id: int, producer_epoch: int) -> tuple[bytes, bytes]:
    """All between the values and the sequences, and the bounds of the producer's id."""
    of_8, of_4 = _shape(count).of_8, _shape(count).of_4
    ids, epochs = struct.pack("<q", producer_id) * count, struct.pack("<i", producer_epoch) * count
    return b"".join((of_8, ids, of_4, epochs, of_4)), bounds("<q", producer_id, producer_id)


class _Shape(NamedTuple):
    """The bytes that all files of so many records have in common, without checksums."""

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
    of_8, of_4 = (_header(count, len(present) + width * count) + present for width in (8, 4))
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
