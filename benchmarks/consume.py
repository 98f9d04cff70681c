"""Consuming a topic from its beginning: Python records and Arrow batches, beside confluent-kafka's tuned ``consume``.

Every record's key and value is looked at, as a program that does something with them would. A consumer is opened within
the measured time. CPU is client and broker on Kafka's side, and our process.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from functools import partial
from typing import Any

from benchmarks.extent import Extent
from benchmarks.filled import filled_folder, filled_on_broker
from benchmarks.harness import Case, Goal, Usage, compare, run, run_passes, used
from benchmarks.kafka_broker import Broker, broker_or_none
from benchmarks.peers import PARTITIONS, expect, sparklog_topic
from benchmarks.produce import TOPIC
from benchmarks.report import add_target

KEY_SIZE = 16
POLL, POLL_BATCHES = "sparklog poll, max_poll_records=", "sparklog poll_batches"
BY_DESERIALIZER, BY_HAND, ONE_BY_ONE = "by value_deserializer", "by hand, all of a poll", "by hand, one after the other"
GOALS = {
    100: [
        Goal("poll(500), 100 bytes", f"{POLL}500", 2, 1.5),
        Goal("poll(5,000), 100 bytes", f"{POLL}5,000", 2, 1.5),
        Goal("poll_batches, 100 bytes", POLL_BATCHES, 6, 4),
    ],
    1024: [
        Goal("poll(500), 1 KiB", f"{POLL}500", 1.3, 1.2),
        Goal("poll(5,000), 1 KiB", f"{POLL}5,000", 1.3, 1.2),
        Goal("poll_batches, 1 KiB", POLL_BATCHES, 2, 2),
    ],
}


def poll_sparklog(root: str, *, count: int, value_size: int, max_poll_records: int) -> Usage:
    from sparklog.consumer import Consumer

    seen = size = 0
    with used(count) as usage:
        consumer = Consumer(TOPIC, cluster=root, auto_offset_reset="earliest", max_poll_records=max_poll_records)
        while seen < count:
            for records in consumer.poll(timeout_ms=1000).values():
                seen += len(records)
                for record in records:
                    size += len(record.key) + len(record.value)
    consumer.close()
    expect("records and bytes", (seen, size), (count, count * (KEY_SIZE + value_size)))
    return usage


def send_json(root: str, *, count: int) -> None:
    """Records whose values are JSON of five fields."""
    from sparklog.producer import Producer

    values = [
        json.dumps({"id": number, "total": number / 7, "at": "2026-11-24T09:00:00Z", "name": "x" * 20, "ok": True})
        for number in range(1_000)
    ]
    with Producer(root, acks=1, linger_ms=50) as producer:
        for number in range(count):
            producer.send(TOPIC, value=values[number % 1_000].encode(), key=b"key-%012d" % number)


def poll_json(root: str, *, count: int, how: str) -> Usage:
    """Decode each value: by ``value_deserializer``, or by hand after a plain ``poll``.

    By hand there are two ways: to decode one value after the other and drop each, with which the target compares; or to
    keep all decoded values of a poll, as a poll with a deserializer does: 500 of them leave a small processor cache.
    """
    from sparklog.consumer import Consumer

    seen = total = 0
    with used(count) as usage:
        consumer = Consumer(
            TOPIC,
            cluster=root,
            auto_offset_reset="earliest",
            value_deserializer=json.loads if how == BY_DESERIALIZER else None,
        )
        while seen < count:
            for records in consumer.poll(timeout_ms=1000).values():
                seen += len(records)
                if how == BY_DESERIALIZER:
                    for record in records:
                        total += record.value["id"]
                elif how == BY_HAND:
                    values = [json.loads(record.value) for record in records]
                    for value in values:
                        total += value["id"]
                else:
                    for record in records:
                        total += json.loads(record.value)["id"]
    consumer.close()
    expect("records and the sum of their ids", (seen, total), (count, sum(number % 1_000 for number in range(count))))
    return usage


def poll_batches_sparklog(root: str, *, count: int, value_size: int) -> Usage:
    import pyarrow.compute as pc

    from sparklog.consumer import Consumer

    seen = size = 0
    with used(count) as usage:
        consumer = Consumer(TOPIC, cluster=root, auto_offset_reset="earliest")
        while seen < count:
            for batch in consumer.poll_batches(timeout_ms=1000).values():
                seen += batch.num_rows
                for name in ("key", "value"):
                    size += pc.sum(pc.binary_length(batch.column(name))).as_py()
    consumer.close()
    expect("records and bytes", (seen, size), (count, count * (KEY_SIZE + value_size)))
    return usage


def consume_kafka(
    bootstrap: str, topic: str, *, broker_pid: int, count: int, value_size: int, num_messages: int, tuned: bool
) -> Usage:
    from confluent_kafka import Consumer, TopicPartition

    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    if tuned:
        settings["fetch.queue.backoff.ms"] = 5  # 1000 by default: it then pauses for long when its queue is full
    seen = size = 0
    with used(count, broker_pid=broker_pid) as usage:
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        while seen < count:
            messages = consumer.consume(num_messages=min(num_messages, count - seen), timeout=1)
            seen += len(messages)
            for message in messages:
                if message.error() is not None:
                    raise SystemExit(message.error())
                size += len(message.key() or b"") + len(message.value() or b"")
    consumer.close()
    expect("records and bytes", (seen, size), (count, count * (KEY_SIZE + value_size)))
    return usage


def consume_rate(extent: Extent) -> None:
    """Records of 100 bytes and of 1 KiB, from topics that producers of this run filled; then values of JSON.

    Each case reads its topic several times, for about a second or more, each time by a new consumer.
    """
    with broker_or_none() as broker:
        for count, value_size, passes, quick_passes in ((1_000_000, 100, 2, 6), (200_000, 1024, 5, 6)):
            count //= extent.of(10, 1, 1)
            passes, quick_passes = extent.of((1, 1), (passes, quick_passes), (passes, quick_passes))
            work = {"count": count, "value_size": value_size}
            with filled_folder(**work) as root, ExitStack() as stack:
                cases = []
                if broker is not None:
                    topic = stack.enter_context(filled_on_broker(broker, **work))
                    cases = kafka_cases(broker, topic, has_untuned=extent.is_full, passes=passes, **work)
                print(f"Consuming {count:,} records, values of {value_size} bytes, 16-byte keys, 6 partitions")
                cases += [
                    Case(
                        f"{POLL}{most:,}",
                        partial(run_passes, poll_sparklog, passes=passes, root=root, **work, max_poll_records=most),
                    )
                    for most in (500, 5_000)
                ]
                batches = partial(run_passes, poll_batches_sparklog, passes=quick_passes, root=root, **work)
                cases.append(Case(POLL_BATCHES, batches))
                compare(cases, GOALS[value_size])
            print()
    decode_json(extent.of(20_000, 200_000, 200_000))


def kafka_cases(
    broker: Broker, topic: str, *, has_untuned: bool, passes: int, count: int, value_size: int
) -> list[Case]:
    """The peer's, of a broker that is warm."""
    work: dict[str, Any] = {"bootstrap": broker.bootstrap, "topic": topic, "broker_pid": broker.pid, "passes": passes}
    cases = [
        Case(
            f"Kafka consume({num_messages:,}){', tuned' if tuned else ''}",
            partial(
                run_passes,
                consume_kafka,
                **work,
                count=count,
                value_size=value_size,
                num_messages=num_messages,
                tuned=tuned,
            ),
            is_peer=True,
        )
        for num_messages, tuned in ((500, False), (500, True), (5_000, True))[0 if has_untuned else 1 :]
    ]
    cases[-1].work()  # the JVM compiles
    return cases


def decode_json(count: int) -> None:
    """What a deserializer costs beside the same by hand."""
    print(f"poll of {count:,} values of JSON, decoded")
    with tempfile.TemporaryDirectory() as root:
        sparklog_topic(root, TOPIC)
        run(send_json, root=root, count=count)
        medians = compare(
            [
                Case(how, partial(run_passes, poll_json, passes=1, root=root, count=count, how=how))
                for how in (BY_DESERIALIZER, BY_HAND, ONE_BY_ONE)
            ]
        )
    by_deserializer, by_hand = (medians[how].cpu_s for how in (BY_DESERIALIZER, ONE_BY_ONE))
    add_target("poll with a JSON deserializer: CPU, × by hand", 1.05, by_deserializer / by_hand, is_at_most=True)
