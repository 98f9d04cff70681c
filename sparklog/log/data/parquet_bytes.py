"""The structure of data files that are put together by hand: pages, and the footer that tells where they are.

One row group of the columns of :data:`~sparklog.log.data.schema.DATA_SCHEMA` without ``headers``, in pages of the first
version, uncompressed: what every reader of Parquet knows. Source: parquet-format, ``parquet.thrift``, by Thrift's
compact protocol.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from sparklog._version import __version__
from sparklog.delta.parquet_pages import MAGIC, PLAIN, RLE, data_page, run, thrift_string, unzigzag, varint, zigzag

__all__ = [
    "COLUMNS",
    "DELTA_BINARY_PACKED",
    "MAGIC",
    "PLAIN",
    "RLE",
    "RLE_DICTIONARY",
    "WRITER",
    "Chunk",
    "bounds",
    "data_page",
    "dictionary_page",
    "footer",
    "footer_begin",
    "footer_pattern",
    "run",
    "unzigzag",
    "varint",
    "zigzag",
]

_INT32, _INT64, _BYTE_ARRAY = 1, 2, 6
"""Parquet's physical types."""
COLUMNS = {
    "offset_delta": _INT64,
    "timestamp": _INT64,
    "key": _BYTE_ARRAY,
    "value": _BYTE_ARRAY,
    "producer_id": _INT64,
    "producer_epoch": _INT32,
    "sequence": _INT32,
}
"""Physical types by the columns of :data:`~sparklog.log.data.schema.DATA_SCHEMA`, in its order, without ``headers``."""
DELTA_BINARY_PACKED, RLE_DICTIONARY = 5, 8
"""Parquet's encodings beside the plain ones."""
_MICROSECONDS_IN_UTC = b"\x25\x14\x4c\x8c\x11\x1c\x2c\x00\x00\x00\x00"
"""The part of a schema element with the converted type TIMESTAMP_MICROS and the logical type TIMESTAMP."""
_SIGNED_16_BITS = b"\x25\x20\x4c\xac\x13\x10\x11\x00\x00"
"""The converted type INT_16 and the logical type INTEGER."""
_MEANINGS = {"timestamp": _MICROSECONDS_IN_UTC, "producer_epoch": _SIGNED_16_BITS}
_END = b"\x00"
"""The end of a Thrift struct. A field begins with a byte of the distance from the field before it, and its type:
``\\x15`` is a 32-bit integer, ``\\x16`` one of 64 bits, ``\\x18`` a string, ``\\x19`` a list, ``\\x1c`` a struct."""
_BOUNDS_BEGIN, _BOUNDS_LOW = b"\x36\x00\x28", b"\x18"
"""The marks of a column's statistics: no nulls, before the greatest number; and before the least one."""
WRITER = b"sparklog version "
"""The name by which a footer's writer begins."""


class Chunk(NamedTuple):
    """A column as the footer tells of it."""

    size_bytes: int
    """Bytes of its pages with their headers."""
    bounds: bytes = b""
    """The statistics, by :func:`bounds`; nothing: there are none."""
    encodings: tuple[int, ...] = (PLAIN, RLE)
    dictionary_bytes: int = 0
    """Bytes of the dictionary's page with its header; 0: there is none."""


def dictionary_page(value: bytes) -> bytes:
    """A dictionary of one number, with its header."""
    size = zigzag(len(value))
    return b"\x15\x04\x15" + size + b"\x15" + size + b"\x4c\x15\x02\x15\x00\x00\x00" + value


def bounds(kind: str, low: int, high: int) -> bytes:
    """A column's statistics: no nulls, and the least and the greatest number.

    Args:
        kind: of the numbers, as ``struct`` has it.
    """
    size = bytes([struct.calcsize(kind)])
    return _BOUNDS_BEGIN + size + struct.pack(kind, high) + _BOUNDS_LOW + size + struct.pack(kind, low) + _END


def footer(row_count: int, chunks: Sequence[Chunk]) -> bytes:
    """The end of a file whose columns lie one behind the other from :data:`MAGIC` on; one for each of
    :data:`COLUMNS`."""
    number = zigzag(row_count)
    found, at = [_FOOTER_BEGIN, number, _ROW_GROUP_BEGIN], len(MAGIC)
    for (begin, end), (size_bytes, of_column, encodings, dictionary_bytes) in zip(_CHUNK_MARKS, chunks, strict=True):
        whole = zigzag(size_bytes)
        found += (begin, _encodings(encodings), end, number, b"\x16", whole, b"\x16", whole)
        found += (b"\x26", zigzag(at + dictionary_bytes))
        if dictionary_bytes:
            found += (b"\x26", zigzag(at))
        if of_column:
            found += (_BOUNDS_AFTER_DICTIONARY if dictionary_bytes else _BOUNDS_AFTER_DATA, of_column)
        found.append(_TWO_ENDS)
        at += size_bytes
    total = zigzag(at - len(MAGIC))
    found += (b"\x16", total, b"\x16", number, b"\x26\x08\x16", total, b"\x14\x00", _END, _FOOTER_END)
    whole_footer = b"".join(found)
    return b"".join((whole_footer, struct.pack("<I", len(whole_footer)), MAGIC))


