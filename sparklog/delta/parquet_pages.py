"""The parts of Parquet files that are put together by hand: numbers, levels, pages.

Source: parquet-format, ``parquet.thrift``, by Thrift's compact protocol.
"""

from __future__ import annotations

from functools import lru_cache

__all__ = ["MAGIC", "PLAIN", "RLE", "data_page", "run", "thrift_string", "unzigzag", "varint", "zigzag"]

PLAIN, RLE = 0, 3
"""Parquet's encodings of values, and of levels."""
MAGIC = b"PAR1"


_KNOWN = 4_096
"""So many numbers and headers are remembered: files that are written one after the other have about the same sizes."""


def varint(number: int) -> bytes:
    """A number that isn't negative: seven bits a byte, the lowest first."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


@lru_cache(_KNOWN)
def zigzag(number: int) -> bytes:
    """A number that isn't negative, as Thrift has integers and Parquet has differences."""
    return varint(number << 1)


def unzigzag(data: bytes) -> int:
    """The number that Thrift has as these bytes, as :func:`zigzag` makes them; less than 0 in a damaged file."""
    found = 0
    for byte in reversed(data):
        found = found << 7 | byte & 0x7F
    return found >> 1 ^ -(found & 1)


def thrift_string(text: str) -> bytes:
    """A text, with its length."""
    data = text.encode()
    return varint(len(data)) + data


def run(count: int, level: int) -> bytes:
    """Equal levels, or places in a dictionary, of one bit each."""
    return varint(count << 1) + bytes([level])


@lru_cache(_KNOWN)
def data_page(row_count: int, size_bytes: int, encoding: int = PLAIN) -> bytes:
    """The header of a page: its levels and values take so many bytes."""
    size = zigzag(size_bytes)
    of_page = b"\x2c\x15" + zigzag(row_count) + b"\x15" + zigzag(encoding) + b"\x15\x06\x15\x06\x00\x00"
    return b"\x15\x00\x15" + size + b"\x15" + size + of_page
