"""Reading small Parquet files of plain columns without Arrow, for processes that needn't load it otherwise.

Only what Arrow itself writes for columns of texts, numbers and times is understood: data pages of version 1, plain or
by a dictionary, not compressed or by Snappy. Of anything else, a garbled file among it, :class:`NotFlatError` says so,
and Arrow reads what is there. Source: parquet-format, "parquet.thrift", "Encodings"; Thrift's compact protocol; Snappy,
"format_description".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from sparklog.delta.parquet_seals import is_sealed

__all__ = ["NotFlatError", "read_flat"]

_MAGIC = b"PAR1"
_INT32, _INT64, _BYTE_ARRAY = 1, 2, 6
_UNCOMPRESSED, _SNAPPY = 0, 1
_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_REQUIRED, _OPTIONAL = 0, 1
_BOOLEANS, _NUMBERS, _BINARY = frozenset({1, 2}), frozenset({3, 4, 5, 6}), 8
"""Kinds of Thrift's fields. A byte, 3, is a signed one, but no file has bytes in what is read here."""
_MOST_ROWS = 1_000_000
"""The most that are read here: of more, Arrow is much faster, and what a garbled file claims takes no memory."""
_KINDS: Mapping[str, tuple[int, frozenset[int | None]]] = {
    "string": (_BYTE_ARRAY, frozenset({0})),
    "integer": (_INT32, frozenset({None, 17})),
    "long": (_INT64, frozenset({None, 18})),
    "timestamp": (_INT64, frozenset({10})),
}
"""By Delta's names of types: the physical type, and which *converted types* mean it: UTF8, INT_32, INT_64,
TIMESTAMP_MICROS, which is in UTC."""

_Thrift = dict[int, Any]


class NotFlatError(Exception):
    """The file isn't one that this module understands; the message says why."""


def read_flat(data: bytes, columns: Mapping[str, str]) -> dict[str, list[Any]]:
    """The values of a file that has exactly these columns; times in microseconds since the epoch.

    Args:
        columns: Delta's names of their types, by name: ``string``, ``integer``, ``long``, ``timestamp``.
    Raises:
        NotFlatError: it has others, or can't be understood here.
    """
    try:
        return _read(data, columns)
    except (IndexError, KeyError, TypeError, ValueError, OverflowError, RecursionError, struct.error) as error:
        raise NotFlatError(f"not understood: {error!r}") from error


def _read(data: bytes, columns: Mapping[str, str]) -> dict[str, list[Any]]:
    if data[:4] != _MAGIC or data[-4:] != _MAGIC:
        raise NotFlatError("no Parquet")
    if is_sealed(data) is False:
        raise NotFlatError("it has changed since it was written")
    length = int.from_bytes(data[-8:-4], "little")
    footer, end = _struct(data, len(data) - 8 - length)
    if end != len(data) - 8:
        raise NotFlatError("a footer of another length")
    if not 0 <= footer[3] <= _MOST_ROWS:
        raise NotFlatError(f"{footer[3]} rows")
    fields = footer[2][1:]
    if [field[4].decode() for field in fields] != [*columns]:
        raise NotFlatError("other columns")
    for field, kind in zip(fields, columns.values(), strict=True):
        physical, converted = _KINDS[kind]
        if field.get(1) != physical or field.get(6) not in converted or field.get(3) not in (_REQUIRED, _OPTIONAL):
            raise NotFlatError(f"column {field[4].decode()} is of another type")
    found: dict[str, list[Any]] = {name: [] for name in columns}
    for group in footer.get(4, ()):
        for field, (name, kind), chunk in zip(fields, columns.items(), group[1], strict=True):
            if not 0 <= group[3] == chunk[3][5] <= footer[3]:
                raise NotFlatError(f"column {name} has {chunk[3][5]} values of {group[3]}")
            values = _chunk(data, chunk, is_optional=field[3] == _OPTIONAL)
            found[name] += _texts(values) if kind == "string" else values
    if any(len(values) != footer[3] for values in found.values()):
        raise NotFlatError("rows are missing")
    return found


def _texts(values: Sequence[bytes | None]) -> list[str | None]:
    known = {value: None if value is None else value.decode() for value in {*values}}
    return [known[value] for value in values]


def _chunk(data: bytes, chunk: _Thrift, *, is_optional: bool) -> list[Any]:
    """The values of a column in one row group."""
    meta = chunk[3]
    physical, codec, count = meta[1], meta[4], meta[5]
    if chunk.get(1) is not None or codec not in (_UNCOMPRESSED, _SNAPPY):
        raise NotFlatError("in another file, or of another compression")
    at = min(meta[9], meta.get(11) or meta[9])
    if count and at < len(_MAGIC):
        raise NotFlatError("a page before the file")
    dictionary: list[Any] = []
    values: list[Any] = []
    while len(values) < count:
        header, at = _struct(data, at)
        size = header[3]
        page = data[at : at + size]
        if size < 0 or len(page) != size:
            raise NotFlatError("a page is cut")
        at += size
        page = _unsnap(page) if codec == _SNAPPY else page
        if len(page) != header[2]:
            raise NotFlatError("a page of another length")
        if header[1] == _DICTIONARY_PAGE and header[7][2] in (_PLAIN, _PLAIN_DICTIONARY):
            dictionary = _plain(page, 0, physical, min(header[7][1], len(page)))
        elif header[1] == _DATA_PAGE:
            if not 0 <= header[5][1] <= count - len(values):
                raise NotFlatError("more values than there are")
            values += _data_page(page, header[5], physical, dictionary, is_optional=is_optional)
        else:
            raise NotFlatError(f"a page of type {header[1]}")
    return values


