"""The bytes of a data file of a few records, put together by hand: Arrow's writer takes a quarter of a millisecond to
set itself up, whatever it writes.

One row group, one page a column, plain values: what every reader of Parquet knows. Source: parquet-format,
``parquet.thrift``, by Thrift's compact protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import groupby

from sparklog._version import __version__

__all__ = ["encode_few_records"]

_INT32, _INT64, _BYTE_ARRAY = 1, 2, 6
"""Parquet's physical types."""
_COLUMNS = {
    "offset_delta": _INT64,
    "timestamp": _INT64,
    "key": _BYTE_ARRAY,
    "value": _BYTE_ARRAY,
    "producer_id": _INT64,
    "producer_epoch": _INT32,
    "sequence": _INT32,
}
"""Physical types by the columns of :data:`~sparklog.log.data.schema.DATA_SCHEMA`, in its order, without ``headers``."""
_MICROSECONDS_IN_UTC = b"\x25\x14\x4c\x8c\x11\x1c\x2c\x00\x00\x00\x00"
"""The part of a schema element with the converted type TIMESTAMP_MICROS and the logical type TIMESTAMP."""
_SIGNED_16_BITS = b"\x25\x20\x4c\xac\x13\x10\x11\x00\x00"
"""The converted type INT_16 and the logical type INTEGER."""
_MEANINGS = {"timestamp": _MICROSECONDS_IN_UTC, "producer_epoch": _SIGNED_16_BITS}
_END = b"\x00"
"""The end of a Thrift struct. A field begins with a byte of the distance from the field before it, and its type:
``\\x15`` is a 32-bit integer, ``\\x16`` one of 64 bits, ``\\x18`` a string, ``\\x19`` a list, ``\\x1c`` a struct."""
_MAGIC = b"PAR1"


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
    present = _levels([True] * count)
    offset_deltas = range(count)
    int64, int32 = f"<{count}q", f"<{count}i"
    pages = (
        present + struct.pack(int64, *offset_deltas),
        present + struct.pack(int64, *timestamps_us),
        _byte_arrays(keys),
        _byte_arrays(values),
        present + struct.pack(int64, *[producer_id] * count),
        present + struct.pack(int32, *[producer_epoch] * count),
        present + struct.pack(int32, *sequences),
    )
    statistics = (
        _statistics("<q", 0, count - 1),
        _statistics("<q", min(timestamps_us), max(timestamps_us)),
        b"",
        b"",
        _statistics("<q", producer_id, producer_id),
        b"",
        _statistics("<i", min(sequences), max(sequences)),
    )
    number = _integer(count)
    parts, chunks, at = [_MAGIC], [], len(_MAGIC)
    for begin, page, bounds in zip(_CHUNK_BEGINS, pages, statistics, strict=True):
        size = _integer(len(page))
        header = b"\x15\x00\x15" + size + b"\x15" + size + b"\x2c\x15" + number + b"\x15\x00\x15\x06\x15\x06\x00\x00"
        parts += (header, page)
        whole_bytes = len(header) + len(page)
        whole = _integer(whole_bytes)
        chunks.append(
            begin + number + b"\x16" + whole + b"\x16" + whole + b"\x26" + _integer(at) + bounds + _END + _END
        )
        at += whole_bytes
    total = _integer(at - len(_MAGIC))
    row_group = b"".join(chunks) + b"\x16" + total + b"\x16" + number + b"\x26\x08\x16" + total + b"\x14\x00" + _END
    footer = _FOOTER_BEGIN + number + _ROW_GROUP_BEGIN + row_group + _FOOTER_END
    return b"".join((*parts, footer, struct.pack("<I", len(footer)), _MAGIC))


def _byte_arrays(column: Sequence[bytes | None]) -> bytes:
    found = [_levels([value is not None for value in column])]
    for value in column:
        if value is not None:
            found += (struct.pack("<I", len(value)), value)
    return b"".join(found)


def _levels(present: Sequence[bool]) -> bytes:
    """Which values are there: definition levels in runs of equal ones."""
    runs = b"".join(_varint(len([*run]) << 1) + (b"\x01" if level else b"\x00") for level, run in groupby(present))
    return struct.pack("<I", len(runs)) + runs


def _statistics(kind: str, low: int, high: int) -> bytes:
    """The field of a column's statistics: no nulls, and the bounds."""
    size = bytes([struct.calcsize(kind)])
    return b"\x3c\x36\x00\x28" + size + struct.pack(kind, high) + b"\x18" + size + struct.pack(kind, low) + _END


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _integer(number: int) -> bytes:
    """An integer of Thrift's that isn't negative."""
    return _varint(number << 1)


def _string(text: str) -> bytes:
    data = text.encode()
    return _varint(len(data)) + data


def _schema() -> bytes:
    root = b"\x35\x00\x18" + _string("schema") + b"\x15" + _integer(len(_COLUMNS)) + _END
    return root + b"".join(
        b"\x15" + _integer(kind) + b"\x25\x02\x18" + _string(name) + _MEANINGS.get(name, b"") + _END
        for name, kind in _COLUMNS.items()
    )


_CHUNK_BEGINS = tuple(
    b"\x26\x00\x1c\x15" + _integer(kind) + b"\x19\x25\x00\x06\x19\x18" + _string(name) + b"\x15\x00\x16"
    for name, kind in _COLUMNS.items()
)
"""The metadata of each column up to the number of its values: type, encodings PLAIN and RLE, name, no compression."""
_STRUCTS = 12
_FOOTER_BEGIN = b"\x15\x04\x19" + bytes([(len(_COLUMNS) + 1) << 4 | _STRUCTS]) + _schema() + b"\x16"
_ROW_GROUP_BEGIN = b"\x19\x1c\x19" + bytes([len(_COLUMNS) << 4 | _STRUCTS])
_FOOTER_END = (
    b"\x28"
    + _string(f"sparklog version {__version__}")
    + b"\x19"
    + bytes([len(_COLUMNS) << 4 | _STRUCTS])
    + b"\x1c\x00\x00" * len(_COLUMNS)
    + _END
)
"""The writer's name, and that the bounds of each column are in the order of its type."""
