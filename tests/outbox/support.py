"""A database with an outbox, and what a relay has sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
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


FIVE = "id {id} PRIMARY KEY, aggregatetype VARCHAR(40), aggregateid VARCHAR(40), type VARCHAR(40), payload {payload}"
"""The columns of Debezium's outbox table."""


class Death(BaseException):
    """As if the process had been killed."""


def a_database(url: str, statement: str | None = None) -> sa.Engine:
    """An engine, whose table ``outbox`` is made anew: by ``CREATE TABLE outbox (…)`` with the given columns."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS outbox"))
        if statement is not None:
            connection.execute(sa.text(f"CREATE TABLE outbox ({statement})"))
    if statement is None:
        create_table(engine)
    return engine


def insert(engine: sa.Engine, *ids: Any, table: str = "outbox", key: str = "k", **values: Any) -> None:
    """A row of each id, whose payload is its number from 0 unless it is given."""
    schema, _, name = table.rpartition(".")
    with engine.begin() as connection:
        for number, id in enumerate(ids):
            row = {"id": id, "aggregatetype": "order", "aggregateid": key, "payload": b"%d" % number, **values}
            row = {name: value for name, value in row.items() if not (name == "id" and value is None)}
            target = sa.table(name, *map(sa.column, row), schema=schema or None)
            connection.execute(sa.insert(target).values(row))


def dies_before_it_settles(relay: Any, monkeypatch: Any) -> None:
    """Let the relay send what waits, and die after the commit, before it settles its first batch."""

    def dying(*given: Any, **options: Any) -> None:
        raise Death

    with monkeypatch.context() as patched:
        patched.setattr("sparklog.outbox.relay.settle_rows", dying)
        with pytest.raises(Death):
            relay.run_until_empty()
    relay.close()


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


def rows_left(engine: sa.Engine, table: str = "outbox") -> int:
    """The rows that aren't settled."""
    names = {column["name"] for column in sa.inspect(engine).get_columns(table)}
    waiting = " WHERE published_at IS NULL" if "published_at" in names else ""
    with engine.connect() as connection:
        return int(connection.execute(sa.text(f"SELECT count(*) FROM {table}{waiting}")).scalar() or 0)
