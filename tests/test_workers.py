"""Threads beside a client: started once, joined with a bound."""

from __future__ import annotations

import threading

import pytest

from sparklog import Consumer, Producer
from sparklog.errors import NoThreadError, SparklogError
from sparklog.log import create_topic, open_cluster
from sparklog.storage import MemoryStore
from sparklog.workers import Background, Worker


def test_a_worker_makes_its_call_in_a_thread_of_its_name() -> None:
    names: list[str] = []
    worker = Worker("tester", lambda: names.append(threading.current_thread().name))
    worker.start()
    assert worker.join(60)
    assert names == ["sparklog-tester"]


def test_a_worker_that_was_never_started_has_ended() -> None:
    assert Worker("tester", lambda: None).join(60)


def test_a_wait_for_a_worker_that_goes_on_ends_in_time() -> None:
    may_end = threading.Event()
    worker = Worker("tester", lambda: may_end.wait(60))
    worker.start()
    assert not worker.join(0.01)
    may_end.set()
    assert worker.join(60)


def test_a_worker_does_not_wait_for_itself() -> None:
    seen: list[object] = []
    worker = Worker("tester", lambda: seen.extend([worker.is_current, worker.join(60)]))
    worker.start()
    assert worker.join(60)
    assert seen == [True, False]
    assert not worker.is_current


def test_one_piece_of_background_work_at_a_time() -> None:
    may_end, began = threading.Event(), threading.Event()
    background = Background("tester")

    def work() -> None:
        began.set()
        may_end.wait(60)

    assert background.start(work)
    assert began.wait(60)
    assert not background.start(work)
    assert not background.close(1)
    may_end.set()
    assert background.close(10_000)
    assert background.start(lambda: None)


def test_work_that_cannot_get_a_thread_is_not_under_way(caplog: pytest.LogCaptureFixture) -> None:
    def no_thread(work: object) -> None:
        raise RuntimeError("can't start new thread")

    background = Background("tester", run=no_thread)
    assert not background.start(lambda: None, what="a checkpoint of topic 't'")
    assert "a checkpoint of topic 't' can't be started" in caplog.text
    assert background.close(10_000)


def test_a_thread_that_cannot_be_started_is_an_error_of_ours_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """✗ ``send`` to a new topic, and ``Consumer(…)``, raise a bare RuntimeError."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    cluster = open_cluster(MemoryStore())
    create_topic(cluster.topic_log("t"), "t")
    monkeypatch.setattr(threading.Thread, "start", refuse)
    told = r"thread sparklog-x can't be started: .* has \d+ of Python's threads"
    with pytest.raises(NoThreadError, match=told) as raised:
        Worker("x", lambda: None).start()
    assert raised.value.retriable
    with Producer(cluster) as producer, pytest.raises(SparklogError, match="can't start new thread"):
        producer.send("t", b"x").get(10)
    with pytest.raises(NoThreadError):
        Consumer("t", cluster=cluster).poll(1)
