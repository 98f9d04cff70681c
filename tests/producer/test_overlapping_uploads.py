"""Uploads of a slow store overlap, and what they hold is committed in the order of sending."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from sparklog.clock import Clock
from sparklog.errors import SparklogError, StorePermissionError
from sparklog.producer import FutureRecordMetadata, Producer, in_flight
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock, WrappedStore
from tests.producer.support import (
    LONG_S,
    HeldStore,
    RemoteStore,
    a_producer,
    a_topic,
    assert_empty,
    error_of,
    eventually,
    in_thread,
    through,
    values,
)

T = TypeVar("T")


@pytest.fixture(autouse=True)
def every_store_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "SLOW_PUT_MS", 0.0)


class HeldUploads(WrappedStore):
    """Each upload of a data file waits until it is let go, by its number in the order of beginning."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(MemoryStore())
        self.created_count = 0
        self.cluster = a_topic(self, clock)
        self._lock = threading.Lock()
        self._waiting: list[threading.Event] = []
        self._refused: set[int] = set()
        self._at_once = 0
        self.most_at_once = 0

    @property
    def begun_count(self) -> int:
        return len(self._waiting)

    def has_begun(self, count: int) -> bool:
        return self.begun_count == count

    def let_all_go(self) -> None:
        for waiting in self._waiting:
            waiting.set()

    def let_go(self, number: int, *, refused: bool = False) -> None:
        if refused:
            self._refused.add(number)
        self._waiting[number].set()

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        self.created_count += op == "create"
        if op == "put" and "/partition=" in path:
            with self._lock:
                number = len(self._waiting)
                self._waiting.append(threading.Event())
                self._at_once += 1
                self.most_at_once = max(self.most_at_once, self._at_once)
            assert self._waiting[number].wait(LONG_S)
            with self._lock:
                self._at_once -= 1
            if number in self._refused:
                raise StorePermissionError(f"put {path}: refused")
        return call()


@contextmanager
def uploading(
    *sent: bytes, clock: Clock | None = None, **settings: Any
) -> Iterator[tuple[HeldUploads, Producer, list[FutureRecordMetadata]]]:
    """A producer whose records, a batch each, are all being uploaded."""
    store = HeldUploads(clock)
    with ExitStack() as stack:
        stack.callback(store.let_all_go)
        producer = stack.enter_context(a_producer(store.cluster, **settings))
        futures = [send_alone(store, producer, value) for value in sent]
        yield store, producer, futures


def send_alone(store: HeldUploads, producer: Producer, value: bytes) -> FutureRecordMetadata:
    begun_count = store.begun_count
    future = producer.send("t", value)
    eventually(lambda: store.begun_count == begun_count + 1)
    return future


def test_records_are_committed_in_the_order_of_sending_whichever_upload_ends_first() -> None:
    with uploading(b"a", b"b", b"c", b"d") as (store, _producer, futures):
        for number in (3, 1, 2):
            store.let_go(number)
        assert not any(future.is_done for future in futures)
        store.let_go(0)
        assert [future.get(LONG_S).offset for future in futures] == [0, 1, 2, 3]
        assert values(store.cluster) == [b"a", b"b", b"c", b"d"]


def test_an_upload_that_fails_fails_its_own_records_and_no_others() -> None:
    with uploading(b"a", b"b", b"c") as (store, producer, futures):
        store.let_go(2)
        store.let_go(1, refused=True)
        store.let_go(0)
        assert futures[0].get(LONG_S).offset == 0
        assert isinstance(error_of(futures[1]), StorePermissionError)
        assert futures[2].get(LONG_S).offset == 1
        later = send_alone(store, producer, b"d")
        store.let_go(3)
        assert later.get(LONG_S).offset == 2
        assert values(store.cluster) == [b"a", b"c", b"d"]


def test_no_more_uploads_are_under_way_than_requests_in_flight_may_be() -> None:
    with uploading(b"a", b"b", max_in_flight_requests_per_connection=2) as (store, producer, _futures):
        third = producer.send("t", b"c")
        store.let_go(1)
        assert not third.is_done
        assert store.begun_count == 2
        store.let_go(0)
        eventually(lambda: store.begun_count == 3)
        store.let_go(2)
        assert third.get(LONG_S).offset == 2


def test_a_whole_batch_is_uploaded_whatever_waits_for_its_commit() -> None:
    """``max_in_flight_requests_per_connection`` bounds uploads; what is uploaded, ``buffer_memory`` bounds."""
    memory = MemoryStore()
    cluster = a_topic(memory)
    store = HeldStore(memory)
    settings = {"max_in_flight_requests_per_connection": 1, "buffer_memory": 40_000}
    with a_producer(through(store, cluster), **settings) as producer:
        store.hold("create")
        first = producer.send("t", b"first")
        store.wait_until_reached()
        for _ in range(100):
            last = producer.send("t", b"." * 100)
        eventually(lambda: producer.metrics()["producer-metrics"]["requests-in-flight"] == 2)
        assert not first.is_done
        store.let_go()
        assert last.get(LONG_S).offset == 100


