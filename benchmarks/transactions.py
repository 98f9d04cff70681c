"""Transactions beside confluent-kafka's with a broker: producing, consume-transform-produce, and end to end.

Without fsync (``acks=1`` for our producer; a broker, as it ships, leaves that to the system), but for the end-to-end
times, which are taken with fsync too. CPU is client and broker on Kafka's side, and our process. The log is asked
afterwards whether it holds every record.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from typing import Any

from benchmarks.extent import Extent
from benchmarks.filled import filled_folder, filled_on_broker
from benchmarks.harness import (
    Case,
    Goal,
    Running,
    Usage,
    compare,
    percentile,
    print_table,
    progress,
    run,
    used,
)
from benchmarks.kafka_broker import Broker, broker_or_none
from benchmarks.latency import RATE, WARM_UP, BrokerShare, gathered, paced, seconds_of
from benchmarks.peers import (
    PARTITIONS,
    Record,
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
from benchmarks.produce import KAFKA_PRODUCER, KAFKA_SENDS, TOPIC, on_kafka, on_sparklog, warm_up
from benchmarks.report import add_target

VALUE_SIZE = 100
PRODUCED_EACH = 10_000
"""Records of a transaction that only produces."""
TRANSFORMED_EACH = 1_000
"""Records of a transaction that also consumes."""
TOPICS = ("first", "second")
TRANSACTIONAL = KAFKA_PRODUCER | {
    "transactional.id": "bench",
    "acks": "all",  # its transactions need that; there is one replica
    "log_level": 3,  # the first one hears that the coordinator isn't ready yet, and tries again
}


def transactions(extent: Extent) -> None:
    """All three."""
    produce(extent)
    print()
    transform(extent)
    print()
    latency(extent)


# Producing.


def pieces(given: list[Record], size: int) -> Iterator[list[Record]]:
    rest = iter(given)
    while piece := list(islice(rest, size)):
        yield piece


def produce_sparklog(root: str, *, count: int) -> Usage:
    from sparklog.producer import Producer

    given = list(pieces(list(records(count, VALUE_SIZE)), PRODUCED_EACH))
    with Producer(root, acks=1, transactional_id="bench") as producer:
        producer.init_transactions()
        producer.partitions_for(TOPIC)
        with used(count) as usage:
            for piece in given:
                producer.begin_transaction()
                for key, value in piece:
                    producer.send(TOPIC, value=value, key=key)
                producer.commit_transaction()
    expect("records in the topic", sparklog_count(root, TOPIC), count)
    return usage


def produce_batch_sparklog(root: str, *, count: int) -> Usage:
    from sparklog.producer import Producer

    table = arrow_batch(some_records(PRODUCED_EACH, VALUE_SIZE))
    with Producer(root, acks=1, transactional_id="bench") as producer:
        producer.init_transactions()
        producer.partitions_for(TOPIC)
        with used(count) as usage:
            for _ in range(count // PRODUCED_EACH):
                producer.begin_transaction()
                producer.send_batch(TOPIC, table)
                producer.commit_transaction()
    expect("records in the topic", sparklog_count(root, TOPIC), count)
    return usage


def produce_kafka(
    bootstrap: str, topic: str, *, broker_pid: int, count: int, linger_ms: float, callback: bool
) -> Usage:
    """With a callback for each record, or with none."""
    from confluent_kafka import Producer

    given = list(pieces(list(records(count, VALUE_SIZE)), PRODUCED_EACH))
    failed = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": linger_ms, **TRANSACTIONAL})
    producer.init_transactions(60)
    producer.list_topics(topic, timeout=60)
    with used(count, broker_pid=broker_pid) as usage:
        for piece in given:
            producer.begin_transaction()
            if callback:
                for key, value in piece:
                    producer.produce(topic, value=value, key=key, on_delivery=delivered)
                    producer.poll(0)
            else:
                for key, value in piece:
                    producer.produce(topic, value=value, key=key)
            producer.commit_transaction(60)
    expect("failed deliveries", failed, [])
    expect_committed(bootstrap, topic, count, transactions=len(given))
    return usage


def produce_batch_kafka(bootstrap: str, topic: str, *, broker_pid: int, count: int, linger_ms: float) -> Usage:
    from confluent_kafka import Producer

    messages = [{"key": key, "value": value} for key, value in some_records(PRODUCED_EACH, VALUE_SIZE)]
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": linger_ms, **TRANSACTIONAL})
    producer.init_transactions(60)
    producer.list_topics(topic, timeout=60)
    with used(count, broker_pid=broker_pid) as usage:
        for _ in range(count // PRODUCED_EACH):
            producer.begin_transaction()
            expect("messages queued", producer.produce_batch(topic, messages), PRODUCED_EACH)
            producer.commit_transaction(60)
    expect_committed(bootstrap, topic, count, transactions=count // PRODUCED_EACH)
    return usage


def expect_committed(bootstrap: str, topic: str, count: int, *, transactions: int) -> None:
    """A transaction's marker takes an offset in every partition that it wrote to, which here is every one."""
    expect("records and markers in the topic", kafka_count(bootstrap, topic), count + transactions * PARTITIONS)


