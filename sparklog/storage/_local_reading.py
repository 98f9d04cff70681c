"""Reading files whole by Python's own calls."""

from __future__ import annotations

import os
from io import FileIO
from typing import Any

__all__ = ["LEAST_BUFFER_BYTES", "read_buffer", "read_whole"]

LEAST_BUFFER_BYTES = 65_536
"""A smaller object is ``bytes``: its pages are there already."""


def read_whole(target: str) -> bytes:
    """A file's bytes. Of a small one Python's own files ask the system for twice as much."""
    descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size_bytes = os.fstat(descriptor).st_size
        data = os.read(descriptor, size_bytes)
        if len(data) == size_bytes > 0:
            return data
        parts = [data]
        while part := os.read(descriptor, LEAST_BUFFER_BYTES):  # it isn't whole yet, or has another size by now
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def read_buffer(file: FileIO, size_bytes: int) -> Any:
    """A file's bytes in memory of Arrow's."""
    import pyarrow as pa  # who reads no data files needn't load it

    buffer = pa.allocate_buffer(size_bytes)
    rest = memoryview(buffer).cast("B")
    while rest:
        count = file.readinto(rest)
        if not count:  # it is shorter than it was a moment ago: whoever reads it finds it truncated
            return buffer.slice(0, size_bytes - len(rest))
        rest = rest[count:]
    return buffer
