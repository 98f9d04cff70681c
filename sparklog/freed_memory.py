"""Memory that a process has freed, where it runs for long: settings of malloc and of Arrow for all of it.

glibc gives each thread an *arena* of its own, up to eight for each core, and what one thread has freed no other uses. A
process whose threads take turns at work that needs a few MiB so keeps several times as much, and the more the longer
it runs; Arrow's own allocators do the same. Here a few arenas are shared, and Arrow allocates from them, too.
"""

from __future__ import annotations

import ctypes
import logging
import os
from dataclasses import dataclass

from sparklog.arrow import is_arrow_loaded, pa

__all__ = ["GIVEN_BACK", "KEPT", "Keeping", "share_freed_memory"]

_LOGGER = logging.getLogger("sparklog")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Source: glibc ``malloc.h``."""
_ARENAS = 2
_ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
"""In the environment: the allocator that Arrow uses. Source: Arrow, "Environment Variables"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """How much of what was freed a process keeps. glibc raises both bounds by itself, to 64 and 32 MiB, once large
    blocks were freed, unless they are set."""

    kept_bytes: int
    """At the end of each arena."""
    largest_bytes: int
    """A block from this size on comes from the system, and goes back to it; 32 MiB at most."""


KEPT = Keeping(kept_bytes=67_108_864, largest_bytes=33_554_432)
"""For a process that moves data. Record batches and files are larger than 128 KiB: if they came fresh from the system
each time, its page faults would take longer than all that is done with their bytes."""
GIVEN_BACK = Keeping(kept_bytes=131_072, largest_bytes=131_072)
"""For a process that looks now and then: glibc's bounds at a process's start."""


def share_freed_memory(keeping: Keeping) -> bool:
    """Let threads of this process share what was freed, where its malloc is glibc's; False: it isn't, and nothing is
    set.

    Arrow allocates by malloc, too, unless ``ARROW_DEFAULT_MEMORY_POOL`` in the environment names another allocator.
    Call it before there are threads that allocate.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # musl, macOS, Windows
        return False
    chosen = {
        _M_ARENA_MAX: _ARENAS,
        _M_MMAP_THRESHOLD: keeping.largest_bytes,
        _M_TRIM_THRESHOLD: keeping.kept_bytes,
    }
    if not all(mallopt(option, value) for option, value in chosen.items()):
        _LOGGER.info("malloc refuses to share what threads have freed")
        return False
    if os.environ.get(_ARROW_POOL):
        return True
    if is_arrow_loaded():
        pa.set_memory_pool(pa.system_memory_pool())
    else:
        os.environ[_ARROW_POOL] = "system"  # it is read when Arrow is loaded
    return True
