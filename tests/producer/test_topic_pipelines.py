"""The topics of one producer: opened by several threads at once, sent to at once, closed meanwhile."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sparklog.errors import (
    IllegalStateError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import create_topic
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, WrappedStore
from tests.producer.support import (
    LONG_S,
    a_cluster,
    a_producer,
    a_topic,
    assert_empty,
    rows,
    values,
)

THREADS = 8


class Meeting(WrappedStore):
    """Listings wait until so many of them are under way at once."""

    def __init__(self, store: MemoryStore, count: int) -> None:
        super().__init__(store)
        self.barrier = threading.Barrier(count)

    def _call(self, op: str, path: str, call: Callable[[], Any]) -> Any:
        if op == "list":
            self.barrier.wait(LONG_S)
        return call()


def test_threads_that_send_to_different_topics_open_them_side_by_side():
    memory = MemoryStore()
    topics = [f"t{number}" for number in range(THREADS)]
    for topic in topics:
        create_topic(a_cluster(memory).topic_log(topic), topic)
    cluster = a_cluster(Meeting(memory, THREADS))
    with a_producer(cluster) as producer, ThreadPoolExecutor(THREADS) as threads:
        sent = list(threads.map(lambda topic: producer.send(topic, topic.encode()), topics))
        assert [future.get(LONG_S).topic for future in sent] == topics


def test_threads_that_send_to_one_topic_open_it_once():
    memory = MemoryStore()
    a_topic(memory)
    store = CountingStore(memory)
    with a_producer(a_cluster(store)) as producer, ThreadPoolExecutor(THREADS) as threads:
        store.reset()
        for future in threads.map(lambda number: producer.send("t", b"%d" % number), range(THREADS)):
            future.get(LONG_S)
        assert store.counts()["list"] == 1
    assert len(values(a_cluster(memory))) == THREADS


def test_a_topic_that_is_not_there_is_nobody_elses_error():
    memory = MemoryStore()
    a_topic(memory)
    with a_producer(a_cluster(memory)) as producer, ThreadPoolExecutor(THREADS) as threads:
        unknown = [threads.submit(producer.send, "nosuch", b"v") for _ in range(THREADS)]
        producer.send("t", b"v").get(LONG_S)
        for future in unknown:
            with pytest.raises(UnknownTopicOrPartitionError):
                future.result(LONG_S)
        assert not producer._pipelines._opening


def test_a_producer_that_is_closed_while_topics_are_being_opened_ends_their_threads():
    memory = MemoryStore()
    topics = [f"t{number}" for number in range(THREADS)]
    for topic in topics:
        create_topic(a_cluster(memory).topic_log(topic), topic)
    store = Meeting(memory, THREADS + 1)
    with ThreadPoolExecutor(THREADS) as threads:
        with a_producer(a_cluster(store)) as producer:
            sent = [threads.submit(producer.send, topic, b"v") for topic in topics]
            while store.barrier.n_waiting < THREADS:
                pass
        store.barrier.wait(LONG_S)
        for future in sent:
            with pytest.raises(IllegalStateError, match="closed"):
                future.result(LONG_S)
    ending = [
        thread for thread in threading.enumerate() if thread.name.startswith(("sparklog-send", "sparklog-commit"))
    ]
    for thread in ending:
        thread.join(LONG_S)
    assert not any(thread.is_alive() for thread in ending)


@pytest.mark.parametrize("settings", [{}, {"max_in_flight_requests_per_connection": 1}, {"batch_size": 0}])
def test_eight_threads_send_at_once_and_each_ones_order_is_kept(settings: dict[str, Any]) -> None:
    threads, count, keys = 8, 300, 5
    cluster = a_topic(partitions=3)
    start = threading.Barrier(threads)
    with a_producer(cluster, **settings) as producer:

        def work(name: int) -> None:
            start.wait()
            for number in range(count):
                producer.send("t", f"{name}-{number}".encode(), f"{name}-{number % keys}".encode())

        workers = [threading.Thread(target=work, args=(name,)) for name in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        producer.flush(LONG_S)
        assert_empty(producer)
    by_key: dict[bytes | None, list[bytes | None]] = {}
    for stored in rows(cluster).values():
        for _, key, value in stored:
            by_key.setdefault(key, []).append(value)
    assert by_key == {
        f"{name}-{key}".encode(): [f"{name}-{number}".encode() for number in range(key, count, keys)]
        for name in range(threads)
        for key in range(keys)
    }


@pytest.mark.slow
def test_many_topics_are_sent_to_by_one_producer() -> None:
    cluster = a_cluster()
    topics = [f"t{number}" for number in range(20)]
    for topic in topics:
        create_topic(cluster.topic_log(topic), topic)
    with a_producer(cluster) as producer:
        order = topics * 5
        random.Random(3).shuffle(order)
        for number, topic in enumerate(order):
            producer.send(topic, str(number).encode())
        producer.flush(LONG_S)
        assert_empty(producer)
    for topic in topics:
        assert values(cluster, topic) == [str(number).encode() for number, one in enumerate(order) if one == topic]
