"""Settings of a process that only serves a gateway."""

from __future__ import annotations

import gc
import logging

__all__ = ["connections_with_files", "exempt_from_collections"]

_LOGGER = logging.getLogger("sparklog.gateway")
_MIDDLE_BEFORE_FULL = 100
"""Collections of what is young between two full ones; by default ten. A full one takes 50 ms over the objects of a
request of ten thousand elements, whose memory comes back without it."""
_OTHER_FILES = 128
"""Beside a gateway's connections: files of a store, connections to it, those of probes, libraries."""


def exempt_from_collections() -> None:
    """Exempt all objects that are there from Python's collections of garbage, from now on.

    A full collection stops every thread, so that all clients wait: over what a gateway has loaded it takes 50 ms of
    CPU, ten times that on a busy machine, and one request of ten thousand elements may bring it about. Call it
    where no client is served yet.
    """
    gc.collect()  # what is garbage now would stay for ever
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _MIDDLE_BEFORE_FULL)


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