def footer_begin(row_count: int) -> tuple[bytes, bytes, bytes]:
    """The beginning of a footer: its columns; the number of rows; and that there is one row group of these columns."""
    return _FOOTER_BEGIN, zigzag(row_count), _ROW_GROUP_BEGIN


def footer_pattern(chunks: Sequence[Chunk]) -> re.Pattern[bytes]:
    """The pattern of all that :func:`footer` makes of such columns, up to the writer's name.

    Groups: ``rows``, the number of rows; of each column by its name the size of its pages, and by its name and ``_at``
    where its data begins, each as of :func:`zigzag`.

    Args:
        chunks: with any sizes and bounds; 1 where there is a dictionary.
    """
    number = rb"[\x80-\xff]*[\x00-\x7f]"
    found = []
    for name, (begin, end), chunk in zip(COLUMNS, _CHUNK_MARKS, chunks, strict=True):
        group = name.encode()
        sizes = rb"(?P=rows)\x16(?P<%b>%b)\x16(?P=%b)" % (group, number, group)
        where, field = rb"\x26(?P<%b_at>%b)" % (group, number), _BOUNDS_AFTER_DATA
        if chunk.dictionary_bytes:
            where, field = where + rb"\x26" + number, _BOUNDS_AFTER_DICTIONARY
        statistics = b""
        if chunk.bounds:
            width = (len(chunk.bounds) - len(bounds("<b", 0, 0))) // 2 + 1
            before, between = (re.escape(mark + bytes([width])) for mark in (_BOUNDS_BEGIN, _BOUNDS_LOW))
            any_number = b".{%d}" % width
            statistics = re.escape(field) + before + any_number + between + any_number
            statistics += re.escape(_END)
        marks = re.escape(begin + _encodings(chunk.encodings) + end)
        found.append(marks + sizes + where + statistics + re.escape(_TWO_ENDS))
    of_group = rb"\x16(?P<total>%b)\x16(?P=rows)\x26\x08\x16(?P=total)\x14\x00\x00" % number
    rows = re.escape(_FOOTER_BEGIN) + b"(?P<rows>%b)" % number + re.escape(_ROW_GROUP_BEGIN)
    return re.compile(rows + b"".join(found) + of_group, re.DOTALL)


@cache
def _encodings(encodings: tuple[int, ...]) -> bytes:
    return bytes([len(encodings) << 4 | _I32]) + b"".join(map(zigzag, encodings))


def _schema() -> bytes:
    root = b"\x35\x00\x18" + thrift_string("schema") + b"\x15" + zigzag(len(COLUMNS)) + _END
    return root + b"".join(
        b"\x15" + zigzag(kind) + b"\x25\x02\x18" + thrift_string(name) + _MEANINGS.get(name, b"") + _END
        for name, kind in COLUMNS.items()
    )


_I32, _STRUCT = 5, 12
_BOUNDS_AFTER_DATA, _BOUNDS_AFTER_DICTIONARY = bytes([(12 - 9) << 4 | _STRUCT]), bytes([(12 - 11) << 4 | _STRUCT])
"""The beginning of a column's statistics, behind the place of its data, or of its dictionary."""
_TWO_ENDS = _END + _END
_CHUNK_MARKS = tuple(
    (b"\x26\x00\x1c\x15" + zigzag(kind) + b"\x19", b"\x19\x18" + thrift_string(name) + b"\x15\x00\x16")
    for name, kind in COLUMNS.items()
)
"""The metadata of each column: what lies before its encodings, its type; and what lies between them and the number of
its values, its name, and that it isn't compressed."""
_FOOTER_BEGIN = b"\x15\x04\x19" + bytes([(len(COLUMNS) + 1) << 4 | _STRUCT]) + _schema() + b"\x16"
_ROW_GROUP_BEGIN = b"\x19\x1c\x19" + bytes([len(COLUMNS) << 4 | _STRUCT])
_FOOTER_END = (
    b"\x28"
    + thrift_string(WRITER.decode() + __version__)
    + b"\x19"
    + bytes([len(COLUMNS) << 4 | _STRUCT])
    + b"\x1c\x00\x00" * len(COLUMNS)
    + _END
)
"""The writer's name, and that the bounds of each column are in the order of its type."""
