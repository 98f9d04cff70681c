"""Folders that survive a power loss: which names are known to be on the disk, and which must still be flushed."""

from __future__ import annotations

import errno
import os
import threading

__all__ = ["Folders"]


class Folders:
    """Makes the folders below ``root`` and flushes them.

    A folder's name is durable once its parent was flushed after the folder was made. A folder that somebody else made
    may not be durable yet, so each one is flushed once per process. Source: protocol rule L9, fsync.
    """

    def __init__(self, root: str) -> None:
        self._lock = threading.Lock()
        self._durable: set[str] = set()
        self._failed: set[str] = set()
        # What is above the root is ours to flush only where it isn't there yet; an existing root is its maker's.
        top = root
        while not os.path.exists(top) and os.path.dirname(top) != top:
            top = os.path.dirname(top)
        self._top = top

    def make(self, folder: str) -> None:
        """Make ``folder`` and its parents; one that is there is no error.

        Raises:
            OSError: as ``os.mkdir``; ``FileExistsError`` where a file has the name.
        """
        if os.path.isdir(folder):
            return
        self.make(os.path.dirname(folder))
        try:
            os.mkdir(folder)
        except FileExistsError:
            if not os.path.isdir(folder):
                raise
        else:
            with self._lock:
                self._durable.discard(folder)  # it may be one that was known, and was removed by hand since

    def flush_one(self, path: str) -> None:
        """Flush one file or folder.

        Raises:
            OSError: also where an earlier flush of it failed. The system reports a lost write once; what it calls a
                success after that proves nothing (rule L9, fsync).
        """
        with self._lock:
            failed = path in self._failed
        if failed:
            raise _lost(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError:
            with self._lock:
                self._failed.add(path)
            raise
        finally:
            os.close(descriptor)

    def check_none_failed(self) -> None:
        """Raise ``OSError`` if any flush has failed: then nobody can say that everything is durable."""
        with self._lock:
            failed = min(self._failed, default=None)
        if failed is not None:
            raise _lost(failed)

    def flush(self, folder: str) -> None:
        """Make the names in ``folder`` durable, and its own name and its parents'. Raises ``OSError``."""
        self.flush_one(folder)
        flushed = []
        while folder != self._top and not self._is_durable(folder):
            flushed.append(folder)
            folder = os.path.dirname(folder)
            self.flush_one(folder)
        with self._lock:
            self._durable.update(flushed)  # only now: a folder is durable if its parents are

    def _is_durable(self, folder: str) -> bool:
        with self._lock:
            return folder in self._durable


def _lost(path: str) -> OSError:
    return OSError(errno.EIO, f"an earlier fsync of {path} failed, so what was written to it may be lost")
