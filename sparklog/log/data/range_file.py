"""An object of a store as a file for Arrow, which asks for what it needs of it."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sparklog.parallel import parallel_map
from sparklog.storage.base import ObjectStore

__all__ = ["AHEAD_BYTES", "WHOLE_FILE_BYTES", "RangeFile"]

WHOLE_FILE_BYTES = 8 * 1024 * 1024
"""A larger data file is read by ranges."""
AHEAD_BYTES = 8 * 1024 * 1024
"""The bytes that a file of a remote store holds of the ranges that are expected to be read."""
_LEAST_WINDOW_BYTES = 64 * 1024
_REQUEST_BYTES = 2 * 1024 * 1024


@dataclass(slots=True)
class _Range:
    """A part of the file that is expected to be read from its start to its end."""

    at: int
    """The first byte that wasn't read yet."""
    end: int
    window_bytes: int
    """So much is fetched at a time."""
    held_bytes: int = 0
    """The bytes that were fetched and not read yet: from ``at`` on."""
    parts: deque[bytes] = field(default_factory=deque)
    first_at: int = 0
    """Where ``at`` lies in the first of the parts."""

    @property
    def is_low(self) -> bool:
        """Is more than half of what was fetched read?"""
        return self.held_bytes < self.window_bytes // 2

    def wanted(self) -> list[tuple[int, int]]:
        """The ranges to fetch next, each by one request."""
        first = self.at + self.held_bytes
        end = min(self.end, first + self.window_bytes)
        return [(start, min(end, start + _REQUEST_BYTES)) for start in range(first, end, _REQUEST_BYTES)]

    def add(self, data: bytes) -> None:
        """Hold what was fetched next."""
        if data:
            self.parts.append(data)
            self.held_bytes += len(data)

    def take(self, size: int) -> bytes:
        """Read up to ``size`` bytes of what is held."""
        pieces: list[bytes] = []
        left = min(size, self.held_bytes)
        self.at += left
        self.held_bytes -= left
        while left:
            piece = self.parts[0][self.first_at : self.first_at + left]
            pieces.append(piece)
            left -= len(piece)
            self.first_at += len(piece)
            if self.first_at == len(self.parts[0]):
                self.parts.popleft()
                self.first_at = 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class RangeFile(io.RawIOBase):
    """An object of a store as a file that can be sought in; each read is one request, but for what is expected."""

    def __init__(self, store: ObjectStore, path: str, size_bytes: int) -> None:
        super().__init__()
        self._store = store
        self._path = path
        self._size_bytes = size_bytes
        self._at = 0
        self._expected: list[_Range] = []

    def expect(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Have these parts of the file, first byte (inclusive) and last (exclusive), fetched by requests side by side,
        somewhat before they are read.

        They must be read at about the same pace, each from its start on, as the columns of a row group are. A store
        that answers at once gains nothing by it: of one that isn't remote each read stays a request.
        """
        total = sum(end - start for start, end in ranges)
        if self._store.is_remote:
            self._expected = [
                _Range(start, end, max(_LEAST_WINDOW_BYTES, AHEAD_BYTES * (end - start) // total))
                for start, end in ranges
                if start < end
            ]

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
        # One that was read to its end lies where the next column's begins: it isn't the one that is read now.
        expected = next((one for one in self._expected if one.at == self._at < one.end), None)
        if expected is None:
            data = self._store.read_range(self._path, self._at, end)
        else:
            data = self._read_expected(expected, end - self._at)
        self._at += len(data)
        return data

    def _read_expected(self, expected: _Range, size: int) -> bytes:
        if expected.at + size > expected.end:  # beyond it
            self._expected.remove(expected)
            return self._store.read_range(self._path, self._at, self._at + size)
        while expected.held_bytes < size:
            if not self._fetch([one for one in self._expected if one is expected or one.is_low]):
                break  # the file ends before
        return expected.take(size)

    def _fetch(self, ranges: Iterable[_Range]) -> int:
        """Fetch what comes next of several ranges; the number of bytes that came."""
        wanted = [(one, start, end) for one in ranges for start, end in one.wanted()]
        found = parallel_map(lambda part: self._store.read_range(self._path, part[1], part[2]), wanted)
        for (one, _, _), data in zip(wanted, found, strict=True):
            one.add(data)
        return sum(map(len, found))
