"""How much memory Arrow holds while a test runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

__all__ = ["arrow_peak"]

_POOLS: list[pa.MemoryPool] = []
"""All pools that were made: a thread of Arrow's that frees memory of a destroyed pool would end the process."""


@contextmanager
def arrow_peak() -> Iterator[Callable[[], int]]:
    """A call that returns the most bytes that Arrow has held within the block."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield pool.max_memory
    finally:
        pa.set_memory_pool(before)
