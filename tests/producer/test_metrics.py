"""A producer's metrics, after known traffic."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.log import create_topic
from sparklog.producer.record_memory import RECORD_OVERHEAD_BYTES
from sparklog.storage import MemoryStore
from sparklog.storage.request_counts import KINDS
from sparklog.testing import CountingStore, ManualClock
from tests.producer.support import LONG_S, RemoteStore, a_producer, a_topic, through

# Source: Kafka SenderMetricsRegistry, BufferPool, KafkaProducerMetrics
NAMES = {
    "batch-size-avg",
    "batch-size-max",
    "buffer-available-bytes",
    "buffer-exhausted-total",
    "buffer-total-bytes",
    "bufferpool-wait-time-ns-total",
    "compression-rate-avg",
    "flush-time-ns-total",
    "outgoing-byte-rate",
    "outgoing-byte-total",
    "record-error-rate",
    "record-error-total",
    "record-queue-time-avg",
    "record-queue-time-max",
    "record-send-rate",
    "record-send-total",
    "record-size-avg",
    "record-size-max",
    "records-per-request-avg",
    "request-latency-avg",
    "request-latency-max",
    "request-rate",
    "request-size-avg",
    "request-total",
    "requests-in-flight",
    "txn-abort-time-ns-total",
    "txn-begin-time-ns-total",
    "txn-commit-time-ns-total",
    "txn-init-time-ns-total",
    "txn-send-offsets-time-ns-total",
    "waiting-threads",
}
OF_A_TOPIC = {
    "byte-rate",
    "byte-total",
    "record-error-rate",
    "record-error-total",
    "record-send-rate",
    "record-send-total",
}
OURS = {
    "sparklog-producer-metrics",
    "sparklog-store-metrics",
    *(f"sparklog-store-metrics.{kind}" for kind in KINDS),
}
"""Of what Kafka has nothing."""


def test_names_and_groups_are_kafkas_but_for_the_stores() -> None:
    with a_producer(a_topic()) as producer:
        assert set(producer.metrics()) == {"producer-metrics", *OURS}
        producer.partitions_for("t")
        found = producer.metrics()
        assert set(found) == {"producer-metrics", "producer-topic-metrics.t", *OURS}
        assert set(found["producer-metrics"]) == NAMES
        assert set(found["producer-topic-metrics.t"]) == OF_A_TOPIC
        assert all(isinstance(value, float) for group in found.values() for value in group.values())


def test_before_anything_is_sent_means_are_unknown_and_totals_0() -> None:
    with a_producer(a_topic(), buffer_memory=12_345) as producer:
        found = producer.metrics()["producer-metrics"]
    for name, value in found.items():
        if name in ("buffer-total-bytes", "buffer-available-bytes"):
            assert value == 12_345
        elif name.endswith(("-avg", "-max")):
            assert math.isnan(value)
        else:
            assert value == 0


@pytest.mark.parametrize(
    ("is_remote", "given", "expected"),
    [(False, {}, 2**25), (True, {}, 2**27), (True, {"buffer_memory": 2**25}, 2**25), (False, {"buffer_memory": 9}, 9)],
)
def test_the_buffer_is_as_large_as_given_or_as_the_store_needs(
    is_remote: bool, given: dict[str, int], expected: int
) -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    with a_producer(through(RemoteStore(memory), cluster) if is_remote else cluster, **given) as producer:
        found = producer.metrics()["producer-metrics"]
        assert found["buffer-total-bytes"] == found["buffer-available-bytes"] == expected
        producer.send("t", b"v").get(LONG_S)


def test_a_topic_that_isnt_there_leaves_no_metrics() -> None:
    with a_producer(a_topic()) as producer:
        with pytest.raises(UnknownTopicOrPartitionError):
            producer.send("nosuch", b"v")
        assert not [group for group in producer.metrics() if "nosuch" in group]


def test_known_traffic_is_counted() -> None:
    clock = ManualClock()
    cluster = a_topic(clock=clock)
    create_topic(cluster.topic_log("u"), "u")
    with a_producer(cluster) as producer:
        for _ in range(3):
            producer.send("t", b"v" * 88).get(LONG_S)
        producer.send("u", b"late", timestamp_ms=2**60)
        producer.flush(LONG_S)
        producer.send_batch("u", pa.table({"value": [b"v"] * 5})).get(LONG_S)
        producer.flush(LONG_S)
        found = producer.metrics()
    of_all, of_t, of_u = found["producer-metrics"], found["producer-topic-metrics.t"], found["producer-topic-metrics.u"]
    assert of_t["record-send-total"] == 3
    assert of_t["byte-total"] == 3 * (88 + RECORD_OVERHEAD_BYTES)
    assert of_t["record-send-rate"] == pytest.approx(3 / 30)  # Source: Kafka Rate.windowSize: at least one whole window
    assert of_t["record-error-total"] == 0
    assert (of_u["record-send-total"], of_u["record-error-total"]) == (5, 1)
    assert (of_all["record-send-total"], of_all["record-error-total"]) == (8, 1)
    assert of_all["record-error-rate"] == pytest.approx(1 / 30)
    assert of_all["request-total"] == 4  # nothing is left to commit of a record that is refused
    assert of_all["record-size-max"] == 88 + RECORD_OVERHEAD_BYTES
    assert of_all["records-per-request-avg"] == (3 + 1 + 5) / 5
    assert of_all["outgoing-byte-total"] > 0
    assert of_all["buffer-available-bytes"] == of_all["buffer-total-bytes"]
    assert of_all["request-latency-avg"] == of_all["request-latency-max"] == 0  # the clock stood still


def test_calls_of_transactions_are_counted() -> None:
    with a_producer(a_topic(), transactional_id="tx") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v")
        producer.commit_transaction()
        found = producer.metrics()["producer-metrics"]
    assert (found["record-send-total"], found["record-error-total"]) == (1, 0)
    for call in ("init", "commit"):
        assert found[f"txn-{call}-time-ns-total"] > 0
    assert found["txn-abort-time-ns-total"] == 0


def test_commits_flushes_and_requests_are_counted() -> None:
    counting = CountingStore(MemoryStore())
    cluster = a_topic(counting)
    with a_producer(cluster) as producer:
        counting.reset()
        before = producer.metrics()
        for _ in range(2):
            producer.send("t", b"v").get(LONG_S)
        producer.flush(LONG_S)
        found, asked = producer.metrics(), counting.counts()
    ours = found["sparklog-producer-metrics"]
    assert (ours["commits-total"], ours["flushes-total"]) == (2, 1)
    assert ours["commit-seconds-total"] >= ours["commit-seconds-max"] >= 0
    assert ours["flush-seconds-total"] == ours["flush-seconds-max"] >= 0
    for kind in ("get", "put", "create", "list"):
        group = f"sparklog-store-metrics.{kind}"
        assert found[group]["requests-total"] - before[group]["requests-total"] == asked.get(kind, 0)
    assert found["sparklog-store-metrics"]["races-lost-total"] == before["sparklog-store-metrics"]["races-lost-total"]


def test_a_race_that_a_producer_lost_is_counted() -> None:
    cluster = a_topic()
    with a_producer(cluster) as one, a_producer(cluster) as other:
        for producer in (one, other, one):  # the second time, one doesn't know of the other's commit
            producer.send("t", b"v").get(LONG_S)
        lost = one.metrics()["sparklog-store-metrics"]["races-lost-total"]
    assert lost >= 1
