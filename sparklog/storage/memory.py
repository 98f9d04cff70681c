"""A store in this process's memory: for tests and simulations, and fit to trust because it passes the same contract."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sparklog.clock import Clock, SystemClock
from sparklog.errors import ObjectNotFoundError
from sparklog.storage._paths import check_path, check_prefix, check_range
from sparklog.storage.base import CreateResult, ObjectInfo, ObjectStore

__all__ = ["MemoryStore", "memory_store"]


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    modified_ms: int
    write_number: int


class MemoryStore(ObjectStore):
    """Objects in a dict behind a lock. Same calls, same answers: nothing in it is random.

    Args:
        name: last part of the URI; two stores made with one name are still two (see :func:`memory_store`).
        clock: gives the modification times, so that a test can age objects; the machine's by default.
    """

    def __init__(self, name: str = "", *, clock: Clock | None = None) -> None:
        self._name = name or "unnamed"
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._objects: dict[str, _Object] = {}
        self._sorted: list[str] = []  # str sorts by code point, which is UTF-8's byte order
        self._writes = 0

    def __repr__(self) -> str:
        return f"MemoryStore({self._name!r})"

    @property
    def uri(self) -> str:
        return f"memory://{self._name}"

    def read(self, path: str) -> bytes:
        check_path(path)
        with self._lock:
            found = self._objects.get(path)
        if found is None:
            raise ObjectNotFoundError(f"{self.uri}/{path}: no such object")
        return found.data

    def read_range(self, path: str, start: int, end: int) -> bytes:
        check_range(path, start, end)
        return self.read(path)[start:end]

    def put(self, path: str, data: bytes, *, sync: bool = False) -> None:
        check_path(path)
        with self._lock:
            self._write(path, data)

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        check_path(path)
        with self._lock:
            if path in self._objects:
                return CreateResult.EXISTS
            self._write(path, data)
            return CreateResult.CREATED

    def list_names(self, prefix: str) -> list[str]:
        check_prefix(prefix)
        with self._lock:
            return sorted({path[len(prefix) :].partition("/")[0] for path in self._names_below(prefix, "")})

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        check_prefix(prefix)
        with self._lock:
            return iter([self._info(path) for path in self._names_below(prefix, after)])

    def delete(self, paths: Iterable[str]) -> None:
        for path in [check_path(path) for path in paths]:
            with self._lock:
                if self._objects.pop(path, None) is not None:
                    del self._sorted[bisect.bisect_left(self._sorted, path)]

    def _write(self, path: str, data: bytes) -> None:
        if path not in self._objects:
            bisect.insort(self._sorted, path)
        self._writes += 1
        self._objects[path] = _Object(bytes(data), self._clock.now_ms(), self._writes)

    def _names_below(self, prefix: str, after: str) -> Sequence[str]:
        first = max(bisect.bisect_left(self._sorted, prefix), bisect.bisect_right(self._sorted, after))
        # "0" is what follows "/", so this is the first name that sorts after the whole folder.
        end = bisect.bisect_left(self._sorted, prefix[:-1] + "0") if prefix else len(self._sorted)
        return self._sorted[first:end]

    def _info(self, path: str) -> ObjectInfo:
        found = self._objects[path]
        return ObjectInfo(
            path=path, size_bytes=len(found.data), modified_ms=found.modified_ms, etag=str(found.write_number)
        )


_STORES: dict[str, MemoryStore] = {}
_STORES_LOCK = threading.Lock()


def memory_store(name: str) -> MemoryStore:
    """The store of this process that ``memory://name`` stands for; made at first use, kept until the process ends."""
    with _STORES_LOCK:
        return _STORES.setdefault(name, MemoryStore(name))
