"""Trying again, with a bound: a call, or every call to a store but the create-only put and fsync.

The create-only put is left alone: what to do after a create whose answer was lost, the protocol decides (rule L2).
Every other call may be repeated: a read changes nothing, a put writes the same bytes, a delete of what is gone is done.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from sparklog.clock import Clock
from sparklog.errors import StoreError
from sparklog.storage.base import CreateResult, ObjectInfo, ObjectStore

__all__ = ["DEFAULT_RETRY_MS", "Backoff", "RetryingStore", "retry"]

DEFAULT_RETRY_MS = 30_000.0
"""Kafka's ``request.timeout.ms``."""

T = TypeVar("T")


class Backoff:
    """Waits between attempts: from 20 ms, doubled up to a second, each shortened at random by up to a half."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_ms = 20.0

    def wait(self) -> None:
        self._clock.sleep_ms(self._next_ms * random.uniform(0.5, 1.0))  # noqa: S311 - spreads callers, no secret
        self._next_ms = min(self._next_ms * 2, 1_000.0)


def retry(call: Callable[[], T], *, clock: Clock, deadline_ticks_ms: float) -> T:
    """The result of ``call``, repeated on retriable store errors until the deadline; then the last error is raised."""
    backoff = Backoff(clock)
    while True:
        try:
            return call()
        except StoreError as error:
            if not error.retriable or clock.ticks_ms() >= deadline_ticks_ms:
                raise
            backoff.wait()


class RetryingStore(ObjectStore):
    """Another store, each of whose calls is repeated on retriable errors for up to ``retry_ms``.

    ``create`` and ``sync`` aren't."""

    def __init__(self, store: ObjectStore, *, clock: Clock, retry_ms: float = DEFAULT_RETRY_MS) -> None:
        self._store = store
        self._clock = clock
        self._retry_ms = retry_ms

    def _retry(self, call: Callable[[], T]) -> T:
        return retry(call, clock=self._clock, deadline_ticks_ms=self._clock.ticks_ms() + self._retry_ms)

    @property
    def uri(self) -> str:
        return self._store.uri

    def read(self, path: str) -> bytes:
        return self._retry(lambda: self._store.read(path))

    def read_range(self, path: str, start: int, end: int) -> bytes:
        return self._retry(lambda: self._store.read_range(path, start, end))

    def read_many(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        try:
            return self._store.read_many(paths)
        except StoreError as error:
            if not error.retriable:
                raise
        # One by one: of very many, some may fail at every attempt to read them all.
        return [self._read_or_none(path) for path in paths]

    def put(self, path: str, data: bytes, *, sync: bool = False) -> None:
        self._retry(lambda: self._store.put(path, data, sync=sync))

    def put_many(self, objects: Mapping[str, bytes], *, sync: bool = False) -> None:
        try:
            self._store.put_many(objects, sync=sync)
        except StoreError as error:
            if not error.retriable:
                raise
            for path, data in objects.items():
                self.put(path, data, sync=sync)

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        return self._store.create(path, data, sync=sync)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        seen = after
        backoff, deadline = Backoff(self._clock), self._clock.ticks_ms() + self._retry_ms
        while True:
            try:
                for found in self._store.list(prefix, after=seen):
                    seen = found.path
                    yield found
                return
            except StoreError as error:
                if not error.retriable or self._clock.ticks_ms() >= deadline:
                    raise
            backoff.wait()

    def list_names(self, prefix: str) -> Sequence[str]:
        return self._retry(lambda: self._store.list_names(prefix))

    def delete(self, paths: Iterable[str]) -> None:
        gone = tuple(paths)
        self._retry(lambda: self._store.delete(gone))

    def sync(self, paths: Iterable[str]) -> None:
        self._store.sync(paths)  # once: after a failed fsync the next may be called a success though the data is gone

    def sync_all(self) -> None:
        self._store.sync_all()

    def close(self) -> None:
        self._store.close()
