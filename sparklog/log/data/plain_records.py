"""The bytes of a data file of many plain records, put together by the compiled core: each value is copied once, from
where it was gathered to its place in the file. Arrow's writer copies it four times, and each time to new memory, whose
pages the system has to find."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sparklog.log.data.parquet_bytes import (
    DELTA_BINARY_PACKED,
    MAGIC,
    PLAIN,
    PLAIN_LAYOUT,
    RLE,
    RLE_DICTIONARY,
    Chunk,
    Layout,
    bounds,
    data_page,
    dictionary_page,
    footer,
    late_page,
    part_bytes,
    run,
    varint,
    zigzag,
)

__all__ = ["ascending_page", "encode_plain_records"]

_PAGE_BYTES = 1_048_576
"""The size of a page, as Arrow has it; a single larger value is a page."""
_TIMES_A_PAGE = _PAGE_BYTES // 8
_BLOCK = 128
"""Differences in a block of Parquet's encoding of differences, of four parts."""
_DELTA_BEGIN = b"\x80\x01\x04"
_BLOCK_OF_ONES = b"\x02\x00\x00\x00\x00"
"""The least difference is 1, and none is greater, in none of the four parts."""


def encode_plain_records(
    rows: Any,
    start: int,
    count: int,
    *,
    bounds_us: tuple[int, int],
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    typed: Sequence[tuple[list[Any], Chunk]] = (),
    layout: Layout = PLAIN_LAYOUT,
    metadata: Mapping[bytes, bytes] = MappingProxyType({}),
    room: Any = None,
) -> bytes:
    """A data file of some rows, at least one, whose sequences don't wrap.

    Args:
        rows: ``PlainRows`` of the core: timestamps in µs, keys and values.
        bounds_us: the least and the greatest timestamp of theirs.
        typed: the columns of typed values, after ``value``; layout: of a file with them.
        metadata: what else the footer is to have, by key.
        room: the core's, for several files.
    Returns:
        Bytes, or a view of bytes.
    """
    last = base_sequence + count - 1
    columns = [
        _ascending(0, count, bounds("<q", 0, count - 1)),
        _times(start, count, bounds("<q", *bounds_us)),
        _values(rows, 0, start, count),
        _values(rows, 1, start, count),
        *typed,
        _constant("<q", producer_id, count, bounds("<q", producer_id, producer_id)),
        _constant("<i", producer_epoch, count, b""),
        _ascending(base_sequence, count, bounds("<i", base_sequence, last)),
    ]
    end = footer(count, [chunk for _, chunk in columns], layout, metadata)
    parts = [MAGIC, *(part for parts, _ in columns for part in parts), end]
    footer_at = len(MAGIC) + sum(chunk.size_bytes for _, chunk in columns)
    data: bytes = rows.assemble(parts, footer_at + len(end), room, footer_at)
    return data


def _ascending(first: int, count: int, of_column: bytes) -> tuple[list[Any], Chunk]:
    """Numbers of which each is one more than the one before it."""
    page = ascending_page(first, count)
    return [page], Chunk(len(page), of_column, (DELTA_BINARY_PACKED, RLE))


def ascending_page(first: int, count: int) -> bytes:
    """The page of so many numbers of which each is one more than the one before it."""
    blocks = -(-(count - 1) // _BLOCK)
    values = _DELTA_BEGIN + varint(count) + zigzag(first) + _BLOCK_OF_ONES * blocks
    return data_page(count, (_all_there(count), values), DELTA_BINARY_PACKED)


def _constant(kind: str, number: int, count: int, of_column: bytes) -> tuple[list[Any], Chunk]:
    """The same number in each row: a dictionary of it, and a run of its place there."""
    dictionary = dictionary_page(struct.pack(kind, number))
    page = data_page(count, (_all_there(count), b"\x01" + run(count, 0)), RLE_DICTIONARY)
    encodings = (PLAIN, RLE, RLE_DICTIONARY)
    return [dictionary, page], Chunk(len(dictionary) + len(page), of_column, encodings, len(dictionary))


def _times(start: int, count: int, of_column: bytes) -> tuple[list[Any], Chunk]:
    parts: list[Any] = []
    for first in range(0, count, _TIMES_A_PAGE):
        rows = min(_TIMES_A_PAGE, count - first)
        parts += (*late_page(rows, _all_there(rows), 8 * rows), (0, start + first, rows, 8 * rows))
    return parts, Chunk(part_bytes(parts), of_column)


def _values(rows: Any, which: int, start: int, count: int) -> tuple[list[Any], Chunk]:
    parts: list[Any] = []
    at, end = start, start + count
    while at < end:
        page_rows, page_bytes, null_count = rows.next_page(which, at, end - at, _PAGE_BYTES)
        if null_count in (0, page_rows):
            levels, bits_bytes = _run_of_levels(page_rows, 0 if null_count else 1), 0
        else:
            bits_bytes = (page_rows + 7) // 8
            begin = varint(bits_bytes << 1 | 1)
            levels = struct.pack("<I", len(begin) + bits_bytes) + begin
        parts += late_page(page_rows, levels, bits_bytes + page_bytes)
        if bits_bytes:
            parts.append((3 + which, at, page_rows, bits_bytes))
        if page_bytes:
            parts.append((1 + which, at, page_rows, page_bytes))
        at += page_rows
    return parts, Chunk(part_bytes(parts))


def _all_there(count: int) -> bytes:
    return _run_of_levels(count, 1)


def _run_of_levels(count: int, level: int) -> bytes:
    levels = run(count, level)
    return struct.pack("<I", len(levels)) + levels
