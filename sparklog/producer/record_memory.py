"""The memory that a record takes while it waits in a producer, as counted against ``buffer_memory``."""

from __future__ import annotations

from sparklog._native import CORE
from sparklog.model import Headers

__all__ = ["RECORD_OVERHEAD_BYTES", "memory_bytes"]

RECORD_OVERHEAD_BYTES = 112 if CORE is None else 48
"""Memory of a record beside its key and value: two bytes objects, an int and their places in a list. In the compiled
core they are columns: 18 bytes, and room to grow of as much."""
_DETAILS_BYTES = 96
"""Memory of :class:`Details`."""
_DETAIL_BYTES = 64
"""Memory of a timestamp or a list of headers in them; partitions are small numbers, which Python has anyway."""
_HEADER_BYTES = 160
"""Memory of a header beside its name and value: a tuple and the objects in it."""


def memory_bytes(size_bytes: int, headers: Headers | None, timestamp_ms: int | None, partition: int | None) -> int:
    """Bytes that a record counts against ``buffer_memory``.

    Args:
        size_bytes: of its key, value and headers.
    """
    size_bytes += RECORD_OVERHEAD_BYTES
    if headers:
        size_bytes += _DETAIL_BYTES + _HEADER_BYTES * len(headers)
    if timestamp_ms is not None:
        size_bytes += _DETAIL_BYTES
    return size_bytes + _DETAILS_BYTES * bool(headers or timestamp_ms is not None or partition is not None)
