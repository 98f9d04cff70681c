"""The parts of Parquet files that are put together by hand: numbers, levels, pages.

Source: parquet-format, ``parquet.thrift``, by Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sparklog.checksums import crc32

__all__ = [
    "EMPTY_PAGE_SUM",
    "MAGIC",
    "PAGE_SUM_BYTES",
    "PLAIN",
    "RLE",
    "data_page",
    "page_header",
    "page_sum",
    "run",
    "thrift_string",
    "unzigzag",
    "varint",
    "zigzag",
]

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


def data_page(row_count: int, parts: Sequence[bytes], encoding: int = PLAIN) -> bytes:
    """A page of levels and values, with its header."""
    content = b"".join(parts)
    begin, end = page_header(row_count, len(content), encoding)
    return b"".join((begin, page_sum(crc32(content)), end, content))


EMPTY_PAGE_SUM = b"\x80\x80\x80\x80\x00"
"""The checksum of a page, 0, before it is known."""


@lru_cache(_KNOWN)
def page_header(row_count: int, size_bytes: int, encoding: int = PLAIN) -> tuple[bytes, bytes]:
    """The header of a page whose levels and values take so many bytes: what is before its checksum, and behind it."""
    size = zigzag(size_bytes)
    end = b"\x1c\x15" + zigzag(row_count) + b"\x15" + zigzag(encoding) + b"\x15\x06\x15\x06\x00\x00"
    return b"\x15\x00\x15" + size + b"\x15" + size + b"\x15", end


PAGE_SUM_BYTES = len(EMPTY_PAGE_SUM)
"""The size of a page's checksum, whatever it is: Thrift's numbers may have more bytes than they need."""


def page_sum(crc: int) -> bytes:
    """The checksum of a page as its header has it: a signed number of 32 bits."""
    number = (crc << 1 ^ -(crc >> 31)) & 0xFFFFFFFF
    return bytes(
        (
            number & 0x7F | 0x80,
            number >> 7 & 0x7F | 0x80,
            number >> 14 & 0x7F | 0x80,
            number >> 21 & 0x7F | 0x80,
            number >> 28,
        )
    )
