"""A store that is not available yet: until it is opened, each call waits for a moment, and is then refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sparklog.errors import StoreError, StoreUnavailableError
from sparklog.interrupts import SafeEvent
from sparklog.storage.base import CreateResult, FilesRead, ObjectInfo, ObjectStore
from sparklog.storage.delegating import DelegatingStore
from sparklog.storage.foothold import Foothold

__all__ = ["GatedStore"]

T = TypeVar("T")

_WAIT_S = 1.0
"""The longest wait between two attempts of a call."""


class GatedStore(DelegatingStore):
    """Another store, none of whose calls is made before :meth:`open`.

    What comes earlier waits for that for up to a second, and then is a ``StoreUnavailableError``: so callers that try
    again do so, and those that have waited long enough report it to their own callers, as where the store is away.
    """

    def __init__(self, store: ObjectStore, *, wait_s: float = _WAIT_S) -> None:
        super().__init__(store)
        self.reason = "the cluster isn't open yet"
        """Why it is refused, in words."""
        self._wait_s = wait_s
        self._decided = SafeEvent()
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """May it be used?"""
        return self._is_open

    def open(self) -> None:
        """Let calls through from now on."""
        self._is_open = True
        self._decided.set()

    def give_up(self) -> None:
        """Refuse calls for good and at once, unless it is open: there is nothing to wait for any more."""
        self._decided.set()

    def _pass(self) -> ObjectStore:
        """The store, for one call. Raises ``StoreUnavailableError``; ``StoreError``: it won't be opened any more."""
        if self._is_open:
            return self._store
        is_decided = self._decided.wait(self._wait_s)
        if self._is_open:
            return self._store
        kind = StoreError if is_decided else StoreUnavailableError
        raise kind(f"{self.uri}: {self.reason}")

    def read(self, path: str) -> bytes:
        return self._pass().read(path)

    def read_range(self, path: str, start: int, end: int) -> bytes:
        return self._pass().read_range(path, start, end)

    def read_many(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        return self._pass().read_many(paths)

    def read_buffers(self, paths: Sequence[str]) -> Sequence[Any]:
        return self._pass().read_buffers(paths)

    def read_files_by(
        self, paths: Sequence[str], read: Callable[[tuple[bytes, ...]], FilesRead[T]]
    ) -> FilesRead[T] | None:
        return self._pass().read_files_by(paths, read)

    def put(self, path: str, data: bytes, *, sync: bool = False) -> None:
        self._pass().put(path, data, sync=sync)

    def put_many(self, objects: Mapping[str, bytes], *, sync: bool = False) -> None:
        self._pass().put_many(objects, sync=sync)

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        return self._pass().create(path, data, sync=sync)

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
        return self._pass().create_next(path, data, foothold=foothold, check=check, is_first=is_first, sync=sync)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        return self._pass().list(prefix, after=after)

    def list_names(self, prefix: str) -> Sequence[str]:
        return self._pass().list_names(prefix)

    def delete(self, paths: Iterable[str]) -> None:
        self._pass().delete(paths)

    def read_above(self, name: str) -> Sequence[tuple[str, bytes]]:
        return self._pass().read_above(name)

    def remove_empty_folders(self, prefix: str, *, changed_before_ms: int) -> None:
        self._pass().remove_empty_folders(prefix, changed_before_ms=changed_before_ms)

    def sync(self, paths: Iterable[str]) -> None:
        self._pass().sync(paths)

    def sync_all(self) -> None:
        self._pass().sync_all()

    def watch(self, folder: str, changed: Callable[[], None]) -> Callable[[], None] | None:
        return self._store.watch(folder, changed) if self._is_open else None

    def arrow_filesystem(self) -> Any:
        return self._pass().arrow_filesystem()
