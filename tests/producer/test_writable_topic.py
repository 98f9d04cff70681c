"""A topic that a producer has open: its settings, its deletion, partitions that are added."""

from __future__ import annotations

import time
from typing import Any

import pytest

from sparklog.errors import (
    InvalidTopicError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import create_partitions, create_topic, delete_topic
from sparklog.producer.partitioner import murmur2
from sparklog.storage import MemoryStore
from tests.producer.support import (
    LONG_S,
    HeldStore,
    a_cluster,
    a_producer,
    a_topic,
    assert_empty,
    eventually,
    rows,
    through,
    values,
)


@pytest.mark.parametrize(
    ("topics", "producers", "stored"),
    [("producer", "zstd", "ZSTD"), ("gzip", "zstd", "GZIP"), ("uncompressed", "zstd", "UNCOMPRESSED")],
)
def test_the_topics_own_compression_wins(topics: str, producers: str, stored: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    store = MemoryStore()
    cluster = a_topic(store, configs={"compression.type": topics})
    with a_producer(cluster, compression_type=producers) as producer:
        producer.send("t", b"v" * 100).get(LONG_S)
    (file,) = (found.path for found in store.list("") if found.path.endswith(".parquet"))
    metadata = pq.ParquetFile(pa.BufferReader(store.read(file))).metadata
    assert {metadata.row_group(0).column(n).compression for n in range(metadata.num_columns)} == {stored}
    assert values(cluster) == [b"v" * 100]


def test_an_unknown_topic_is_refused_and_works_once_it_is_there() -> None:
    cluster = a_cluster()
    with a_producer(cluster) as producer:
        for act in (lambda: producer.send("t", b"v"), lambda: producer.partitions_for("t")):
            with pytest.raises(UnknownTopicOrPartitionError, match=r"'?t'?"):
                act()
        create_topic(cluster.topic_log("t"), "t")
        producer.send("t", b"v").get(LONG_S)


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "ä", "a/b", "x" * 250, 5, None, b"t"])
def test_a_name_that_no_topic_has_is_refused(topic: Any) -> None:
    with a_producer(a_cluster()) as producer, pytest.raises(InvalidTopicError):
        producer.send(topic, b"v")


def test_a_topic_deleted_while_in_use_fails_its_records() -> None:
    cluster = a_topic()
    with a_producer(cluster) as producer:
        producer.send("t", b"before").get(LONG_S)
        delete_topic(cluster.topic_log("t"), "t")
        with pytest.raises(UnknownTopicOrPartitionError, match="deleted"):
            producer.send("t", b"into the void").get(LONG_S)
        with pytest.raises(UnknownTopicOrPartitionError, match="deleted"):
            producer.send("t", b"again")
        producer.flush(LONG_S)
        assert_empty(producer)


def test_a_topic_deleted_and_created_again_is_sent_to_by_the_next_send() -> None:
    cluster = a_topic()
    with a_producer(cluster) as producer:
        producer.send("t", b"old").get(LONG_S)
        delete_topic(cluster.topic_log("t"), "t")
        create_topic(cluster.topic_log("t"), "t", num_partitions=2)
        with pytest.raises(UnknownTopicOrPartitionError, match="deleted"):
            producer.send("t", b"meant for the old one", partition=0).get(LONG_S)
        assert producer.send("t", b"new", partition=1).get(LONG_S).offset == 0
    assert rows(cluster) == {0: [], 1: [(0, None, b"new")]}


def test_partitions_for_notices_a_topic_that_was_created_again() -> None:
    cluster = a_topic(partitions=1)
    with a_producer(cluster) as producer:
        producer.send("t", b"old").get(LONG_S)
        delete_topic(cluster.topic_log("t"), "t")
        create_topic(cluster.topic_log("t"), "t", num_partitions=3)
        assert producer.partitions_for("t") == {0, 1, 2}
        assert producer.send("t", b"new", partition=2).get(LONG_S).offset == 0


def test_records_that_wait_when_their_topic_is_deleted_fail_before_flush_returns() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    store = HeldStore(memory)
    told: list[object] = []

    def tell(error: BaseException) -> None:
        time.sleep(0.01)  # so that who doesn't wait is too early
        told.append(type(error))

    with a_producer(through(store, cluster), max_in_flight_requests_per_connection=1) as producer:
        producer.send("t", b"old").get(LONG_S)
        store.hold("create")
        sent = [producer.send("t", b"1")]
        store.wait_until_reached()
        sent += [producer.send("t", b"2", partition=0), producer.send("t", b"3")]
        for future in sent:
            future.add_errback(tell)
        delete_topic(cluster.topic_log("t"), "t")
        create_topic(cluster.topic_log("t"), "t")
        store.let_go()
        eventually(lambda: sent[0].is_done)
        assert producer.send("t", b"new").get(LONG_S).offset == 0
        producer.flush(LONG_S)
        assert told == [UnknownTopicOrPartitionError] * 3
        assert_empty(producer)
    assert values(cluster) == [b"new"]


def test_new_partitions_are_noticed_when_one_is_chosen_or_asked_for() -> None:
    cluster = a_topic(partitions=1)
    with a_producer(cluster) as producer:
        producer.send("t", b"v").get(LONG_S)
        create_partitions(cluster.topic_log("t"), "t", 2)
        assert producer.send("t", b"v", partition=1).get(LONG_S).offset == 0
        create_partitions(cluster.topic_log("t"), "t", 4)
        assert producer.partitions_for("t") == {0, 1, 2, 3}


def test_new_partitions_are_noticed_by_the_commit_after_they_were_made() -> None:
    cluster = a_topic(partitions=1)
    with a_producer(cluster) as producer:
        producer.send("t", b"v", b"k").get(LONG_S)
        create_partitions(cluster.topic_log("t"), "t", 50)
        producer.send("t", b"v", b"k").get(LONG_S)  # may still go by the old number
        assert producer.send("t", b"v", b"k").get(LONG_S).partition == (murmur2(b"k") & 0x7FFFFFFF) % 50
