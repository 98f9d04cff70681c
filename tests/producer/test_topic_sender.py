"""A topic's threads: which of them does what, and the error that records fail with whose uploads are refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from sparklog.producer import Producer
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, WrappedStore
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
    """How many threads of the topic wait for something to do."""
    return len(producer._pipelines.get("t").queue.changed._waiters)  # type: ignore[attr-defined]


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

        def notify_noted(n: int = 1) -> None:
            woken.append(n)
            notify(n)

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
    assert not any(worker._thread.is_alive() for worker in pipeline._sender._workers)
    assert len(values(cluster)) == count


def test_the_message_of_a_timeout_tells_topic_setting_and_reason() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
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
