"""Notifications of the file system that something appeared in a folder: Linux's inotify, by the C library.

One thread of a process waits for them all. Where the system has no inotify, or its limits are reached, there are none:
whoever watches looks from time to time anyway. A network's file system doesn't notify of other machines' writes: only
those that are known to be of one machine are watched.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import struct
import sys
import threading
from collections.abc import Callable, Iterator

from sparklog.workers import Worker

__all__ = ["WATCHES", "FolderWatches"]

_LOGGER = logging.getLogger(__name__)
# The kernel's numbers, from linux/inotify.h; they are the same on all processors.
_IN_MOVED_TO, _IN_CREATE, _IN_Q_OVERFLOW, _IN_IGNORED, _IN_ONLYDIR = 0x80, 0x100, 0x4000, 0x8000, 0x01000000
_LOCAL = frozenset(
    {
        0x01021994,  # tmpfs
        0x2FC12FC1,  # zfs
        0x58465342,  # xfs
        0x794C7630,  # overlayfs
        0x9123683E,  # btrfs
        0xEF53,  # ext2, ext3, ext4
        0xF2F52010,  # f2fs
    }
)
"""File systems that no other machine writes to, by the number that statfs(2) gives first. Others aren't watched."""
_STATFS_BYTES = 1_024
"""More than the structure has on any processor."""
_EVENT = struct.Struct("iIII")
_BUFFER_BYTES = 4_096
"""Fifteen events with the longest names at least; the next read gives what is left."""

Changed = Callable[[], None]


class FolderWatches:
    """The folders that this process watches; for any thread.

    A child that was forked begins anew, without any.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        """inotify's; open as long as anything is watched, and then closed by the thread that reads from it."""
        self._watchers: dict[int, dict[object, Changed]] = {}
        """Whom to notify, by the kernel's number of the watch."""

    def watch(self, folder: str, changed: Changed) -> Callable[[], None] | None:
        """Have ``changed`` called soon after a file has appeared in a folder under a name that begins with no dot.

        Args:
            folder: an absolute path; what appears in folders within it isn't notified.
            changed: called by a thread of this class; at times for nothing, and possibly once after the end. It must
                neither block nor raise.
        Returns:
            Ends it. None: there are no notifications for this folder.
        """
        if sys.platform != "linux":
            return None
        with self._lock:
            try:
                number = self._begin(folder)
            except (OSError, AttributeError, RuntimeError) as error:  # AttributeError: a C library without inotify
                _LOGGER.debug("%s isn't watched, but looked at from time to time: %s", folder, error)
                return None
            key = object()
            self._watchers.setdefault(number, {})[key] = changed
        return lambda: self._end(number, key)

    @property
    def count(self) -> int:
        """Folders that are watched."""
        return len(self._watchers)

    def forget(self) -> None:
        """Begin anew in a child that was forked: the thread isn't there, and the lock may be held for ever."""
        descriptor = self._descriptor
        self._lock, self._descriptor, self._watchers = threading.Lock(), None, {}
        if descriptor is not None:
            os.close(descriptor)  # the parent's stays open

    def _begin(self, folder: str) -> int:
        """Watch a folder, and start the thread if there is none. Under the lock."""
        library = ctypes.CDLL(None, use_errno=True)
        _check_local(library, folder)
        descriptor = self._descriptor
        is_new = descriptor is None
        if descriptor is None:
            descriptor = _checked(library.inotify_init1(os.O_CLOEXEC), "inotify_init1")
        try:
            mask = _IN_CREATE | _IN_MOVED_TO | _IN_ONLYDIR
            number = _checked(library.inotify_add_watch(descriptor, os.fsencode(folder), mask), folder)
            if is_new:
                Worker("folder-watch", lambda: self._read(descriptor)).start()
        except BaseException:
            if is_new:
                os.close(descriptor)
            raise
        self._descriptor = descriptor
        return number

    def _end(self, number: int, key: object) -> None:
        with self._lock:
            watchers = self._watchers.get(number, {})
            if watchers.pop(key, None) is None or watchers:
                return
            del self._watchers[number]
            if self._descriptor is not None:  # what the kernel says to that wakes the thread, which ends if it can
                ctypes.CDLL(None).inotify_rm_watch(self._descriptor, number)

    def _read(self, descriptor: int) -> None:
        """Notify whoever watches, until nothing is watched any more."""
        while True:
            notified = self._watchers_of(os.read(descriptor, _BUFFER_BYTES))
            for changed in notified:
                changed()
            with self._lock:
                if self._descriptor != descriptor:
                    return
                if not self._watchers:
                    self._descriptor = None
                    os.close(descriptor)
                    return

    def _watchers_of(self, data: bytes) -> list[Changed]:
        """Whom to notify of these events, each once."""
        with self._lock:
            numbers: set[int] = set()
            for number, mask, name in _events(data):
                if mask & _IN_Q_OVERFLOW:  # some were lost
                    numbers.update(self._watchers)
                elif mask & _IN_IGNORED:  # ended, or the folder is gone
                    self._watchers.pop(number, None)
                elif not name.startswith(b"."):  # not that of a file which is still being written
                    numbers.add(number)
            return [changed for number in numbers for changed in self._watchers.get(number, {}).values()]


def _events(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The kernel's number of the watch, what happened, and the name that appeared."""
    at = 0
    while at < len(data):
        number, mask, _, length = _EVENT.unpack_from(data, at)
        at += _EVENT.size
        yield number, mask, data[at : at + length].rstrip(b"\0")
        at += length


def _check_local(library: ctypes.CDLL, folder: str) -> None:
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    _checked(library.statfs(os.fsencode(folder), found), folder)
    kind = ctypes.c_ulong.from_buffer(found).value & 0xFFFFFFFF
    if kind not in _LOCAL:
        raise OSError(errno.EOPNOTSUPP, f"other machines may write to a file system of the kind {kind:#x}", folder)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno() or errno.EIO
        raise OSError(number, os.strerror(number), what)
    return result


WATCHES = FolderWatches()
"""The process's."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WATCHES.forget)
