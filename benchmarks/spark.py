"""Spark over topics: batch reads, views, writes and streams, beside ``format("kafka")`` and a real broker.

All cases share one session, whose JVM is warm. CPU is all of Spark, its Python workers, and the broker.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from benchmarks.extent import Extent
from benchmarks.filled import filled_folder, filled_on_broker
from benchmarks.harness import Case, Goal, Running, Usage, compare, percentile, print_table, progress, run
from benchmarks.kafka_broker import Broker, BrokerUnavailableError, broker_or_none, fetched_jars
from benchmarks.peers import expect, kafka_count, kafka_delete, kafka_topic, sparklog_count, sparklog_topic
from benchmarks.produce import TOPIC, send_sparklog
from benchmarks.shared import lent
from benchmarks.spark_session import serve
from sparklog.compaction import optimize_topic
from sparklog.log.cluster import open_cluster
from sparklog.log.state import load_state

__all__ = ["Session", "spark_and_kafka", "spark_read", "spark_session", "spark_stream", "spark_write"]

OPTIMIZED = "bench-optimized"
VALUE_SIZE = 100
RATE = 50


class Session:
    """A Spark session in a process of its own."""

    def __init__(self, running: Running, without_kafka: str | None) -> None:
        self._running = running
        self.without_kafka = without_kafka
        """Why it doesn't know ``format("kafka")``; None: it does."""

    def ask(self, work: str, **arguments: Any) -> dict[str, Any]:
        self._running.say(json.dumps({"work": work, **arguments}))
        answer: dict[str, Any] = json.loads(self._running.hear())
        return answer

    def usage(self, work: str, **arguments: Any) -> Usage:
        return Usage(**self.ask(work, **arguments))

    def begin(self, work: str, **arguments: Any) -> None:
        """Ask, and wait for it to be ready."""
        self._running.say(json.dumps({"work": work, **arguments}))
        expect("answer", self._running.hear(), "ready")

    def end(self) -> dict[str, Any]:
        """What the work that began has to tell."""
        answer: dict[str, Any] = json.loads(self._running.hear())
        return answer


@contextmanager
def spark_and_kafka() -> Iterator[tuple[Session, Broker | None]]:
    """A session that knows ``format("kafka")``, and a broker; None where it can't be had."""
    with broker_or_none() as broker, spark_session() as session:
        if broker is not None and session.without_kafka is not None:
            print(f"Kafka is left out: {session.without_kafka}", flush=True)
            broker = None
        yield session, broker


@contextmanager
def spark_session() -> Iterator[Session]:
    """The session, one for the whole run."""
    with lent("spark", _session) as session:
        yield session


@contextmanager
def _session() -> Iterator[Session]:
    jars: list[str] = []
    without_kafka = None
    try:
        jars = [str(jar) for jar in fetched_jars("spark.xml", "Spark's Kafka connector", megabytes=10).iterdir()]
    except BrokerUnavailableError as error:
        without_kafka = str(error)
    progress("starting Spark")
    with tempfile.TemporaryDirectory() as folder, Running(serve, jars=jars, folder=folder) as running:
        expect("answer", running.hear(), "ready")
        yield Session(running, without_kafka)


def spark_read(extent: Extent) -> None:
    """Count, and sum of the lengths of values, of a whole topic; by views, which have no target, in a full run."""
    count = extent.of(100_000, 1_000_000, 1_000_000)
    work = {"count": count, "value_bytes": count * VALUE_SIZE}
    print(f"Spark reads {count:,} records, values of {VALUE_SIZE} bytes, 6 partitions: count(*), sum(length(value))")
    with (
        spark_and_kafka() as (session, broker),
        filled_folder(count, VALUE_SIZE) as root,
        tempfile.TemporaryDirectory() as merged,
        ExitStack() as stack,
    ):
        sparklog_topic(merged, OPTIMIZED)
        run(send_sparklog, root=merged, topic=OPTIMIZED, count=count, value_size=VALUE_SIZE, linger_ms=50)
        files = optimize(merged, OPTIMIZED)
        cases = []
        if broker is not None:
            topic = stack.enter_context(filled_on_broker(broker, count, VALUE_SIZE))
            options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
            peer = partial(session.usage, "read_source", format="kafka", options=options, broker_pid=broker.pid, **work)
            cases.append(Case('format("kafka")', peer, is_peer=True))
        cases += [
            Case('format("sparklog")', _by_source(session, root, TOPIC, work)),
            Case('value alone: format("sparklog")', _by_source(session, root, TOPIC, work, "value BINARY")),
            Case('after optimize: format("sparklog")', _by_source(session, merged, OPTIMIZED, work)),
        ]
        if extent is not Extent.USUAL:
            cases += [
                Case("view", partial(session.usage, "read_view", root=root, topic=TOPIC, **work)),
                Case("after optimize: view", partial(session.usage, "read_view", root=merged, topic=OPTIMIZED, **work)),
            ]
        print(f"The topic has {files[0]} files, after optimize {files[1]}")
        for case in cases:
            case.work()  # the JVM compiles
        names = ("", "value alone: ", "after optimize: ")
        compare(
            cases, [Goal(f'{name}scan by format("sparklog")', f'{name}format("sparklog")', 3.5, 6) for name in names]
        )


