"""Trying again, with a bound: a call, or every call to a store but the create-only put and fsync.

The create-only put is left alone: what to do after a create whose answer was lost, the protocol decides (rule L2,
unknown). Every other call may be repeated: a read changes nothing, a put writes the same bytes, a delete of what is
gone is done.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeVar

from sparklog.clock import Clock, Deadline, SystemClock
from sparklog.errors import StoreError
from sparklog.interrupts import CallAbandonedError
from sparklog.parallel import parallel_map
from sparklog.storage._answers import error_without_answer
from sparklog.storage._main_thread import run_within
from sparklog.storage.base import CreateResult, FilesRead, ObjectInfo, ObjectStore
from sparklog.storage.blame import StoreJudge
from sparklog.storage.call_limit import CallLimit, call_limit
from sparklog.storage.delegating import DelegatingStore
from sparklog.storage.foothold import Foothold
from sparklog.storage.ground import Ground, read_cluster_id
from sparklog.storage.path_proof import PathProof
from sparklog.storage.request_counts import CountedStore, RequestCounts

__all__ = ["DEFAULT_RETRY_MS", "Backoff", "Patience", "RetryingStore", "retry"]

DEFAULT_RETRY_MS = 30_000.0
"""Kafka's ``request.timeout.ms``."""

_LOOKS, _LOOK_MS, _BETWEEN_LOOKS_MS = 3, 10_000.0, 100.0
"""Attempts to read ``cluster.json`` before the store counts as away."""

T = TypeVar("T")
_LEAST_S = 0.25
"""A call that is abandoned was given as long, however little of its caller's time was left."""
_PAGE = 1000