def produce(extent: Extent) -> None:
    """Records sent one by one, and whole tables; these without a target."""
    count = extent.of(100_000, 500_000, 1_000_000)
    with tempfile.TemporaryDirectory() as folder, broker_or_none() as broker:
        print(
            f"send, values of {VALUE_SIZE} bytes, 16-byte keys, 6 partitions, a commit each {PRODUCED_EACH:,} records"
        )
        cases = []
        if broker is not None:
            cases = [
                Case(name, partial(on_kafka, produce_kafka, broker, count=count, **how), is_peer=True)
                for name, how in KAFKA_SENDS[0 if extent.is_full else 2 :]
            ]
            warm_up(broker, cases)
        cases.append(Case("sparklog", partial(on_sparklog, folder, produce_sparklog, count=count)))
        compare(cases, [Goal(f"transactional send, a commit each {PRODUCED_EACH:,}", "sparklog", 2.5, 2)])
        if not extent.is_full:
            return
        print()
        print(f"send_batch, {PRODUCED_EACH:,} records each, a commit after each")
        cases = []
        if broker is not None:
            cases = [
                Case(
                    f"Kafka produce_batch, linger.ms={linger_ms}",
                    partial(on_kafka, produce_batch_kafka, broker, count=count, linger_ms=linger_ms),
                    is_peer=True,
                )
                for linger_ms in (5, 50)
            ]
            warm_up(broker, cases)
        compare([*cases, Case("sparklog", partial(on_sparklog, folder, produce_batch_sparklog, count=count))])


# Consume, transform, produce.


def transform_sparklog(root: str, *, output: str, count: int) -> Usage:
    """``poll``, a transformation of each value, ``send``, with the group's offsets in the transaction."""
    from sparklog import Consumer, OffsetAndMetadata, Producer

    with (
        used(count) as usage,
        Consumer(TOPIC, cluster=root, group_id=output, **GROUP, max_poll_records=TRANSFORMED_EACH) as consumer,
        Producer(root, acks=1, transactional_id="bench") as producer,
    ):
        producer.init_transactions()
        done = 0
        while done < count:
            offsets, taken = {}, 0
            producer.begin_transaction()
            while taken < TRANSFORMED_EACH and done + taken < count:
                for partition, found in consumer.poll(1000, max_records=TRANSFORMED_EACH - taken).items():
                    for record in found:
                        producer.send(output, value=record.value[::-1], key=record.key)
                    offsets[partition] = OffsetAndMetadata(found[-1].offset + 1)
                    taken += len(found)
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            producer.commit_transaction()
            done += taken
    expect_transformed_sparklog(root, output, count)
    return usage


