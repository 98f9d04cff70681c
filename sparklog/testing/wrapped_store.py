"""A store around a store: the stem of the fakes that count calls or let them fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeVar

from sparklog.storage.base import CreateResult, ObjectInfo, ObjectStore
from sparklog.storage.delegating import DelegatingStore
from sparklog.storage.foothold import Foothold

__all__ = ["WrappedStore"]

T = TypeVar("T")
_NEXT: ContextVar[Mapping[tuple[ObjectStore, str], dict[str, Any]]] = ContextVar("next", default=MappingProxyType({}))
"""By store and path: how the entry is created for which this thread has called :meth:`WrappedStore.create_next`."""


class WrappedStore(DelegatingStore):
    """Forwards every call through :meth:`_call`, which a child overrides.

    Calls for many objects go one by one (``read_many`` as gets, ``put_many`` as puts), so that a child sees each.
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._store!r})"

    def read(self, path: str) -> bytes:
        return self._call("get", path, lambda: self._store.read(path))

    def read_range(self, path: str, start: int, end: int) -> bytes:
        return self._call("get", path, lambda: self._store.read_range(path, start, end))

    def put(self, path: str, data: bytes, *, sync: bool = False) -> None:
        self._call("put", path, lambda: self._store.put(path, data, sync=sync))

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        how = _NEXT.get().get((self, path))
        if how is None:
            return self._call("create", path, lambda: self._store.create(path, data, sync=sync))
        return self._call("create", path, lambda: self._store.create_next(path, data, sync=sync, **how))

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
        """:meth:`create`, so that a child which overrides that sees log entries, too."""
        how = {"foothold": foothold, "check": check, "is_first": is_first}
        token = _NEXT.set({**_NEXT.get(), (self, path): how})
        try:
            return self.create(path, data, sync=sync)
        finally:
            _NEXT.reset(token)

    def list_names(self, prefix: str) -> Sequence[str]:
        return self._call("list", prefix, lambda: self._store.list_names(prefix))

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        return self._call("list", prefix, lambda: self._store.list(prefix, after=after))

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._call("delete", path, lambda path=path: self._store.delete([path]))  # type: ignore[misc]

    def remove_empty_folders(self, prefix: str, *, changed_before_ms: int) -> None:
        self._store.remove_empty_folders(prefix, changed_before_ms=changed_before_ms)

    def sync(self, paths: Iterable[str]) -> None:
        present = [*paths]
        self._call("sync", ",".join(present), lambda: self._store.sync(present))

    def sync_all(self) -> None:
        self._call("sync_all", "", self._store.sync_all)

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        """Carry out one call.

        Args:
            op: get, put, create, list, delete, sync or sync_all.
            path: the object's path, or the folder that is listed; several joined by commas for sync.
            call: does it.
        """
        return call()