def _by_source(
    session: Session, root: str, topic: str, work: dict[str, int], schema: str | None = None
) -> Callable[[], Usage]:
    """By ``format("sparklog")``: all columns, or those of ``schema``. Kafka's source always has all of them."""
    options = {"path": root, "subscribe": topic}
    return partial(session.usage, "read_source", format="sparklog", options=options, schema=schema, **work)


def optimize(root: str, topic: str) -> tuple[int, int]:
    """How many files there were, and are then."""
    log = open_cluster(root).topic_log(topic)
    before = load_state(log).head.live_file_count
    optimize_topic(log, topic)
    return before, load_state(log).head.live_file_count


def spark_write(extent: Extent) -> None:
    """Rows that Spark makes, written in batch; both sides acknowledge when all is in the log."""
    count = extent.of(100_000, 300_000, 1_000_000)
    print(f"Spark writes {count:,} records, values of {VALUE_SIZE} bytes, 6 partitions")
    with spark_and_kafka() as (session, broker):
        cases = []
        if broker is not None:
            cases.append(Case('format("kafka")', partial(write_kafka, session, broker, count), is_peer=True))
        cases.append(Case('format("sparklog")', partial(write_sparklog, session, count)))
        for case in cases:
            case.work()
        compare(cases)


def write_kafka(session: Session, broker: Broker, count: int) -> Usage:
    topic = kafka_topic(broker.bootstrap)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    work = {"format": "kafka", "options": options, "count": count, "value_size": VALUE_SIZE, "broker_pid": broker.pid}
    usage = session.usage("write_sink", **work)
    expect("records in the topic", kafka_count(broker.bootstrap, topic), count)
    kafka_delete(broker.bootstrap, topic)
    return usage


def write_sparklog(session: Session, count: int) -> Usage:
    with tempfile.TemporaryDirectory() as root:
        sparklog_topic(root, TOPIC)
        options = {"path": root, "topic": TOPIC}
        usage = session.usage("write_sink", format="sparklog", options=options, count=count, value_size=VALUE_SIZE)
        expect("records in the topic", sparklog_count(root, TOPIC), count)
    return usage


def spark_stream(extent: Extent) -> None:
    """How long a micro-batch takes, and how old records are when they are processed."""
    seconds = extent.of(5, 6, 20)
    print(f"Spark streams {RATE} records a second for {seconds} s, one micro-batch after the other")
    rows = []
    with spark_and_kafka() as (session, broker):
        for number in range(extent.of(1, 1, 2)):
            if broker is not None:
                rows.append(_streamed(f'format("kafka"), {number + 1}', stream_kafka(session, broker, seconds)))
            rows.append(_streamed(f'format("sparklog"), {number + 1}', stream_sparklog(session, seconds)))
    print_table(["", "batches", "trigger ms p50", "p99", "age ms p50", "p99", "CPU s per s"], rows)


def _streamed(name: str, answer: dict[str, Any]) -> list[str]:
    triggers, ages = answer["triggers"], answer["ages"]
    figures = [percentile(samples, percent) for samples in (triggers, ages) for percent in (50, 99)]
    return [
        name,
        str(len(triggers)),
        *(f"{each:,.0f}" for each in figures),
        f"{answer['cpu_s'] / answer['wall_s']:.2f}",
    ]


def stream_kafka(session: Session, broker: Broker, seconds: float) -> dict[str, Any]:
    from confluent_kafka import Producer

    topic = kafka_topic(broker.bootstrap)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": 1, "linger.ms": 0})
    count = int(RATE * seconds)
    session.begin("stream", format="kafka", options=options, count=count, seconds=seconds, broker_pid=broker.pid)
    _pace(count, lambda value: producer.produce(topic, value=value), lambda: producer.poll(0))
    producer.flush()
    return session.end()


def stream_sparklog(session: Session, seconds: float) -> dict[str, Any]:
    from sparklog.producer import Producer

    with tempfile.TemporaryDirectory() as root:
        sparklog_topic(root, TOPIC)
        options = {"path": root, "subscribe": TOPIC, "startingOffsets": "earliest"}
        count = int(RATE * seconds)
        with Producer(root, acks=1, linger_ms=0) as producer:
            session.begin("stream", format="sparklog", options=options, count=count, seconds=seconds)
            _pace(count, lambda value: producer.send(TOPIC, value=value))
            producer.flush()
            return session.end()


def _pace(count: int, send: Any, after: Any = None) -> None:
    """Send at the rate, from a thread that does nothing else."""

    def work() -> None:
        began = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began + number / RATE - time.monotonic()))
            send(str(time.time_ns()).encode().ljust(VALUE_SIZE))
            if after is not None:
                after()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