def transform_batches_sparklog(root: str, *, output: str, count: int) -> Usage:
    """The same with Arrow: ``poll_batches`` and ``send_batch``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from sparklog import Consumer, OffsetAndMetadata, Producer

    with (
        used(count) as usage,
        Consumer(TOPIC, cluster=root, group_id=output, **GROUP) as consumer,
        Producer(root, acks=1, transactional_id="bench") as producer,
    ):
        producer.init_transactions()
        done = 0
        while done < count:
            offsets, taken = {}, 0
            producer.begin_transaction()
            while taken < TRANSFORMED_EACH and done + taken < count:
                found = consumer.poll_batches(1000, max_records=TRANSFORMED_EACH - taken)
                for partition, batch in found.items():
                    reversed_values = pc.binary_reverse(batch.column("value"))
                    producer.send_batch(output, pa.table({"key": batch.column("key"), "value": reversed_values}))
                    offsets[partition] = OffsetAndMetadata(batch.column("offset")[-1].as_py() + 1)
                    taken += batch.num_rows
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            producer.commit_transaction()
            done += taken
    expect_transformed_sparklog(root, output, count)
    return usage


GROUP: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}


def expect_transformed_sparklog(root: str, output: str, count: int) -> None:
    from sparklog import Admin

    expect("records in the output", sparklog_count(root, output), count)
    with Admin(root) as admin:
        committed = admin.list_group_offsets(output)
    expect("committed offsets", sum(each.offset for each in committed.values()), count)


def transform_kafka(bootstrap: str, topic: str, *, source: str, broker_pid: int, count: int) -> Usage:
    from confluent_kafka import Consumer, Producer, TopicPartition

    with used(count, broker_pid=broker_pid) as usage:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.queue.backoff.ms": 5,
            }
        )
        consumer.subscribe([source])
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **TRANSACTIONAL})
        producer.init_transactions(60)
        done = 0
        while done < count:
            offsets: dict[int, int] = {}
            taken = 0
            producer.begin_transaction()
            while taken < TRANSFORMED_EACH and done + taken < count:
                messages = consumer.consume(TRANSFORMED_EACH - taken, timeout=1)
                for message in messages:
                    if message.error() is not None:
                        raise SystemExit(message.error())
                    producer.produce(topic, value=message.value()[::-1], key=message.key())
                    offsets[message.partition()] = message.offset() + 1
                taken += len(messages)
            positions = [TopicPartition(source, partition, offset) for partition, offset in offsets.items()]
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 60)
            producer.commit_transaction(60)
            done += taken
        partitions = [TopicPartition(source, partition) for partition in range(PARTITIONS)]
        committed = consumer.committed(partitions, timeout=60)
        consumer.close()
    expect("committed offsets", sum(each.offset for each in committed), count)
    markers = kafka_count(bootstrap, topic) - count
    if not 0 < markers <= count // TRANSFORMED_EACH * PARTITIONS:
        raise SystemExit(f"records in the output: found {markers} beyond {count}, which can't all be markers")
    return usage


def transform(extent: Extent) -> None:
    """A copy of a topic's records to another topic, each changed, with the group's offsets in each transaction."""
    count = extent.of(20_000, 100_000, 200_000)
    with filled_folder(count, VALUE_SIZE) as root, broker_or_none() as broker, ExitStack() as stack:
        print(
            f"Consume-transform-produce, {count:,} records, a commit each {TRANSFORMED_EACH:,} with a group's offsets"
        )
        cases = []
        if broker is not None:
            source = stack.enter_context(filled_on_broker(broker, count, VALUE_SIZE))
            work = partial(on_kafka, transform_kafka, broker, source=source, count=count)
            cases = [Case("Kafka, linger.ms=5", work, is_peer=True)]
            warm_up(broker, cases)
        ways = [("poll, send", transform_sparklog), ("poll_batches, send_batch", transform_batches_sparklog)]
        for name, ours in ways[: 2 if extent.is_full else 1]:
            cases.append(Case(f"sparklog, {name}", partial(on_filled, root, ours, count=count)))
        name = f"consume-transform-produce, a commit each {TRANSFORMED_EACH:,}"
        compare(cases, [Goal(name, "sparklog, poll, send", 2.5, 3)])


def on_filled(root: str, work: Callable[..., Usage], *, count: int) -> Usage:
    """Do the work in a cluster with a topic that has records, by a new group and into a new topic."""
    output = f"output-{uuid.uuid4().hex[:12]}"
    sparklog_topic(root, output)
    return Usage(**run(work, root=root, output=output, count=count))


# End to end.


def commit_sparklog(root: str, *, count: int, acks: int | str, rate: float = RATE) -> list[float]:
    from sparklog.producer import Producer

    with Producer(root, acks=acks, transactional_id="bench") as producer:
        producer.init_transactions()
        for topic in TOPICS:
            producer.partitions_for(topic)

        def send(key: bytes, value: bytes) -> None:
            producer.begin_transaction()
            for topic in TOPICS:
                producer.send(topic, value=value, key=key)
            producer.commit_transaction()

        return measured(count, send, rate=rate)


def receive_committed_sparklog(root: str, *, count: int, **pace: Any) -> dict[str, Any]:
    from sparklog.consumer import Consumer

    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    consumer = Consumer(*TOPICS, cluster=root, **settings)
    consumer.poll(timeout_ms=100)
    answer = gathered(
        count * len(TOPICS),
        lambda: [record.value for found in consumer.poll(timeout_ms=1000).values() for record in found],
        **pace,
    )
    consumer.close()
    return answer


def commit_kafka(bootstrap: str, *, topics: list[str], count: int) -> list[float]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **TRANSACTIONAL})
    producer.init_transactions(60)
    for topic in topics:
        producer.list_topics(topic, timeout=60)

    def send(key: bytes, value: bytes) -> None:
        producer.begin_transaction()
        for topic in topics:
            producer.produce(topic, value=value, key=key)
        producer.commit_transaction(60)

    return measured(count, send)


def measured(count: int, send: Callable[[bytes, bytes], object], *, rate: float = RATE) -> list[float]:
    """CPU and wall seconds of so many transactions."""
    began = time.monotonic()
    cpu_s = paced(count, send, rate=rate)
    return [cpu_s, time.monotonic() - began]


def receive_committed_kafka(bootstrap: str, *, topics: list[str], count: int) -> dict[str, Any]:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"group.id": "bench", "enable.auto.commit": False, "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
    consumer.poll(1)

    def poll() -> list[bytes]:
        message = consumer.poll(1)
        if message is not None and message.error() is not None:
            raise SystemExit(message.error())
        return [] if message is None else [message.value()]

    answer = gathered(count * len(topics), poll)
    consumer.close()
    return answer


def end_to_end(send: Any, receive: Any, *, count: int, receiver_sees: dict[str, Any], **where: Any) -> list[str]:
    """A row of the table."""
    with Running(receive, count=count, **receiver_sees) as receiver:
        receiver.hear()
        with Running(send, count=count, **receiver_sees, **where) as sender:
            sent_cpu_s, seconds = sender.result()
        answer = receiver.result()
    samples = answer["samples"]
    return [
        *(f"{figure:.2f}" for figure in (percentile(samples, 50), percentile(samples, 99), max(samples))),
        f"{count / seconds:.0f}",
        *(f"{100 * used / seconds:.1f}" for used in (sent_cpu_s, answer["cpu_s"])),
    ]


def latency(extent: Extent) -> None:
    """From the begin of a transaction to ``poll``, 200 transactions a second, in two processes; with fsync only in a
    full run."""
    all_of_them = RATE * seconds_of(extent)
    rows = []
    with broker_or_none() as broker, ExitStack() as stack:
        ways: list[tuple[int | str, Broker | None, str]] = [(1, broker, "not flushed")]
        if extent.is_full:
            flushing = None if broker is None else stack.enter_context(broker_or_none(fsync=True))
            ways.append(("all", flushing, "flushed"))
        for acks, peer, how in ways:
            count = all_of_them // (1 if acks == 1 else 4) + WARM_UP  # the broker that flushes is far from the rate
            name = f"sparklog, acks={acks}, {len(TOPICS)} topics"
            progress(name)
            with tempfile.TemporaryDirectory() as root:
                for topic in TOPICS:
                    sparklog_topic(root, topic, partitions=1)
                figures = end_to_end(
                    commit_sparklog, receive_committed_sparklog, count=count, receiver_sees={"root": root}, acks=acks
                )
                rows.append([name, *figures, ""])
                if acks == 1:
                    add_target("a transaction over two topics: p50 ms", 4, float(figures[0]), is_at_most=True)
            if peer is None:
                continue
            for number in (1, len(TOPICS)) if extent.is_full else (len(TOPICS),):
                name = f"Kafka, {how}, {number} topic{'s' if number > 1 else ''}"
                progress(name)
                of_peer = count // 2 if extent is Extent.USUAL else count  # no target is beside it
                rows.append([name, *kafka_end_to_end(peer, topic_count=number, count=of_peer)])
    progress("")
    print(f"End to end, {RATE} transactions/s, each a record of {VALUE_SIZE} bytes to each topic, one partition")
    columns = ["p50 ms", "p99 ms", "max ms", "reached per s", "producer CPU %", "consumer CPU %", "broker CPU %"]
    print_table(["", *columns], rows)


def kafka_end_to_end(broker: Broker, *, topic_count: int, count: int) -> list[str]:
    topics = [kafka_topic(broker.bootstrap, partitions=1) for _ in range(topic_count)]
    there: dict[str, Any] = {"bootstrap": broker.bootstrap, "topics": topics}
    run(commit_kafka, **there, count=RATE)  # the JVM compiles
    for topic in topics:
        kafka_delete(broker.bootstrap, topic)
    there["topics"] = [kafka_topic(broker.bootstrap, partitions=1) for _ in range(topic_count)]
    broker_cpu = BrokerShare(broker)
    figures = end_to_end(commit_kafka, receive_committed_kafka, count=count, receiver_sees=there)
    return [*figures, broker_cpu.percent()]
