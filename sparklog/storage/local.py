"""A folder of a local file system as a store: a hard link is the create-only put."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from sparklog._native import CORE
from sparklog.errors import ObjectNotFoundError, StoreReplacedError
from sparklog.storage import _local_errors as failed
from sparklog.storage._above import read_above
from sparklog.storage._durable import Folders
from sparklog.storage._folder_watch import WATCHES
from sparklog.storage._known_folders import KnownFolders
from sparklog.storage._local_listing import LocalListing
from sparklog.storage._local_reading import LEAST_BUFFER_BYTES, read_buffer, read_whole
from sparklog.storage._local_writing import MAKINGS, LocalWriting, remove_empty_folders, remove_temporary
from sparklog.storage._nameless import NamelessFiles
from sparklog.storage._paths import check_path, check_prefix, check_range, is_path
from sparklog.storage.base import CreateResult, FilesRead, ObjectInfo, ObjectStore
from sparklog.storage.foothold import Foothold, HeldFolder, hold, release, use

__all__ = ["LocalStore"]

T = TypeVar("T")

_MISPLACED = 2
"""The core's answer where a folder's name doesn't lead to the folder that is held."""
_READ_TOGETHER = 16
"""So many small objects are read by one call of the core, which has room for two kilobytes of each."""
_ENCODING, _ENCODING_ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
"""The encoding by which ``os.fsencode`` names files."""


