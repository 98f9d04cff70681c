"""Creating files, whole and only where their names are free, by Python's own calls."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress

from sparklog.errors import StoreError, StoreOutcomeUnknownError
from sparklog.storage import _local_errors as failed
from sparklog.storage._nameless import NOT_LINKED, NamelessFiles
from sparklog.storage.base import CreateResult
from sparklog.storage.foothold import HeldFolder

__all__ = ["MAKINGS", "LocalWriting", "remove_empty_folders", "remove_temporary"]

MAKINGS = 10
"""Attempts to make a folder, while somebody else removes empty ones."""
_NOT_EMPTY = {errno.ENOTEMPTY, errno.EEXIST}
_LONGEST_KEPT = 48  # characters of a name that its temporary file repeats: 48 * 4 + 38 bytes fit a name of 255


class LocalWriting:
    """The writing of one store's files.

    Args:
        nameless: opens files without names.
        make: makes a folder. Raises ``OSError``, ``StoreError``.
        shown: returns how a file is called in messages.
    """

    def __init__(self, nameless: NamelessFiles, make: Callable[[str], None], shown: Callable[[str], str]) -> None:
        self._nameless = nameless
        self._make = make
        self._shown = shown

    def create_nameless(
        self, target: str, data: bytes, *, sync: bool, held: HeldFolder | None = None
    ) -> CreateResult | None:
        """Create by a file without a name; None: nothing was done, and another way may do it. ``held``: the folder of
        ``target``."""
        folder, _, name = target.rpartition("/")
        descriptor = self._nameless.open(folder, sync=sync, held=held)
        if descriptor is None:
            return None
        try:
            try:
                _write_all(descriptor, data)
                if sync:
                    os.fsync(descriptor)
                os.close(os.dup(descriptor))  # closing reports errors too: quotas, networks
            except OSError as error:
                raise failed.writing(error, self._shown(target)) from error
            try:
                self._nameless.name(descriptor, target if held is None else name, held=held)
            except OSError as error:
                return self.linked(target, folder, error)
        finally:
            with suppress(OSError):
                os.close(descriptor)
        return CreateResult.CREATED

    def linked(self, target: str, folder: str, error: OSError | None) -> CreateResult | None:
        """The result of giving a file its name, which raised this error; None: it wasn't, and another way may do it."""
        if error is None:
            return CreateResult.CREATED
        if isinstance(error, FileExistsError):
            return _existing(target, error)
        failure = failed.linking(error, self._shown(target))
        if error.errno not in NOT_LINKED and isinstance(failure, StoreOutcomeUnknownError):
            raise failure from error
        self._nameless.note_refused(folder, error)
        return None

    def create_by_temporary(
        self, target: str, data: bytes, *, sync: bool, held: HeldFolder | None = None
    ) -> CreateResult:
        temporary = self.write_temporary(target, data, sync=sync, held=held)
        try:
            if held is None:
                os.link(temporary, target)
            else:
                within = held.descriptor
                os.link(temporary, target.rpartition("/")[2], src_dir_fd=within, dst_dir_fd=within)
        except FileExistsError as error:
            return _existing(target, error)
        except OSError as error:
            raise failed.linking(error, self._shown(target)) from error
        finally:
            remove_temporary(temporary, held)
        return CreateResult.CREATED

    def write_temporary(self, target: str, data: bytes, *, sync: bool, held: HeldFolder | None = None) -> str:
        """Write ``data`` beside ``target``, flushed if ``sync``; a failure leaves nothing and is definite. Returns the
        file's path, which is relative to ``held`` if that is given."""
        folder, _, name = target.rpartition("/")
        temporary = f".{name[:_LONGEST_KEPT]}.{uuid.uuid4().hex}.tmp"
        try:
            if held is None:
                temporary = f"{folder}/{temporary}"
                descriptor = self._open_making_folders(folder, temporary)
            else:
                descriptor = _open_temporary(temporary, held)
        except OSError as error:
            raise failed.writing(error, self._shown(target)) from error
        try:
            with open(descriptor, "wb", buffering=0) as file:  # closing reports errors too: NFS, quotas
                _write_all(file.fileno(), data)
                if sync:
                    os.fsync(descriptor)
        except OSError as error:
            remove_temporary(temporary, held)
            raise failed.writing(error, self._shown(target)) from error
        except BaseException:
            remove_temporary(temporary, held)
            raise
        return temporary

    def delete(self, paths: Iterable[str], root: str, held: HeldFolder | None) -> None:
        """Delete files, each folder's in the folder that has its name when the first of them is deleted: thousands take
        a while, in which it may be exchanged.

        Args:
            paths: relative to ``root``.
            held: the root, held open; None: it is found by its name.
        """
        folders: dict[str, list[str]] = {}
        for path in paths:
            folder, _, name = path.rpartition("/")
            folders.setdefault(folder, []).append(name)
        for folder, names in folders.items():
            at = f"{root}/{folder}".rstrip("/") if held is None else folder or "."
            within = {} if held is None else {"dir_fd": held.descriptor}
            try:
                descriptor = os.open(at, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, **within)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise failed.removing(error, self._shown(f"{root}/{folder}")) from error
            try:
                for name in names:
                    self._delete(name, descriptor, f"{root}/{folder}/{name}" if folder else f"{root}/{name}")
            finally:
                os.close(descriptor)

    def _delete(self, name: str, descriptor: int, target: str) -> None:
        try:
            os.unlink(name, dir_fd=descriptor)
        except FileNotFoundError:
            return
        except OSError as error:
            if os.path.isdir(target):  # no object has the name of a folder
                return
            raise failed.removing(error, self._shown(target)) from error

    def _open_making_folders(self, folder: str, temporary: str) -> int:
        for _ in range(MAKINGS):
            try:
                return _open_temporary(temporary, None)
            except FileNotFoundError:
                with suppress(FileNotFoundError):  # somebody removes empty folders
                    self._make(folder)
        return _open_temporary(temporary, None)


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``. Raises ``OSError``."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _existing(target: str, error: OSError) -> CreateResult:
    """The result of a create whose name is taken. Raises ``StoreError``: by a folder."""
    if os.path.isdir(target):
        raise StoreError(f"create {target}: there is a folder of this name") from error
    return CreateResult.EXISTS


def _open_temporary(temporary: str, held: HeldFolder | None) -> int:
    """A descriptor to write to a new file. ``held``: the folder that its name is relative to. Raises ``OSError``."""
    within = {} if held is None else {"dir_fd": held.descriptor}
    return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, **within)


def remove_temporary(temporary: str, held: HeldFolder | None = None) -> None:
    """Remove a temporary file. What matters is already decided; one that stays is hidden and harms nobody."""
    within = {} if held is None else {"dir_fd": held.descriptor}
    with suppress(OSError):
        os.unlink(temporary, **within)


def remove_empty_folders(root: str, *, changed_before_ms: int) -> None:
    """Remove the folders below ``root``, and it, that have been empty since then. Raises ``OSError``."""
    found: list[str] = []
    for folder, _, files in os.walk(root):
        with suppress(FileNotFoundError):
            if not files and os.stat(folder).st_mtime_ns // 1_000_000 < changed_before_ms:
                found.append(folder)
    for folder in reversed(found):  # those within a folder come first
        try:
            os.rmdir(folder)
        except OSError as error:
            if error.errno not in _NOT_EMPTY and not isinstance(error, FileNotFoundError):
                raise
