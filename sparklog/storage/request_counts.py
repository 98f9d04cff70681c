"""How often a process has asked a store, how many bytes it has moved and how long it has waited: counted for each
attempt at a request, by kind of request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from sparklog.clock import Clock
from sparklog.errors import ObjectNotFoundError, StoreError
from sparklog.metrics import MetricGroup
from sparklog.storage.base import CreateResult, FilesRead, ObjectInfo, ObjectStore
from sparklog.storage.delegating import DelegatingStore
from sparklog.storage.foothold import Foothold

__all__ = ["KINDS", "Activity", "CountedStore", "RequestCount", "RequestCounts", "silent_ms"]

T = TypeVar("T")

KINDS = ("get", "put", "create", "list", "delete", "sync")
"""``create`` is the create-only put, by which commits are made; ``sync`` is a later fsync, which a folder has alone."""
_PAGE = 1_000
"""Objects that a LIST returns, and a bulk delete takes, in one request of an object store."""
_GROUP = "sparklog-store-metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCount:
    """Requests of one kind since the start."""

    requests: int = 0
    """One for each object that is read or written, also where many go together; of listings and deletions one for each
    1,000 objects. Attempts that failed are among them."""
    bytes: int = 0
    """Size of the objects, or parts of objects, that were read or written."""
    errors: int = 0
    """Calls that failed. That there is no such object is an answer, no failure."""
    seconds: float = 0.0
    """Time that threads have waited; for objects that go together once, and of a listing for its first object and each
    thousandth after it."""
    races_lost: int = 0
    """Creates that found the name taken: in a log, the next entry is another's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Whether a store answers, as of one moment; times in ticks of its clock."""

    oldest_call_ms: float | None = None
    """When the call began that has been under way for longest; None: none is."""
    answered_ms: float | None = None
    """When the store has last answered a call. A refusal that repeating can't change is an answer, too."""
    failing_since_ms: float | None = None
    """When the first call failed since then; None: none has."""


def silent_ms(activity: Activity, *, since_ms: float, now_ms: float) -> float:
    """How long a store has been asked in vain: a call has been under way for so long, or calls have failed, and none
    was answered meanwhile. 0 where nothing is asked of it: whoever computes doesn't wait for a store.

    Args:
        since_ms: when the wait began; what was before doesn't count.
    """
    asked = [at for at in (activity.oldest_call_ms, activity.failing_since_ms) if at is not None]
    if not asked:
        return 0.0
    heard = since_ms if activity.answered_ms is None else max(since_ms, activity.answered_ms)
    return max(0.0, now_ms - max(heard, min(asked)))


class _Cell:
    """Sums of a kind of request, of which one thread at a time has the writing."""

    __slots__ = ("bytes", "errors", "races_lost", "requests", "seconds")

    def __init__(self) -> None:
        self.requests = self.bytes = self.errors = self.races_lost = 0
        self.seconds = 0.0


