"""Topics and records for both sides: sparklog's in a folder, Kafka's on a broker, the same bytes in both.

Arrow and sparklog are imported where they are needed: a process that has a case of Kafka's needs neither.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from sparklog.log import Cluster

__all__ = [
    "PARTITIONS",
    "arrow_batch",
    "expect",
    "kafka_count",
    "kafka_delete",
    "kafka_topic",
    "records",
    "some_records",
    "sparklog_count",
    "sparklog_topic",
]

PARTITIONS = 6
KEY_SIZE = 16
SEED = 20130101

Record = tuple[bytes, bytes]


def some_records(count: int, value_size: int) -> list[Record]:
    """Keys that differ and random values, the same ones in every process."""
    source = random.Random(SEED)
    return [(b"key-%012d" % source.randrange(10**12), source.randbytes(value_size)) for _ in range(count)]


def records(count: int, value_size: int) -> Iterator[Record]:
    """``count`` records that go round through 100,000 (of large values fewer, to stay below 16 MiB)."""
    block = some_records(min(count, 100_000, 2**24 // value_size), value_size)
    return islice(cycle(block), count)


def arrow_batch(block: list[Record]) -> pa.Table:
    import pyarrow as pa

    return pa.table({"key": [key for key, _ in block], "value": [value for _, value in block]})


def sparklog_topic(root: str, topic: str, *, partitions: int = PARTITIONS) -> None:
    from sparklog.log.cluster import open_cluster
    from sparklog.log.topic import create_topic

    create_topic(open_cluster(root).topic_log(topic), topic, num_partitions=partitions)


def sparklog_count(root: str | Cluster, topic: str) -> int:
    """How many records are in the log."""
    from sparklog.log.cluster import Cluster, open_cluster
    from sparklog.log.follow import TopicFollower

    cluster = root if isinstance(root, Cluster) else open_cluster(root)
    head = TopicFollower(cluster.topic_log(topic), topic).head
    return sum(head.log_end_offsets) - sum(head.log_start_offsets)


def kafka_topic(bootstrap: str, *, partitions: int = PARTITIONS) -> str:
    """Create a topic with a name of its own; returns the name."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"bench-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})  # a name keeps it until the answer is there
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
    return name


def kafka_delete(bootstrap: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    admin.delete_topics([topic])[topic].result(60)


def kafka_count(bootstrap: str, topic: str) -> int:
    """How many records are in the log."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "count"})
    partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
    bounds = [consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=60) for each in partitions]
    consumer.close()
    return sum(end - start for start, end in bounds)


def expect(what: str, found: Any, expected: Any) -> None:
    """A measurement of work that wasn't done is none."""
    if found != expected:
        raise SystemExit(f"{what}: found {found}, expected {expected}")
