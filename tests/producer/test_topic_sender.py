"""A topic's threads: which of them does what, and the error that records fail with whose uploads are refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import pytest

from sparklog.errors import CommitStateUnknownError, NoThreadError, SparklogError
from sparklog.producer import Producer
from sparklog.producer.in_flight import UploadResult
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, WrappedStore
from sparklog.workers import Worker
from tests.producer.support import (
    IMPATIENT,
    LONG_S,
    HeldStore,
    Switch,
    a_producer,
    a_topic,
    error_of,
    eventually,
    through,
    values,
)

T = TypeVar("T")


class ThreadsOfCalls(WrappedStore):
    """Notes which thread makes each put and create."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.made: list[tuple[str, int]] = []

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if op in ("put", "create"):
            self.made.append((op, threading.get_ident()))
        return call()


def waiting_count(producer: Producer) -> int:
    """How many of its threads wait for something to do."""
    producer._pipelines.get("t")  # they are there once it is open
    return producer._pipelines._threads._idle_count


def thread_count(producer: Producer) -> int:
    """How many threads it has for its topics."""
    return sum(worker._thread.is_alive() for worker in list(producer._pipelines._threads._workers.values()))


def test_the_thread_that_uploads_a_lone_record_commits_it_and_no_other_is_woken() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    store = ThreadsOfCalls(memory)
    with a_producer(through(store, cluster)) as producer:
        for number in range(10):
            eventually(lambda: waiting_count(producer) == 2)
            store.made.clear()
            assert producer.send("t", b"%d" % number).get(LONG_S).offset == number
            [(first, uploader), (second, committer)] = store.made
            assert (first, second, uploader) == ("put", "create", committer)
            assert waiting_count(producer) >= 1
    assert values(cluster) == [b"%d" % number for number in range(10)]


def test_while_one_thread_commits_the_other_uploads_and_leaves_the_commit_to_it() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    threads = ThreadsOfCalls(memory)
    held = HeldStore(threads)
    with a_producer(through(held, cluster), batch_size=0) as producer:
        eventually(lambda: waiting_count(producer) == 2)
        held.hold("create")
        sent = [producer.send("t", b"0")]
        held.wait_until_reached()
        for value in (b"1", b"2"):
            sent.append(producer.send("t", value))
            eventually(lambda: producer.metrics()["producer-metrics"]["requests-in-flight"] == len(sent))
        eventually(lambda: len(producer._pipelines.get("t")._committer._uploaded) == 2)
        held.let_go()
        assert [future.get(LONG_S).offset for future in sent] == [0, 1, 2]
    committers = {thread for op, thread in threads.made if op == "create"}
    uploaders = [thread for op, thread in threads.made if op == "put"]
    assert committers == {uploaders[0]}
    assert uploaders[1] == uploaders[2] != uploaders[0]


def test_where_uploads_are_quick_there_is_one_at_a_time_and_others_gather() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    held = HeldStore(memory)
    with a_producer(through(held, cluster)) as producer:
        producer.send("t", b"0").get(LONG_S)
        held.hold("put")
        sent = [producer.send("t", b"1")]
        held.wait_until_reached()
        sent += [producer.send("t", value) for value in (b"2", b"3")]
        sender = producer._pipelines.get("t")._sender
        with sender._queue.lock:
            assert not sender._may_begin()
            assert len(sender._queue.unfinished()) == 2
        held.let_go()
        assert [future.get(LONG_S).offset for future in sent] == [1, 2, 3]
    assert values(cluster) == [b"0", b"1", b"2", b"3"]


def test_a_record_of_a_transaction_wakes_no_thread_before_somebody_waits_for_it() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    with a_producer(through(memory, cluster), transactional_id="id") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.partitions_for("t")
        eventually(lambda: waiting_count(producer) == 2)
        queue = producer._pipelines.get("t").queue
        woken: list[int] = []
        notify = queue.changed.notify

        def notify_noted() -> None:
            woken.append(1)
            notify()

        queue.changed.notify = notify_noted  # type: ignore[method-assign]
        future = producer.send("t", b"v")
        assert woken == []
        producer.commit_transaction()
        assert woken
        assert future.get(LONG_S).offset == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_defect_that_ends_a_thread_while_it_commits_leaves_the_rest_to_the_other() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    with a_producer(through(memory, cluster)) as producer:
        eventually(lambda: waiting_count(producer) == 2)
        settled = producer._metrics.settled

        def fail_once(*arguments: object) -> None:
            producer._metrics.settled = settled  # type: ignore[method-assign]
            raise RuntimeError("a defect")

        producer._metrics.settled = fail_once  # type: ignore[method-assign, assignment]
        assert producer.send("t", b"0").get(LONG_S).offset == 0
        eventually(lambda: producer._metrics.settled is not fail_once)
        assert producer.send("t", b"1").get(LONG_S).offset == 1
    assert values(cluster) == [b"0", b"1"]