class Backoff:
    """Waits between attempts: from 20 ms, doubled up to a second, each shortened at random by up to a half."""

    def __init__(self, clock: Clock, *, first_ms: float = 20.0, most_ms: float = 1_000.0) -> None:
        self._clock = clock
        self._next_ms = min(first_ms, most_ms)
        self._most_ms = most_ms

    def wait(self, *, at_most_ms: float = math.inf) -> None:
        """Wait before the next attempt, for ``at_most_ms`` at most; the wait after it is twice as long."""
        wait_ms = self._next_ms * random.uniform(0.5, 1.0)  # noqa: S311 - spreads callers, no secret
        self._clock.sleep_ms(min(wait_ms, at_most_ms))
        self._next_ms = min(self._next_ms * 2, self._most_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The bound of how long and how often calls are repeated, in place of the store's own."""

    deadline: Deadline
    retries: int = sys.maxsize
    """Retries of one call."""
    backoff_ms: float = 20.0
    backoff_max_ms: float = 1_000.0
    abandons: bool = False
    """Is a call that isn't over at the deadline left alone, whatever it waits for? It costs a change of threads for
    each call. For whoever waits in a store's call itself, and not for somebody who does: those have their own time."""


def retry(
    call: Callable[[], T],
    *,
    deadline: Deadline,
    retries: int = sys.maxsize,
    backoff: Backoff | None = None,
) -> T:
    """The result of ``call``, repeated on retriable store errors until the deadline and at most ``retries`` times; then
    the last error is raised."""
    is_first = True
    while True:
        try:
            return call()
        except StoreError as error:
            error.was_repeated = error.was_repeated or not is_first
            is_first = False
            left_ms = deadline.left_ms
            if not error.retriable or retries <= 0 or left_ms <= 0:
                raise
            retries -= 1
            backoff = backoff or Backoff(deadline.clock)
            backoff.wait(at_most_ms=left_ms)


_PATIENCE: ContextVar[Mapping[ObjectStore, Patience | float]] = ContextVar("patience", default=MappingProxyType({}))
"""By store; a number: of milliseconds, for each call."""


class _Within(AbstractContextManager[None]):
    """The time in which a store's calls have a patience. Every small commit has two: a generator would cost more."""

    __slots__ = ("_limit", "_patience", "_store", "_token")

    def __init__(self, store: ObjectStore, patience: Patience | float) -> None:
        self._store = store
        self._patience = patience

    def __enter__(self) -> None:
        self._token = _PATIENCE.set({**_PATIENCE.get(), self._store: self._patience})
        patience = self._patience
        self._limit = CallLimit(patience.deadline if isinstance(patience, Patience) else call_limit())
        self._limit.__enter__()

    def __exit__(self, *_: object) -> None:
        self._limit.__exit__()
        _PATIENCE.reset(self._token)


class RetryingStore(DelegatingStore):
    """Another store, each of whose calls is repeated on retriable errors for up to ``retry_ms``.

    ``create`` and ``sync`` aren't."""

    def __init__(self, store: ObjectStore, *, clock: Clock, retry_ms: float = DEFAULT_RETRY_MS) -> None:
        counted = CountedStore(store, clock=clock, note_no_bucket=self._doubt_ground)
        super().__init__(counted)
        self._clock = clock
        self._retry_ms = retry_ms
        self._abandons = False
        self._origin = self
        """The store that this one is a copy of, for those who wait in its calls: what is said of one holds for both."""
        self.counts: RequestCounts = counted.counts
        """Requests to the store, each attempt."""
        self.ground: Ground | None = None
        """The cluster that the store was opened as; None: as none."""
        self.judge = StoreJudge(self._look, clock)
        """Tells errors of one object from those of the store."""
        self._unproved: PathProof | None = None
        """To be tried before the next write; None: it is proved that creates are safe, or that isn't asked."""

    def prove_before_writing(self) -> None:
        """Have the next write try whether this client's way to the store keeps the condition of a create-only put.

        From then on each write raises ``UnsafeStoreError`` where it doesn't.
        """
        self._unproved = PathProof(self._store, clock=self._clock)

    def abandoning(self, within_ms: float) -> RetryingStore:
        """The same store for somebody who waits in its calls: each that isn't over in time is given up."""
        other = copy(self)
        other._retry_ms, other._abandons = within_ms, True
        return other

    def take_over(self, opened: RetryingStore) -> None:
        """Go on as another one of the same store that a cluster was opened by."""
        self.ground, self._unproved = opened.ground, opened._unproved

    def _doubt_ground(self, now_ticks_ms: float) -> None:
        if self.ground is not None:
            self.ground.doubt(now_ticks_ms)

    def _prove(self, unproved: PathProof) -> None:
        if unproved.prove():
            self._unproved = self._origin._unproved = None

    def patience(self, patience: Patience) -> AbstractContextManager[None]:
        """Within: calls are repeated as long and as often as ``patience`` says, not for ``retry_ms``; and where it
        :attr:`~Patience.abandons`, none takes much longer than its deadline.

        It holds for this thread, and for the threads of :func:`sparklog.parallel.parallel_map` within.
        """
        return _Within(self._origin, patience)

    def patience_by_default(self, each_ms: float) -> AbstractContextManager[object]:
        """Within: each call is repeated for up to ``each_ms``, unless somebody has said how long calls are repeated."""
        return nullcontext() if self._origin in _PATIENCE.get() else _Within(self._origin, each_ms)

    def _look(self) -> None:
        """Raise ``SparklogError`` unless the cluster can be read: three attempts, or as many as fit in ten seconds."""
        deadline = self._clock.deadline_in(_LOOK_MS)
        with self.patience(Patience(deadline=deadline, retries=_LOOKS - 1, backoff_ms=_BETWEEN_LOOKS_MS)):
            if self.ground is not None:
                self.ground.check()
            else:
                read_cluster_id(self)

    def _retry(self, op: str, name: str | Sequence[str], call: Callable[[], T]) -> T:
        patience = self._patience()
        return retry(
            self._abandoned_late(patience, op, name, call),
            deadline=patience.deadline,
            retries=patience.retries,
            backoff=self._backoff(patience),
        )

    def _once(self, op: str, name: str | Sequence[str], call: Callable[[], T]) -> T:
        if not self._abandons and self._origin not in _PATIENCE.get():
            return call()
        return self._abandoned_late(self._patience(), op, name, call)()

    def _abandoned_late(
        self, patience: Patience, op: str, name: str | Sequence[str], call: Callable[[], T]
    ) -> Callable[[], T]:
        """The call, or one that makes it and gives up waiting for it at the patience's deadline.

        A write that was given up may be carried out all the same: ``StoreOutcomeUnknownError``.
        """
        if not patience.abandons or patience.deadline.ticks_ms == math.inf:
            return call
        if not isinstance(self._clock, SystemClock):  # another one doesn't go on while a thread waits
            return call

        def within() -> T:
            left_s = max(patience.deadline.left_ms / 1000, _LEAST_S)
            try:
                return run_within(call, left_s)
            except CallAbandonedError as late:
                message = (
                    f"{op} {self.uri}/{_shown(name)}: no answer within {left_s:.1f} s, when the caller's time was over"
                )
                raise error_without_answer(message, op) from late

        return within

    def _patience(self) -> Patience:
        """For a call that is made now."""
        own = _PATIENCE.get().get(self._origin, self._retry_ms)
        if isinstance(own, Patience):
            return own
        return Patience(deadline=self._clock.deadline_in(own), abandons=self._abandons)

    def _backoff(self, patience: Patience) -> Backoff:
        return Backoff(self._clock, first_ms=patience.backoff_ms, most_ms=patience.backoff_max_ms)

    def read(self, path: str) -> bytes:
        return self._retry("get", path, lambda: self._store.read(path))

    def read_range(self, path: str, start: int, end: int) -> bytes:
        return self._retry("get", path, lambda: self._store.read_range(path, start, end))

    def read_many(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        return self._read_together(self._store.read_many, paths)

    def read_buffers(self, paths: Sequence[str]) -> Sequence[Any]:
        return self._read_together(self._store.read_buffers, paths)

    def read_files_by(
        self, paths: Sequence[str], read: Callable[[tuple[bytes, ...]], FilesRead[T]]
    ) -> FilesRead[T] | None:
        # What it doesn't read is read by another call.
        return self._once("get", paths, lambda: self._store.read_files_by(paths, read))

    def _read_together(self, read: Callable[[Sequence[str]], Sequence[Any]], paths: Sequence[str]) -> Sequence[Any]:
        patience = self._patience()
        try:
            return self._once("get", paths, lambda: read(paths))
        except StoreError as error:
            if not error.retriable or (patience.abandons and patience.deadline.has_passed):
                raise
        # Each by itself: of very many, some may fail at every attempt to read them all.
        return parallel_map(self._read_or_none, paths)

    def put(self, path: str, data: bytes, *, sync: bool = False) -> None:
        if self._unproved is not None:
            self._prove(self._unproved)
        self._retry("put", path, lambda: self._store.put(path, data, sync=sync))

    def put_many(self, objects: Mapping[str, bytes], *, sync: bool = False) -> None:
        if self._unproved is not None:
            self._prove(self._unproved)
        patience = self._patience()
        try:
            self._once("put", tuple(objects), lambda: self._store.put_many(objects, sync=sync))
        except StoreError as error:
            if not error.retriable or patience.retries <= 0 or patience.deadline.has_passed:
                raise
            try:
                for path, data in objects.items():
                    self.put(path, data, sync=sync)
            except StoreError as later:
                later.was_repeated = True
                raise

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        if self._unproved is not None:
            self._prove(self._unproved)
        return self._once("create", path, lambda: self._store.create(path, data, sync=sync))

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
        if self._unproved is not None:
            self._prove(self._unproved)
        create = partial(self._store.create_next, path, data, foothold=foothold, check=check, is_first=is_first)
        return self._once("create", path, lambda: create(sync=sync))

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        seen = after
        patience = self._patience()
        backoff, retries = self._backoff(patience), patience.retries
        while True:
            try:
                for found in self._listed(patience, prefix, seen):
                    seen = found.path
                    yield found
                return
            except StoreError as error:
                left_ms = patience.deadline.left_ms
                if not error.retriable or retries <= 0 or left_ms <= 0:
                    raise
            retries -= 1
            backoff.wait(at_most_ms=left_ms)

    def _listed(self, patience: Patience, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """The store's own listing; taken by pages where waiting for one is given up."""
        rows = iter(self._store.list(prefix, after=after))
        if not patience.abandons:
            yield from rows
            return
        page = self._abandoned_late(patience, "list", prefix, lambda: [*islice(rows, _PAGE)])
        while found := page():
            yield from found

    def list_names(self, prefix: str) -> Sequence[str]:
        return self._retry("list", prefix, lambda: self._store.list_names(prefix))

    def delete(self, paths: Iterable[str]) -> None:
        gone = tuple(paths)
        if self._unproved is not None:
            self._prove(self._unproved)
        self._retry("delete", gone, lambda: self._store.delete(gone))

    def read_above(self, name: str) -> Sequence[tuple[str, bytes]]:
        return self._retry("get", name, lambda: self._store.read_above(name))

    def remove_empty_folders(self, prefix: str, *, changed_before_ms: int) -> None:
        remove = partial(self._store.remove_empty_folders, prefix, changed_before_ms=changed_before_ms)
        self._retry("delete", prefix, remove)

    def sync(self, paths: Iterable[str]) -> None:
        written = tuple(paths)
        # Once: after a failed fsync the next may be called a success though the data is gone.
        self._once("put", written, lambda: self._store.sync(written))

    def sync_all(self) -> None:
        self._once("put", "", self._store.sync_all)

    def watch(self, folder: str, changed: Callable[[], None]) -> Callable[[], None] | None:
        return self._store.watch(folder, changed)

    def arrow_filesystem(self) -> Any:
        return self._store.arrow_filesystem()


def _shown(name: str | Sequence[str]) -> str:
    """A path, or several, for a message."""
    if isinstance(name, str):
        return name
    return f"{name[0]} and {len(name) - 1} more" if len(name) > 1 else "".join(name)
