"""A database with an outbox, and what a relay has sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from sparklog import Admin, Consumer, NewTopic, TopicPartition
from sparklog.log.cluster import Cluster, open_cluster
from sparklog.outbox import create_table, send
from sparklog.storage import MemoryStore

ORDERS = "outbox.event.order"


def a_cluster(*topics: str, store: Any = None) -> Cluster:
    cluster = open_cluster(MemoryStore() if store is None else store)
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=2) for topic in topics or (ORDERS,)])
    return cluster


@contextmanager
def an_engine(url: str) -> Iterator[sa.Engine]:
    """With a new, empty outbox table."""
    engine = sa.create_engine(url)
    metadata = sa.MetaData()
    metadata.reflect(engine)
    metadata.drop_all(engine)
    create_table(engine)
    try:
        yield engine
    finally:
        engine.dispose()


def write(engine: sa.Engine, *numbers: int, topic: str = ORDERS, keys: int = 3) -> None:
    """Rows whose values are these numbers, in one transaction."""
    with engine.begin() as connection:
        for number in numbers:
            send(connection, topic, str(number), f"k{number % keys}", type="Placed")


def records_of(cluster: Any, topic: str = ORDERS) -> list[Any]:
    """All records of a topic, by partition and offset."""
    with Consumer(cluster=cluster, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        found: list[Any] = []
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for records in consumer.poll(timeout_ms=1_000).values():
                found += records
    return sorted(found, key=lambda record: (record.partition, record.offset))


def values_of(cluster: Any, topic: str = ORDERS) -> list[int]:
    return [int(record.value) for record in records_of(cluster, topic)]


def rows_left(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(sa.text("SELECT count(*) FROM outbox WHERE published_at IS NULL")).scalar() or 0)
