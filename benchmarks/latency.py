"""From ``send`` to ``poll``: a producer and a consumer in two processes, 200 records a second; and an idle consumer.

The time of ``send`` travels in the record's value. Nothing lingers. Beside ``acks=all``, which is fsync here, stands a
broker that flushes every batch; beside ``acks=1`` one as it ships.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from benchmarks.extent import Extent
from benchmarks.harness import Running, percentile, print_table, progress, run
from benchmarks.kafka_broker import Broker, broker_or_none
from benchmarks.peers import kafka_topic, sparklog_topic
from benchmarks.processes import process_cpu_seconds
from benchmarks.produce import TOPIC
from benchmarks.report import add_target

RATE = 200
WARM_UP = 200
"""So many records at the start aren't counted: both sides open files, connections and threads then."""
PATIENCE_S = 60
RUNS = 3
"""A full collection of Python's in either process, or one pause of the machine, is a fiftieth of a second, near
one percent of a run: of each figure the median of so many runs counts."""
VALUE_SIZE = 100

Answer = dict[str, Any]


def paced(count: int, send: Callable[[bytes, bytes], object], *, rate: float = RATE) -> float:
    """Send ``count`` records at the rate; the CPU seconds that took."""
    cpu, began = time.process_time(), time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        send(b"key-%012d" % number, str(time.time_ns()).encode().ljust(VALUE_SIZE))
    return time.process_time() - cpu


def gathered(count: int, poll: Callable[[], list[bytes]], *, rate: float = RATE, warm_up: int = WARM_UP) -> Answer:
    """Milliseconds that each record took, but for the first ``warm_up``, and the CPU seconds of the reader."""
    print("ready", flush=True)
    samples: list[float] = []
    cpu, deadline = time.process_time(), time.monotonic() + count / rate + PATIENCE_S
    while len(samples) < count:
        values = poll()
        now = time.time_ns()
        samples += [(now - int(value)) / 1e6 for value in values]
        if time.monotonic() > deadline:
            raise SystemExit(f"only {len(samples)} of {count} records came")
    return {"samples": samples[warm_up:], "cpu_s": time.process_time() - cpu}


def send_sparklog(root: str, *, count: int, acks: int | str, rate: float = RATE) -> float:
    from sparklog.producer import Producer

    with Producer(root, acks=acks, linger_ms=0) as producer:
        return paced(count, lambda key, value: producer.send(TOPIC, value=value, key=key), rate=rate)


def receive_sparklog(root: str, *, count: int, **pace: Any) -> Answer:
    from sparklog.consumer import Consumer

    consumer = Consumer(TOPIC, cluster=root, auto_offset_reset="earliest")
    consumer.poll(timeout_ms=100)
    answer = gathered(
        count,
        lambda: [record.value for records in consumer.poll(timeout_ms=1000).values() for record in records],
        **pace,
    )
    consumer.close()
    return answer


def idle_sparklog(root: str, *, seconds: float) -> float:
    """CPU seconds a second of a consumer to which nothing comes."""
    from sparklog.consumer import Consumer

    consumer = Consumer(TOPIC, cluster=root, auto_offset_reset="latest")
    consumer.poll(timeout_ms=500)
    cpu, began = time.process_time(), time.monotonic()
    while time.monotonic() < began + seconds:
        consumer.poll(timeout_ms=1000)
    used = (time.process_time() - cpu) / (time.monotonic() - began)
    consumer.close()
    return used


def send_kafka(bootstrap: str, *, topic: str, count: int, acks: int | str, rate: float = RATE) -> float:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0})
    producer.list_topics(topic, timeout=60)

    def send(key: bytes, value: bytes) -> None:
        producer.produce(topic, value=value, key=key)
        producer.poll(0)

    used = paced(count, send, rate=rate)
    producer.flush()
    return used


def kafka_consumer(bootstrap: str, topic: str) -> Any:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.poll(1)
    return consumer


def receive_kafka(bootstrap: str, *, topic: str, count: int, **pace: Any) -> Answer:
    consumer = kafka_consumer(bootstrap, topic)

    def poll() -> list[bytes]:
        message = consumer.poll(1)
        if message is not None and message.error() is not None:
            raise SystemExit(message.error())
        return [] if message is None else [message.value()]

    answer = gathered(count, poll, **pace)
    consumer.close()
    return answer


def idle_kafka(bootstrap: str, *, topic: str, seconds: float) -> float:
    """CPU seconds a second of a consumer to which nothing comes."""
    consumer = kafka_consumer(bootstrap, topic)
    cpu, began = time.process_time(), time.monotonic()
    while time.monotonic() < began + seconds:
        consumer.poll(1)
    used = (time.process_time() - cpu) / (time.monotonic() - began)
    consumer.close()
    return used


def seconds_of(extent: Extent) -> int:
    """How long records are sent."""
    return extent.of(2, 8, 20)


