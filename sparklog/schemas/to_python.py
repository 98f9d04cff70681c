"""Values of a column as Python objects."""

from __future__ import annotations

import datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from sparklog.errors import InvalidRecordError

__all__ = ["struct_to_python"]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def struct_to_python(array: pa.StructArray) -> list[dict[str, Any] | None]:
    """The values of a column as dicts, null as None; times in UTC. Of a map's pairs with the same key the last counts.

    Raises ``InvalidRecordError``: a date or a time before year 1 or after year 9999, which Python's types can't hold.
    """
    names = [field.name for field in array.type]
    columns = [_field_to_list(array.field(at), name) for at, name in enumerate(names)]
    rows: list[dict[str, Any] | None] = [dict(zip(names, each, strict=True)) for each in zip(*columns, strict=True)]
    for place in _nulls(array):
        rows[place] = None
    return rows


def _field_to_list(array: pa.Array, name: str) -> list[Any]:
    try:
        return _to_list(array)
    except OverflowError as error:
        raise InvalidRecordError(
            f"field {name}: {error}: Python's dates and times are of the years 1 to 9999; read this column as Arrow"
        ) from error


def _nulls(array: pa.Array) -> Any:
    return np.flatnonzero(~np.asarray(array.is_valid())) if array.null_count else ()


def _to_list(array: pa.Array) -> list[Any]:
    kind = array.type
    if pa.types.is_struct(kind):
        return struct_to_python(array)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _numbers(array)
    if pa.types.is_timestamp(kind):
        return _moments(array)
    if pa.types.is_list(kind):
        start, ends = _ends(array)
        return _parts(array, ends, _to_list(array.values[start : ends[-1] + start]))
    if pa.types.is_map(kind):
        start, ends = _ends(array)
        keys, items = (_to_list(each[start : ends[-1] + start]) for each in (array.keys, array.items))
        parts = _parts(array, ends, list(zip(keys, items, strict=True)))
        return [None if part is None else dict(part) for part in parts]
    return list(array.to_pylist())


def _numbers(array: pa.Array) -> list[Any]:
    if array.null_count == 0:
        return list(np.asarray(array).tolist())
    found = np.asarray(array.fill_null(0)).tolist()
    for place in _nulls(array):
        found[place] = None
    return list(found)


def _moments(array: pa.Array) -> list[Any]:
    delta = datetime.timedelta
    return [None if each is None else _EPOCH + delta(microseconds=each) for each in _numbers(array.view(pa.int64()))]


def _ends(array: Any) -> tuple[int, list[int]]:
    """Where the elements of the first list begin, and from there, where those of each begin, and the last end."""
    offsets = np.asarray(array.offsets)
    return int(offsets[0]), (offsets - offsets[0]).tolist()


def _parts(array: Any, ends: list[int], elements: list[Any]) -> list[Any]:
    """The elements of each list; None for one that is null, which may have some, too."""
    found: list[Any] = [elements[start:end] for start, end in pairwise(ends)]
    for place in _nulls(array):
        found[place] = None
    return found