class RequestCounts:
    """The counts of one store. For several threads, and without a lock, which an interrupt or a fork could leave held.

    There are as many sets of cells as threads have ever counted at the same time. Who counts takes one that is idle,
    and so has it alone. One that isn't given back, as an interrupt came, is read all the same.
    """

    def __init__(self) -> None:
        self._all: list[dict[str, _Cell]] = []
        self._idle: list[dict[str, _Cell]] = []
        self._under_way: dict[int, float] = {}
        """When the call began that a thread waits for. One that an interrupt has left here goes with that thread's
        next call."""
        self._answered_ms: float | None = None
        self._failing_since_ms: float | None = None

    def add(
        self,
        kind: str,
        requests: int,
        *,
        size_bytes: int = 0,
        errors: int = 0,
        seconds: float = 0.0,
        races_lost: int = 0,
    ) -> None:
        """Count requests of a kind that have ended."""
        try:
            cells = self._idle.pop()
        except IndexError:
            cells = {each: _Cell() for each in KINDS}
            self._all.append(cells)
        cell = cells[kind]
        cell.requests += requests
        cell.bytes += size_bytes
        cell.errors += errors
        cell.seconds += seconds
        cell.races_lost += races_lost
        self._idle.append(cells)

    def begun(self, at_ms: float) -> None:
        """Note that a call of this thread begins; it ends with :meth:`ended`."""
        self._under_way[threading.get_ident()] = at_ms

    def ended(self) -> None:
        """Note that the call of this thread is over."""
        self._under_way.pop(threading.get_ident(), None)

    def answered(self, at_ms: float) -> None:
        """Note that the store has answered."""
        self._answered_ms, self._failing_since_ms = at_ms, None

    def failed(self, at_ms: float) -> None:
        """Note that a call has failed, which may succeed later."""
        if self._failing_since_ms is None:
            self._failing_since_ms = at_ms

    def activity(self) -> Activity:
        """Whether the store answers, as of now."""
        began = self._under_way.copy().values()  # at once: other threads change it
        return Activity(
            oldest_call_ms=min(began, default=None),
            answered_ms=self._answered_ms,
            failing_since_ms=self._failing_since_ms,
        )

    def by_kind(self) -> Mapping[str, RequestCount]:
        """The counts as of now, of each kind."""
        every = tuple(self._all)
        return {kind: _sum([cells[kind] for cells in every]) for kind in KINDS}

    def groups(self) -> list[MetricGroup]:
        """The counts as a client reports them: the races, and a group for each kind."""
        counts = self.by_kind()
        lost = float(counts["create"].races_lost)
        return [
            MetricGroup(name=_GROUP, values={"races-lost-total": lost}),
            *(MetricGroup(name=_GROUP, labels={"kind": kind}, values=_values(one)) for kind, one in counts.items()),
        ]


def _sum(cells: Sequence[_Cell]) -> RequestCount:
    return RequestCount(
        requests=sum(cell.requests for cell in cells),
        bytes=sum(cell.bytes for cell in cells),
        errors=sum(cell.errors for cell in cells),
        seconds=sum(cell.seconds for cell in cells),
        races_lost=sum(cell.races_lost for cell in cells),
    )


def _values(count: RequestCount) -> dict[str, float]:
    return {
        "requests-total": float(count.requests),
        "bytes-total": float(count.bytes),
        "errors-total": float(count.errors),
        "seconds-total": count.seconds,
    }


