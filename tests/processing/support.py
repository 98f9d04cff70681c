"""What the tests of workers share: a cluster in memory, topics, an app in a thread, and what is in a topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sparklog import Admin, Consumer, NewTopic, Producer
from sparklog.log import Cluster
from sparklog.model import ConsumerRecord, TopicPartition
from sparklog.processing import App
from sparklog.processing.moves import Origin, Output, bury
from sparklog.storage import ObjectStore
from tests.consumer.support import a_cluster

LONG_S = 60.0
"""A bound that no test reaches unless it fails."""
FAST = {"session_timeout_ms": 60_000, "heartbeat_interval_ms": 50}


def a_world(*topics: str, partitions: int = 1, store: ObjectStore | None = None) -> Cluster:
    cluster = a_cluster(store, retry_ms=1_000)
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=partitions) for topic in topics])
    return cluster


def an_app(cluster: Cluster, **settings: Any) -> App:
    given = {"group_id": "g", "consumer": FAST, "commit_interval_ms": 1, "drain_timeout_s": 5, **settings}
    return App(cluster, **given)


def send(cluster: Cluster, topic: str, values: Iterable[str], *, keyed: bool = False) -> None:
    """Send texts; the part before a colon is the key if ``keyed``."""
    with Producer(cluster) as producer:
        for value in values:
            key = value.partition(":")[0].encode() if keyed else None
            producer.send(topic, key=key, value=value.encode())


def records(cluster: Cluster, topic: str) -> list[ConsumerRecord]:
    """All that is in a topic, partition by partition."""
    found: list[ConsumerRecord] = []
    with Consumer(cluster=cluster) as consumer:
        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
        for at, end in consumer.end_offsets(partitions).items():
            consumer.assign([at])
            consumer.seek_to_beginning(at)
            while consumer.position(at) < end:
                found += consumer.poll(1_000).get(at, [])
    return found


def texts(cluster: Cluster, topic: str) -> list[str]:
    return [record.value.decode() for record in records(cluster, topic)]


def committed(cluster: Cluster, topic: str, group: str = "g") -> int:
    """The sum of the group's offsets in a topic."""
    with Admin(cluster) as admin:
        return sum(found.offset for at, found in admin.list_group_offsets(group).items() if at.topic == topic)


def offsets(cluster: Cluster) -> dict[int, int]:
    with Admin(cluster) as admin:
        return {at.partition: found.offset for at, found in admin.list_group_offsets("g").items()}


def with_poison(cluster: Cluster, *, good: int = 20) -> None:
    """Partition 0: a, poison, b. Partition 1: others."""
    with Producer(cluster) as producer:
        for value in ("a", "poison", "b"):
            producer.send("in", value.encode(), partition=0)
        for number in range(good):
            producer.send("in", b"%d" % number, partition=1)


def until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_for(condition: Callable[[], object], *apps: App) -> None:
    """Wait until something is so; raise what an app ended with."""
    deadline = time.monotonic() + LONG_S
    while True:
        began = time.monotonic()
        if condition():
            return
        looked_s = time.monotonic() - began
        assert time.monotonic() < deadline, [app.health() for app in apps]
        for app in apps:
            if app.health().error is not None:
                app.stop()
        time.sleep(max(0.005, 2 * looked_s))  # a look that reads a topic else takes the core that what runs needs


def done(app: App, count: int) -> None:
    """Wait until so many records are processed."""
    wait_for(lambda: app.metrics()["processing-metrics"]["records-processed-total"] >= count, app)


@contextmanager
def running(*apps: App) -> Iterator[None]:
    for app in apps:
        app.start()
    try:
        yield
    finally:
        for app in apps:
            app.stop()


def outputs(cluster: Cluster, *outputs: Output) -> None:
    with Producer(cluster) as producer:
        for each in outputs:
            producer.send(each.topic, each.value, each.key, each.headers, each.near_partition)


def a_letter(number: int, *, partition: int = 0, key: bytes | None = b"k") -> Output:
    value = b"%d" % number
    record = ConsumerRecord("orders", partition, -1, number, 5, 0, key, value, [("mine", b"1")], None, 1, 1, 5)
    origin = Origin(topic="orders", partition=partition, offset=number, timestamp=5)
    error = ValueError("odd") if number % 2 else KeyError("even")
    return bury(record, "dlq.orders", origin=origin, group_id="g", attempts=3, error=error)[0]


def sent_letters(cluster: Cluster, count: int) -> None:
    """Send dead letters of ``orders-0`` to ``dlq.orders``: their values are their offsets there."""
    outputs(cluster, *(a_letter(number) for number in range(count)))
