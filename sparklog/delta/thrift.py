"""Structs of Thrift's compact protocol, in which Parquet has the headers of pages, and footers. Pure."""

from __future__ import annotations

from typing import Any

__all__ = ["ThriftError", "read_struct"]

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_NUMBERS = (4, 5, 6)
_MOST_DEPTH = 16
_MOST_SHIFT = 63


class ThriftError(ValueError):
    """These bytes are no such struct."""


def read_struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """The fields of a struct by their numbers, and where it ends: numbers, truth values, bytes, lists and dicts.

    Raises ``ThriftError``.
    """
    try:
        return _struct(data, at, 0)
    except IndexError as error:
        raise ThriftError(f"the struct at {at} doesn't end in these {len(data)} bytes") from error


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    if depth > _MOST_DEPTH:
        raise ThriftError(f"structs within structs at {at}: expected at most {_MOST_DEPTH}")
    fields: dict[int, Any] = {}
    field = 0
    while True:
        byte = data[at]
        at += 1
        if not byte:
            return fields, at
        if byte >> 4:
            field += byte >> 4
        else:
            field, at = _signed(data, at)
        if field in fields:
            raise ThriftError(f"field {field} twice in a struct that ends behind {at}")
        kind = byte & 15
        if kind in (_TRUE, _FALSE):
            fields[field] = kind == _TRUE
        else:
            fields[field], at = _value(data, at, kind, depth)


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in _NUMBERS:
        return _signed(data, at)
    if kind == _STRUCT:
        return _struct(data, at, depth + 1)
    if kind in (_LIST, _SET):
        return _list(data, at, depth + 1)
    size = 1
    if kind == _BINARY:
        size, at = _unsigned(data, at)
    elif kind == _DOUBLE:
        size = 8
    elif kind not in (_TRUE, _FALSE, _BYTE):
        raise ThriftError(f"a value of kind {kind} at {at}")
    if size > len(data) - at:
        raise ThriftError(f"{size} bytes at {at}, of {len(data)}")
    return data[at : at + size], at + size


def _list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    if depth > _MOST_DEPTH:
        raise ThriftError(f"lists within lists at {at}: expected at most {_MOST_DEPTH}")
    byte = data[at]
    at += 1
    count = byte >> 4
    if count == 15:
        count, at = _unsigned(data, at)
    if count > len(data) - at:  # each has a byte at least
        raise ThriftError(f"{count} elements at {at}, of {len(data)} bytes")
    found = []
    for _ in range(count):
        element, at = _value(data, at, byte & 15, depth)
        found.append(element)
    return found, at


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
        shift += 7
        if shift > _MOST_SHIFT:
            raise ThriftError(f"a number of more than 64 bits before {at}")


def _signed(data: bytes, at: int) -> tuple[int, int]:
    number, at = _unsigned(data, at)
    return number >> 1 ^ -(number & 1), at
