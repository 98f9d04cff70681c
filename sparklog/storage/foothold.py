"""The place where one client's log lies, as its store holds it: for as long as a folder is held open, no other one has
its number (rule L17, ground)."""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from contextlib import suppress
from typing import Any

__all__ = ["MOST_HELD", "Foothold", "HeldFolder", "hold", "release", "use"]

MOST_HELD = 256
"""Folders that a process holds open, those that it has used last."""


class HeldFolder:
    """A folder of a local file system, held open. It is let go of with its last reference: whoever uses it at that
    moment has one."""

    __slots__ = ("descriptor", "device", "inode", "owner")

    def __init__(self, folder: str, owner: object) -> None:
        """
        Args:
            owner: the store that holds it.
        Raises:
            OSError: as ``os.open``; ``NotADirectoryError`` for a file.
        """
        self.owner = id(owner)
        self.descriptor = -1
        self.descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        found = os.fstat(self.descriptor)
        self.device, self.inode = found.st_dev, found.st_ino

    def is_at(self, folder: str) -> bool:
        """Does the folder's name lead to this one? Raises ``OSError``, other than that nothing has the name."""
        try:
            found = os.stat(folder)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return found.st_ino == self.inode and found.st_dev == self.device

    def __del__(self) -> None:
        if self.descriptor >= 0:
            with suppress(OSError, AttributeError):  # at the interpreter's end there may be no os any more
                os.close(self.descriptor)


class Foothold:
    """The place where a log lies, as one client of it and its store know it."""

    __slots__ = ("__weakref__", "blocked", "held", "known")

    def __init__(self) -> None:
        self.held: HeldFolder | None = None
        """The log's folder; None: it isn't held, or the store has no folders."""
        self.known: tuple[int, str] | None = None
        """Number and token of the newest entry that the client has created there."""
        self.blocked: tuple[int, int] | None = None
        """Number of an entry whose name was taken and under which nothing was there, and how often that was so."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Foothold, ())  # another process has other descriptors


_HELD: OrderedDict[int, weakref.ref[Foothold]] = OrderedDict()
"""The footholds whose folders are held, by their ids, those used last at the end. Without a lock, which a fork could
leave held: each change is one call."""


def use(foothold: Foothold) -> HeldFolder | None:
    """The folder that is held, which now is the one used last; None: none is."""
    held = foothold.held
    if held is not None:
        try:  # rather than by suppress(), which takes longer: this is done for each commit
            _HELD.move_to_end(id(foothold))
        except KeyError:  # another thread has let go of it at this moment
            return held
    return held


def hold(foothold: Foothold, held: HeldFolder) -> None:
    """Hold a folder, and let go of the one that was used longest ago if there are too many."""
    key = id(foothold)
    foothold.held = held
    _HELD[key] = weakref.ref(foothold, lambda _: _HELD.pop(key, None))
    while len(_HELD) > MOST_HELD:
        try:
            _, oldest = _HELD.popitem(last=False)
        except KeyError:  # others have let go of theirs
            return
        _release(oldest())


def release(owner: object) -> None:
    """Let go of all folders that a store holds."""
    # As one step: list(_HELD.items()) makes tuples, at which a collection of garbage may take footholds out of it.
    for found in list(dict.values(_HELD)):
        foothold = found()
        if foothold is not None and foothold.held is not None and foothold.held.owner == id(owner):
            _release(foothold)
            _HELD.pop(id(foothold), None)


def _release(foothold: Foothold | None) -> None:
    if foothold is not None:
        foothold.held = None
