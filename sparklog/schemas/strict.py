"""Demands of a format's own schema on values beyond their types: that there is one, that a text is one of an
enumeration, that bytes have a length.

A *strict type* is an Arrow type whose fields that may not be null say so, with the other demands in their metadata.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "HIGH",
    "LOW",
    "MULTIPLE",
    "NUMBERED",
    "ONE_OF",
    "OTHERWISE",
    "SIZE",
    "SYMBOLS",
    "children",
    "demands_anything",
    "violations",
]

SYMBOLS = b"symbols"
"""A text is one of these, joined by newlines."""
OTHERWISE = b"otherwise"
"""The symbol that readers of bytes have for a text that is none of these. No demand: writers must use these."""
NUMBERED = b"numbered"
"""The texts have numbers in the bytes, and a reader has the number of one that it doesn't know. No demand either."""
SIZE = b"size"
"""The number of bytes."""
LOW = b"low"
HIGH = b"high"
"""The least and the greatest number, inclusive."""
MULTIPLE = b"multiple"
"""A time is a multiple of so many microseconds."""
ONE_OF = b"one of"
"""One may have a value of the fields of a struct with the same text here."""
_NO_DEMANDS = frozenset({ONE_OF, OTHERWISE, NUMBERED})
_MOST_SHOWN = 60

_Found = tuple[Any, str]
"""Places, as an array, and what is wrong there."""


def demands_anything(kind: pa.DataType) -> bool:
    """Does a strict type demand anything at all?"""
    return any(
        not field.nullable or field.metadata is not None or demands_anything(field.type) for field in children(kind)
    )


def children(kind: pa.DataType) -> list[pa.Field]:
    """The fields of a struct, the element of a list, the value of a map; none of another type."""
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_list(kind):
        return [kind.value_field]
    return [kind.item_field] if pa.types.is_map(kind) else []


def violations(values: pa.StructArray, kind: pa.StructType) -> dict[int, str]:
    """The values that don't meet a strict type, by place, with the reason.

    Args:
        kind: has the fields of the values, in any order.
    """
    found: dict[int, str] = {}
    for places, reason in _of_struct(values, kind, ""):
        for place in places.tolist():
            found.setdefault(place, reason)
    return found


def _of_struct(values: pa.StructArray, kind: pa.StructType, prefix: str) -> Iterator[_Found]:
    is_there = np.asarray(values.is_valid())
    together: dict[bytes, list[Any]] = {}
    for field in kind:
        column = values.field(field.name)
        path = f"{prefix}{field.name}"
        yield from _of_field(column, field, path, is_there)
        if field.metadata and ONE_OF in field.metadata:
            together.setdefault(field.metadata[ONE_OF], []).append(np.asarray(column.is_valid()))
    for name, members in together.items():
        places = np.flatnonzero((np.sum(members, axis=0) > 1) & is_there)
        if len(places):
            yield places, f"oneof {prefix}{name.decode()}: more than one of its fields has a value"


def _of_field(column: pa.Array, field: pa.Field, path: str, is_there: Any) -> Iterator[_Found]:
    if not field.nullable and column.null_count:
        places = np.flatnonzero(np.asarray(column.is_null()) & is_there)
        if len(places):
            yield places, f"field {path}: null, but the format's schema has no null for it"
    if field.metadata:
        yield from _of_metadata(column, field.metadata, path, is_there)
    if pa.types.is_struct(field.type):
        inside = np.asarray(column.is_valid()) & is_there
        for places, reason in _of_struct(column, field.type, f"{path}."):
            yield places[inside[places]], reason
    elif pa.types.is_list(field.type) or pa.types.is_map(field.type):
        yield from _of_elements(column, field.type, path, is_there)


def _of_elements(column: Any, kind: pa.DataType, path: str, is_there: Any) -> Iterator[_Found]:
    [element] = children(kind)
    offsets = np.asarray(column.offsets)
    start, end = int(offsets[0]), int(offsets[-1])
    elements = (column.items if pa.types.is_map(kind) else column.values).slice(start, end - start)
    inside = np.asarray(column.is_valid()) & is_there
    for places, reason in _of_field(elements, element, f"{path}.{element.name}", np.ones(len(elements), np.bool_)):
        rows = np.unique(np.searchsorted(offsets - start, places, side="right") - 1)
        yield rows[inside[rows]], reason


def _of_metadata(column: pa.Array, metadata: dict[bytes, bytes], path: str, is_there: Any) -> Iterator[_Found]:
    for name, demand in metadata.items():
        if name in _NO_DEMANDS:
            continue
        wrong, expected = _misses(column, name, demand.decode())
        places = np.flatnonzero(np.asarray(pc.fill_null(wrong, False)) & is_there)
        if len(places):
            yield places, f"field {path}: got {str(column[int(places[0])])[:_MOST_SHOWN]}, expected {expected}"


def _misses(column: pa.Array, name: bytes, demand: str) -> tuple[pa.Array, str]:
    if name == SYMBOLS:
        known = pa.array(demand.split("\n"), pa.string())
        wrong = pc.and_(column.is_valid(), pc.invert(pc.is_in(column, known)))
        return wrong, f"one of {', '.join(known.to_pylist())[:_MOST_SHOWN]}"
    if name == SIZE:
        return pc.not_equal(pc.binary_length(column), int(demand)), f"{demand} bytes"
    if name == MULTIPLE:
        number = column.view(pa.int64())
        multiple = pc.multiply(pc.divide(number, int(demand)), int(demand))
        return pc.not_equal(number, multiple), "whole milliseconds"
    limit = pa.scalar(int(demand), column.type)
    if name == LOW:
        return pc.less(column, limit), f"{demand} or more"
    return pc.greater(column, limit), f"{demand} or less"
