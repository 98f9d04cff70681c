"""A folder of a local file system as a store: a hard link is the create-only put."""

from __future__ import annotations

import errno
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar

from sparklog._native import CORE
from sparklog.errors import ObjectNotFoundError, StoreError, StoreOutcomeUnknownError
from sparklog.storage import _local_errors as failed
from sparklog.storage._above import read_above
from sparklog.storage._durable import Folders
from sparklog.storage._folder_watch import WATCHES
from sparklog.storage._nameless import NOT_LINKED, NamelessFiles
from sparklog.storage._paths import check_path, check_prefix, check_range, is_path
from sparklog.storage.base import CreateResult, FilesRead, ObjectInfo, ObjectStore

__all__ = ["LocalStore"]

T = TypeVar("T")

_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{32}\.tmp", re.DOTALL)
_NOT_EMPTY = {errno.ENOTEMPTY, errno.EEXIST}
_MAKINGS = 10
_LEAST_BUFFER_BYTES = 65_536
"""A smaller object is ``bytes``: its pages are there already."""
_READ_TOGETHER = 16
"""So many small objects are read by one call of the core, which has room for two kilobytes of each."""
_ENCODING, _ENCODING_ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
"""The encoding by which ``os.fsencode`` names files."""
_LONGEST_KEPT = 48  # characters of a name that its temporary file repeats: 48 * 4 + 38 bytes fit a name of 255


