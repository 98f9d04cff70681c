"""Where ``send`` gathers records: the compiled core's buffers, or lists of pure Python, with the same results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from sparklog import schemas
from sparklog._native import CORE

if TYPE_CHECKING or CORE is None:
    from sparklog.producer.pure_accumulator import Accumulator, FutureBase, Gatherer, columns_of, few_of
else:
    Accumulator, FutureBase, Gatherer = CORE.Accumulator, CORE.FutureBase, CORE.Gatherer

    def columns_of(taken: Any) -> tuple[pa.Array, pa.Array, pa.Array, Mapping[int, Any], pa.StructArray | None]:
        """Does the same as its namesake of pure Python, which says what it returns."""
        return _native_columns_of(taken)

    def few_of(taken: Any) -> Few | None:
        """Does the same as its namesake of pure Python, which says what it returns."""
        return native_few_of(taken)


__all__ = ["Accumulator", "Few", "FutureBase", "Gatherer", "columns_of", "few_of", "native_columns", "native_few_of"]

Few: TypeAlias = tuple[list[int], list["bytes | None"], list["bytes | None"]]
"""Plain records: timestamps (ms), keys and values."""


def native_columns(records: Any) -> tuple[pa.Array, pa.Array, pa.Array, Mapping[int, Any], pa.StructArray | None]:
    """The result of :func:`columns_of` of records of the compiled core, which are taken."""
    return _native_columns_of(records.take())


def _native_columns_of(taken: Any) -> tuple[pa.Array, pa.Array, pa.Array, Mapping[int, Any], pa.StructArray | None]:
    """Copies nothing."""
    count, times, keys, values, details, packed = taken
    timestamps = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(times)])
    typed = None if packed is None else schemas.column_of_parts(*packed)
    return timestamps, _binary(count, keys), _binary(count, values), details, typed


def native_few_of(taken: Any) -> Few | None:
    """The result of :func:`few_of` of records that were taken of the compiled core."""
    count, times, keys, values, details, packed = taken
    if count == 0 or details or packed is not None:
        return None
    return memoryview(times).cast("q").tolist()[:count], _objects(count, keys), _objects(count, values)


def _objects(count: int, parts: tuple[Any, Any, Any]) -> list[bytes | None]:
    is_valid, offsets, data = parts
    ends, view = memoryview(offsets).cast("i").tolist(), memoryview(data)
    values: list[bytes | None] = [bytes(view[ends[number] : ends[number + 1]]) for number in range(count)]
    if is_valid is not None:
        values = [each if is_there else None for each, is_there in zip(values, bytes(is_valid), strict=False)]
    return values


def _binary(count: int, parts: tuple[Any, Any, Any]) -> pa.Array:
    is_valid, offsets, data = parts
    bits = None
    if is_valid is not None:
        bits = pa.py_buffer(np.packbits(np.frombuffer(is_valid, np.uint8), bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), count, [bits, pa.py_buffer(offsets), pa.py_buffer(data)])
