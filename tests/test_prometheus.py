"""Metrics of clients in their own process: names, labels, several clients, and when they are forgotten."""

from __future__ import annotations

import asyncio
import gc
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sparklog import Consumer, Producer, ShareConsumer, aio
from sparklog.errors import InvalidTypeError
from sparklog.log import Cluster
from sparklog.prometheus import collect, forget
from tests.producer.support import LONG_S, a_topic

SENT, READ = "kafka_producer_topic_record_send_total", "kafka_consumer_fetch_manager_records_consumed_total"


def scraped(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """By name and labels, as Prometheus' own parser reads them; no two alike."""
    families = text_string_to_metric_families(generate_latest(registry).decode())
    samples = [sample for family in families for sample in family.samples]
    found = {(one.name, *one.labels.values()): one.value for one in samples}
    assert len(found) == len(samples)
    return found


def send(producer: Producer, count: int) -> None:
    for _ in range(count):
        producer.send("t", b"v")
    producer.flush(LONG_S)


def read(consumer: Consumer, count: int) -> None:
    while count > 0:
        count -= sum(map(len, consumer.poll(LONG_S * 1_000).values()))


@pytest.fixture
def cluster() -> Cluster:
    return a_topic()


def test_clients_are_shown_under_names_that_dashboards_know(cluster: Cluster) -> None:
    registry = CollectorRegistry()
    with (
        Producer(cluster, client_id="orders") as producer,
        Consumer("t", cluster=cluster, client_id="billing", auto_offset_reset="earliest") as consumer,
    ):
        collect(producer, consumer, registry=registry)
        collect(producer, registry=registry)
        send(producer, 3)
        read(consumer, 3)
        found = scraped(registry)
    # Source: Micrometer KafkaMetrics: "kafka." + the group without "-metrics" + the name
    assert found["kafka_producer_record_send_total", "orders"] == 3
    assert found[SENT, "orders", "t"] == 3
    assert found["kafka_consumer_fetch_manager_records_lag", "billing", "0", "t"] == 0
    assert found[READ, "billing", "t"] == 3
    assert (READ, "billing") not in found  # a sum would count it twice
    assert found["kafka_consumer_coordinator_assigned_partitions", "billing"] == 1
    assert ("kafka_consumer_coordinator_commit_latency_avg", "billing") not in found  # of nothing


def test_requests_commits_and_races_are_shown_of_each_client(cluster: Cluster) -> None:
    registry = CollectorRegistry()
    with Producer(cluster, client_id="a") as producer, Consumer("t", cluster=cluster, client_id="a") as consumer:
        collect(producer, consumer, registry=registry)
        send(producer, 3)
        found = scraped(registry)
        families = {family.name: family for family in registry.collect()}
    assert found["sparklog_producer_commits_total", "producer", "a"] >= 1
    assert found["sparklog_producer_flushes_total", "producer", "a"] == 1
    for kind in ("producer", "consumer"):
        assert found["sparklog_store_requests_total", kind, "a", "create"] >= 1
        assert found["sparklog_store_races_lost_total", kind, "a"] == 0
    assert families["sparklog_store_bytes"].type == "counter"
    assert families["sparklog_store_bytes"].documentation == "sparklog-store-metrics, bytes-total."
    assert families["sparklog_producer_commit_seconds_max"].type == "gauge"


def test_share_consumers_are_shown_beside_consumers(cluster: Cluster) -> None:
    registry = CollectorRegistry()
    settings: dict[str, Any] = {"group_id": "g", "client_id": "billing", "share_auto_offset_reset": "earliest"}
    with Producer(cluster) as producer, ShareConsumer("t", cluster=cluster, **settings) as consumer:
        collect(consumer, registry=registry)
        send(producer, 3)
        assert consumer.poll(LONG_S * 1_000)
        found = scraped(registry)
    assert found["kafka_consumer_share_fetch_manager_records_consumed_total", "billing"] == 3
    assert found["kafka_consumer_share_coordinator_heartbeat_total", "billing"] >= 1
    assert scraped(registry) == {}


def test_a_total_is_a_counter_and_all_else_a_gauge(cluster: Cluster) -> None:
    registry = CollectorRegistry()
    with Producer(cluster) as producer:
        collect(producer, registry=registry)
        send(producer, 1)
        families = {family.name: family.type for family in registry.collect()}
    assert families["kafka_producer_record_send"] == "counter"
    assert families["kafka_producer_record_send_rate"] == "gauge"
    assert {kind for name, kind in families.items() if not name.endswith(("_avg", "_max", "_rate"))} == {
        "counter",
        "gauge",
    }


def test_clients_of_one_name_are_told_apart(cluster: Cluster) -> None:
    registry = CollectorRegistry()
    with (
        Producer(cluster, client_id="a") as one,
        Producer(cluster, client_id="a") as other,
        Consumer(cluster=cluster, client_id="a") as consumer,
        Producer(cluster) as nameless,
    ):
        collect(one, other, consumer, registry=registry)
        collect(nameless, registry=registry)
        found = scraped(registry)
    name = "kafka_producer_record_send_total"
    assert [labels for each, *labels in found if each == name] == [["a"], ["a-2"], ["producer-3"]]
    assert ("kafka_consumer_coordinator_commit_total", "a") in found


def test_what_is_closed_or_gone_is_forgotten(cluster: Cluster) -> None:
    registry = CollectorRegistry()
    producer, consumer = Producer(cluster), Consumer(cluster=cluster)
    collect(producer, consumer, registry=registry)
    consumer.close()
    assert {name.split("_")[1] for name, *_ in scraped(registry) if name.startswith("kafka_")} == {"producer"}
    assert {labels[0] for name, *labels in scraped(registry) if name.startswith("sparklog_")} == {"producer"}
    producer.close()
    assert scraped(registry) == {}
    assert registry._collector_to_names == {}
    forgotten = Consumer(cluster=cluster)
    collect(forgotten, registry=registry)
    del forgotten
    gc.collect()
    assert scraped(registry) == {}


def test_one_can_be_forgotten_before_it_is_closed(cluster: Cluster) -> None:
    registry = CollectorRegistry()
    with Producer(cluster) as producer, Producer(cluster) as other:
        forget(producer, registry=registry)
        collect(producer, registry=registry)
        forget(other, producer, registry=registry)
        assert registry._collector_to_names == {}
        collect(producer, registry=registry)
        assert scraped(registry)


def test_what_is_no_client_is_refused(cluster: Cluster) -> None:
    registry = CollectorRegistry()
    with Producer(cluster) as producer, pytest.raises(InvalidTypeError, match="got str, expected producers"):
        collect(producer, "t", registry=registry)
    assert scraped(registry) == {}


def test_the_page_has_every_name_of_a_client(cluster: Cluster) -> None:
    page = (Path(__file__).parent.parent / "docs" / "monitoring.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z-]+-metrics(?:\.[A-Z-]+)?)` \| (.*) \|$", page, re.MULTILINE))
    with (
        Producer(cluster) as producer,
        Consumer("t", cluster=cluster, auto_offset_reset="earliest") as consumer,
        ShareConsumer("t", cluster=cluster, group_id="g") as sharing,
    ):
        send(producer, 1)
        read(consumer, 1)
        groups = [group for client in (producer, consumer, sharing) for group in client._client_metrics().groups]
    told = {key: set(spelled_out(names)) for key, names in rows.items()}
    assert told == {
        group.name + "." * bool(group.labels) + "-".join(map(str.upper, group.labels)): {*group.values}
        for group in groups
    }


def spelled_out(names: str) -> list[str]:
    """``record-send-rate``, ``-total`` as two whole names."""
    full: list[str] = []
    for name in re.findall("`([a-z-]+)`", names):
        full.append(re.sub("(-avg|-rate|-total|-max|)$", name, full[-1], count=1) if name.startswith("-") else name)
    return full


def test_clients_for_asyncio_are_shown_once_they_are_started(cluster: Cluster) -> None:
    registry = CollectorRegistry()

    async def use() -> dict[tuple[str, ...], float]:
        producer = aio.Producer(cluster, client_id="orders")
        collect(producer, registry=registry)
        assert scraped(registry) == {}
        async with producer:
            await producer.send_and_wait("t", b"v")
            await producer.flush()
            return await asyncio.to_thread(scraped, registry)

    assert asyncio.run(use())[SENT, "orders", "t"] == 1
    assert scraped(registry) == {}