@pytest.mark.parametrize(("is_remote", "most"), [(False, 2), (True, 4)])
def test_on_another_machines_store_twice_as_many_whole_batches_are_uploaded_at_once(is_remote: bool, most: int) -> None:
    store = HeldUploads()
    cluster = through(RemoteStore(store), store.cluster) if is_remote else store.cluster
    whole = pa.table({"value": [b"." * 40_000]})
    settings = {"max_in_flight_requests_per_connection": 2, "buffer_memory": 400_000}
    with ExitStack() as stack:
        stack.callback(lambda: store.let_all_go())
        producer = stack.enter_context(a_producer(cluster, **settings))
        futures = []
        while store.begun_count < most:
            begun_count = store.begun_count
            futures.append(producer.send_batch("t", whole))
            eventually(partial(store.has_begun, begun_count + 1))
        futures.append(producer.send_batch("t", whole))
        for number in range(most):
            assert store.begun_count == most + (number > 0)
            store.let_go(number)
            eventually(lambda: store.begun_count == most + 1)
        store.let_go(most)
        assert [future.get(LONG_S).offsets.to_pylist() for future in futures] == [[n] for n in range(most + 1)]
    assert store.most_at_once == most


@pytest.mark.parametrize("count", [2, 3])
def test_less_than_a_whole_batch_waits_for_those_on_their_way_there_too(count: int) -> None:
    store = HeldUploads()
    with ExitStack() as stack:
        stack.callback(lambda: store.let_all_go())
        cluster = through(RemoteStore(store), store.cluster)
        producer = stack.enter_context(a_producer(cluster, max_in_flight_requests_per_connection=2))
        first, second = (send_alone(store, producer, value) for value in (b"a", b"b"))
        others = [producer.send("t", b"%d" % number) for number in range(count)]
        store.let_go(1)
        assert not second.is_done
        assert store.begun_count == 2
        store.let_go(0)
        assert [future.get(LONG_S).offset for future in (first, second)] == [0, 1]
        eventually(lambda: store.begun_count == 3)
        store.let_go(2)
        assert [future.get(LONG_S).offset for future in others] == [2 + number for number in range(count)]


def test_a_commit_takes_along_what_is_about_to_be_uploaded() -> None:
    clock = ManualClock()
    with uploading(b"a", b"b", clock=clock) as (store, _producer, futures):
        created_count = store.created_count
        clock.advance(100)
        store.let_go(0)
        assert not futures[0].is_done
        store.let_go(1)
        assert [future.get(LONG_S).offset for future in futures] == [0, 1]
        assert store.created_count == created_count + 1


def test_a_commit_waits_no_longer_for_an_upload_than_a_quarter_of_its_time() -> None:
    clock = ManualClock()
    with uploading(b"a", b"b", clock=clock) as (store, _producer, futures):
        clock.advance(100)
        store.let_go(0)

        def is_done_as_time_passes() -> bool:
            clock.advance(5)
            return futures[0].is_done

        eventually(is_done_as_time_passes)
        assert not futures[1].is_done
        store.let_go(1)
        assert [future.get(LONG_S).offset for future in futures] == [0, 1]


def test_close_without_patience_fails_every_upload_that_is_under_way() -> None:
    with uploading(b"a", b"b", b"c") as (store, producer, futures):
        store.let_go(1)
        producer.close(timeout=0)
        for future in futures:
            assert isinstance(error_of(future), SparklogError)
        for number in (2, 0):
            store.let_go(number)
        eventually(lambda: producer.metrics()["producer-metrics"]["requests-in-flight"] == 0)
        assert_empty(producer)
    assert values(store.cluster) == []


def test_an_aborted_transaction_takes_all_its_uploads_along() -> None:
    store = HeldUploads()
    with ExitStack() as stack:
        stack.callback(store.let_all_go)
        producer = stack.enter_context(a_producer(store.cluster, transactional_id="x"))
        producer.init_transactions()
        producer.begin_transaction()
        flushes = []
        for number, value in enumerate([b"a", b"b"]):
            flushes.append(flushed(producer, store, value, number))
        with in_thread(producer.abort_transaction):
            for number in (1, 0):
                store.let_go(number)
        for future, flush in flushes:
            assert isinstance(error_of(future), SparklogError)
            flush.join(LONG_S)
        producer.begin_transaction()
        future, flush = flushed(producer, store, b"c", 2)
        store.let_go(2)
        flush.join(LONG_S)
        producer.commit_transaction()
        assert future.get(LONG_S).offset >= 0
    assert values(store.cluster) == [b"c"]


def flushed(
    producer: Producer, store: HeldUploads, value: bytes, number: int
) -> tuple[FutureRecordMetadata, threading.Thread]:
    """A record whose upload is under way, and the thread that waits for it."""
    future = producer.send("t", value)
    thread = threading.Thread(target=producer.flush, daemon=True)
    thread.start()
    eventually(lambda: store.begun_count == number + 1)
    return future, thread
