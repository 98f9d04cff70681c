"""The bytes of typed values: what ``max.message.bytes`` bounds where a value has no bytes of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["copied", "most_bytes", "python_size", "value_sizes"]

I64 = npt.NDArray[np.int64]
_NUMBER_BYTES = 8
_MOST_OF_A_BYTE = 8 * _NUMBER_BYTES
"""The most that a byte of a column may count: it may be eight booleans."""
_CONTAINERS = frozenset({dict, list, tuple, set, bytearray})


def value_sizes(array: pa.Array) -> I64:
    """The bytes of each value: of texts and binaries their own, 8 of anything else that isn't nested; 0 for null."""
    kind = array.type
    if pa.types.is_struct(kind):
        columns = array.flatten()  # at once: of a wide struct each field costs as much as all
        numbers = [column for column in columns if not _has_sizes(column.type) and not column.null_count]
        sizes = np.full(len(array), _NUMBER_BYTES * len(numbers), np.int64)
        for column in columns:
            if _has_sizes(column.type) or column.null_count:
                sizes += value_sizes(column)
        return sizes
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        children = [array.keys, array.items] if pa.types.is_map(kind) else [array.values]
        sizes = np.zeros(len(array), np.int64)
        offsets = np.asarray(array.offsets)
        for child in children:
            before = np.concatenate(([0], np.cumsum(value_sizes(child))))
            sizes += before[offsets[1:]] - before[offsets[:-1]]
        return _without_nulls(sizes, array)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return np.asarray(pc.fill_null(pc.binary_length(array), 0), np.int64)
    return _without_nulls(np.full(len(array), _NUMBER_BYTES, np.int64), array)


def most_bytes(array: pa.StructArray) -> int:
    """A bound of :func:`value_sizes`, which costs less where there is no large value."""
    most = 0
    for column in array.flatten():
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            most += pc.max(pc.binary_length(column)).as_py() or 0
        else:
            most += _MOST_OF_A_BYTE * column.nbytes if pa.types.is_nested(column.type) else _NUMBER_BYTES
    return most


def _has_sizes(kind: pa.DataType) -> bool:
    """Are the values of a type of different sizes?"""
    return bool(pa.types.is_nested(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind))


def _without_nulls(sizes: I64, array: pa.Array) -> I64:
    if array.null_count:
        sizes = np.where(np.asarray(array.is_null()), 0, sizes)
    return sizes


def copied(value: Any) -> Any:
    """A value that nobody changes: its dicts and lists, at any depth, as new ones."""
    kind = type(value)
    if kind is dict:
        return {name: copied(one) if type(one) in _CONTAINERS else one for name, one in value.items()}
    if kind is bytearray:
        return bytes(value)
    if kind in _CONTAINERS:
        return kind(map(copied, value))
    return value


def python_size(value: Any) -> int:
    """The bytes of a Python value, as :func:`value_sizes` counts them; about, for whatever isn't a plain type."""
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value)
    if kind is dict:
        return sum(map(python_size, value.values()))
    if kind is list or kind is tuple:
        return sum(map(python_size, value))
    return 0 if value is None else _NUMBER_BYTES
