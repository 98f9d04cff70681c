"""The thread that completes transactions beside the caller of a producer."""

from __future__ import annotations

import threading

import pytest

from sparklog.producer import Producer
from sparklog.producer.completion_thread import CompletionThread
from sparklog.workers import Worker
from tests.producer.support import a_topic, values


def no_thread(worker: Worker) -> None:
    raise RuntimeError("can't start new thread")


def test_work_that_no_thread_can_be_started_for_is_not_left_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    thread, done = CompletionThread(), threading.Event()
    with monkeypatch.context() as patched:
        patched.setattr(Worker, "start", no_thread)
        assert not thread.submit(done.set)
        assert thread.is_idle
    assert thread.submit(done.set)
    assert done.wait(60)
    assert thread.wait_until_idle(10)
    thread.stop()


def test_a_transaction_is_committed_though_no_thread_can_be_started_to_complete_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = a_topic()
    with Producer(cluster=cluster, transactional_id="id", max_block_ms=10_000) as producer:
        producer.init_transactions()
        start = Worker.start

        def start_others(worker: Worker) -> None:
            if "completer" in worker._thread.name:
                no_thread(worker)
            start(worker)

        with monkeypatch.context() as patched:
            patched.setattr(Worker, "start", start_others)
            for value in (b"1", b"2"):
                producer.begin_transaction()
                producer.send("t", value=value)
                producer.commit_transaction()
        producer.begin_transaction()
        producer.send("t", value=b"3")
        producer.commit_transaction()
    assert values(cluster) == [b"1", b"2", b"3"]
