"""Settings of a process that only serves a gateway."""

from __future__ import annotations

import ctypes
import logging

import pyarrow as pa

__all__ = ["connections_with_files", "keep_freed_memory"]

_LOGGER = logging.getLogger("sparklog.gateway")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Source: glibc ``malloc.h``."""
_KEPT_BYTES = 67_108_864
_LARGEST_BYTES = 33_554_432
"""The most that glibc takes."""
_ARENAS = 2
_OTHER_FILES = 128
"""Beside a gateway's connections: files of a store, connections to it, those of probes, libraries."""


def keep_freed_memory() -> bool:
    """Let what is freed be used again by this process, where its malloc is glibc's; False: it isn't.

    Else blocks of more than 128 KiB, which record batches and files are, come fresh from the system each time: its page
    faults take longer than all that is done with their bytes. At most :data:`_KEPT_BYTES` of each arena are kept, and
    threads share a few arenas, so that one uses what another has freed. Call it before there are threads
    that allocate.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    chosen = {_M_ARENA_MAX: _ARENAS, _M_MMAP_THRESHOLD: _LARGEST_BYTES, _M_TRIM_THRESHOLD: _KEPT_BYTES}
    if not all(mallopt(option, value) for option, value in chosen.items()):
        _LOGGER.info("malloc refuses to keep memory that is freed")
        return False
    pa.set_memory_pool(pa.system_memory_pool())
    return True


def connections_with_files(asked: int) -> int:
    """How many of so many connections this process can have open: each is an open file. Raises the process's limit of
    open files as far as it may.

    Without a file to spare no connection is taken any more, not even to be refused, and no probe is answered.
    """
    try:
        import resource
    except ImportError:  # a system without such limits
        return asked
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = asked + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return asked
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = raised
    except (ValueError, OSError) as error:  # macOS has a bound of its own
        _LOGGER.info("the limit of open files stays %d: %s", soft, error)
    if soft >= needed:
        return asked
    room = max(1, soft - min(_OTHER_FILES, soft // 2))
    _LOGGER.warning("%d connections instead of %d: the process may open %d files (ulimit -n)", room, asked, soft)
    return room
