"""flush, close, and what a producer may not be used for: after its end, after a fork, by pickling."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.clock import SystemClock
from sparklog.errors import IllegalStateError, InvalidArgumentError, InvalidConfigurationError, KafkaTimeoutError
from sparklog.log import create_topic, open_cluster
from sparklog.producer import Producer
from sparklog.producer.topic_pipelines import TopicPipelines
from sparklog.storage import MemoryStore
from tests.producer.support import (
    LONG_S,
    HeldStore,
    a_cluster,
    a_producer,
    a_topic,
    assert_empty,
    eventually,
    in_thread,
    rows,
    through,
    values,
)


def a_held_cluster() -> tuple[Any, HeldStore]:
    memory = MemoryStore()
    cluster = a_topic(memory)
    store = HeldStore(memory)
    return through(store, cluster), store


def threads_of_producers() -> list[str]:
    """Those that this test has started."""
    ours = ("sparklog-sender", "sparklog-committer", "sparklog-closing")
    return [t.name for t in threading.enumerate() if t.name.startswith(ours) and t not in _older]


_older: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def older_threads() -> None:
    """Others' tests may have left some."""
    _older.clear()
    _older.update(threading.enumerate())


@pytest.mark.usefixtures("sigint")
@pytest.mark.parametrize("waiting", ["get", "flush"])
def test_ctrl_c_ends_a_wait_without_a_limit(waiting: str) -> None:
    cluster, store = a_held_cluster()
    with a_producer(cluster) as producer:
        store.hold("create")
        future = producer.send("t", b"1")
        store.wait_until_reached()
        interrupt = threading.Timer(0.3, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
        too_late = threading.Timer(LONG_S, store.let_go)
        too_late.start()

        def wait() -> None:
            interrupt.start()
            future.get() if waiting == "get" else producer.flush()

        with pytest.raises(KeyboardInterrupt):
            wait()
        assert not future.is_done
        too_late.cancel()
        store.let_go()
        assert future.get(LONG_S).offset == 0


def test_flush_waits_for_what_was_sent_before_and_lets_nothing_linger() -> None:
    cluster = a_topic()
    with a_producer(cluster, linger_ms=1_000_000, delivery_timeout_ms=2_000_000) as producer:
        sent = [producer.send("t", b"v") for _ in range(3)]
        producer.flush(LONG_S)
        assert all(future.succeeded() for future in sent)
        assert producer.metrics()["producer-metrics"]["flush-time-ns-total"] > 0
        producer.flush(0)  # nothing is left


def test_flush_ends_in_time_and_sending_goes_on() -> None:
    cluster, store = a_held_cluster()
    with a_producer(cluster) as producer:
        store.hold("create")
        future = producer.send("t", b"v")
        for timeout in (0, 0.001, -1):
            with pytest.raises(KafkaTimeoutError, match="topic 't' are not stored after"):
                producer.flush(timeout)
        store.let_go()
        producer.flush(float("inf"))
        assert future.succeeded()


def test_flush_doesnt_wait_for_what_others_send_meanwhile() -> None:
    cluster, store = a_held_cluster()
    with a_producer(cluster, max_in_flight_requests_per_connection=1) as producer:

        def send_another(result: object) -> None:
            store.hold("create")
            producer.send("t", b"2")

        store.hold("create")
        first = producer.send("t", b"1")
        store.wait_until_reached()
        with in_thread(lambda: producer.flush(LONG_S)) as flush:
            eventually(lambda: len(producer._pipelines.get("t").queue.unfinished()) == 1)
            time.sleep(0.01)  # gives flush the time to look; too short a time only makes the test weaker
            store.reached.clear()
            first.add_callback(send_another)
            store.let_go()
            store.wait_until_reached()
            flush.join(LONG_S)
            assert not flush.is_alive()
            store.let_go()
        producer.flush(LONG_S)


def test_flush_waits_for_callbacks() -> None:
    told: list[object] = []
    cluster, store = a_held_cluster()

    def slow(result: object) -> None:
        time.sleep(0.02)
        told.append(result)

    with a_producer(cluster) as producer:
        store.hold("create")
        producer.send("t", b"v").add_callback(slow)
        store.let_go()
        producer.flush(LONG_S)
        assert len(told) == 1


def test_close_delivers_what_was_sent_and_ends_the_threads() -> None:
    cluster = a_topic()
    before = threads_of_producers()
    producer = Producer(cluster, acks=1, linger_ms=1_000_000, delivery_timeout_ms=2_000_000)
    sent = [producer.send("t", str(number).encode()) for number in range(10)]
    producer.close()
    assert all(future.succeeded() for future in sent)
    assert values(cluster) == [str(number).encode() for number in range(10)]
    assert threads_of_producers() == before
    assert_empty(producer)
    producer.close()
    producer.close(timeout=0)


def test_a_with_block_closes() -> None:
    cluster = a_topic()
    with Producer(cluster, acks=1, linger_ms=100_000, delivery_timeout_ms=200_000) as producer:
        future = producer.send("t", b"v")
    assert future.succeeded()


@pytest.mark.parametrize("timeout", [float("inf"), sys.float_info.max, threading.TIMEOUT_MAX, 2**63 / 1000])
def test_close_may_be_given_all_the_time_of_the_world(timeout: float) -> None:
    producer = Producer(a_topic(), acks=1)
    future = producer.send("t", b"v")
    producer.close(timeout=timeout)
    assert future.succeeded()


def test_close_refuses_a_negative_time_and_goes_on() -> None:
    with a_producer(a_topic()) as producer:
        with pytest.raises(InvalidArgumentError, match="timeout=-1"):
            producer.close(timeout=-1)
        producer.send("t", b"v").get(LONG_S)


def test_what_isnt_delivered_when_close_times_out_fails_and_is_not_stored() -> None:
    """A record in each place: being committed, uploaded, being uploaded, waiting, lingering."""
    cluster, store = a_held_cluster()
    told: list[str] = []
    producer = Producer(cluster, acks=1, batch_size=0, max_in_flight_requests_per_connection=3)
    producer.send("t", b"first").get(LONG_S)
    store.hold("create")
    committing = producer.send("t", b"committing")
    store.wait_until_reached()
    uploaded = producer.send("t", b"uploaded")
    eventually(lambda: producer._pipelines.get("t")._committer.has_uploaded)
    store.hold("put")  # the create is held on: one gate for both
    uploading = producer.send("t", b"uploading")
    store.wait_until_reached()
    waiting = producer.send("t", b"waiting")
    for future in (committing, uploaded, uploading, waiting):
        name = {committing: "c", uploaded: "u", uploading: "i", waiting: "w"}[future]
        future.add_both(lambda result, name=name: told.append(name))
    producer.close(timeout=0)
    for future in (uploaded, uploading, waiting):
        assert isinstance(future.exception, KafkaTimeoutError)
        assert "closed before" in str(future.exception)
    assert not committing.is_done
    store.let_go()
    assert committing.get(LONG_S).offset == 1  # "the commit that is under way goes on to its end"
    eventually(lambda: not threads_of_producers())
    assert values(cluster) == [b"first", b"committing"]
    assert sorted(told) == ["c", "i", "u", "w"]
    assert_empty(producer)


def test_close_in_a_callback_gives_up_what_comes_after_and_tells_it_in_order() -> None:
    cluster, store = a_held_cluster()
    told: list[object] = []
    producer = Producer(cluster, acks=1, linger_ms=0, max_in_flight_requests_per_connection=1)

    def act(result: object) -> None:
        producer.close()
        told.append("closed")

    store.hold("create")
    producer.send("t", b"0").add_callback(act).add_callback(lambda _: told.append(0))
    store.wait_until_reached()
    later = [producer.send("t", str(number).encode()) for number in (1, 2, 3)]
    for number, future in enumerate(later, 1):
        future.add_errback(lambda error, number=number: told.append(number))
    store.let_go()
    eventually(lambda: not threads_of_producers())
    assert told == ["closed", 0, 1, 2, 3]
    assert all("by a callback" in str(future.exception) for future in later)
    assert values(cluster) == [b"0"]
    assert_empty(producer)


def test_close_with_a_timeout_doesnt_wait_for_a_callback_that_doesnt_end() -> None:
    cluster, go, running = a_topic(), threading.Event(), threading.Event()
    told: list[object] = []

    def stuck(_: object) -> None:
        running.set()
        go.wait(LONG_S)

    producer = Producer(cluster, acks=1, linger_ms=0)
    producer.send("t", b"stored").add_callback(stuck)
    assert running.wait(LONG_S)
    later = producer.send("t", b"given up").add_errback(told.append)
    began = time.monotonic()
    producer.close(timeout=0.05)
    assert time.monotonic() - began < LONG_S / 2
    assert type(later.exception) is KafkaTimeoutError
    assert told == []  # no two callbacks at once
    go.set()
    eventually(lambda: told)
    assert told == [later.exception]
    eventually(lambda: producer._buffer.used_bytes == 0)
    assert_empty(producer)
    assert values(cluster) == [b"stored"]


def test_whoever_waits_for_room_when_the_producer_is_closed_is_told() -> None:
    cluster, store = a_held_cluster()
    producer = Producer(cluster, acks=1, linger_ms=0, buffer_memory=1_000, max_block_ms=LONG_S * 1000)
    store.hold("create")
    producer.send("t", b"v" * 800)
    store.wait_until_reached()
    caught: list[BaseException] = []

    def work() -> None:
        try:
            producer.send("t", b"v" * 800)
        except IllegalStateError as error:
            caught.append(error)

    with in_thread(work):
        eventually(lambda: producer._buffer.waiting_count)
        producer.close(timeout=0)
        eventually(lambda: caught)  # though nothing was delivered
    store.let_go()
    eventually(lambda: not threads_of_producers())
    assert_empty(producer)


def test_close_doesnt_wait_for_a_topic_that_is_being_opened() -> None:
    cluster, store = a_held_cluster()
    producer = Producer(cluster, acks=1)
    store.hold("get")
    caught: list[BaseException] = []

    def work() -> None:
        try:
            producer.send("t", b"v")
        except IllegalStateError as error:
            caught.append(error)

    with in_thread(work):
        store.wait_until_reached()
        producer.close()
        store.let_go()
    assert len(caught) == 1
    eventually(lambda: not threads_of_producers())


def test_a_closed_producer_refuses_everything_but_its_metrics() -> None:
    producer = Producer(a_topic(), acks=1, interceptors=[])
    sent = producer.send("t", b"v")
    producer.close()
    for act in (
        lambda: producer.send("t", b"v"),
        lambda: producer.send("t", b"v", headers=[("a", b"")]),
        lambda: producer.send("never opened", b"v"),
        lambda: producer.send_batch("t", pa.table({"value": [b"v"]})),
        lambda: producer.flush(),
        lambda: producer.partitions_for("t"),
    ):
        with pytest.raises(IllegalStateError, match="closed"):
            act()
    assert sent.get(0).offset == 0
    assert producer.metrics()["producer-metrics"]["record-send-total"] == 1


def test_there_must_be_a_cluster(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="no sparklog cluster"):
        Producer(tmp_path)
    with pytest.raises(InvalidConfigurationError, match="'lingerms'"):
        Producer(tmp_path, lingerms=5)


def test_a_cluster_is_given_as_a_folder_or_uri_too(tmp_path: Path) -> None:
    cluster = open_cluster(tmp_path)
    create_topic(cluster.topic_log("t"), "t")
    for root in (tmp_path, str(tmp_path), tmp_path.as_uri()):
        with Producer(root, linger_ms=0) as producer:
            producer.send("t", b"v").get(LONG_S)
    assert values(cluster) == [b"v"] * 3


@pytest.mark.slow
def test_a_producer_that_is_forgotten_is_told_of() -> None:
    producer = Producer(a_topic(), acks=1, linger_ms=0)
    producer.send("t", b"v").get(LONG_S)
    pipelines = producer._pipelines.all()
    kept = [producer]
    del producer

    def forget() -> None:
        kept.clear()
        gc.collect()

    with pytest.warns(ResourceWarning, match="unclosed producer"):
        forget()
    for pipeline in pipelines:
        pipeline.end_when_delivered(IllegalStateError("the test is over"))
        pipeline.join(SystemClock().deadline_in(LONG_S * 1_000))


@pytest.mark.slow
def test_one_that_was_closed_or_never_used_isnt_told_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        closed, unused = Producer(a_topic(), acks=1), Producer(a_cluster(), acks=1)
        closed.send("t", b"v")
        closed.close()
        del closed, unused
        gc.collect()


def test_a_producer_cant_be_pickled_or_copied() -> None:
    with a_producer(a_cluster()) as producer:
        for act in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="can't be pickled"):
                act(producer)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_is_refused_and_the_parent_goes_on() -> None:
    cluster, store = a_held_cluster()
    with a_producer(cluster) as producer:
        producer.send("t", b"1").get(LONG_S)
        store.hold("create")
        future = producer.send("t", b"2")
        store.wait_until_reached()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads
            child = os.fork()
        if child == 0:
            os._exit(_in_child(producer, future))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        store.let_go()
        assert future.get(LONG_S).offset == 1
    assert values(cluster) == [b"1", b"2"]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_future_of_a_forgotten_producer_ends_in_a_forked_child() -> None:
    """✗ Only producers are told of the fork: the future of one that is gone waits for ever in the child."""
    cluster, _ = a_held_cluster()

    def sent() -> tuple[Any, TopicPipelines]:
        producer = Producer(cluster, transactional_id="x", linger_ms=60_000)
        producer.init_transactions()
        producer.begin_transaction()
        return producer.send("t", b"1"), producer._pipelines

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the producer is forgotten; Python 3.12 warns of forks beside threads
        future, pipelines = sent()
        gc.collect()
        child = os.fork()
    if child == 0:
        try:
            future.get(LONG_S)
        except IllegalStateError as error:
            os._exit("fork" not in str(error))
        except BaseException:
            os._exit(2)
        os._exit(3)
    _, status = os.waitpid(child, 0)
    closed = IllegalStateError("closed")
    pipelines.deliver_and_end(closed, KafkaTimeoutError("closed"), cluster.clock.deadline_in(0))
    assert all(pipeline.join(cluster.clock.deadline_in(LONG_S * 1_000)) for pipeline in pipelines.all())
    assert os.waitstatus_to_exitcode(status) == 0


def _in_child(producer: Producer, future: Any) -> int:
    """How many of these calls weren't refused as they should."""
    wrong = 0
    calls: list[Any] = [
        lambda: producer.send("t", b"v"),
        lambda: producer.send_batch("t", pa.table({"value": [b"v"]})),
        lambda: producer.partitions_for("t"),
        lambda: producer.flush(),
        lambda: producer.metrics(),
        lambda: future.get(),  # nobody in the child will ever keep this promise
    ]
    for call in calls:
        try:
            call()
            wrong += 1
        except IllegalStateError as error:
            wrong += "fork" not in str(error)
        except BaseException:
            wrong += 1
    producer.close()
    return wrong


def test_closing_a_producer_of_several_topics_sends_all_records_first() -> None:
    cluster = a_cluster()
    for topic in ("a", "b", "c"):
        create_topic(cluster.topic_log(topic), topic)
    with Producer(cluster, acks=1, linger_ms=100_000, delivery_timeout_ms=200_000) as producer:
        for number in range(30):
            producer.send("abc"[number % 3], str(number).encode())
    assert [len(rows(cluster, topic)[0]) for topic in ("a", "b", "c")] == [10, 10, 10]
