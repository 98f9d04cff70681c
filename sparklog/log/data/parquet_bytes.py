"""The structure of data files that are put together by hand: pages, and the footer that tells where they are.

One row group of the columns of :data:`~sparklog.log.data.schema.DATA_SCHEMA` without ``headers``, and of a typed topic
those of its values, in pages of the first version, uncompressed: what every reader of Parquet knows. Source:
parquet-format, ``parquet.thrift``, by Thrift's compact protocol.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from sparklog._version import __version__
from sparklog.checksums import crc32
from sparklog.delta.parquet_pages import (
    MAGIC,
    PAGE_SUM_BYTES,
    PLAIN,
    RLE,
    data_page,
    page_header,
    page_sum,
    run,
    thrift_string,
    unzigzag,
    varint,
    zigzag,
)
from sparklog.delta.parquet_seals import EMPTY_SEAL, SEAL_KEY

__all__ = [
    "COLUMNS",
    "DELTA_BINARY_PACKED",
    "MAGIC",
    "PAGE_SUM_BYTES",
    "PLAIN",
    "PLAIN_LAYOUT",
    "RLE",
    "RLE_DICTIONARY",
    "WRITER",
    "Chunk",
    "Layout",
    "Leaf",
    "bounds",
    "data_page",
    "dictionary_page",
    "footer",
    "footer_begin",
    "footer_parts",
    "footer_pattern",
    "late_page",
    "page_header",
    "part_bytes",
    "run",
    "statistics",
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
_TRUE, _I32, _STRING, _STRUCT = 1, 5, 8, 12
"""Thrift's types, as its compact protocol has them."""
_LONG = 15
"""The least size of a list that has a number of its own."""
_STRING_FIELD = b"\x18"
_BOUNDS_AFTER_DATA, _BOUNDS_AFTER_DICTIONARY = bytes([(12 - 9) << 4 | _STRUCT]), bytes([(12 - 11) << 4 | _STRUCT])
"""The beginning of a column's statistics, behind the place of its data, or of its dictionary."""
_TWO_ENDS = _END + _END
_CODED_BEGIN = b"\x19\x2c\x15\x04\x15\x00\x15\x02\x00\x15\x00\x15\x10\x15"
"""The beginning of the encodings of pages: one of plain values is the dictionary, so many are of places in it."""
_NO_METADATA: Mapping[bytes, bytes] = MappingProxyType({})
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
    coded_pages: int = 0
    """So many pages, all there are, have places in the dictionary, and the footer says so: by that engines skip a file
    whose dictionary lacks a value. 0: it doesn't say."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column within a struct, as a footer's schema tells of it."""

    name: str
    physical: int
    """Its physical type."""
    meaning: bytes = b""
    """Its converted and logical type, as a schema element has them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts that the footers of all files of the same columns have in common."""

    marks: Sequence[tuple[bytes, bytes]]
    """The metadata of each column: what lies before its encodings, its type; and what lies between them and the number
    of its values, its name, and that it isn't compressed."""
    begin: bytes
    row_group_begin: bytes
    end: bytes
    """The writer's name, but for the mark of its field, and that the bounds of each column are in the order of its
    type."""

    @classmethod
    def of(cls, columns: Mapping[str, int | Sequence[Leaf]]) -> Layout:
        """The layout of optional columns.

        Args:
            columns: physical types by name; of an optional struct its columns, each optional.
        """
        elements, marks = [], []
        for name, kind in columns.items():
            if isinstance(kind, int):
                elements.append(_element(name, kind, _MEANINGS.get(name, b"")))
                marks.append(_marks(kind, [name]))
                continue
            elements.append(b"\x35\x02\x18" + thrift_string(name) + b"\x15" + zigzag(len(kind)) + _END)
            elements += (_element(leaf.name, leaf.physical, leaf.meaning) for leaf in kind)
            marks += (_marks(leaf.physical, [name, leaf.name]) for leaf in kind)
        root = b"\x35\x00\x18" + thrift_string("schema") + b"\x15" + zigzag(len(columns)) + _END
        orders = b"\x19" + _list(_STRUCT, [b"\x1c\x00\x00"] * len(marks)) + _END
        return cls(
            marks=marks,
            begin=b"\x15\x04\x19" + _list(_STRUCT, [root, *elements]) + b"\x16",
            row_group_begin=b"\x19\x1c\x19" + _list_begin(_STRUCT, len(marks)),
            end=thrift_string(WRITER.decode() + __version__) + orders,
        )


