"""A store that answers later."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sparklog.storage import ObjectStore
from sparklog.testing import WrappedStore

__all__ = ["LaterStore"]

T = TypeVar("T")


class LaterStore(WrappedStore):
    """Half of the time that a call takes passes before it, half after it. The requests of one call overlap, and so do
    calls of several threads, as with a client of an object store."""

    def __init__(self, store: ObjectStore, *, get_ms: float, put_ms: float) -> None:
        super().__init__(store)
        self._get_ms = get_ms
        self._put_ms = put_ms

    @property
    def is_remote(self) -> bool:
        return True

    def read_many(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        return self._call("get", "", lambda: self._store.read_many(paths))

    def put_many(self, objects: Mapping[str, bytes], *, sync: bool = False) -> None:
        self._call("put", "", lambda: self._store.put_many(objects, sync=sync))

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        half_s = (self._get_ms if op == "get" else self._put_ms) / 2_000
        time.sleep(half_s)
        answer = call()
        time.sleep(half_s)
        return answer