def _data_page(page: bytes, header: _Thrift, physical: int, dictionary: list[Any], *, is_optional: bool) -> list[Any]:
    count, encoding, at = header[1], header[2], 0
    present: list[int] | None = None
    if is_optional:
        if header[3] != _RLE:
            raise NotFlatError("levels of another encoding")
        size = int.from_bytes(page[:4], "little")
        present = _hybrid(page, 4, 4 + size, 1, count)
        at = 4 + size
    number = count if present is None else sum(present)
    if encoding == _PLAIN:
        values = _plain(page, at, physical, number)
    elif encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY):
        width = page[at] if number else 0
        values = [dictionary[index] for index in _hybrid(page, at + 1, len(page), width, number)]
    else:
        raise NotFlatError(f"values of encoding {encoding}")
    if present is None or number == count:
        return values
    following = iter(values)
    return [next(following) if there else None for there in present]


def _plain(page: bytes, at: int, physical: int, count: int) -> list[Any]:
    if physical in (_INT32, _INT64):
        form = f"<{count}{'i' if physical == _INT32 else 'q'}"
        return list(struct.unpack_from(form, page, at))
    values: list[Any] = []
    for _ in range(count):
        size = int.from_bytes(page[at : at + 4], "little")
        value = page[at + 4 : at + 4 + size]
        if at + 4 > len(page) or len(value) != size:
            raise NotFlatError("a text is cut")
        values.append(value)
        at += 4 + size
    return values


def _hybrid(page: bytes, at: int, end: int, width: int, count: int) -> list[int]:
    """Numbers of so many bits: runs of one number, and groups of eight packed ones."""
    if width == 0:
        return [0] * count
    values: list[int] = []
    size, mask = (width + 7) // 8, (1 << width) - 1
    while len(values) < count:
        head, at = _varint(page, at)
        if head & 1:
            for _ in range(min(head >> 1, (count - len(values) + 7) // 8)):
                packed = page[at : at + width]
                at += width
                bits = int.from_bytes(packed, "little")
                values += [(bits >> shift) & mask for shift in range(0, 8 * width, width)]
        else:
            values += [int.from_bytes(page[at : at + size], "little")] * min(head >> 1, count - len(values))
            at += size
        if at > end or not head >> 1:
            raise NotFlatError("numbers are cut")
    del values[count:]
    return values


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return (number >> 1) ^ -(number & 1), at


def _struct(data: bytes, at: int) -> tuple[_Thrift, int]:
    """A struct of Thrift's compact protocol, by the ids of its fields, and where it ends."""
    found: _Thrift = {}
    number = 0
    while True:
        head = data[at]
        at += 1
        if head == 0:
            return found, at
        kind, delta = head & 15, head >> 4
        if delta:
            number += delta
        else:
            number, at = _zigzag(data, at)
        byte = data[at]
        if kind in _BOOLEANS:
            found[number] = kind == 1
        elif byte < 128 and kind in _NUMBERS:  # nearly all there are: a call for each would take twice as long
            found[number] = (byte >> 1) ^ -(byte & 1)
            at += 1
        elif byte < 128 and kind == _BINARY:
            at += 1 + byte
            found[number] = data[at - byte : at]
        else:
            found[number], at = _value(data, at, kind)


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in _NUMBERS:
        return _zigzag(data, at)
    if kind == _BINARY:
        size, at = _varint(data, at)
        return data[at : at + size], at + size
    if kind == 12:
        return _struct(data, at)
    if kind in (9, 10):
        head = data[at]
        at += 1
        count = head >> 4
        if count == 15:
            count, at = _varint(data, at)
        if count > len(data):
            raise NotFlatError("a list is cut")
        items = []
        for _ in range(count):
            item, at = _value(data, at, head & 15)
            items.append(item)
        return items, at
    if kind in _BOOLEANS:  # in a list, a boolean is a byte
        return data[at] == 1, at + 1
    if kind == 7:
        return struct.unpack_from("<d", data, at)[0], at + 8
    raise NotFlatError(f"a field of type {kind}")


def _unsnap(data: bytes) -> bytes:
    """The bytes that Snappy has compressed."""
    size, at = _varint(data, 0)
    found = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        kind = tag & 3
        if kind == 0:
            length = tag >> 2
            if length >= 60:
                extra = length - 59
                length = int.from_bytes(data[at : at + extra], "little")
                at += extra
            length += 1
            found += data[at : at + length]
            at += length
            continue
        if kind == 1:
            length, offset = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | data[at]
            at += 1
        else:
            width = 2 if kind == 2 else 4
            length, offset = (tag >> 2) + 1, int.from_bytes(data[at : at + width], "little")
            at += width
        start = len(found) - offset
        if offset == 0 or start < 0:
            raise NotFlatError("Snappy refers to what isn't there")
        if offset >= length:
            found += found[start : start + length]
        else:  # it repeats what it writes
            piece = found[start:]
            found += (piece * (length // offset + 1))[:length]
    if at != len(data) or len(found) != size:
        raise NotFlatError("Snappy's text is of another length")
    return bytes(found)
