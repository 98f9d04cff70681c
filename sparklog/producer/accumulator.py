"""Where ``send`` gathers records: the compiled core's buffers, or lists of pure Python, with the same results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sparklog import schemas
from sparklog._native import CORE

if TYPE_CHECKING or CORE is None:
    from sparklog.producer.pure_accumulator import Accumulator, FutureBase, Gatherer, take_columns
else:
    Accumulator, FutureBase, Gatherer = CORE.Accumulator, CORE.FutureBase, CORE.Gatherer

    def take_columns(records: Any) -> tuple[pa.Array, pa.Array, pa.Array, Mapping[int, Any], pa.StructArray | None]:
        """Does the same as its namesake of pure Python, which says what it returns."""
        return native_columns(records)


__all__ = ["Accumulator", "FutureBase", "Gatherer", "native_columns", "take_columns"]


def native_columns(records: Any) -> tuple[pa.Array, pa.Array, pa.Array, Mapping[int, Any], pa.StructArray | None]:
    """Does the same as :func:`sparklog.producer.pure_accumulator.take_columns` for records of the compiled core. Copies
    nothing."""
    count, times, keys, values, details, packed = records.take()
    timestamps = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(times)])
    typed = None if packed is None else schemas.column_of_parts(*packed)
    return timestamps, _binary(count, keys), _binary(count, values), details, typed


def _binary(count: int, parts: tuple[Any, Any, Any]) -> pa.Array:
    is_valid, offsets, data = parts
    bits = None
    if is_valid is not None:
        bits = pa.py_buffer(np.packbits(np.frombuffer(is_valid, np.uint8), bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), count, [bits, pa.py_buffer(offsets), pa.py_buffer(data)])