class CountedStore(DelegatingStore):
    """Another store, each of whose calls is counted once it has ended.

    What a store's own client repeats within a call isn't seen. Nor is what engines read through
    :meth:`arrow_filesystem`.
    """

    def __init__(
        self, store: ObjectStore, *, clock: Clock, note_no_bucket: Callable[[float], None] = lambda now_ticks_ms: None
    ) -> None:
        """
        Args:
            note_no_bucket: called with the clock's ticks where the store says that there is no such bucket.
        """
        super().__init__(store)
        self._clock = clock
        self._note_no_bucket = note_no_bucket
        self.counts = RequestCounts()

    def read(self, path: str) -> bytes:
        return self._count("get", 1, partial(self._store.read, path), len)

    def read_range(self, path: str, start: int, end: int) -> bytes:
        return self._count("get", 1, partial(self._store.read_range, path, start, end), len)

    def read_many(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        return self._count("get", len(paths), partial(self._store.read_many, paths), _size_of_all)

    def read_buffers(self, paths: Sequence[str]) -> Sequence[Any]:
        return self._count("get", len(paths), partial(self._store.read_buffers, paths), _size_of_all)

    def read_files_by(
        self, paths: Sequence[str], read: Callable[[tuple[bytes, ...]], FilesRead[T]]
    ) -> FilesRead[T] | None:
        call = partial(self._store.read_files_by, paths, read)
        found = self._count("get", 0, call, lambda found: 0 if found is None else found.size_bytes)
        if found is not None:
            self.counts.add("get", found.file_count)
        return found

    def put(self, path: str, data: bytes, *, sync: bool = False) -> None:
        self._count("put", 1, partial(self._store.put, path, data, sync=sync), lambda _: _size(data))

    def put_many(self, objects: Mapping[str, bytes], *, sync: bool = False) -> None:
        call = partial(self._store.put_many, objects, sync=sync)
        self._count("put", len(objects), call, lambda _: _size_of_all(objects.values()))

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        return self._count_create(partial(self._store.create, path, data, sync=sync), data)

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
        found = self._store.create_next
        call = partial(found, path, data, foothold=foothold, check=check, is_first=is_first, sync=sync)
        return self._count_create(call, data)

    def _count_create(self, call: Callable[[], CreateResult], data: bytes) -> CreateResult:
        result = self._count("create", 1, call, lambda found: _size(data) if found is CreateResult.CREATED else 0)
        if result is CreateResult.EXISTS:
            self.counts.add("create", 0, races_lost=1)
        return result

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        listed = _when_asked(partial(self._store.list, prefix, after=after))
        requests = 1
        while True:
            # A clock for each object would cost more than it shows: an object store answers with pages.
            first = self._count("list", requests, partial(next, listed, None))
            if first is None:
                return
            if not requests:
                self.counts.add("list", 1)
            yield first
            taken = 1
            try:
                for found in islice(listed, _PAGE - 1):
                    taken += 1
                    yield found
            except StoreError as error:
                self.counts.add("list", 0, errors=1)
                if error.is_of_no_bucket:
                    self._note_no_bucket(self._clock.ticks_ms())
                raise
            if taken < _PAGE:
                return
            requests = 0

    def list_names(self, prefix: str) -> Sequence[str]:
        names = self._count("list", 1, partial(self._store.list_names, prefix))
        if len(names) > _PAGE:
            self.counts.add("list", _pages(len(names)) - 1)
        return names

    def delete(self, paths: Iterable[str]) -> None:
        gone = tuple(paths)
        self._count("delete", _pages(len(gone)), partial(self._store.delete, gone))

    def remove_empty_folders(self, prefix: str, *, changed_before_ms: int) -> None:
        self._store.remove_empty_folders(prefix, changed_before_ms=changed_before_ms)

    def sync(self, paths: Iterable[str]) -> None:
        written = tuple(paths)
        self._count("sync", len(written) if self.may_tear else 0, partial(self._store.sync, written))

    def sync_all(self) -> None:
        self._count("sync", 1 if self.may_tear else 0, self._store.sync_all)

    def watch(self, folder: str, changed: Callable[[], None]) -> Callable[[], None] | None:
        return self._store.watch(folder, changed)

    def arrow_filesystem(self) -> Any:
        return self._store.arrow_filesystem()

    def _count(self, kind: str, requests: int, call: Callable[[], T], size_of: Callable[[T], int] | None = None) -> T:
        """The result of a call, which counts as so many requests.

        Args:
            size_of: the bytes that were moved, of the result.
        """
        began, counts = self._clock.ticks_ms(), self.counts
        counts.begun(began)
        try:
            result = call()
        except StoreError as error:
            now = self._clock.ticks_ms()
            (counts.failed if error.retriable else counts.answered)(now)
            if error.is_of_no_bucket:
                self._note_no_bucket(now)
            is_answer = isinstance(error, ObjectNotFoundError)
            counts.add(kind, requests, errors=not is_answer, seconds=(now - began) / 1_000)
            raise
        finally:
            counts.ended()
        now = self._clock.ticks_ms()
        counts.answered(now)
        size_bytes = 0 if size_of is None else size_of(result)
        counts.add(kind, requests, size_bytes=size_bytes, seconds=(now - began) / 1_000)
        return result


def _when_asked(call: Callable[[], Iterator[ObjectInfo]]) -> Iterator[ObjectInfo]:
    """The objects of a listing; the store is asked with the first one."""
    yield from call()


def _pages(objects: int) -> int:
    return -(-objects // _PAGE)


def _size(data: Any) -> int:
    return data.nbytes if isinstance(data, memoryview) else len(data)


def _size_of_all(found: Iterable[Any]) -> int:
    return sum([_size(data) for data in found if data is not None])  # a list: this is done for each small commit