def end_to_end(send: Any, receive: Any, *, acks: int | str, count: int, **where: str) -> list[str]:
    """A row of the table."""
    with Running(receive, count=count, **where) as receiver:
        receiver.hear()
        with Running(send, count=count, acks=acks, **where) as sender:
            sent_cpu_s = sender.result()
        answer = receiver.result()
    samples, seconds = answer["samples"], count / RATE
    figures = [percentile(samples, 50), percentile(samples, 99), max(samples)]
    return [
        *(f"{figure:.2f}" for figure in figures),
        *(f"{100 * used / seconds:.1f}" for used in (sent_cpu_s, answer["cpu_s"])),
    ]


def medians(make: Callable[[], list[str]], *, runs: int) -> list[str]:
    """Of each figure of a row."""
    rows = [make() for _ in range(runs)]
    return [f"{statistics.median(map(float, figures)):.2f}" for figures in zip(*rows, strict=True)]


def latency(extent: Extent) -> None:
    """End to end at 200 records/s, then what an idle consumer costs; with fsync only in a full run."""
    count, runs = WARM_UP + RATE * seconds_of(extent), 1 if extent.is_quick else RUNS
    seconds = extent.of(1, 5, 10)
    rows, idle = [], []
    with broker_or_none() as broker, ExitStack() as stack:
        ways: list[tuple[int | str, Broker | None, str]] = [(1, broker, "Kafka, acks=1")]
        if extent.is_full:
            flushing = None if broker is None else stack.enter_context(broker_or_none(fsync=True))
            ways.append(("all", flushing, "Kafka, acks=all, flushed"))
        for acks, peer, name in ways:
            progress(f"sparklog, acks={acks}")
            with tempfile.TemporaryDirectory() as folder:
                figures = medians(partial(sparklog_row, folder, acks=acks, count=count), runs=runs)
                rows.append([f"sparklog, acks={acks}", *figures, ""])
                if acks == 1:
                    root = tempfile.mkdtemp(dir=folder)
                    sparklog_topic(root, TOPIC, partitions=1)
                    run(send_sparklog, root=root, count=WARM_UP, acks=1)
                    idle.append(["sparklog", f"{100 * run(idle_sparklog, root=root, seconds=seconds):.2f}", ""])
                    add_targets(figures, idle_percent=idle[-1][1])
            if peer is not None:
                progress(name)
                where = {"bootstrap": peer.bootstrap, "topic": kafka_topic(peer.bootstrap, partitions=1)}
                run(send_kafka, **where, count=WARM_UP, acks=acks)  # the JVM compiles
                broker_cpu = BrokerShare(peer)
                figures = kafka_row(peer, acks=acks, count=count)  # once: no target is beside it
                rows.append([name, *figures, broker_cpu.percent()])
                if acks == 1 and extent is not Extent.USUAL:  # beside Kafka's idle consumer there is no target
                    broker_cpu = BrokerShare(peer)
                    used = run(idle_kafka, **where, seconds=seconds)
                    idle.append(["Kafka", f"{100 * used:.2f}", broker_cpu.percent()])
    progress("")
    print(
        f"End to end, {RATE} records/s of {VALUE_SIZE} bytes for {seconds_of(extent)} s, one partition, two processes, "
        f"no linger; of each of sparklog's figures the median of {runs} runs"
    )
    columns = ["p50 ms", "p99 ms", "max ms", "producer CPU %", "consumer CPU %", "broker CPU %"]
    print_table(["", *columns], rows)
    print()
    print("A consumer to which nothing comes")
    print_table(["", "CPU %", "broker CPU %"], idle)


def sparklog_row(folder: str, *, acks: int | str, count: int) -> list[str]:
    """One run, in a cluster of its own."""
    root = tempfile.mkdtemp(dir=folder)
    sparklog_topic(root, TOPIC, partitions=1)
    return end_to_end(send_sparklog, receive_sparklog, acks=acks, count=count, root=root)


def kafka_row(peer: Broker, *, acks: int | str, count: int) -> list[str]:
    """One run, in a topic of its own."""
    topic = kafka_topic(peer.bootstrap, partitions=1)
    return end_to_end(send_kafka, receive_kafka, acks=acks, count=count, bootstrap=peer.bootstrap, topic=topic)


def add_targets(figures: list[str], *, idle_percent: str) -> None:
    """Those of a row that :func:`end_to_end` makes, and of an idle consumer."""
    p50_ms, p99_ms, _, producer_percent, consumer_percent = map(float, figures)
    for name, wanted, reached in (
        (f"end to end at {RATE} records/s, p50 ms", 2.0, p50_ms),
        (f"end to end at {RATE} records/s, p99 ms", 8.0, p99_ms),
        ("a commit of one record, CPU ms of the producer", 1.2, 10 * producer_percent / RATE),
        (f"producer and consumer at {RATE} records/s, % of a core", 25.0, producer_percent + consumer_percent),
        ("an idle consumer, % of a core", 1.0, float(idle_percent)),
    ):
        add_target(name, wanted, reached, is_at_most=True)


class BrokerShare:
    """The broker's CPU time since this was made."""

    def __init__(self, broker: Broker) -> None:
        self._pid = broker.pid
        self._cpu_s, self._began = process_cpu_seconds(broker.pid), time.monotonic()

    def percent(self) -> str:
        now = process_cpu_seconds(self._pid)
        if now is None or self._cpu_s is None:
            return "not measured"
        return f"{100 * (now - self._cpu_s) / (time.monotonic() - self._began):.1f}"