class LocalStore(ObjectStore):
    """Objects are the files below ``root``; the folder is made by the first write.

    Every object is written to a file without a name first, then linked to its own, so it appears whole. Where there are
    no such files, and where an object is replaced, it is written to a temporary file ``.<name>.<random>.tmp`` beside
    it, then linked (create) or renamed (put). Temporary files of a killed process stay and are never listed.

    Args:
        root: the folder; a relative one is taken from where the process is now.
    """

    def __init__(self, root: Path | str) -> None:
        self._root = os.path.abspath(root)
        self._root_bytes = os.fsencode(self._root) + b"/"
        self._folders = Folders(self._root)
        self._nameless = NamelessFiles()

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r})"

    @property
    def uri(self) -> str:
        return Path(self._root).as_uri()

    @property
    def may_tear(self) -> bool:
        return True

    @property
    def root(self) -> Path:
        """The folder, absolute."""
        return Path(self._root)

    def read(self, path: str) -> bytes:
        target = self._target(path)
        try:
            return _read_whole(target)
        except OSError as error:
            raise failed.reading(error, target) from error

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
        found: list[Any] = CORE.read_files(tuple(self._targets(paths)), _LEAST_BUFFER_BYTES)
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
            if size_bytes < _LEAST_BUFFER_BYTES:
                return _read_whole(target)
            with open(target, "rb", buffering=0) as file:
                return _read_buffer(file, os.fstat(file.fileno()).st_size)
        except OSError as error:
            failure = failed.reading(error, target)
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
            raise failed.reading(error, target) from error

    def read_above(self, name: str) -> Sequence[tuple[str, bytes]]:
        return read_above(self._root, name)

    def put(self, path: str, data: bytes, *, sync: bool = False) -> None:
        self.put_many({path: data}, sync=sync)

    def put_many(self, objects: Mapping[str, bytes], *, sync: bool = False) -> None:
        targets = [(self._target(path), data) for path, data in objects.items()]
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
        temporary = self._write_temporary(target, data, sync=sync)
        try:
            os.replace(temporary, target)
        except OSError as error:
            _remove_temporary(temporary)
            raise failed.replacing(error, target) from error

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        target = self._target(path)
        result = self._create_nameless(target, data, sync=sync) or self._create_by_temporary(target, data, sync=sync)
        if sync and result is CreateResult.CREATED:
            self._flush_folders([target])
        return result

    def _create_nameless(self, target: str, data: bytes, *, sync: bool) -> CreateResult | None:
        """Create by a file without a name; None: nothing was done, and another way may do it."""
        folder = target.rpartition("/")[0]
        if CORE is not None and not sync and self._nameless.is_supported:
            encoded = target.encode(_ENCODING, _ENCODING_ERRORS)
            answer = CORE.create_file(encoded.rpartition(b"/")[0], encoded, data)
            if answer:
                return self._linked(target, folder, None if answer > 0 else OSError(-answer, os.strerror(-answer)))
        descriptor = self._nameless.open(folder, sync=sync)
        if descriptor is None:
            return None
        try:
            try:
                _write_all(descriptor, data)
                if sync:
                    os.fsync(descriptor)
                os.close(os.dup(descriptor))  # closing reports errors too: quotas, networks
            except OSError as error:
                raise failed.writing(error, target) from error
            try:
                self._nameless.name(descriptor, target)
            except OSError as error:
                return self._linked(target, folder, error)
        finally:
            with suppress(OSError):
                os.close(descriptor)
        return CreateResult.CREATED

    def _linked(self, target: str, folder: str, error: OSError | None) -> CreateResult | None:
        """The result of giving a file its name, which raised this error; None: it wasn't, and another way may do it."""
        if error is None:
            return CreateResult.CREATED
        if isinstance(error, FileExistsError):
            return _existing(target, error)
        failure = failed.linking(error, target)
        if error.errno not in NOT_LINKED and isinstance(failure, StoreOutcomeUnknownError):
            raise failure from error
        self._nameless.note_refused(folder, error)
        return None

    def _create_by_temporary(self, target: str, data: bytes, *, sync: bool) -> CreateResult:
        temporary = self._write_temporary(target, data, sync=sync)
        try:
            os.link(temporary, target)
        except FileExistsError as error:
            return _existing(target, error)
        except OSError as error:
            raise failed.linking(error, target) from error
        finally:
            _remove_temporary(temporary)
        return CreateResult.CREATED

    def list_names(self, prefix: str) -> list[str]:
        check_prefix(prefix)
        names = []
        for name, is_folder in self._entries(prefix):
            # An object store has no empty folders; here one is left behind when its last file is deleted.
            if not is_folder or next(self._walk(f"{prefix}{name}/", ""), None) is not None:
                names.append(name)
        return sorted(names)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        return self._walk(prefix, after)

    def delete(self, paths: Iterable[str]) -> None:
        for target in [self._target(path) for path in paths]:
            try:
                os.unlink(target)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                if os.path.isdir(target):  # no object has the name of a folder
                    continue
                raise failed.removing(error, target) from error

    def remove_empty_folders(self, prefix: str, *, changed_before_ms: int) -> None:
        check_prefix(prefix)
        found: list[str] = []
        for folder, _, files in os.walk(f"{self._root}/{prefix}".rstrip("/")):
            with suppress(FileNotFoundError):
                if not files and os.stat(folder).st_mtime_ns // 1_000_000 < changed_before_ms:
                    found.append(folder)
        for folder in reversed(found):  # those within a folder come first
            try:
                os.rmdir(folder)
            except OSError as error:
                if error.errno not in _NOT_EMPTY and not isinstance(error, FileNotFoundError):
                    raise failed.removing(error, folder) from error

    def sync(self, paths: Iterable[str]) -> None:
        present = []
        for target in [self._target(path) for path in paths]:
            try:
                self._folders.flush_one(target)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise failed.syncing(error, target) from error
            present.append(target)
        self._flush_folders(present)

    def sync_all(self) -> None:
        try:
            self._folders.check_none_failed()  # os.sync reports no lost write at all
        except OSError as error:
            raise failed.syncing(error, self._root) from error
        os.sync()

    def watch(self, folder: str, changed: Callable[[], None]) -> Callable[[], None] | None:
        check_prefix(folder)
        return WATCHES.watch(f"{self._root}/{folder}", changed)

    def arrow_filesystem(self) -> Any:
        import pyarrow.fs as pafs  # loads Arrow's S3 client too, which few have a use for

        return pafs.SubTreeFileSystem(self._root, pafs.LocalFileSystem())

    def _target(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"

    def _write_temporary(self, target: str, data: bytes, *, sync: bool) -> str:
        """Write ``data`` beside ``target``, flushed if ``sync``; a failure leaves nothing and is definite."""
        folder, _, name = target.rpartition("/")
        temporary = f"{folder}/.{name[:_LONGEST_KEPT]}.{uuid.uuid4().hex}.tmp"
        try:
            descriptor = self._open_temporary(folder, temporary)
        except OSError as error:
            raise failed.writing(error, target) from error
        try:
            with open(descriptor, "wb", buffering=0) as file:  # closing reports errors too: NFS, quotas
                _write_all(file.fileno(), data)
                if sync:
                    os.fsync(descriptor)
        except OSError as error:
            _remove_temporary(temporary)
            raise failed.writing(error, target) from error
        except BaseException:
            _remove_temporary(temporary)
            raise
        return temporary

    def _open_temporary(self, folder: str, temporary: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        for _ in range(_MAKINGS):
            try:
                return os.open(temporary, flags, 0o666)
            except FileNotFoundError:
                with suppress(FileNotFoundError):  # somebody removes empty folders
                    self._folders.make(folder)
        return os.open(temporary, flags, 0o666)

    def _flush_folders(self, targets: Iterable[str]) -> None:
        for folder in dict.fromkeys(target.rpartition("/")[0] for target in targets):
            try:
                self._folders.flush(folder)
            except OSError as error:
                raise failed.syncing(error, folder) from error

    def _entries(self, prefix: str, first: str = "") -> Sequence[tuple[str, bool]]:
        """Names directly in a folder and whether each is a folder, in no order; of legal names only.

        ``first``: names that sort before it, and so does everything in a folder of that name, may be left out.
        """
        folder = f"{self._root}/{prefix}"
        try:
            with os.scandir(folder) as entries:
                return [
                    (entry.name, entry.is_dir())
                    for entry in entries
                    if (entry.name >= first or first.startswith(entry.name))  # of very many, most go here
                    and _is_listed(entry.name)
                ]
        except OSError as error:
            failure = failed.reading(error, folder)
            if isinstance(failure, ObjectNotFoundError):
                return []
            raise failure from error

    def _walk(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        # A folder sorts as its name with the slash, because that is what its objects' paths begin with.
        first = after[len(prefix) :].partition("/")[0] if after.startswith(prefix) else ""
        few = self._few_from(prefix, first)
        names = [(name, found[0]) for name, found in few.items()] if few is not None else self._entries(prefix, first)
        for name in sorted(name + "/" if is_folder else name for name, is_folder in names):
            path = prefix + name
            if path.endswith("/"):
                if after < path or after.startswith(path):  # else everything in it sorts before ``after``
                    yield from self._walk(path, after)
            elif path > after:
                try:
                    found = self._stat(path) if few is None else few[name][1:]
                except FileNotFoundError:
                    continue  # deleted since the folder was read
                except OSError as error:
                    raise failed.reading(error, path) from error
                size_bytes, mtime_ns, inode = found
                yield ObjectInfo(
                    path=path,
                    size_bytes=size_bytes,
                    modified_ms=mtime_ns // 1_000_000,
                    etag=f"{inode:x}-{mtime_ns:x}-{size_bytes:x}",
                )

    def _few_from(self, prefix: str, first: str) -> Mapping[str, tuple[bool, int, int, int]] | None:
        """The names that :meth:`_entries` returns, each with whether it is a folder, and its size, time of change and
        inode. None where there are many, or Python is to find out."""
        if CORE is None:
            return None
        least = first.encode() if first.isascii() and "\0" not in first else b""
        listed = CORE.list_folder(os.fsencode(f"{self._root}/{prefix}"), least)
        if listed is None:
            return None
        return {name: found for encoded, *found in listed if _is_listed(name := os.fsdecode(encoded))}

    def _stat(self, path: str) -> tuple[int, int, int]:
        found = os.stat(f"{self._root}/{path}")
        return found.st_size, found.st_mtime_ns, found.st_ino


def _is_listed(name: str) -> bool:
    return is_path(name) and not (name[0] == "." and _TEMPORARY.fullmatch(name))


def _read_whole(target: str) -> bytes:
    """A file's bytes. Of a small one Python's own files ask the system for twice as much."""
    descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size_bytes = os.fstat(descriptor).st_size
        data = os.read(descriptor, size_bytes)
        if len(data) == size_bytes > 0:
            return data
        parts = [data]
        while part := os.read(descriptor, _LEAST_BUFFER_BYTES):  # it isn't whole yet, or has another size by now
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _read_buffer(file: FileIO, size_bytes: int) -> Any:
    import pyarrow as pa  # who reads no data files needn't load it

    buffer = pa.allocate_buffer(size_bytes)
    rest = memoryview(buffer).cast("B")
    while rest:
        count = file.readinto(rest)
        if not count:  # it is shorter than it was a moment ago: whoever reads it finds it truncated
            return buffer.slice(0, size_bytes - len(rest))
        rest = rest[count:]
    return buffer


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _existing(target: str, error: OSError) -> CreateResult:
    if os.path.isdir(target):
        raise StoreError(f"create {target}: there is a folder of this name") from error
    return CreateResult.EXISTS


def _remove_temporary(temporary: str) -> None:
    # What matters is already decided; a temporary file that stays is hidden and harms nobody.
    with suppress(OSError):
        os.unlink(temporary)
