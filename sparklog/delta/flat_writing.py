"""Writing Parquet files of a few rows of plain columns by hand: Arrow's writer takes a third of a millisecond to set
itself up for the fifteen columns of an offset table, whatever it writes.

The counterpart of ``flat_parquet.py``: one row group; of each column one page (version 1) of plain values, not
compressed, any of which may be null; types as Arrow writes them; no statistics.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

from sparklog._version import __version__
from sparklog.checksums import crc32
from sparklog.delta.parquet_pages import MAGIC, PLAIN, RLE, data_page, run, thrift_string, varint, zigzag
from sparklog.delta.parquet_seals import EMPTY_SEAL, SEAL_KEY, sealed_footer

__all__ = ["write_flat"]

_INT32, _INT64, _BYTE_ARRAY = 1, 2, 6
_I32, _STRUCT = 5, 12
_KINDS = {
    "string": (_BYTE_ARRAY, "", b"\x25\x00\x4c\x1c\x00\x00"),
    "integer": (_INT32, "i", b""),
    "long": (_INT64, "q", b""),
    "timestamp": (_INT64, "q", b"\x25\x14\x4c\x8c\x11\x1c\x2c\x00\x00\x00\x00"),
}
"""By Delta's names of types: the physical type, numbers as ``struct`` has them, and the part of a schema element that
says what is meant: UTF8 and STRING, TIMESTAMP_MICROS and a TIMESTAMP in UTC."""


def write_flat(columns: Mapping[str, str], values: Sequence[Sequence[Any]]) -> bytes:
    """A file of some rows, at least one.

    Args:
        columns: Delta's names of their types, by name: ``string``, ``integer``, ``long``, ``timestamp``.
        values: of each column, in this order: texts, numbers, microseconds since the epoch, or None.
    Raises:
        struct.error: a number is out of range.
    """
    count = len(values[0])
    number = zigzag(count)
    parts, chunks, at = [MAGIC], [], len(MAGIC)
    for (begin, end), kind, column in zip(_marks(tuple(columns.items())), columns.values(), values, strict=True):
        page = data_page(count, (_levels(column), _plain(kind, [value for value in column if value is not None])))
        parts.append(page)
        size = len(page)
        whole = zigzag(size)
        chunks.append(begin + number + b"\x16" + whole + b"\x16" + whole + b"\x26" + zigzag(at) + end)
        at += size
    total = zigzag(at - len(MAGIC))
    row_group = b"".join(chunks) + b"\x16" + total + b"\x16" + number + b"\x26\x08\x16" + total + b"\x14\x00\x00"
    schema, writer = _ends(tuple(columns.items()))
    footer = schema + b"\x16" + number + b"\x19\x1c" + _list(len(columns)) + row_group + writer
    data = b"".join(parts)
    return data + sealed_footer(footer + struct.pack("<I", len(footer)) + MAGIC, len(data), crc32(data))


def _levels(column: Sequence[Any]) -> bytes:
    """Which values are there: definition levels in runs of equal ones."""
    runs = b"".join(run(len([*same]), level) for level, same in groupby(value is not None for value in column))
    return struct.pack("<I", len(runs)) + runs


def _plain(kind: str, there: Sequence[Any]) -> bytes:
    form = _KINDS[kind][1]
    if form:
        return struct.pack(f"<{len(there)}{form}", *there)
    return b"".join(struct.pack("<I", len(text)) + text for text in map(str.encode, there))


def _list(count: int, kind: int = _STRUCT) -> bytes:
    """The field after the one before it: the beginning of a list."""
    return b"\x19" + (bytes([count << 4 | kind]) if count < 15 else bytes([15 << 4 | kind]) + varint(count))


@lru_cache(maxsize=4)
def _marks(columns: tuple[tuple[str, str], ...]) -> list[tuple[bytes, bytes]]:
    """The metadata of each column: what lies before the number of its values, and behind the place of its page."""
    encodings = _list(2, _I32) + zigzag(PLAIN) + zigzag(RLE)
    return [
        (
            b"\x26\x00\x1c\x15"
            + zigzag(_KINDS[kind][0])
            + encodings
            + b"\x19\x18"
            + thrift_string(name)
            + b"\x15\x00\x16",
            b"\x00\x00",
        )
        for name, kind in columns
    ]


@lru_cache(maxsize=4)
def _ends(columns: tuple[tuple[str, str], ...]) -> tuple[bytes, bytes]:
    """The footer before its number of rows, and behind its row group: the schema, and who wrote it."""
    root = b"\x35\x00\x18" + thrift_string("schema") + b"\x15" + zigzag(len(columns)) + b"\x00"
    fields = b"".join(
        b"\x15" + zigzag(_KINDS[kind][0]) + b"\x25\x02\x18" + thrift_string(name) + _KINDS[kind][2] + b"\x00"
        for name, kind in columns
    )
    schema = b"\x15\x04" + _list(len(columns) + 1) + root + fields
    orders = _list(len(columns)) + b"\x1c\x00\x00" * len(columns) + b"\x00"
    seal = b"\x18" + thrift_string(SEAL_KEY.decode()) + b"\x18" + thrift_string(EMPTY_SEAL.decode()) + b"\x00"
    return schema, _list(1) + seal + b"\x18" + thrift_string(f"sparklog version {__version__}") + orders
