"""Listing the folders of a local file system as an object store lists its keys."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from sparklog._native import CORE
from sparklog.errors import ObjectNotFoundError
from sparklog.storage import _local_errors as failed
from sparklog.storage._paths import is_path
from sparklog.storage.base import ObjectInfo

__all__ = ["LocalListing"]

_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{32}\.tmp", re.DOTALL)


class LocalListing:
    """The contents of the folders below a root. For several threads.

    Args:
        root: the folder, resolved.
        shown: names a file or folder as its user knows it.
    """

    def __init__(self, root: str, shown: Callable[[str], str]) -> None:
        self._root = root
        self._shown = shown

    def names(self, prefix: str) -> list[str]:
        """The names directly in a folder, sorted, but for folders in which there is nothing. Raises ``StoreError``."""
        return sorted(
            name for name, is_folder in self._entries(prefix) if not is_folder or self._is_used(f"{prefix}{name}/")
        )

    def _is_used(self, folder: str) -> bool:
        """Is there an object in a folder? An object store has no empty folders; here one is left behind when its last
        file is deleted. One that can't be looked into is there: whoever reads it learns why."""
        try:
            with os.scandir(f"{self._root}/{folder}") as entries:  # not sorted: of ten thousand topics each has folders
                for entry in entries:
                    if _is_listed(entry.name) and (
                        self._is_used(f"{folder}{entry.name}/") if _is_folder(entry) else _is_there(entry)
                    ):
                        return True
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return False

    def walk(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """The objects of a folder and of those in it whose paths sort after ``after``. Raises ``StoreError``."""
        # A folder sorts as its name with the slash, because that is what its objects' paths begin with.
        first = after[len(prefix) :].partition("/")[0] if after.startswith(prefix) else ""
        few = self._few_from(prefix, first)
        names = [(name, found[0]) for name, found in few.items()] if few is not None else self._entries(prefix, first)
        for name in sorted(name + "/" if is_folder else name for name, is_folder in names):
            path = prefix + name
            if path.endswith("/"):
                if after < path or after.startswith(path):  # else everything in it sorts before ``after``
                    yield from self.walk(path, after)
            elif path > after:
                try:
                    found = self._stat(path) if few is None else few[name][1:]
                except FileNotFoundError:
                    continue  # deleted since the folder was read
                except OSError as error:
                    raise failed.reading(error, self._shown(f"{self._root}/{path}")) from error
                size_bytes, mtime_ns, inode = found
                yield ObjectInfo(
                    path=path,
                    size_bytes=size_bytes,
                    modified_ms=mtime_ns // 1_000_000,
                    etag=f"{inode:x}-{mtime_ns:x}-{size_bytes:x}",
                )

    def _entries(self, prefix: str, first: str = "") -> Sequence[tuple[str, bool]]:
        """Names directly in a folder and whether each is a folder, in no order; of legal names only.

        ``first``: names that sort before it, and so does everything in a folder of that name, may be left out.
        """
        folder = f"{self._root}/{prefix}"
        try:
            with os.scandir(folder) as entries:
                return [
                    (entry.name, _is_folder(entry))
                    for entry in entries
                    if (entry.name >= first or first.startswith(entry.name))  # of very many, most go here
                    and _is_listed(entry.name)
                ]
        except OSError as error:
            failure = failed.reading(error, self._shown(folder))
            if isinstance(failure, ObjectNotFoundError):
                return []
            raise failure from error

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
        """Size, time of change and inode of a file; of a link that leads round in a circle its own, so that whoever
        reads it learns of it. Raises ``OSError``."""
        target = f"{self._root}/{path}"
        try:
            found = os.stat(target)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            found = os.lstat(target)
        return found.st_size, found.st_mtime_ns, found.st_ino


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Is it a folder, or a link to one? A link that leads round in a circle is none. Raises ``OSError``."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def _is_there(entry: os.DirEntry[str]) -> bool:
    """Is it more than a link to nothing? Raises ``OSError``."""
    if entry.is_symlink():
        try:
            entry.stat()
        except FileNotFoundError:
            return False
    return True


def _is_listed(name: str) -> bool:
    return is_path(name) and not (name[0] == "." and _TEMPORARY.fullmatch(name))
