"""Reading ahead: the bytes of files that partitions need next, fetched while those before them are decoded."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

from sparklog.clock import Clock
from sparklog.model import TopicPartition
from sparklog.storage.retrying import Patience, RetryingStore
from sparklog.workers import Worker

__all__ = ["FileAhead", "PlannedFiles", "ReadAhead"]

_LOGGER = logging.getLogger(__name__)
_MOST_READS = 4
"""Reads under way at once, each of up to 32 requests at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAhead:
    """A data file that a partition will need."""

    path: str
    """In the store."""
    partition: TopicPartition
    epoch: int
    """The epoch of the partition's assignment."""
    size_bytes: int
    """The size that the log tells."""


class _Read:
    """One call to the store for several files, in a thread of its own."""

    def __init__(self, store: RetryingStore, clock: Clock, paths: Sequence[str]) -> None:
        self._store = store
        # At its turn a file that failed is read again, as often as the store's own patience says.
        self._patience = Patience(deadline=clock.deadline_in(0), retries=0)
        self._paths = paths
        self._found: dict[str, Any] = {}
        self._worker = Worker("read-ahead", partial(copy_context().run, self._run))

    def start(self) -> None:
        """Begin. Raises ``RuntimeError`` where no thread can be started."""
        self._worker.start()

    @property
    def has_ended(self) -> bool:
        return self._worker.join(0)

    def wait(self) -> None:
        """Wait for its end."""
        self._worker.join(None)

    def has(self, path: str) -> bool:
        """Are the bytes of a file there? After the end."""
        return path in self._found

    def take(self, path: str) -> Any:
        """The bytes of a file, which are then forgotten; None: they aren't there. After the end."""
        return self._found.pop(path, None)

    def _run(self) -> None:
        try:
            with self._store.patience(self._patience):
                data = self._store.read_buffers(self._paths)
        except Exception:  # read again at its turn, where what fails is reported
            _LOGGER.debug("%d files could not be read ahead", len(self._paths), exc_info=True)
        else:
            self._found = {path: found for path, found in zip(self._paths, data, strict=True) if found is not None}


class _Given:
    """The bytes of one file, which the log carried."""

    has_ended = True

    def __init__(self, data: Any) -> None:
        self._data = data

    def wait(self) -> None:
        """Return: they are there."""

    def has(self, path: str) -> bool:
        """Are the bytes of the file there?"""
        return self._data is not None

    def take(self, path: str) -> Any:
        """The bytes of the file, which are then forgotten."""
        data, self._data = self._data, None
        return data


@dataclass(slots=True)
class _File:
    """A file whose bytes are there, or on their way."""

    facts: FileAhead
    read: _Read | _Given


class ReadAhead:
    """Fetches files ahead, by path, and holds their bytes until they are taken. Owned by one thread.

    Errors stay here: a file that is gone, or couldn't be read, isn't held when its turn comes, and is read then.
    """

    def __init__(self, store: RetryingStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._files: dict[str, _File] = {}
        self._reads: list[_Read] = []
        """Calls under way."""
        self._dropped: list[_File] = []
        """Files on their way that nobody waits for any more."""

    def __contains__(self, path: object) -> bool:
        return path in self._files

    @property
    def is_useful(self) -> bool:
        """Do reads of this store take so long that it is worth a thread to wait for them?"""
        return self._store.is_remote

    @property
    def held_bytes(self) -> int:
        """The memory that the files take, with those on their way."""
        if not self._files and not self._dropped:
            return 0
        return sum(file.facts.size_bytes for file in (*self._files.values(), *self._dropped))

    @property
    def has_any(self) -> bool:
        """Is any file held, or on its way?"""
        return bool(self._files)

    @property
    def held(self) -> dict[TopicPartition, int]:
        """The partitions of which files are held, and the epochs that they were in."""
        return {file.facts.partition: file.facts.epoch for file in self._files.values()} if self._files else {}

    def start(self, files: Sequence[FileAhead]) -> None:
        """Begin to fetch files, together; they are left out where too much is under way, or no thread can be had."""
        self._forget_ended()
        files = [file for file in files if file.path not in self._files]
        if not files or len(self._reads) >= _MOST_READS:
            return
        read = _Read(self._store, self._clock, [file.path for file in files])
        try:
            read.start()
        except RuntimeError as error:  # no more threads, or the interpreter is shutting down
            _LOGGER.debug("nothing is read ahead: %s", error)
            return
        self._reads.append(read)
        self._files.update((file.path, _File(file, read)) for file in files)

    def hold(self, file: FileAhead, data: Any) -> None:
        """Hold the bytes of a file, which the log carried."""
        if file.path not in self._files:
            self._files[file.path] = _File(file, _Given(data))

    def settle(self, path: str) -> None:
        """Wait for a file if it is on its way. If it couldn't be read, it isn't held any more."""
        file = self._files.get(path)
        if file is not None:
            file.read.wait()
            if not file.read.has(path):
                del self._files[path]

    def take(self, path: str) -> Any:
        """The bytes of a file that was settled, which is then not held any more; None: it isn't."""
        file = self._files.pop(path, None)
        return None if file is None else file.read.take(path)

    def keep(self, partition: TopicPartition, paths: Collection[str]) -> None:
        """Drop the files of a partition that aren't among ``paths``: others have taken their place in the log."""
        self._drop(
            path for path, file in self._files.items() if file.facts.partition == partition and path not in paths
        )

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the files of these partitions."""
        if partitions:
            self._drop(path for path, file in self._files.items() if file.facts.partition in partitions)

    def close(self) -> None:
        """Drop all, once what is under way has ended."""
        self._files.clear()
        for read in self._reads:
            read.wait()
        self._forget_ended()

    def _drop(self, paths: Iterable[str]) -> None:
        for path in [*paths]:
            file = self._files.pop(path)
            if file.read.has_ended:
                file.read.take(path)
            else:
                self._dropped.append(file)

    def _forget_ended(self) -> None:
        self._reads = [read for read in self._reads if not read.has_ended]
        dropped, self._dropped = self._dropped, []
        for file in dropped:
            if file.read.has_ended:
                file.read.take(file.facts.path)
            else:
                self._dropped.append(file)


class PlannedFiles:
    """The bytes of files that are read now: those held ahead, those found before, and the others, which are fetched
    together."""

    def __init__(self, store: RetryingStore, ahead: ReadAhead, paths: Iterable[str], found: dict[str, Any]) -> None:
        self._store = store
        self._ahead = ahead
        self._left = dict.fromkeys(paths)
        """Paths that weren't taken yet."""
        self._data = found
        """The bytes of those that weren't held ahead."""

    def fetch(self) -> None:
        """Fetch the files that aren't held ahead. Raises ``StoreError``: the store can't be read now."""
        missing = [path for path in self._left if path not in self._data and path not in self._ahead]
        if missing:
            self._data.update(zip(missing, self._store.read_buffers(missing), strict=True))

    def wait(self, paths: Iterable[str]) -> None:
        """Wait until the bytes of some of the files are there. Raises as :meth:`fetch`."""
        if self._ahead.has_any:
            for path in paths:
                self._ahead.settle(path)
        elif len(self._data) == len(self._left):
            return  # all that is left was fetched
        self.fetch()

    def take(self, path: str) -> Any:
        """The bytes of a file that was waited for, once; None: it isn't there. Files that nobody takes stay ahead."""
        self._left.pop(path)
        return self._data.pop(path) if path in self._data else self._ahead.take(path)
