"""The bytes of typed values: what ``max.message.bytes`` bounds where a value has no bytes of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["copied", "python_size", "value_sizes"]

I64 = npt.NDArray[np.int64]
_NUMBER_BYTES = 8
_CONTAINERS = frozenset({dict, list, tuple, set, bytearray})


def value_sizes(array: pa.Array) -> I64:
    """The bytes of each value: of texts and binaries their own, 8 of anything else that isn't nested; 0 for null."""
    kind = array.type
    if pa.types.is_struct(kind):
        sizes = np.zeros(len(array), np.int64)
        for column in array.flatten():  # at once: of a wide struct each field costs as much as all
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
