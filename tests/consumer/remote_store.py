"""A store that is as far away as a bucket, in memory: tests hold back what is read ahead, and let it fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TypeVar

from sparklog.errors import StoreUnavailableError
from sparklog.storage import MemoryStore, ObjectStore
from sparklog.testing.wrapped_store import WrappedStore

__all__ = ["CALLER", "RemoteStore", "ahead_threads"]

CALLER: ContextVar[str] = ContextVar("caller", default="")
"""Set by tests that look at what a thread sees of its starter."""

T = TypeVar("T")


class RemoteStore(WrappedStore):
    """Forwards calls to a store, and knows which data files were read, and which of them ahead."""

    def __init__(self, store: ObjectStore | None = None) -> None:
        super().__init__(store or MemoryStore())
        self.may_go_on = threading.Event()
        """Reads ahead wait for it."""
        self.may_go_on.set()
        self.fails_ahead = False
        self.fails_at_turn = False
        self.read_ahead: list[str] = []
        self.read_at_turn: list[str] = []
        self.callers: set[str] = set()

    @property
    def is_remote(self) -> bool:
        return True

    def read_many(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        return [self._read_or_none(path) for path in paths]

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if op == "get" and path.endswith(".parquet") and "/_delta_log/" not in path:
            # The second kind reads each file by itself, where one of several couldn't be read.
            is_ahead = threading.current_thread().name.startswith(("sparklog-read-ahead", "sparklog-parallel"))
            (self.read_ahead if is_ahead else self.read_at_turn).append(path)
            if is_ahead:
                self.callers.add(CALLER.get())
                assert self.may_go_on.wait(60)
            if self.fails_ahead if is_ahead else self.fails_at_turn:
                raise StoreUnavailableError(f"get {path}: slow down")
        return call()


def ahead_threads() -> list[threading.Thread]:
    """The threads that read ahead now, of any consumer."""
    return [thread for thread in threading.enumerate() if thread.name == "sparklog-read-ahead"]