def _element(name: str, kind: int, meaning: bytes) -> bytes:
    return b"\x15" + zigzag(kind) + b"\x25\x02\x18" + thrift_string(name) + meaning + _END


def _marks(kind: int, path: Sequence[str]) -> tuple[bytes, bytes]:
    names = _list(_STRING, [thrift_string(name) for name in path])
    return b"\x26\x00\x1c\x15" + zigzag(kind) + b"\x19", b"\x19" + names + b"\x15\x00\x16"


def _list(kind: int, items: Sequence[bytes]) -> bytes:
    return _list_begin(kind, len(items)) + b"".join(items)


def _list_begin(kind: int, size: int) -> bytes:
    return bytes([size << 4 | kind]) if size < _LONG else bytes([_LONG << 4 | kind]) + varint(size)


_PAGE_SUM_PART = -2


def late_page(row_count: int, before: bytes, late_bytes: int, encoding: int = PLAIN) -> list[Any]:
    """The beginning of a page as parts for the core, which adds the checksum once the rest of the page is there.

    Args:
        before: the first bytes of the page: its levels, or their beginning.
        late_bytes: the bytes that follow, by whichever parts.
    """
    begin, end = page_header(row_count, len(before) + late_bytes, encoding)
    checksum = (_PAGE_SUM_PART, len(end), len(before) + late_bytes, PAGE_SUM_BYTES)
    return [begin, checksum, end + before]


def part_bytes(parts: Sequence[Any]) -> int:
    """The size of parts for the core."""
    return sum(part[-1] if isinstance(part, tuple) else len(part) for part in parts)


def dictionary_page(values: bytes, count: int = 1) -> bytes:
    """A dictionary of so many plain values, with its header."""
    size = zigzag(len(values))
    head = b"\x15\x04\x15" + size + b"\x15" + size + b"\x15" + page_sum(crc32(values))
    return head + b"\x3c\x15" + zigzag(count) + b"\x15\x00\x00\x00" + values


def bounds(kind: str, low: int, high: int) -> bytes:
    """A column's statistics: no nulls, and the least and the greatest number.

    Args:
        kind: of the numbers, as ``struct`` has it.
    """
    size = bytes([struct.calcsize(kind)])
    return _BOUNDS_BEGIN + size + struct.pack(kind, high) + _BOUNDS_LOW + size + struct.pack(kind, low) + _END


def statistics(null_count: int, low: bytes | None, high: bytes | None) -> bytes:
    """A column's statistics: how many are null, and the least and the greatest value, as plain values have them but
    without a length; None: nobody knows."""
    found, field = b"\x36" + zigzag(null_count), 3
    for number, value in ((5, high), (6, low)):
        if value is not None:
            found += bytes([(number - field) << 4 | _STRING]) + varint(len(value)) + value
            field = number
    for number, value in ((7, high), (8, low)):  # neither was cut
        if value is not None:
            found += bytes([(number - field) << 4 | _TRUE])
            field = number
    return found + _END


