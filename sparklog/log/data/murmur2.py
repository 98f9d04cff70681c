"""The partition that a key belongs to: murmur2 as Kafka's Java client computes it.

Computed for whole columns; :func:`murmur2` of a single key is the same function on a column of one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog._native import CORE
from sparklog.log.data.arrow_buffers import buffer_numbers

__all__ = ["few_key_partitions", "key_partitions", "murmur2", "murmur2_column", "murmur2_numpy"]

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_POSITIVE = np.uint32(0x7FFFFFFF)

_ONE_KEY_STEPS, _STEPS_PER_CALLS = 40, 60
"""The cost of the calls for a key of its own, and those for a step of all keys, in single steps of one key: roughly."""

U32 = npt.NDArray[np.uint32]


def murmur2(data: bytes) -> int:
    """The hash of one key, 0 … 2**32 - 1. Source: Kafka ``Utils.murmur2`` (there as a signed number)."""
    return int(murmur2_column(pa.array([data], pa.binary()))[0])


def key_partitions(keys: pa.Array, partition_count: int) -> npt.NDArray[np.int32]:
    """The partition of each key; of a null key that of an empty one, which the caller replaces.

    Source: Kafka ``BuiltInPartitioner.partitionForKey``: ``toPositive(murmur2(key)) % partitions``.
    """
    partitions: npt.NDArray[np.int32] = ((murmur2_column(keys) & _POSITIVE) % np.uint32(partition_count)).astype(
        np.int32
    )
    return partitions


def few_key_partitions(keys: Sequence[bytes], partition_count: int) -> list[int]:
    """The same of a few keys, by the compiled core without Arrow."""
    if CORE is None:
        return [int(each) for each in key_partitions(pa.array(keys, pa.binary()), partition_count)]
    offsets = struct.pack(f"<{len(keys) + 1}i", *accumulate(map(len, keys), initial=0))
    hashes = memoryview(CORE.murmur2_hashes(offsets, b"".join(keys), 0, len(keys))).cast("I").tolist()
    return [(each & int(_POSITIVE)) % partition_count for each in hashes]


def murmur2_column(keys: pa.Array) -> U32:
    """The hash of each key of a binary column; a null is hashed as an empty key."""
    if CORE is None or keys.type != pa.binary() or len(keys) == 0:
        return murmur2_numpy(keys)
    _, offsets, data = keys.buffers()
    return np.frombuffer(CORE.murmur2_hashes(offsets, data, keys.offset, len(keys)), np.uint32)


def murmur2_numpy(keys: pa.Array) -> U32:
    """Does the same as :func:`murmur2_column`, in numpy.

    Each step takes the next four bytes of every key that has so many left, so a column costs as many numpy calls as
    its keys have words, whatever their number. Where only few long keys are left, they are hashed one by one.
    """
    count = len(keys)
    starts, lengths, data = _binary_parts(keys)
    h: U32 = _SEED ^ lengths.astype(np.uint32)
    words = lengths >> 2
    longest_first: npt.NDArray[np.intp] | None = None
    least = int(words.min()) if count else 0
    most = int(words.max()) if count else 0
    if most > least:
        longest_first = np.argsort(-words, kind="stable")
        starts, words, h = starts[longest_first], words[longest_first], h[longest_first]
        lengths = lengths[longest_first]
        ascending = -words
    bytes_ = np.frombuffer(data, np.uint8)
    # Every position of the data as the little-endian word that begins there: numpy allows such unaligned views.
    view = np.ndarray((max(0, len(bytes_) - 3),), "<u4", data, strides=(1,)) if len(bytes_) > 3 else None
    for step in range(most):
        active = count if step < least else int(np.searchsorted(ascending, -step, side="left"))
        left = most - step
        if active * (_ONE_KEY_STEPS + left) < _STEPS_PER_CALLS * left:
            for at in range(active):
                start, end = starts[at] + 4 * step, starts[at] + 4 * words[at]
                h[at] = _hash_words(int(h[at]), np.asarray(view)[start:end:4])
            break
        k: U32 = np.asarray(view)[starts[:active] + 4 * step].astype(np.uint32)
        k *= _M
        k ^= k >> np.uint32(24)
        k *= _M
        rest = h[:active]
        rest *= _M
        rest ^= k
    tail = lengths & 3
    ends = starts + (words << 2)
    for size, shift in ((3, 16), (2, 8), (1, 0)):
        some = np.flatnonzero(tail >= size)
        if len(some):
            h[some] ^= bytes_[ends[some] + size - 1].astype(np.uint32) << np.uint32(shift)
    some = np.flatnonzero(tail)
    h[some] *= _M
    h ^= h >> np.uint32(13)
    h *= _M
    h ^= h >> np.uint32(15)
    if longest_first is None:
        return h
    result = np.empty_like(h)
    result[longest_first] = h
    return result


def _hash_words(h: int, words: npt.NDArray[Any]) -> int:
    """The hash ``h`` after more words of a key."""
    k: U32 = words.astype(np.uint32)
    k *= _M
    k ^= k >> np.uint32(24)
    k *= _M
    factor = int(_M)
    for one in k.tolist():
        h = (h * factor & 0xFFFFFFFF) ^ one
    return h


def _binary_parts(keys: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], pa.Buffer]:
    """The start of each value in the data, its length, and the data."""
    kind = np.int64 if pa.types.is_large_binary(keys.type) else np.int32
    _, offset_buffer, data = keys.buffers()
    if len(keys) == 0 or offset_buffer is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), pa.py_buffer(b"")
    offsets = buffer_numbers(keys, 1, kind, more=1).astype(np.int64)
    return offsets[:-1], np.diff(offsets), data if data is not None else pa.py_buffer(b"")
