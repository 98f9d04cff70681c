"""The compressions of record batches, with a bound for what comes out."""

from __future__ import annotations

import pyarrow as pa

from sparklog.gateway.records.batches import BatchError, TooLargeError

__all__ = ["compress", "decompress"]

_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
"""The magic and two versions. Source: xerial/snappy-java, ``SnappyOutputStream``."""


def decompress(data: memoryview, codec: str, *, limit_bytes: int) -> bytes:
    """The bytes that were compressed. Raises ``BatchError``: it can't be, or is larger than the limit."""
    try:
        if codec == "snappy":
            return _from_snappy(data, limit_bytes)
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), codec) as stream:
            decompressed: bytes = stream.read(limit_bytes + 1)
    except (pa.ArrowException, OSError) as error:
        raise BatchError(f"records that aren't {codec}: {error}") from error
    _check_size(len(decompressed), limit_bytes)
    return decompressed


def compress(data: bytes | memoryview, codec: str) -> bytes:
    """The data in a codec; snappy as one bare block, which every client reads."""
    compressed: bytes = pa.Codec(codec).compress(pa.py_buffer(data), asbytes=True)
    return compressed


def _check_size(size: int, limit_bytes: int) -> None:
    if size > limit_bytes:
        raise TooLargeError(f"records of more than {limit_bytes} bytes once decompressed")


def _from_snappy(data: memoryview, limit_bytes: int) -> bytes:
    if bytes(data[:8]) != _XERIAL:
        return _block(data, limit_bytes)
    out, at = [], _XERIAL_HEADER_BYTES
    left = limit_bytes
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if size > len(data) - at:
            raise BatchError(f"a snappy block of {size} bytes where {len(data) - at} are left")
        block = _block(data[at : at + size], left)
        left -= len(block)
        out.append(block)
        at += size
    return b"".join(out)


def _block(block: memoryview, limit_bytes: int) -> bytes:
    size = shift = 0  # an unsigned varint in front states the size
    for byte in block[:5]:
        size |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    else:
        raise BatchError("a snappy block that doesn't state its size")
    _check_size(size, limit_bytes)
    if size == 0:
        return b""
    decompressed: bytes = pa.Codec("snappy").decompress(pa.py_buffer(block), decompressed_size=size, asbytes=True)
    return decompressed
