"""Numbers of Arrow arrays, read from their buffers without a compute function.

A compute function costs 20 to 40 µs however short the column is, and gives up the GIL, which another thread may take.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["binary_lengths", "buffer_numbers", "is_valid", "one_array"]


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A table's column as one array; copied where it has several chunks."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def buffer_numbers(array: pa.Array, number: int, kind: Any, *, more: int = 0) -> npt.NDArray[Any]:
    """The numbers in one of an array's buffers, as many as the array has values and ``more``.

    Args:
        number: of the buffer in ``array.buffers()``.
        kind: a numpy type.
    """
    buffer = array.buffers()[number]
    return np.frombuffer(buffer, kind, count=len(array) + more, offset=array.offset * np.dtype(kind).itemsize)


def binary_lengths(array: pa.Array) -> npt.NDArray[np.int32]:
    """The bytes of each value of a binary or string array; -1 for null."""
    if array.null_count == len(array):
        return np.full(len(array), -1, np.int32)
    ends = buffer_numbers(array, 1, np.int32, more=1)
    lengths: npt.NDArray[np.int32] = ends[1:] - ends[:-1]
    if array.null_count:
        lengths[~is_valid(array)] = -1
    return lengths


def is_valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Is each value other than null?"""
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    wanted = bits[array.offset // 8 : (array.offset + len(array) + 7) // 8]
    first = array.offset % 8
    return np.unpackbits(wanted, bitorder="little")[first : first + len(array)].view(np.bool_)
