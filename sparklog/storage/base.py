"""The interface that sparklog asks of a store: seven calls, of which one, the create-only put, carries the whole
protocol."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sparklog.errors import ObjectNotFoundError
from sparklog.storage.foothold import Foothold

if TYPE_CHECKING:
    from sparklog.storage.ground import Ground

__all__ = ["CreateResult", "FilesRead", "ObjectInfo", "ObjectStore"]

T = TypeVar("T")


class CreateResult(enum.Enum):
    """The result of a create-only put."""

    CREATED = "created"
    EXISTS = "exists"
    """The name was taken. The taker may be this very call, retried after a lost answer: compare tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One row of a listing."""

    path: str
    """Relative to the store's root, parts joined by ``/``."""
    size_bytes: int
    modified_ms: int
    """The store's own modification time, milliseconds since the epoch; only differences within one store count."""
    etag: str
    """Changes whenever the object is written again; opaque."""


@dataclass(frozen=True, slots=True)
class FilesRead(Generic[T]):
    """The result of a call that reads objects as files of this machine."""

    result: T
    file_count: int
    """The objects that were read."""
    size_bytes: int
    """Their bytes."""


class ObjectStore(ABC):
    """A flat space of named byte strings under one root URI.

    Paths are relative, parts joined by ``/``, no part is empty, ``.`` or ``..``. Every write is atomic: a reader sees
    the old object, or the whole new one. Whatever is written is seen by the next read or listing of any client.

    Calls raise only :class:`~sparklog.errors.StoreError` and its children:
    ``ObjectNotFoundError`` (read), ``StoreUnavailableError`` (not carried out, try again), ``StoreOutcomeUnknownError``
    (the answer was lost), ``StorePermissionError``, ``StoreFullError``. A store retries nothing without a bound.
    Instances may be used from several threads.
    """

    ground: Ground | None = None
    """The cluster that the store was opened as; None: as none."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """The root, as a URI without a trailing slash. Never holds credentials."""

    @property
    def may_tear(self) -> bool:
        """May a power loss leave an object that wasn't fsynced in part, or empty, under its name?"""
        return False

    @property
    def is_remote(self) -> bool:
        """Does a call wait for another machine, so that it is worth a thread to have several under way?"""
        return False

    @property
    def longest_path_bytes(self) -> int | None:
        """The most bytes that a path may have; None: that isn't known, or there is no bound."""
        return None

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The whole object. Raises ``ObjectNotFoundError``."""

    @abstractmethod
    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Bytes ``start`` (inclusive) to ``end`` (exclusive) of an object; fewer where the object ends before ``end``.

        Raises ``ObjectNotFoundError``, and ``InvalidArgumentError`` unless ``0 <= start <= end``.
        """

    def exists(self, path: str) -> bool:
        """Is there an object of this name? Reads its first byte. Raises ``StoreError``."""
        try:
            self.read_range(path, 0, 1)
        except ObjectNotFoundError:
            return False
        return True

    def read_many(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        """Whole objects, in the order of ``paths``; None for one that isn't there. Remote stores read in parallel."""
        return [self._read_or_none(path) for path in paths]

    def read_buffers(self, paths: Sequence[str]) -> Sequence[Any]:
        """Whole objects for Arrow's readers, as :meth:`read_many`: each as ``bytes``, as a ``pyarrow.Buffer``,
        or as a view of a few megabytes that are needed again soon: who keeps it for long copies it."""
        return self.read_many(paths)

    def read_files_by(
        self, paths: Sequence[str], read: Callable[[tuple[bytes, ...]], FilesRead[T]]
    ) -> FilesRead[T] | None:
        """Call ``read`` with the file names of objects, if the store's objects are files of this machine.

        A missing object isn't an error of this call. Returns the result of ``read``; None: the store has no such
        files, and ``read`` wasn't called."""
        return None

    def _read_or_none(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except ObjectNotFoundError:
            return None

    @abstractmethod
    def put(self, path: str, data: bytes, *, sync: bool = False) -> None:
        """Write or replace an object. ``sync``: see :meth:`sync`."""

    def put_many(self, objects: Mapping[str, bytes], *, sync: bool = False) -> None:
        """Write or replace several objects; remote stores write in parallel. Not atomic as a whole."""
        for path, data in objects.items():
            self.put(path, data, sync=sync)

    @abstractmethod
    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        """The one primitive: write an object only if its name is free, atomic in content and in name.

        Of any number of calls for one name, by any clients, exactly one gets ``CREATED``; it may also happen
        that none is, when the winner's answer was lost (``StoreOutcomeUnknownError``, or ``EXISTS`` after a retry
        below us). Source: ``docs/architecture.md``, The primitive.

        A store doesn't repeat it. An error that isn't retriable says that it was not and never will be carried out;
        after one that is, the caller takes it for unknown (rule L2, unknown).
        """

    def create_next(
        self,
        path: str,
        data: bytes,
        *,
        foothold: Foothold,
        check: Callable[[], None],
        is_first: bool = False,
        sync: bool = False,
    ) -> CreateResult:
        """:meth:`create` of a log's next entry, in the place where the log was before (rule L17, ground).

        A folder may be exchanged under a client: so a store of files creates the entry in the log's folder as
        ``foothold`` holds it open, if that is what the folder's name leads to. It makes no folder.

        Args:
            foothold: of this log, the same each time.
            check: called before the entry is created, where the folder isn't the held one, or none is held: raises
                unless the log that is there is the one that the caller knows.
            is_first: there is no entry before it: folders that are missing are made, but never the root of a cluster.
        Raises:
            StoreReplacedError: the folder is gone. And what ``check`` raises. Nothing was created.
        """
        return self.create(path, data, sync=sync)

    def check_there(self, folder: str) -> None:
        """Raise ``StoreReplacedError`` if a log's folder was there once and is gone, as far as the store knows; without
        a request. ``folder``: without a trailing slash."""

    def check_root(self) -> None:
        """Do the check of :meth:`stand_on` if the store sees, without a request, that another folder is its root than
        when that was last found to be the cluster's. Raises as that check."""

    def hold_folder(self, folder: str, foothold: Foothold) -> Foothold:
        """Hold a log's folder, before the log is read, for writes of other files to it than its next entry.

        Args:
            folder: may end with a slash.
            foothold: of the log, as :meth:`create_next` has it.
        Returns:
            A foothold that keeps what ``foothold`` holds or, if that is nothing, what has the folder's name now. Of a
            store without folders it holds nothing.
        Raises:
            StoreError: as a read.
        """
        return Foothold()

    def check_held(self, folder: str, place: Foothold) -> None:
        """Raise ``StoreReplacedError`` if another folder has the name than ``place`` of :meth:`hold_folder` holds, or
        none has it. Without a request."""

    def stand_on(self, check: Callable[[], None] | None) -> None:
        """Be opened as a cluster: from now on its root is there, and isn't made again.

        Args:
            check: raises ``StoreReplacedError`` unless the root is still that cluster's; None: there is no cluster yet,
                and the root may be made.
        """

    @abstractmethod
    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """Every object whose path starts with ``prefix`` and sorts after ``after`` (exclusive), by path's byte order.

        ``prefix`` is a folder: it ends with ``/``, or is empty for everything. Objects of sub-folders are included.
        ``after`` is a whole path, not relative to ``prefix``. A folder that isn't there lists as empty; a store of
        files raises ``StoreReplacedError`` for a log's folder that it has seen there before.
        """

    @abstractmethod
    def list_names(self, prefix: str) -> Sequence[str]:
        """The names directly under the folder ``prefix`` (ends with ``/``), sorted, without their trailing slash."""

    @abstractmethod
    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects; one that isn't there is no error. Remote stores send many in one request, in no order."""

    def read_above(self, name: str) -> Sequence[tuple[str, bytes]]:
        """The objects called ``name`` directly in the folders above the root, up to the file system's or bucket's own
        root: each with the URI of its folder, the nearest first.

        Folders that this client may not read are passed over, as if nothing were there.

        Args:
            name: without a ``/``.
        Raises:
            StoreError: it isn't known whether there is one.
        """
        return ()

    def remove_empty_folders(self, prefix: str, *, changed_before_ms: int) -> None:
        """Remove the folders at and below ``prefix`` that hold nothing; object stores have none.

        A put or create of an object in such a folder makes it anew.

        Args:
            prefix: a folder, which ends with ``/``.
            changed_before_ms: the store's time; younger folders stay.
        Raises:
            StoreError.
        """

    def sync(self, paths: Iterable[str]) -> None:
        """Make objects that are already visible survive a power loss (local: fsync; remote: nothing to do).

        Objects that are gone are passed over. Raises ``StoreOutcomeUnknownError`` where the disk refuses: what was
        written may be lost. Source: protocol rule L9, fsync.
        """

    def sync_all(self) -> None:
        """Make everything written before this call, by anybody on this machine, survive a power loss."""

    def watch(self, folder: str, changed: Callable[[], None]) -> Callable[[], None] | None:
        """Have ``changed`` called soon after an object has appeared directly in a folder, as far as the store knows.

        A notification may be lost: whoever watches still has to look from time to time. Raises nothing.

        Args:
            folder: ends with ``/``.
            changed: called by another thread, at times for nothing, and possibly once after the end; it must neither
                block nor raise.
        Returns:
            Ends it. None: the store has no notifications for this folder.
        """
        return None

    def arrow_filesystem(self) -> Any:
        """A ``pyarrow.fs.FileSystem`` of the root, for engines that read data files by themselves; None: there is none.

        Arrow's own, without Python in it: errors that pass from Python through Arrow into another engine's threads
        wait for ever for the interpreter's lock, and calls that outlive the interpreter end the process (pyarrow 26
        with DuckDB 1.5 and 2.0; so with fsspec's handler too).

        Raises:
            InvalidConfigurationError: the store's options have no counterpart there.
        """
        return None

    def close(self) -> None:
        """Give back connections and threads. The store isn't used afterwards."""