def footer(
    row_count: int,
    chunks: Sequence[Chunk],
    layout: Layout | None = None,
    metadata: Mapping[bytes, bytes] = _NO_METADATA,
) -> bytes:
    """The end of a file whose columns lie one behind the other from :data:`MAGIC` on, with an empty seal.

    Args:
        chunks: one for each column of the layout.
        layout: None: that of :data:`COLUMNS`.
        metadata: what else the footer is to have, by key.
    """
    layout = layout or PLAIN_LAYOUT
    number = zigzag(row_count)
    found, at = [layout.begin, number, layout.row_group_begin], len(MAGIC)
    for (begin, end), chunk in zip(layout.marks, chunks, strict=True):
        size_bytes, of_column, encodings, dictionary_bytes, coded_pages = chunk
        whole = zigzag(size_bytes)
        found += (begin, _encodings(encodings), end, number, b"\x16", whole, b"\x16", whole)
        found += (b"\x26", zigzag(at + dictionary_bytes))
        if dictionary_bytes:
            found += (b"\x26", zigzag(at))
        if of_column:
            found += (_BOUNDS_AFTER_DICTIONARY if dictionary_bytes else _BOUNDS_AFTER_DATA, of_column)
        if coded_pages:  # there are bounds and a dictionary, too
            found += (_CODED_BEGIN, zigzag(coded_pages), _END)
        found.append(_TWO_ENDS)
        at += size_bytes
    total = zigzag(at - len(MAGIC))
    found += (b"\x16", total, b"\x16", number, b"\x26\x08\x16", total, b"\x14\x00", _END)
    pairs = {**metadata, SEAL_KEY: EMPTY_SEAL}.items()  # the seal is the last: what is before may contain its name
    entries = [_STRING_FIELD + _bytes(key) + _STRING_FIELD + _bytes(value) + _END for key, value in pairs]
    found += (b"\x19", _list(_STRUCT, entries), _STRING_FIELD)
    found.append(layout.end)
    whole_footer = b"".join(found)
    return b"".join((whole_footer, struct.pack("<I", len(whole_footer)), MAGIC))


def _bytes(value: bytes) -> bytes:
    return varint(len(value)) + value


def footer_begin(row_count: int) -> tuple[bytes, bytes, bytes]:
    """The beginning of a footer: its columns; the number of rows; and that there is one row group of these columns."""
    return PLAIN_LAYOUT.begin, zigzag(row_count), PLAIN_LAYOUT.row_group_begin


def footer_parts(chunks: Sequence[Chunk]) -> list[bytes | str | int]:
    """All that :func:`footer` makes of such columns, up to the writer's name.

    Args:
        chunks: with any sizes and bounds; 1 where there is a dictionary.
    Returns:
        Bytes, as they are; numbers as of :func:`zigzag`, by their names, the same wherever a name stands again:
        ``rows``, of each column by its name the size of its pages, and by its name and ``_at`` where its data begins;
        and how many other bytes there are, whichever.
    """
    found: list[bytes | str | int] = [PLAIN_LAYOUT.begin, "rows", PLAIN_LAYOUT.row_group_begin]
    for name, (begin, end), chunk in zip(COLUMNS, PLAIN_LAYOUT.marks, chunks, strict=True):
        marks = begin + _encodings(chunk.encodings) + end
        found += (marks, "rows", b"\x16", name, b"\x16", name, b"\x26", f"{name}_at")
        field = _BOUNDS_AFTER_DATA
        if chunk.dictionary_bytes:
            found += (b"\x26", f"{name}_dictionary_at")
            field = _BOUNDS_AFTER_DICTIONARY
        if chunk.bounds:
            width = (len(chunk.bounds) - len(bounds("<b", 0, 0))) // 2 + 1
            size = bytes([width])
            found += (field + _BOUNDS_BEGIN + size, width, _BOUNDS_LOW + size, width, _END)
        found.append(_TWO_ENDS)
    found += (b"\x16", "total", b"\x16", "rows", b"\x26\x08\x16", "total", b"\x14\x00" + _END)
    return found


def footer_pattern(chunks: Sequence[Chunk]) -> re.Pattern[bytes]:
    """The pattern of :func:`footer_parts`; its groups are the numbers, by their names."""
    found, names = [], set()
    for part in footer_parts(chunks):
        if isinstance(part, bytes):
            found.append(re.escape(part))
        elif isinstance(part, int):
            found.append(b".{%d}" % part)
        elif part in names:
            found.append(b"(?P=%b)" % part.encode())
        else:
            names.add(part)
            found.append(rb"(?P<%b>[\x80-\xff]*[\x00-\x7f])" % part.encode())
    return re.compile(b"".join(found), re.DOTALL)


@cache
def _encodings(encodings: tuple[int, ...]) -> bytes:
    return _list(_I32, [*map(zigzag, encodings)])


PLAIN_LAYOUT = Layout.of(COLUMNS)
"""The layout of :data:`COLUMNS`."""
