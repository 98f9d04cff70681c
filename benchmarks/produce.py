"""Producing: records one by one, and whole tables, beside confluent-kafka with a broker.

Both sides acknowledge without fsync (``acks=1``; a broker, as it ships, leaves that to the system), wait by ``flush``,
and the log is then asked whether it holds every record. CPU is client and broker on Kafka's side, and our process.
"""

from __future__ import annotations

import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.extent import Extent
from benchmarks.harness import Case, Goal, Usage, compare, empty_files, run, used
from benchmarks.kafka_broker import Broker, broker_or_none
from benchmarks.peers import (
    arrow_batch,
    expect,
    kafka_count,
    kafka_delete,
    kafka_topic,
    records,
    some_records,
    sparklog_count,
    sparklog_topic,
)

if TYPE_CHECKING:
    from sparklog.log import Cluster

TOPIC = "bench"
BATCH = 50_000
# A queue that holds everything: librdkafka then never makes its caller wait.
KAFKA_PRODUCER = {
    "acks": 1,
    "queue.buffering.max.messages": 10_000_000,
    "queue.buffering.max.kbytes": 2_000_000,
}


KAFKA_SENDS: list[tuple[str, dict[str, Any]]] = [
    ("Kafka, linger.ms=5, callback", {"linger_ms": 5, "callback": True}),
    ("Kafka, linger.ms=50, callback", {"linger_ms": 50, "callback": True}),
    ("Kafka, linger.ms=5, no callback", {"linger_ms": 5, "callback": False}),
    ("Kafka, linger.ms=50, no callback", {"linger_ms": 50, "callback": False}),
]


def send_sparklog(root: str | Cluster, *, count: int, value_size: int, topic: str = TOPIC, **settings: Any) -> Usage:
    """``Producer.send`` of ``count`` records; their futures are not looked at."""
    from sparklog.producer import Producer

    given = list(records(count, value_size))
    with Producer(root, acks=1, **settings) as producer:
        producer.partitions_for(topic)
        with used(count) as usage:
            for key, value in given:
                producer.send(topic, value=value, key=key)
            producer.flush()
    expect("records in the topic", sparklog_count(root, topic), count)
    return usage


def send_kafka(
    bootstrap: str, topic: str, *, broker_pid: int, count: int, value_size: int, linger_ms: float, callback: bool
) -> Usage:
    """``Producer.produce`` of ``count`` records, with a callback for each or with none."""
    from confluent_kafka import Producer

    given = list(records(count, value_size))
    failed = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": linger_ms, **KAFKA_PRODUCER})
    producer.list_topics(topic, timeout=60)
    with used(count, broker_pid=broker_pid) as usage:
        if callback:
            for key, value in given:
                producer.produce(topic, value=value, key=key, on_delivery=delivered)
                producer.poll(0)
        else:
            for key, value in given:
                producer.produce(topic, value=value, key=key)
        producer.flush()
    expect("failed deliveries", failed, [])
    expect("records in the topic", kafka_count(bootstrap, topic), count)
    return usage


def send_batch_sparklog(root: str | Cluster, *, batches: int, value_size: int, **settings: Any) -> Usage:
    """``Producer.send_batch`` of Arrow tables that are there already."""
    from sparklog.producer import Producer

    table = arrow_batch(some_records(BATCH, value_size))
    with Producer(root, acks=1, **settings) as producer:
        producer.partitions_for(TOPIC)
        with used(batches * BATCH) as usage:
            for _ in range(batches):
                producer.send_batch(TOPIC, table)
            producer.flush()
    expect("records in the topic", sparklog_count(root, TOPIC), batches * BATCH)
    return usage


def send_batch_kafka(
    bootstrap: str, topic: str, *, broker_pid: int, batches: int, value_size: int, linger_ms: float
) -> Usage:
    """``Producer.produce_batch`` of lists of dictionaries that are there already."""
    from confluent_kafka import Producer

    messages = [{"key": key, "value": value} for key, value in some_records(BATCH, value_size)]
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": linger_ms, **KAFKA_PRODUCER})
    producer.list_topics(topic, timeout=60)
    with used(batches * BATCH, broker_pid=broker_pid) as usage:
        for _ in range(batches):
            expect("messages queued", producer.produce_batch(topic, messages), BATCH)
        producer.flush()
    expect("records in the topic", kafka_count(bootstrap, topic), batches * BATCH)
    return usage


def on_sparklog(folder: str, work: Any, **arguments: Any) -> Usage:
    """Do the work on a new topic, in a process of its own."""
    root = tempfile.mkdtemp(dir=folder)
    sparklog_topic(root, TOPIC)
    usage = Usage(**run(work, root=root, **arguments))
    empty_files(root)
    return usage


def on_kafka(work: Any, broker: Broker, **arguments: Any) -> Usage:
    """Do the work on a new topic, in a process of its own."""
    topic = kafka_topic(broker.bootstrap)
    try:
        return Usage(**run(work, bootstrap=broker.bootstrap, topic=topic, broker_pid=broker.pid, **arguments))
    finally:
        kafka_delete(broker.bootstrap, topic)


def send_rate(extent: Extent) -> None:
    """Records of 100 bytes and of 1 KiB, sent one by one; a callback for each costs the peer more than none."""
    with tempfile.TemporaryDirectory() as folder, broker_or_none() as broker:
        for count, value_size, cpu, wall in ((1_000_000, 100, 3, 2), (200_000, 1024, 2, 1.5)):
            count //= extent.of(10, 2, 1)
            print(f"Producer.send, values of {value_size} bytes, 16-byte keys, 6 partitions, acks=1")
            work = {"count": count, "value_size": value_size}
            cases = []
            if broker is not None:
                cases = [
                    Case(name, partial(on_kafka, send_kafka, broker, **work, **how), is_peer=True)
                    for name, how in KAFKA_SENDS[0 if extent.is_full else 2 :]
                ]
                warm_up(broker, cases)
            for linger_ms in (5, 50):
                name = f"sparklog, linger_ms={linger_ms}"
                cases.append(Case(name, partial(on_sparklog, folder, send_sparklog, linger_ms=linger_ms, **work)))
            compare(cases, [Goal(f"send, {value_size} bytes", "sparklog", cpu, wall)])


def send_batch_rate(extent: Extent) -> None:
    """Tables of 50,000 records."""
    with tempfile.TemporaryDirectory() as folder, broker_or_none() as broker:
        for batches, value_size, cpu, wall in ((20, 100, 6, 3.5), (4, 1024, 3.5, 2.5)):
            batches = max(1, batches // extent.of(10, 1, 1))
            print(f"Producer.send_batch, {BATCH:,} records each, values of {value_size} bytes, 16-byte keys, acks=1")
            work = {"batches": batches, "value_size": value_size}
            cases = []
            if broker is not None:
                cases = [
                    Case(
                        f"Kafka produce_batch, linger.ms={linger_ms}",
                        partial(on_kafka, send_batch_kafka, broker, linger_ms=linger_ms, **work),
                        is_peer=True,
                    )
                    for linger_ms in (5, 50)
                ]
                warm_up(broker, cases)
            cases.append(Case("sparklog send_batch", partial(on_sparklog, folder, send_batch_sparklog, **work)))
            compare(cases, [Goal(f"send_batch, {value_size} bytes", "sparklog", cpu, wall)])


def warm_up(broker: Broker, cases: list[Case]) -> None:
    """Let the broker's JVM compile what it will need; else its first rounds would pay for that."""
    cases[0].work()
