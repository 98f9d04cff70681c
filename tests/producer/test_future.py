"""Futures and callbacks: what they are given, in which order, and what a failing one does."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

import pytest

from sparklog.errors import IllegalStateError, InvalidTimestampError, KafkaTimeoutError
from sparklog.producer import Producer
from sparklog.storage import MemoryStore
from tests.producer.support import (
    FAR_FUTURE_MS,
    LONG_S,
    HeldStore,
    Interceptor,
    a_producer,
    a_topic,
    assert_empty,
    in_thread,
    through,
    values,
)


def a_held_cluster(*, partitions: int = 1) -> tuple[Any, HeldStore]:
    memory = MemoryStore()
    cluster = a_topic(memory, partitions=partitions)
    store = HeldStore(memory)
    return through(store, cluster), store


def test_a_future_that_isnt_done_says_so_and_get_ends_in_time() -> None:
    cluster, store = a_held_cluster()
    with a_producer(cluster) as producer:
        store.hold("create")
        future = producer.send("t", b"v")
        store.wait_until_reached()
        assert (future.is_done, future.succeeded(), future.failed(), future.retriable()) == (False,) * 4
        assert future.value is None
        assert future.exception is None
        for timeout in (0, 0.001, -1):
            with pytest.raises(KafkaTimeoutError, match="'t' is not acknowledged after"):
                future.get(timeout)
        store.let_go()
        for unbounded in (LONG_S, sys.float_info.max, float("inf"), threading.TIMEOUT_MAX, None):
            assert future.get(unbounded).offset == 0


def test_a_failed_future_tells_its_error_to_everybody_who_asks() -> None:
    with a_producer(a_topic()) as producer:
        future = producer.send("t", b"v", timestamp_ms=FAR_FUTURE_MS)
        for _ in range(3):
            with pytest.raises(InvalidTimestampError) as caught:
                future.get(LONG_S)
            assert caught.value is future.exception
        depth = len(caught.traceback)
        with pytest.raises(InvalidTimestampError) as again:
            future.get(LONG_S)
        assert len(again.traceback) == depth  # doesn't grow by being raised
        assert (future.is_done, future.succeeded(), future.failed(), future.retriable()) == (True, False, True, False)
        assert future.value is None


def test_callbacks_and_errbacks_are_called_in_the_order_of_sending_one_at_a_time() -> None:
    cluster, store = a_held_cluster(partitions=2)
    told: list[tuple[int, bool]] = []
    busy = threading.Lock()
    threads = set()

    def tell(number: int, result: object) -> None:
        assert busy.acquire(blocking=False)
        told.append((number, isinstance(result, InvalidTimestampError)))
        threads.add(threading.current_thread())
        busy.release()

    with a_producer(cluster, max_in_flight_requests_per_connection=2, batch_size=0) as producer:
        store.hold("create")
        for number in range(60):
            late = number % 7 == 0
            future = producer.send("t", b"v", partition=number % 2, timestamp_ms=FAR_FUTURE_MS if late else None)
            assert future.add_both(tell, number) is future
        store.let_go()
        producer.flush(LONG_S)
    assert told == [(number, number % 7 == 0) for number in range(60)]
    assert len(threads) == 1
    assert threading.current_thread() not in threads


def test_a_callback_gets_its_own_arguments_and_the_result_between_them() -> None:
    told: list[object] = []
    cluster, store = a_held_cluster()
    with a_producer(cluster) as producer:
        store.hold("create")
        future = producer.send("t", b"v")
        future.add_callback(lambda *given, **named: told.append((given, named)), 1, 2, three=3)
        future.add_errback(lambda error: told.append(error))
        store.let_go()
        producer.flush(LONG_S)
        assert told == [((1, 2, future.value), {"three": 3})]


def test_a_callback_that_comes_late_is_called_at_once() -> None:
    told: list[object] = []
    with a_producer(a_topic()) as producer:
        future = producer.send("t", b"v")
        result = future.get(LONG_S)
        producer.flush(LONG_S)
        future.add_callback(told.append).add_errback(told.append)
        assert told == [result]
        failed = producer.send("t", b"v", timestamp_ms=FAR_FUTURE_MS)
        producer.flush(LONG_S)
        failed.add_callback(told.append).add_errback(told.append)
        assert told == [result, failed.exception]


@pytest.mark.parametrize(
    "error", [ValueError("mine"), SystemExit(1), KeyboardInterrupt()], ids=lambda e: type(e).__name__
)
def test_a_callback_that_raises_is_logged_and_harms_nobody(error: BaseException, caplog: Any) -> None:
    def bad(result: object) -> None:
        raise error

    told: list[object] = []
    cluster, store = a_held_cluster()
    with a_producer(cluster) as producer:
        store.hold("create")
        future = producer.send("t", b"1").add_callback(bad).add_callback(told.append)
        other = producer.send("t", b"2").add_callback(bad)
        store.let_go()
        producer.flush(LONG_S)
        assert told == [future.value]
        assert other.succeeded()
        assert producer.send("t", b"3").get(LONG_S).offset == 2
        assert_empty(producer)
    assert caplog.text.count("a callback of a producer failed") == 2
    assert type(error).__name__ in caplog.text


def test_a_callback_may_send_and_ask_but_not_flush() -> None:
    cluster, store = a_held_cluster()
    told: list[object] = []
    with a_producer(cluster) as producer:

        def act(result: object) -> None:
            producer.send("t", b"by the callback").add_callback(told.append)
            told.append(producer.partitions_for("t"))
            told.append(producer.metrics()["producer-metrics"]["record-error-total"])
            with pytest.raises(IllegalStateError, match="flush was called by a callback"):
                producer.flush()
            told.append("refused")

        store.hold("create")
        producer.send("t", b"1").add_callback(act)
        store.let_go()
        producer.flush(LONG_S)
        producer.flush(LONG_S)
        assert told[:3] == [{0}, 0.0, "refused"]
        assert len(told) == 4
    assert values(cluster) == [b"1", b"by the callback"]


def test_a_callback_may_wait_for_another_record_of_its_commit() -> None:
    cluster = a_topic()
    told: list[object] = []
    with a_producer(cluster, batch_size=1_000_000, linger_ms=20) as producer:
        later: list[Any] = []
        producer.send("t", b"1").add_callback(lambda _: told.append(later[0].get(LONG_S).offset))
        later.append(producer.send("t", b"2"))
        producer.flush(LONG_S)
    assert told == [1]


def test_with_acks_0_the_future_is_done_at_once_and_tells_no_offset() -> None:
    cluster, store = a_held_cluster()
    told: list[object] = []
    with a_producer(cluster, acks=0) as producer:
        store.hold("create")
        future = producer.send("t", b"v", b"key", headers=[("a", b"1")], timestamp_ms=5)
        future.add_callback(told.append)
        assert told == [future.get(0)]
        result = future.get(0)
        assert (result.topic, result.partition, result.offset, result.timestamp) == ("t", -1, -1, 5)
        assert result[-3:] == (3, 1, 2)
        store.let_go()
        producer.flush(LONG_S)
        assert_empty(producer)
    assert values(cluster) == [b"v"]


def test_with_acks_0_failures_are_counted_and_logged_alone(caplog: Any) -> None:
    cluster = a_topic()
    log: list[object] = []
    with a_producer(cluster, acks=0, interceptors=[Interceptor(log)], value_serializer=str.encode) as producer:
        future = producer.send("t", "x", timestamp_ms=FAR_FUTURE_MS)
        producer.flush(LONG_S)
        assert future.succeeded()
        metrics = producer.metrics()
        assert metrics["producer-metrics"]["record-error-total"] == 1
        assert metrics["producer-topic-metrics.t"]["record-error-total"] == 1
    assert ("ack", "", None, InvalidTimestampError) in log
    assert "1 records of topic t with acks=0 were refused" in caplog.text


def test_what_was_given_in_a_batch_of_many_failures_is_counted_once(caplog: Any) -> None:
    caplog.set_level(logging.CRITICAL)
    with a_producer(a_topic(), linger_ms=20) as producer:
        for number in range(10):
            producer.send("t", b"v", timestamp_ms=FAR_FUTURE_MS if number < 4 else None)
        producer.flush(LONG_S)
        metrics = producer.metrics()["producer-topic-metrics.t"]
        assert (metrics["record-error-total"], metrics["record-send-total"]) == (4, 6)


def test_futures_are_waited_for_by_several_threads() -> None:
    cluster, store = a_held_cluster()
    with a_producer(cluster) as producer:
        store.hold("create")
        future = producer.send("t", b"v")
        found: list[int] = []
        with (
            in_thread(lambda: found.append(future.get(LONG_S).offset)),
            in_thread(lambda: found.append(future.get(LONG_S).offset)),
        ):
            store.wait_until_reached()
            store.let_go()
        assert found == [0, 0]


def test_a_producer_is_given_to_nobody_by_its_futures() -> None:
    """So that one which is forgotten can be told of."""
    cluster = a_topic()
    producer = Producer(cluster, acks=1, linger_ms=0)
    future = producer.send("t", b"v")
    future.get(LONG_S)
    assert not any(isinstance(getattr(future, name), Producer) for name in ("_batch", "_index"))
    producer.close()
