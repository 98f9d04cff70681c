"""A store that counts what it is asked for: for tests and benchmarks that say what something costs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from sparklog.storage.base import ObjectStore
from sparklog.testing.wrapped_store import WrappedStore

__all__ = ["CountingStore"]

T = TypeVar("T")


class CountingStore(WrappedStore):
    """Counts calls by op: get, put, create, list, delete, sync, sync_all.

    ``read_many`` counts a get and ``put_many`` a put for each object, though the store carries them out together;
    ``list``, ``list_names`` and ``delete`` count one for each call, however many pages or objects there are.
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def counts(self) -> dict[str, int]:
        """Calls since the beginning or the last :meth:`reset`; ops that weren't asked for are left out."""
        with self._lock:
            return dict(self._counts)

    def reset(self) -> None:
        """Count from zero again."""
        with self._lock:
            self._counts.clear()

    def read_many(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        self._count("get", len(paths))
        return self._store.read_many(paths)

    def put_many(self, objects: Mapping[str, bytes], *, sync: bool = False) -> None:
        self._count("put", len(objects))
        self._store.put_many(objects, sync=sync)

    def delete(self, paths: Iterable[str]) -> None:
        self._count("delete", 1)
        self._store.delete(paths)

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        self._count(op, 1)
        return call()

    def _count(self, op: str, calls: int) -> None:
        if calls:
            with self._lock:
                self._counts[op] += calls
