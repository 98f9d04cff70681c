"""The data file of a group's offset table is gone: an error of its members, as for a topic's."""

from __future__ import annotations

from typing import Any

import pytest

from sparklog import Consumer, Producer
from sparklog.errors import ObjectNotFoundError
from sparklog.log import Cluster, create_topic, open_cluster
from sparklog.model import TopicPartition
from sparklog.storage import MemoryStore

SETTINGS: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "heartbeat_interval_ms": 50,
}


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def cluster(memory: MemoryStore) -> Cluster:
    cluster = open_cluster(memory)
    create_topic(cluster.topic_log("t"), "t")
    with Producer(cluster, linger_ms=0) as producer:
        producer.send("t", value=b"x").get(10)
    with Consumer("t", cluster=cluster, **SETTINGS) as consumer:
        while not consumer.poll(timeout_ms=1_000):
            pass
        consumer.commit()
    return cluster


def lose_offset_files(memory: MemoryStore) -> None:
    gone = [row.path for row in memory.list("groups/g/offsets/") if row.path.endswith(".parquet")]
    assert gone
    memory.delete(gone)


def poll_until_told(consumer: Consumer) -> None:
    for _ in range(50):
        consumer.poll(timeout_ms=200)


def test_a_new_member_is_told(cluster, memory):
    lose_offset_files(memory)
    with (
        Consumer("t", cluster=cluster, **SETTINGS) as consumer,
        pytest.raises(ObjectNotFoundError, match=r"the newest version.s data file .* was gone"),
    ):
        poll_until_told(consumer)


def test_whoever_asks_for_committed_offsets_is_told(cluster, memory):
    lose_offset_files(memory)
    with (
        Consumer(cluster=cluster, **SETTINGS) as consumer,
        pytest.raises(ObjectNotFoundError, match="was gone"),
    ):
        consumer.committed(TopicPartition("t", 0))
