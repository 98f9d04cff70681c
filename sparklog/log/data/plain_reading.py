"""Files of many plain records, as ``plain_records.py`` has them, read by the compiled core: each value is copied once.
Arrow's reader takes a fifth of a millisecond for a file, and asks for Python's lock many times meanwhile."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sparklog._native import CORE
from sparklog.delta.parquet_seals import is_sealed
from sparklog.log.data.copied_rows import CopiedRows
from sparklog.log.data.parquet_bytes import (
    DELTA_BINARY_PACKED,
    MAGIC,
    PLAIN,
    RLE,
    RLE_DICTIONARY,
    Chunk,
    bounds,
    footer_pattern,
    unzigzag,
)
from sparklog.log.data.plain_records import ascending_page

__all__ = ["PLAIN_CHUNKS", "plain_column_ranges", "read_plain_columns", "read_plain_rows"]

_NUMBER, _SMALL_NUMBER = bounds("<q", 0, 0), bounds("<i", 0, 0)
_ASCENDING, _CONSTANT = (DELTA_BINARY_PACKED, RLE), (PLAIN, RLE, RLE_DICTIONARY)
PLAIN_CHUNKS = (
    Chunk(0, _NUMBER, _ASCENDING),
    Chunk(0, _NUMBER),
    Chunk(0),
    Chunk(0),
    Chunk(0, _NUMBER, _CONSTANT, 1),
    Chunk(0, b"", _CONSTANT, 1),
    Chunk(0, _SMALL_NUMBER, _ASCENDING),
)
"""The columns of a file of many plain records, with any sizes and bounds."""
_FOOTER = footer_pattern(PLAIN_CHUNKS)
_END_BYTES = 4 + len(MAGIC)
_ALIGNED = 64


def read_plain_columns(data: Any, count: int, most_bytes: int) -> tuple[pa.Array, pa.Array, pa.Array] | None:
    """The timestamps, keys and values of a file's records; arguments and results as of :func:`read_plain_rows`."""
    rows = read_plain_rows(data, count, 0, most_bytes)
    return None if rows is None else rows.plain_columns()


def read_plain_rows(data: Any, count: int, base_offset: int, most_bytes: int) -> CopiedRows | None:
    """The records of a file, whose ``offset_delta`` counts from 0 on.

    Args:
        data: the file, as bytes or a buffer.
        count: its records, as the log has it.
        base_offset: the offset of the first.
        most_bytes: of a file that is read so.
    Returns:
        None: the file isn't one of many plain records, or isn't as expected; Arrow reads it, or says what is wrong.
    """
    file = memoryview(data).cast("B")
    ranges = plain_column_ranges(file, count, most_bytes)
    return None if ranges is None else _copied(file, count, base_offset, ranges)


def plain_column_ranges(file: memoryview, count: int, most_bytes: int) -> list[tuple[int, int]] | None:
    """The byte ranges of timestamps, keys and values in a file of many plain records, as its footer has them, none of
    whose bytes has changed since it was sealed; the core checks them. Arguments and None as of
    :func:`read_plain_rows`."""
    if CORE is None or count <= 0 or not len(MAGIC) + _END_BYTES < len(file) <= most_bytes or file[:4] != MAGIC:
        return None
    footer_bytes = int.from_bytes(file[-_END_BYTES : -len(MAGIC)], "little")
    end = len(file) - _END_BYTES - footer_bytes
    found = _FOOTER.match(file[end:]) if end > 0 and file[-len(MAGIC) :] == MAGIC else None
    if found is None or unzigzag(found["rows"]) != count:
        return None
    places = []
    for name in ("offset_delta", "timestamp", "key", "value"):
        start = unzigzag(found[f"{name}_at"])
        places.append((start, start + unzigzag(found[name])))
    if any(not 0 <= start <= stop <= end for start, stop in places):
        return None
    (start, stop), *columns = places
    return columns if file[start:stop] == ascending_page(0, count) and is_sealed(file) else None


def _copied(file: memoryview, count: int, base_offset: int, places: list[tuple[int, int]]) -> CopiedRows | None:
    _, key_bytes, value_bytes = (stop - start for start, stop in places)
    bits, ends = (count + 7) // 8, 4 * (count + 1)
    parts, size = [], 0
    for part in (8 * count, bits, ends, key_bytes, bits, ends, value_bytes):
        parts.append(size)
        size += -(-part // _ALIGNED) * _ALIGNED
    out = pa.allocate_buffer(size)  # Arrow's memory: its pages are there already
    nulls = CORE.read_plain(file, count, tuple(places), out, tuple(parts))  # type: ignore[union-attr]
    return None if nulls is None else CopiedRows(out, (*parts, size), nulls, count, 0, base_offset, count)
