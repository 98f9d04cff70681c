"""An object of a store as a file for Arrow, which asks for what it needs of it."""

from __future__ import annotations

import io

from sparklog.storage.base import ObjectStore

__all__ = ["WHOLE_FILE_BYTES", "RangeFile"]

WHOLE_FILE_BYTES = 8 * 1024 * 1024
"""A larger data file is read by ranges."""


class RangeFile(io.RawIOBase):
    """An object of a store as a file that can be sought in; each read is one request."""

    def __init__(self, store: ObjectStore, path: str, size_bytes: int) -> None:
        super().__init__()
        self._store = store
        self._path = path
        self._size_bytes = size_bytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size_bytes if size < 0 else min(self._at + size, self._size_bytes)
        if end <= self._at:
            return b""
        data = self._store.read_range(self._path, self._at, end)
        self._at += len(data)
        return data
