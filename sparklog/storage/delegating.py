"""The common part of stores that have another one carry out their calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparklog.storage.base import ObjectStore
from sparklog.storage.foothold import Foothold

__all__ = ["DelegatingStore"]


class DelegatingStore(ObjectStore):
    """A store that has another one carry out its calls: it says of itself what that one says, and closes it.

    Args:
        store: carries the calls out.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def uri(self) -> str:
        return self._store.uri

    @property
    def may_tear(self) -> bool:
        return self._store.may_tear

    @property
    def is_remote(self) -> bool:
        return self._store.is_remote

    @property
    def longest_path_bytes(self) -> int | None:
        return self._store.longest_path_bytes

    def read_above(self, name: str) -> Sequence[tuple[str, bytes]]:
        return self._store.read_above(name)

    def check_there(self, folder: str) -> None:
        self._store.check_there(folder)

    def check_root(self) -> None:
        self._store.check_root()

    def hold_folder(self, folder: str, foothold: Foothold) -> Foothold:
        return self._store.hold_folder(folder, foothold)

    def check_held(self, folder: str, place: Foothold) -> None:
        self._store.check_held(folder, place)

    def stand_on(self, check: Callable[[], None] | None) -> None:
        self._store.stand_on(check)

    def close(self) -> None:
        self._store.close()