class Defect:
    """Has a producer's metrics raise while batches are settled, so many times."""

    def __init__(self, producer: Producer, times: int) -> None:
        self.left = times
        self._settled = producer._metrics.settled
        producer._metrics.settled = self  # type: ignore[method-assign, assignment]

    def __call__(self, *arguments: object) -> None:
        if self.left:
            self.left -= 1
            raise RuntimeError("a defect")
        self._settled(*arguments)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_after_a_defect_flushing_ends_room_is_given_back_and_the_topic_is_closed() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    with a_producer(through(memory, cluster)) as producer:
        pipeline = producer._pipelines.get("t")
        Defect(producer, 1)
        called: list[object] = []
        producer.send("t", b"0").add_callback(called.append)
        producer.flush(LONG_S)
        assert len(called) == 1
        assert producer._buffer.used_bytes == 0
        assert pipeline.in_flight_count == 0
        producer.send("t", b"1")
        producer.flush(LONG_S)
    assert not producer._buffer._queues
    assert thread_count(producer) == 0
    assert values(cluster) == [b"0", b"1"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_commit_that_a_defect_parts_is_told_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    with a_producer(through(memory, cluster)) as producer:
        committer = producer._pipelines.get("t")._committer
        commit = committer._commit

        def fail_once(uploaded: Sequence[UploadResult]) -> list[UploadResult]:
            monkeypatch.setattr(committer, "_commit", commit)
            raise RuntimeError("a defect")

        monkeypatch.setattr(committer, "_commit", fail_once)
        future = producer.send("t", b"0")
        assert isinstance(error_of(future), CommitStateUnknownError)
        producer.flush(LONG_S)
        assert producer._buffer.used_bytes == 0
        assert producer.send("t", b"1").get(LONG_S).offset == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_within_a_transaction_the_thread_that_is_left_stays_for_its_end() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    with a_producer(through(memory, cluster), transactional_id="id") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        sender = producer._pipelines.get("t")._sender
        with sender._queue.lock:
            sender._committer.call_soon(a_defect)
        eventually(lambda: thread_count(producer) == 1)
        producer.send("t", b"0")
        producer.commit_transaction()
    assert not producer._buffer._queues
    assert values(cluster) == [b"0"]


def has_threads(producer: Producer, count: int) -> bool:
    return thread_count(producer) == count


def a_defect() -> None:
    raise RuntimeError("a defect")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_where_no_thread_is_left_what_is_sent_fails() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    with a_producer(through(memory, cluster), linger_ms=3_600_000, batch_size=2**20) as producer:
        pipeline = producer._pipelines.get("t")
        future = producer.send("t", b"0")
        for left in (1, 0):
            with pipeline.queue.lock:
                pipeline._committer.call_soon(a_defect)
            eventually(partial(has_threads, producer, left))
        assert "a defect" in str(error_of(future))
        with pytest.raises(SparklogError, match="a defect"):
            producer.send("t", b"1")
    assert not producer._buffer._queues
    assert values(cluster) == []


def test_one_thread_does_where_a_second_cant_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    start = Worker.start

    def start_one(worker: Worker) -> None:
        if worker._thread.name.endswith("sender-2"):
            raise NoThreadError("can't start new thread")
        start(worker)

    monkeypatch.setattr(Worker, "start", start_one)
    with a_producer(through(memory, cluster), batch_size=0) as producer:
        futures = [producer.send("t", b"%d" % number) for number in range(5)]
        assert [future.get(LONG_S).offset for future in futures] == [*range(5)]
        assert thread_count(producer) == 1
    assert not producer._buffer._queues


@pytest.mark.parametrize("count", [0, 1, 20])
def test_all_threads_end_and_the_last_closes_the_topic_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = a_topic()
    closed: list[int] = []
    with a_producer(cluster, batch_size=0) as producer:
        pipeline = producer._pipelines.get("t")
        close = pipeline._committer.close

        def close_noted() -> None:
            closed.append(threading.get_ident())
            close()

        monkeypatch.setattr(pipeline._committer, "close", close_noted)
        for number in range(count):
            producer.send("t", b"%d" % number)
    assert len(closed) == 1
    assert thread_count(producer) == 0
    assert len(values(cluster)) == count


def test_the_message_of_a_timeout_tells_topic_setting_and_reason() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory, ManualClock())
    switch = Switch(FaultKind.THROTTLED, "put")
    with a_producer(through(FaultyStore(memory, switch.fault), cluster), **IMPATIENT) as producer:
        producer.partitions_for("t")
        switch.on()
        error = error_of(producer.send("t", b"v"))
    for part in ("1 records of topic 't'", "delivery_timeout_ms=200", "503"):
        assert part in str(error)


def test_without_retries_the_first_refusal_fails_a_record_and_says_so() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    refusing = Fault(kind=FaultKind.THROTTLED, ops=["put"])
    with a_producer(through(FaultyStore(memory, refusing), cluster), retries=0) as producer:
        assert "retries=0" in str(error_of(producer.send("t", b"v")))
        assert producer.send("t", b"next").get(LONG_S).offset == 0
