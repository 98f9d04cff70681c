"""What is counted of each kind of request, that nothing else changes, and that threads and interrupts lose nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from sparklog.errors import ObjectNotFoundError, StoreError
from sparklog.parallel import parallel_map
from sparklog.storage import LocalStore, MemoryStore, ObjectStore
from sparklog.storage.base import FilesRead
from sparklog.storage.request_counts import KINDS, Activity, CountedStore, RequestCount, RequestCounts
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock
from sparklog.testing.wrapped_store import WrappedStore

NOTHING = RequestCount()


def a_store(store: ObjectStore | None = None) -> RetryingStore:
    return RetryingStore(store or MemoryStore(), clock=ManualClock())


def counted(store: RetryingStore) -> dict[str, RequestCount]:
    """The kinds of which something was counted."""
    return {kind: count for kind, count in store.counts.by_kind().items() if count != NOTHING}


CALLS: dict[str, tuple[Callable[[RetryingStore], Any], dict[str, RequestCount]]] = {
    "read": (lambda store: store.read("a"), {"get": RequestCount(requests=1, bytes=10)}),
    "a part": (lambda store: store.read_range("a", 2, 5), {"get": RequestCount(requests=1, bytes=3)}),
    "many": (lambda store: store.read_many(["a", "none", "b"]), {"get": RequestCount(requests=3, bytes=30)}),
    "buffers": (lambda store: store.read_buffers(["a", "none"]), {"get": RequestCount(requests=2, bytes=10)}),
    "put": (lambda store: store.put("c", b"123"), {"put": RequestCount(requests=1, bytes=3)}),
    "a view": (lambda store: store.put("c", memoryview(b"123")), {"put": RequestCount(requests=1, bytes=3)}),  # type: ignore[arg-type]
    "put many": (lambda store: store.put_many({"c": b"1", "d": b"23"}), {"put": RequestCount(requests=2, bytes=3)}),
    "create": (lambda store: store.create("c", b"123"), {"create": RequestCount(requests=1, bytes=3)}),
    "a race lost": (lambda store: store.create("a", b"123"), {"create": RequestCount(requests=1, races_lost=1)}),
    "names": (lambda store: store.list_names(""), {"list": RequestCount(requests=1)}),
    "listing": (lambda store: [*store.list("")], {"list": RequestCount(requests=1)}),
    "no objects": (lambda store: [*store.list("none/")], {"list": RequestCount(requests=1)}),
    "delete": (lambda store: store.delete(["a", "none"]), {"delete": RequestCount(requests=1)}),
    "delete many": (lambda store: store.delete(map(str, range(2_001))), {"delete": RequestCount(requests=3)}),
    "delete nothing": (lambda store: store.delete([]), {}),
    "nothing to sync": (lambda store: store.sync(["a"]), {}),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_counted(name: str) -> None:
    call, expected = CALLS[name]
    memory = MemoryStore()
    memory.put_many({"a": b"1" * 10, "b": b"2" * 20})
    store = a_store(memory)
    call(store)
    assert counted(store) == expected


def test_what_isnt_there_is_an_answer() -> None:
    store = a_store()
    with pytest.raises(ObjectNotFoundError):
        store.read("none")
    assert counted(store) == {"get": RequestCount(requests=1)}


def test_fsyncs_of_a_folder_are_counted(tmp_path: Path) -> None:
    store = RetryingStore(LocalStore(tmp_path), clock=ManualClock())
    store.put("a", b"1")
    store.sync(["a", "gone"])
    store.sync_all()
    assert counted(store) == {"put": RequestCount(requests=1, bytes=1), "sync": RequestCount(requests=3)}


@pytest.mark.parametrize(("objects", "pages"), [(999, 1), (1_000, 1), (1_001, 2), (2_000, 2), (2_001, 3)])
def test_a_long_listing_is_a_request_for_each_page(objects: int, pages: int) -> None:
    memory = MemoryStore()
    memory.put_many({f"{number:05d}": b"" for number in range(objects)})
    store = a_store(memory)
    assert len([*store.list("")]) == len(store.list_names("")) == objects
    assert counted(store) == {"list": RequestCount(requests=2 * pages)}


def test_of_a_listing_no_more_is_asked_for_than_is_taken() -> None:
    memory = MemoryStore()
    memory.put_many({f"{number:05d}": b"" for number in range(3)})

    class Lazy(WrappedStore):
        taken = 0

        def list(self, prefix: str, *, after: str = "") -> Any:
            for found in memory.list(prefix, after=after):
                self.taken += 1
                yield found

    lazy = Lazy(memory)
    store = a_store(lazy)
    assert lazy.taken == 0
    assert [found.path for found in islice(store.list(""), 2)] == ["00000", "00001"]
    assert lazy.taken == 2


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        ("get", lambda store: store.read("a")),
        ("put", lambda store: store.put("b", b"1")),
        ("list", lambda store: [*store.list("")]),
        ("delete", lambda store: store.delete(["a"])),
    ],
)
def test_each_attempt_is_counted_and_each_failure(kind: str, call: Callable[[RetryingStore], Any]) -> None:
    memory = MemoryStore()
    memory.put("a", b"")
    store = a_store(FaultyStore(memory, Fault(kind=FaultKind.THROTTLED, ops=[kind], times=2)))
    call(store)
    count = store.counts.by_kind()[kind]
    assert (count.requests, count.errors) == (3, 2)


def test_a_create_whose_answer_was_lost_is_a_failure_and_no_race() -> None:
    store = a_store(FaultyStore(MemoryStore(), Fault(kind=FaultKind.LOST_ANSWER, ops=["create"])))
    with pytest.raises(StoreError):
        store.create("a", b"1")
    assert counted(store) == {"create": RequestCount(requests=1, errors=1)}


def test_a_listing_that_breaks_off_is_a_failure() -> None:
    class Breaking(WrappedStore):
        def list(self, prefix: str, *, after: str = "") -> Any:
            found = [*super().list(prefix, after=after)]
            yield found[0]
            if len(found) > 1:
                raise StoreError("gone")

    memory = MemoryStore()
    memory.put_many({"a": b"", "b": b""})
    store = a_store(Breaking(memory))
    with pytest.raises(StoreError):
        list(store.list(""))
    assert counted(store) == {"list": RequestCount(requests=1, errors=1)}


def test_time_is_that_of_the_store_alone() -> None:
    clock = ManualClock()
    memory = MemoryStore()
    memory.put_many({"a": b"", "b": b""})
    slow = FaultyStore(memory, Fault(kind=FaultKind.DELAY, times=None, delay_ms=250), clock=clock)
    store = RetryingStore(slow, clock=clock)
    store.read("a")
    for _ in store.list(""):
        clock.advance(5_000)
    assert store.counts.by_kind()["get"].seconds == 0.25
    assert store.counts.by_kind()["list"].seconds == 0.25


def test_it_is_known_since_when_a_store_is_asked_in_vain() -> None:
    clock, seen = ManualClock(start_ms=0), []

    class Slow(WrappedStore):
        """Takes a second for each call."""

        def _call(self, op: str, path: str, call: Callable[[], Any]) -> Any:
            seen.append(store.counts.activity())
            clock.sleep_ms(1_000)
            return call()

    faults = FaultyStore(MemoryStore(), Fault(kind=FaultKind.THROTTLED, ops=["get"], times=2))
    store = CountedStore(Slow(faults), clock=clock)
    began = clock.ticks_ms()
    assert store.counts.activity() == Activity()
    for _ in range(2):
        with pytest.raises(StoreError):
            store.read("a")
    with pytest.raises(ObjectNotFoundError):  # that is an answer
        store.read("a")
    assert seen == [
        Activity(oldest_call_ms=began),
        Activity(oldest_call_ms=began + 1_000, failing_since_ms=began + 1_000),
        Activity(oldest_call_ms=began + 2_000, failing_since_ms=began + 1_000),
    ]
    assert store.counts.activity() == Activity(answered_ms=began + 3_000)


def test_the_call_that_began_first_is_the_oldest_whichever_thread_waits_for_it() -> None:
    counts = RequestCounts()
    counts.begun(1)
    thread = threading.Thread(target=counts.begun, args=(2,))
    thread.start()
    thread.join()
    assert counts.activity().oldest_call_ms == 1
    counts.ended()
    assert counts.activity().oldest_call_ms == 2


def test_threads_lose_no_counts_and_take_few_cells() -> None:
    counts = RequestCounts()

    def add_many(_: int) -> None:
        for _ in range(200):
            counts.add("get", 1, size_bytes=3)

    parallel_map(add_many, range(64), at_once=16)
    assert counts.by_kind()["get"] == RequestCount(requests=64 * 200, bytes=3 * 64 * 200)
    assert len(counts._all) <= 16
    assert {id(cells) for cells in counts._all} == {id(cells) for cells in counts._idle}


def test_cells_that_an_interrupt_has_kept_are_read_and_not_waited_for() -> None:
    counts = RequestCounts()
    counts.add("get", 1)
    kept = counts._idle.pop()  # as of a thread that was interrupted, or is elsewhere after a fork
    other = threading.Thread(target=counts.add, args=("get", 2))
    other.start()
    other.join()
    kept["get"].requests += 4
    assert counts.by_kind()["get"].requests == 7


def test_a_client_tells_each_kind_and_the_races_lost() -> None:
    store = a_store()
    store.create("a", b"1")
    store.create("a", b"1")
    groups = {group.key: group for group in store.counts.groups()}
    assert [*groups] == ["sparklog-store-metrics", *(f"sparklog-store-metrics.{kind}" for kind in KINDS)]
    assert groups["sparklog-store-metrics"].values == {"races-lost-total": 1}
    assert groups["sparklog-store-metrics.create"].values == {
        "requests-total": 2.0,
        "bytes-total": 1,
        "errors-total": 0,
        "seconds-total": 0,
    }


def test_files_that_are_read_where_they_lie_are_counted(tmp_path):
    local = LocalStore(tmp_path)
    local.put("a/b", b"123")
    store = a_store(local)
    found = store.read_files_by(["a/b", "none"], lambda files: FilesRead(files, 1, 3))
    assert found is not None
    assert found.result == (bytes(tmp_path / "a" / "b"), bytes(tmp_path / "none"))
    assert counted(store) == {"get": RequestCount(requests=1, bytes=3)}
    assert a_store(MemoryStore()).read_files_by(["a"], lambda files: FilesRead(files, 1, 3)) is None