class LocalStore(ObjectStore):
    """Objects are the files below ``root``; the folder is made by the first write.

    Every object is written to a file without a name first, then linked to its own, so it appears whole. Where there are
    no such files, and where an object is replaced, it is written to a temporary file ``.<name>.<random>.tmp`` beside
    it, then linked (create) or renamed (put). Temporary files of a killed process stay and are never listed.

    Args:
        root: the folder; a relative one is taken from where the process is now. Links on the way to it are followed
            now, for all calls; what others are told of it (:attr:`uri`, :attr:`root`) is the name as given.
    """

    def __init__(self, root: Path | str) -> None:
        self._named = os.path.abspath(root)
        self._root = os.path.realpath(root)  # once: a link above the root, or in its place, may be switched later
        self._root_bytes = os.fsencode(self._root) + b"/"
        self._folders = Folders(self._root)
        self._known = KnownFolders(self._root, self._named)
        self._foothold, self._check = Foothold(), _nothing_to_check
        self._nameless = NamelessFiles()
        self._writing = LocalWriting(self._nameless, self._make, self._shown)
        self._listing = LocalListing(self._root, self._shown)

    def __repr__(self) -> str:
        return f"LocalStore({self._named!r})"

    @property
    def uri(self) -> str:
        return Path(self._named).as_uri()

    @property
    def may_tear(self) -> bool:
        return True

    @property
    def root(self) -> Path:
        """The folder, absolute, by the name that it was given."""
        return Path(self._named)

    def read(self, path: str) -> bytes:
        target = self._target(path)
        try:
            return read_whole(target)
        except OSError as error:
            raise failed.reading(error, self._shown(target)) from error

    def read_many(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        if CORE is None or not paths:
            return super().read_many(paths)
        targets = self._targets(paths)
        found: list[Any] = []
        for start in range(0, len(targets), _READ_TOGETHER):
            found += CORE.read_small_files(tuple(targets[start : start + _READ_TOGETHER]))
        return [self._read_or_none(path) if data is False else data for path, data in zip(paths, found, strict=True)]

    def _targets(self, paths: Sequence[str]) -> list[bytes]:
        """The files of objects as the system names them. Raises ``InvalidArgumentError``."""
        joined = "/".join(paths)  # whose parts are those of all of them, but for an end of line at the end of a name
        if "\n" in joined or not is_path(joined):
            for path in paths:
                check_path(path)
        root = self._root_bytes
        return [root + path.encode(_ENCODING, _ENCODING_ERRORS) for path in paths]

    def read_buffers(self, paths: Sequence[str]) -> Sequence[Any]:
        if CORE is None or not paths:
            return [self._read_buffer_or_none(path) for path in paths]
        found: list[Any] = CORE.read_files(tuple(self._targets(paths)), LEAST_BUFFER_BYTES)
        for place, path in enumerate(paths):
            if found[place] is None:
                found[place] = self._read_buffer_or_none(path)
        return found

    def read_files_by(
        self, paths: Sequence[str], read: Callable[[tuple[bytes, ...]], FilesRead[T]]
    ) -> FilesRead[T] | None:
        return read(tuple(self._targets(paths)))

    def _read_buffer_or_none(self, path: str) -> Any:
        """An object in memory of Arrow's, whose pages are there already: for half a megabyte or so, to touch new ones
        takes longer than to read and to decode."""
        target = self._target(path)
        try:
            size_bytes = os.stat(target).st_size
            if size_bytes < LEAST_BUFFER_BYTES:
                return read_whole(target)
            with open(target, "rb", buffering=0) as file:
                return read_buffer(file, os.fstat(file.fileno()).st_size)
        except OSError as error:
            failure = failed.reading(error, self._shown(target))
            if isinstance(failure, ObjectNotFoundError):
                return None
            raise failure from error

    def read_range(self, path: str, start: int, end: int) -> bytes:
        check_range(path, start, end)
        target = self._target(path)
        try:
            with open(target, "rb") as file:
                file.seek(start)
                return file.read(end - start)
        except OSError as error:
            raise failed.reading(error, self._shown(target)) from error

    def read_above(self, name: str) -> Sequence[tuple[str, bytes]]:
        return read_above(self._root, name)

    def put(self, path: str, data: bytes, *, sync: bool = False) -> None:
        self.put_many({path: data}, sync=sync)

    def put_many(self, objects: Mapping[str, bytes], *, sync: bool = False) -> None:
        targets = [(self._target(path), data) for path, data in objects.items()]
        self._check_root(next(iter(objects), ""))
        for target, data in targets if sync else self._created_together(targets):
            if os.path.lexists(target) or self._create_nameless(target, data, sync=sync) is not CreateResult.CREATED:
                self._replace(target, data, sync=sync)
        if sync:
            self._flush_folders(target for target, _ in targets)

    def _created_together(self, targets: Sequence[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
        """Create files, without asking for Python's lock between any two. Yields those that are to be put by another
        way: what is there, what finds no folder, and whatever fails, where that way reports the reason."""
        done = 0
        while done < len(targets):
            if CORE is not None and self._nameless.is_supported:
                files = [(at.encode(_ENCODING, _ENCODING_ERRORS), data) for at, data in targets[done:]]
                done += CORE.create_files(tuple([(at.rpartition(b"/")[0], at, data) for at, data in files]))
            if done < len(targets):
                yield targets[done]
                done += 1

    def _replace(self, target: str, data: bytes, *, sync: bool) -> None:
        temporary = self._writing.write_temporary(target, data, sync=sync)
        try:
            os.replace(temporary, target)
        except OSError as error:
            remove_temporary(temporary)
            raise failed.replacing(error, self._shown(target)) from error

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        target = self._target(path)
        self._check_root(path)
        result = self._create_nameless(target, data, sync=sync) or self._writing.create_by_temporary(
            target, data, sync=sync
        )
        if sync and result is CreateResult.CREATED:
            self._flush_folders([target])
        return result

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
        target = self._target(path)
        held = use(foothold)
        if held is not None and CORE is not None and not sync and self._nameless.is_supported:
            at, _, name = target.encode(_ENCODING, _ENCODING_ERRORS).rpartition(b"/")
            answer = CORE.create_in_held(held.descriptor, held.device, held.inode, at, name, data)
            if answer == 1:
                return CreateResult.CREATED
            if answer not in (0, _MISPLACED):
                refused = self._writing.linked(target, os.fsdecode(at), OSError(-answer, os.strerror(-answer)))
                if refused is not None:
                    return refused
        folder = target.rpartition("/")[0]
        if held is None or not self._is_at(held, folder):
            held = self._settle(folder, check, wanted=folder, is_first=is_first)
            hold(foothold, held)
        result = self._writing.create_nameless(target, data, sync=sync, held=held)
        result = result or self._writing.create_by_temporary(target, data, sync=sync, held=held)
        if sync and result is CreateResult.CREATED:
            self._flush_folders([target])
        return result

    def _settle(self, folder: str, check: Callable[[], None], *, wanted: str, is_first: bool = False) -> HeldFolder:
        """A folder, held open, as soon as ``check`` has found there what is expected. ``wanted``: to be written to."""
        relative = wanted[len(self._root) + 1 :]
        for _ in range(MAKINGS):
            try:
                held = HeldFolder(folder, self)
            except (FileNotFoundError, NotADirectoryError) as error:
                if not is_first:
                    raise self._known.gone(relative) from error
                check()
                with suppress(FileNotFoundError):
                    self._make(folder)
                continue
            except OSError as error:
                raise failed.writing(error, self._shown(folder)) from error
            check()
            if self._is_at(held, folder):  # so what was read came from there
                self._known.note(folder[len(self._root) + 1 :])
                return held
        raise StoreReplacedError(f"the folder {self._shown(folder)} is exchanged again and again")

    def _check_root(self, path: str = "") -> HeldFolder | None:
        """Before a write: is the root the one that was opened as a cluster? Then it, held open; None: none was opened.
        ``path``: of what is written."""
        if self._check is _nothing_to_check:
            return None
        held = use(self._foothold)
        if held is None or not self._is_at(held, self._root):
            wanted = f"{self._root}/{path.rpartition('/')[0]}".rstrip("/")
            held = self._settle(self._root, self._check, wanted=wanted)
            hold(self._foothold, held)
        return held

    def _is_at(self, held: HeldFolder, folder: str) -> bool:
        try:
            return held.is_at(folder)
        except OSError as error:
            raise failed.writing(error, self._shown(folder)) from error

    def _make(self, folder: str) -> None:
        """Make a folder. Raises ``OSError``, ``StoreError``: see :meth:`KnownFolders.check_may_make`."""
        relative = folder[len(self._root) + 1 :]
        self._known.check_may_make(relative)
        self._folders.make(folder)
        self._known.note(relative)

    def _create_nameless(self, target: str, data: bytes, *, sync: bool) -> CreateResult | None:
        """Create by a file without a name; None: nothing was done, and another way may do it."""
        if CORE is not None and not sync and self._nameless.is_supported:
            encoded = target.encode(_ENCODING, _ENCODING_ERRORS)
            answer = CORE.create_file(encoded.rpartition(b"/")[0], encoded, data)
            if answer:
                error = None if answer > 0 else OSError(-answer, os.strerror(-answer))
                return self._writing.linked(target, target.rpartition("/")[0], error)
        return self._writing.create_nameless(target, data, sync=sync)

    def list_names(self, prefix: str) -> list[str]:
        check_prefix(prefix)
        names = self._listing.names(prefix)
        self._note_listed(prefix, is_empty=not names)
        return names

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        return self._listed(prefix, after)

    def _listed(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        is_empty = True
        for found in self._listing.walk(prefix, after):
            if is_empty:
                self._note_listed(prefix, is_empty=False)
                is_empty = False
            yield found
        if is_empty:
            self._note_listed(prefix, is_empty=True)

    def _note_listed(self, prefix: str, *, is_empty: bool) -> None:
        """Note a folder that is there; raise ``StoreReplacedError`` for one that was there once and is gone."""
        (self._known.check_there if is_empty else self._known.note)(prefix[:-1])

    def delete(self, paths: Iterable[str]) -> None:
        targets = [self._target(path) for path in paths]
        self._writing.delete([target[len(self._root) + 1 :] for target in targets], self._root, self._check_root())

    def remove_empty_folders(self, prefix: str, *, changed_before_ms: int) -> None:
        check_prefix(prefix)
        self._check_root(prefix)
        try:
            remove_empty_folders(f"{self._root}/{prefix}".rstrip("/"), changed_before_ms=changed_before_ms)
        except OSError as error:
            raise failed.removing(error, self._shown(error.filename)) from error

    def sync(self, paths: Iterable[str]) -> None:
        present = []
        for target in [self._target(path) for path in paths]:
            try:
                self._folders.flush_one(target)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise failed.syncing(error, self._shown(target)) from error
            present.append(target)
        self._flush_folders(present)

    def sync_all(self) -> None:
        try:
            self._folders.check_none_failed()  # os.sync reports no lost write at all
        except OSError as error:
            raise failed.syncing(error, self._named) from error
        os.sync()

    def watch(self, folder: str, changed: Callable[[], None]) -> Callable[[], None] | None:
        check_prefix(folder)
        return WATCHES.watch(f"{self._root}/{folder}", changed)

    def check_there(self, folder: str) -> None:
        self._known.check_there(folder)

    def stand_on(self, check: Callable[[], None] | None) -> None:
        self._known.begin_anew(root_is_known=check is not None)
        self._foothold, self._check = Foothold(), check or _nothing_to_check

    def check_root(self) -> None:
        self._known.check_root(self._check)

    def hold_folder(self, folder: str, foothold: Foothold) -> Foothold:
        place, target = Foothold(), f"{self._root}/{folder}".rstrip("/")
        try:
            place.held = use(foothold) or HeldFolder(target, self)
        except OSError as error:
            if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
                raise failed.reading(error, self._shown(target)) from error
        return place

    def check_held(self, folder: str, place: Foothold) -> None:
        if place.held is not None and not self._is_at(place.held, f"{self._root}/{folder}".rstrip("/")):
            raise self._known.exchanged(folder.rstrip("/"))

    def close(self) -> None:
        release(self)

    def arrow_filesystem(self) -> Any:
        import pyarrow.fs as pafs  # loads Arrow's S3 client too, which few have a use for

        return pafs.SubTreeFileSystem(self._root, pafs.LocalFileSystem())

    def _target(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"

    def _shown(self, target: str) -> str:
        """A file or folder by the name that the root was given."""
        return self._named + target[len(self._root) :]

    def _flush_folders(self, targets: Iterable[str]) -> None:
        for folder in dict.fromkeys(target.rpartition("/")[0] for target in targets):
            try:
                self._folders.flush(folder)
            except OSError as error:
                raise failed.syncing(error, self._shown(folder)) from error


def _nothing_to_check() -> None:
    """The root of a store that isn't opened as a cluster may be anything."""
