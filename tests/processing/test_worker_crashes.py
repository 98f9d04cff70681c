"""A worker is killed at each of its store calls; the next one goes on: each record has exactly one outcome."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from sparklog import Producer
from sparklog.errors import SparklogError
from sparklog.log import Cluster
from sparklog.processing import App, Fixed, Record, Retry, Send
from sparklog.storage import MemoryStore
from sparklog.testing import Call, Fault, FaultKind, FaultyStore, SimulatedCrash
from tests.consumer.support import a_cluster
from tests.depth import each_nth
from tests.processing.support import FAST, a_world, an_app, committed, records, send, texts, wait_for

GOOD = [f"{number % 3}:{number}" for number in range(12)]
TOPICS = ("in", "out", "dlq.in", "in-retry-1ms")
MOST_WRITES = 60
"""More than an undisturbed worker makes; beyond its last it isn't killed."""

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # clients that died unclosed
]


def a_worker(cluster: Cluster, **settings: Any) -> App:
    consumer = {**FAST, "group_instance_id": "w"}  # the next one needn't wait for the end of the first one's session
    app = an_app(cluster, consumer=consumer, patience_s=5, drain_timeout_s=0.2, **settings)

    @app.subscriber(
        "in",
        retry=Retry(attempts=2, backoff=Fixed(0.001), topics=True),
        dead_letter=True,
        concurrency=2,
        order_by="key",
    )
    def handle(record: Record[str]) -> Send:
        if record.value == "bad":
            raise ValueError(f"try {record.attempt}")
        return Send("out", record.value, key=record.key)

    return app


def is_write(call: Call) -> bool:
    return call.op in ("put", "create", "delete")


def is_done(cluster: Cluster) -> bool:
    return committed(cluster, "in") == len(GOOD) + 2 and committed(cluster, "in-retry-1ms") == 1


def has_ended(faulty: FaultyStore, cluster: Cluster) -> bool:
    return faulty.crashed or is_done(cluster)


def is_all_there(cluster: Cluster) -> bool:
    return Counter(texts(cluster, "out")) == Counter(GOOD) and len(records(cluster, "dlq.in")) == 2


def is_done_and_published(cluster: Cluster) -> bool:
    return is_done(cluster) and is_all_there(cluster)


def check(cluster: Cluster) -> None:
    assert Counter(texts(cluster, "out")) == Counter(GOOD)
    assert sorted(record.value for record in records(cluster, "dlq.in")) == [b"bad", b"\xff"]
    assert texts(cluster, "in-retry-1ms") == ["bad"]


def a_filled_world(store: MemoryStore) -> Cluster:
    cluster = a_world(*TOPICS, partitions=2, store=store)
    send(cluster, "in", [*GOOD[:6], "bad", *GOOD[6:]], keyed=True)
    with Producer(cluster) as producer:
        producer.send("in", b"\xff", key=b"1")  # no text
    return cluster


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER])
def test_killed_at_any_write(kind):
    for number in each_nth(range(MOST_WRITES), 12):
        store = MemoryStore()
        cluster = a_filled_world(store)
        faulty = FaultyStore(store, Fault(kind=kind, when=is_write, skip=number))
        first = a_worker(a_cluster(faulty, retry_ms=1_000))
        first.start()
        wait_for(partial(has_ended, faulty, cluster))
        with suppress(SimulatedCrash, SparklogError):  # whatever it ended with: it is dead
            first.stop()
        second = a_worker(cluster)
        second.start()
        # Offsets of a transaction that the first had decided count at once; the second worker's consumer publishes its
        # records a moment later, and may not end before.
        wait_for(partial(is_done_and_published, cluster), second)
        second.stop()
        check(cluster)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.THROTTLED])
def test_bad_days_of_the_store(kind):
    for seed in each_nth(range(8), 4):
        store = MemoryStore()
        cluster = a_filled_world(store)
        faulty = FaultyStore(store, Fault(kind=kind, when=is_write, chance=0.1, times=None), seed=seed)
        app = a_worker(a_cluster(faulty, retry_ms=1_000))
        app.start()
        wait_for(partial(is_done, cluster), app)
        app.stop()
        check(cluster)
