"""CRC-32C, the checksum of record batches: by the compiled core, else by the package ``crc32c`` where it is installed,
else by numpy.

By numpy, the data is cut to rows of 128 bytes whose checksums are computed side by side, four bytes a step, and then
put together in pairs. Source of the mathematics: a CRC is linear, "Everything we know about CRC but afraid to forget"
(crcutil); the polynomial is Castagnoli's, 0x82F63B78 reflected.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module

import numpy as np
import numpy.typing as npt

from sparklog._native import CORE

__all__ = ["crc32c", "crc32c_numpy"]

_POLYNOMIAL = 0x82F63B78
_ROW_WORDS = 32
_SMALL_BYTES = 1_024
_U32 = npt.NDArray[np.uint32]
_Words = tuple[_U32, _U32]


def _byte_table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ _POLYNOMIAL * (number & 1)
        table.append(number)
    return table


_TABLE = _byte_table()


def _after_zeros(columns: list[int]) -> list[int]:
    """Twice as many zero bytes: the map applied to itself. A map of 32 bits is what it makes of each."""
    return [_apply(columns, column) for column in columns]


def _apply(columns: list[int], value: int) -> int:
    product = 0
    for bit in range(32):
        if value >> bit & 1:
            product ^= columns[bit]
    return product


@lru_cache(maxsize=40)
def _zeros(doublings: int) -> list[int]:
    """The map: ``2 ** doublings`` zero bytes behind a checksum."""
    if doublings == 0:
        return [_TABLE[1 << bit & 255] ^ (1 << bit >> 8) for bit in range(32)]
    return _after_zeros(_zeros(doublings - 1))


@lru_cache(maxsize=40)
def _tables(doublings: int) -> _Words:
    """The same as two tables: of the low half of a word and of the high one."""
    columns = np.array(_zeros(doublings), np.uint32)
    numbers = np.arange(65_536, dtype=np.uint32)
    low, high = np.zeros(65_536, np.uint32), np.zeros(65_536, np.uint32)
    for bit in range(16):
        is_set = (numbers >> np.uint32(bit) & np.uint32(1)).astype(bool)
        low[is_set] ^= columns[bit]
        high[is_set] ^= columns[16 + bit]
    return low, high


def _mapped(values: _U32, tables: _Words) -> _U32:
    low, high = tables
    mapped: _U32 = low[values & np.uint32(0xFFFF)] ^ high[values >> np.uint32(16)]
    return mapped


def crc32c_numpy(data: bytes | bytearray | memoryview) -> int:
    """Does the same as :func:`crc32c`, without another package."""
    size = len(data)
    if size < _SMALL_BYTES:
        value = 0xFFFFFFFF
        for byte in bytes(data):
            value = _TABLE[(value ^ byte) & 255] ^ value >> 8
        return value ^ 0xFFFFFFFF
    row_bytes = 4 * _ROW_WORDS
    rows = -(-size // row_bytes)
    padded = np.zeros(rows * row_bytes, np.uint8)  # zeros in front change nothing, as the register begins at 0
    padded[rows * row_bytes - size :] = np.frombuffer(data, np.uint8)
    first = rows * row_bytes - size
    padded[first : first + 4] ^= 0xFF  # which is the same as a register that begins with ones
    words = np.ascontiguousarray(padded.view("<u4").reshape(rows, _ROW_WORDS).T)
    step = _tables(2)
    values = np.zeros(rows, np.uint32)
    for column in words:
        values = _mapped(values ^ column, step)
    doublings = row_bytes.bit_length() - 1
    while len(values) > 1:
        if len(values) % 2:
            values = np.concatenate([np.zeros(1, np.uint32), values])
        values = _mapped(values[0::2], _tables(doublings)) ^ values[1::2]
        doublings += 1
    return int(values[0]) ^ 0xFFFFFFFF


def _chosen() -> Callable[[bytes | bytearray | memoryview], int]:
    if CORE is not None:
        compiled: Callable[[bytes | bytearray | memoryview], int] = CORE.crc32c
        return compiled
    try:
        checksum: Callable[[bytes | bytearray | memoryview], int] = import_module("crc32c").crc32c
    except ImportError:
        return crc32c_numpy
    return checksum


crc32c = _chosen()
"""The CRC-32C of some bytes, 0 to 2**32 - 1."""
