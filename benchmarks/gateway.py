"""The gateway, beside a Kafka broker: the same client, librdkafka, talks to both, in turn.

Both acknowledge without fsync (``acks=1``). CPU is the client and the broker on Kafka's side, the client and the
gateway, in which the store is a folder, on ours. Every case has a topic of its own; the log is asked whether it holds
every record.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TypedDict

from benchmarks.consume import consume_kafka
from benchmarks.extent import Extent
from benchmarks.harness import (
    REPOSITORY,
    ROUNDS,
    Case,
    Goal,
    Running,
    Usage,
    compare,
    environment_with_bytecode_cache,
    percentile,
    print_table,
    run,
    used,
)
from benchmarks.kafka_broker import Broker, broker_or_none
from benchmarks.latency import RATE, WARM_UP, receive_kafka, send_kafka
from benchmarks.peers import PARTITIONS, expect, kafka_count, kafka_delete, kafka_topic, records
from benchmarks.processes import process_cpu_seconds
from benchmarks.produce import KAFKA_PRODUCER, on_kafka
from benchmarks.produce import send_kafka as produce_kafka
from benchmarks.report import add_target
from benchmarks.stores.delayed_s3 import INSTANT, STANDARD_20_50, s3_or_none

__all__ = ["gateway", "running_gateway"]

PRODUCERS = 32
MANY_RECORDS = 2_000_000
"""So many take 3 s and more, beside which the last ``linger.ms`` and the last commit are little."""
IDLE_CONNECTIONS = 1_000
STORE_RATE = 20
"""Records a second on a delayed store, so that each has its commit."""
_API_VERSIONS_V0 = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


class Rounds(TypedDict):
    """How :func:`~benchmarks.harness.compare` goes about it."""

    rounds: int
    warms: bool


@contextmanager
def running_gateway(root: str) -> Iterator[tuple[Broker, float]]:
    """``sparklog gateway`` of a cluster in a process of its own, and how many seconds it took until it answered."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "sparklog", "gateway", "--cluster", root, "--listen", "127.0.0.1:0"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        env=environment_with_bytecode_cache(),
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("listening on "):
            raise SystemExit(f"the gateway said {line!r} in place of its address")
        bootstrap = line.removeprefix("listening on ").strip()
        with connected(bootstrap) as client:
            ask_versions(client)
        yield Broker(bootstrap, process.pid), time.perf_counter() - began
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def connected(bootstrap: str) -> socket.socket:
    """A connection to a broker."""
    host, _, port = bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def ask_versions(client: socket.socket) -> None:
    """Ask which versions are served, and wait for the answer."""
    client.sendall(_API_VERSIONS_V0)
    with client.makefile("rb") as answer:
        expect("bytes of an answer", len(answer.read(size := int.from_bytes(answer.read(4), "big"))), size)


def send_many(
    bootstrap: str, topic: str, *, broker_pid: int, count: int, value_size: int, producers: int, idempotent: bool
) -> Usage:
    """``count`` records by several producers in this process, a hundred from each in turn, once each has sent one to
    each partition: librdkafka connects to a broker when it first has something for it."""
    from confluent_kafka import Producer

    settings = {
        **KAFKA_PRODUCER,
        "linger.ms": 50,
        **({"acks": "all", "enable.idempotence": True} if idempotent else {}),
    }
    clients = [Producer({"bootstrap.servers": bootstrap, **settings}) for _ in range(producers)]
    for client in clients:
        client.list_topics(topic, timeout=60)
        for partition in range(PARTITIONS):
            client.produce(topic, value=b"first", partition=partition)
    for client in clients:
        client.flush()
    given = list(records(count, value_size))
    with used(count, broker_pid=broker_pid) as usage:
        for number, start in enumerate(range(0, count, 100)):
            client = clients[number % producers]
            for key, value in given[start : start + 100]:
                client.produce(topic, value=value, key=key)
        for client in clients:
            client.flush()
    expect("records in the topic", kafka_count(bootstrap, topic), count + producers * PARTITIONS)
    return usage


def gateway(extent: Extent) -> None:
    """Producing, fetching, times from end to end, many producers, idle connections, start."""
    with broker_or_none() as broker, ExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        served, _ = stack.enter_context(running_gateway(root))
        sides = {"gateway": served} if broker is None else {"Kafka": broker, "gateway": served}
        rounds = Rounds(rounds=extent.of(1, ROUNDS, ROUNDS), warms=not extent.is_quick)
        for counts, value_size, wanted in (
            ((100_000, 300_000, 1_000_000), 100, 0.5),
            ((20_000, 240_000, 400_000), 1024, 0.7),
        ):
            count = extent.of(*counts)
            produce(sides, count, value_size, wanted, rounds, ways=extent.of(2, 1, 2))
            fetch(sides, count, value_size, rounds, again=extent.of(True, False, True))
        many(sides if extent.is_full else {"gateway": served}, extent.of(50_000, MANY_RECORDS, MANY_RECORDS), rounds)
        end_to_end(sides, extent.of(2, 6, 10))
    delayed(extent.of(2, 6, 20))
    idle(extent.of(2, 5, 10))
    starts()


def produce(
    sides: Mapping[str, Broker], count: int, value_size: int, wanted: float, rounds: Rounds, *, ways: int
) -> None:
    """Records one by one, by one producer; in so many ways, of which the first is the fastest."""
    print(f"librdkafka, values of {value_size} bytes, 16-byte keys, 6 partitions, acks=1")
    cases = [
        Case(
            f"{name}, {how}",
            partial(on_kafka, produce_kafka, side, count=count, value_size=value_size, **settings),
            is_peer=name == "Kafka",
        )
        for how, settings in (
            ("linger.ms=50, no callback", {"linger_ms": 50, "callback": False}),
            ("linger.ms=5, callback", {"linger_ms": 5, "callback": True}),
        )[:ways]
        for name, side in sides.items()
    ]
    for case in cases[: len(sides)]:
        case.work()  # the JVM compiles, and the gateway imports
    compare(cases, [Goal(f"produce, {value_size} bytes", "gateway", wanted, wanted)], **rounds)
    print()


def fetch(sides: Mapping[str, Broker], count: int, value_size: int, rounds: Rounds, *, again: bool) -> None:
    """A topic from its beginning, by one consumer; ``again``: a topic that was read before, too."""
    print(f"librdkafka, consume(5,000), values of {value_size} bytes, 6 partitions, from the beginning")
    work = {"count": count, "value_size": value_size}
    cases = [
        Case(f"{name}, a topic that nobody has read", partial(consume_new, side, **work), is_peer=name == "Kafka")
        for name, side in sides.items()
    ]
    topics = {name: filled(side, **work) for name, side in sides.items() if again or name == "Kafka"}
    if not again and "Kafka" in topics:  # a broker reads a topic the same each time: the system has its files at hand
        cases[0] = Case("Kafka", partial(consume, sides["Kafka"], topics.pop("Kafka"), **work), is_peer=True)
    for case in cases:
        case.work()
    repeated = [
        Case(f"{name}, read before", partial(consume, sides[name], topic, **work), is_peer=name == "Kafka")
        for name, topic in topics.items()
    ]
    for case in repeated:
        case.work()
    goal = Goal(f"fetch, {value_size} bytes", "gateway, a topic that nobody has read", 0.7, 0.7)
    compare([*cases, *repeated], [goal], **rounds)
    print()


def filled(side: Broker, *, count: int, value_size: int) -> str:
    """A topic with records."""
    topic = kafka_topic(side.bootstrap)
    there = {"bootstrap": side.bootstrap, "topic": topic, "broker_pid": side.pid}
    run(produce_kafka, **there, count=count, value_size=value_size, linger_ms=50, callback=False)
    return topic


def consume(side: Broker, topic: str, *, count: int, value_size: int) -> Usage:
    there = {"bootstrap": side.bootstrap, "topic": topic, "broker_pid": side.pid}
    work = {"count": count, "value_size": value_size, "num_messages": 5_000, "tuned": True}
    return Usage(**run(consume_kafka, **there, **work))


def consume_new(side: Broker, *, count: int, value_size: int) -> Usage:
    topic = filled(side, count=count, value_size=value_size)
    os.sync()  # what was written doesn't go to the disk while it is read, as with the peer's topic, which is older
    usage = consume(side, topic, count=count, value_size=value_size)
    kafka_delete(side.bootstrap, topic)
    return usage


def many(sides: Mapping[str, Broker], count: int, rounds: Rounds) -> None:
    """The same records by one producer and by 32, all in one process, to one topic."""
    print(f"1 and {PRODUCERS} producers in one process, {count:,} records of 100 bytes together, linger.ms=50")
    cases = [
        Case(
            f"{name}, {producers}{' idempotent' if idempotent else ''}",
            partial(
                on_kafka,
                send_many,
                side,
                count=count,
                value_size=100,
                producers=producers,
                idempotent=idempotent,
            ),
        )
        for idempotent in (False, True)
        for producers in (1, PRODUCERS)
        for name, side in sides.items()
    ]
    medians = compare(cases, **rounds)
    for name in sides:
        for kind in ("", " idempotent"):
            one, all_together = (medians[f"{name}, {number}{kind}"] for number in (1, PRODUCERS))
            ratio = all_together.per_second / one.per_second
            if name == "gateway":
                add_target(f"{PRODUCERS}{kind} producers, × the rate of one", 0.9, ratio)
            print(f"{name}: {PRODUCERS}{kind} producers reach {ratio:.2f} × the rate of one")
    print()


def end_to_end(sides: Mapping[str, Broker], seconds: int) -> None:
    """200 records a second to one partition, from ``produce`` to ``poll``."""
    print(f"End to end, {RATE} records/s for {seconds} s, Kafka half as long, one partition, no linger, acks=1")
    rows = []
    for name, side in sides.items():
        if name == "Kafka":  # the JVM compiles
            latencies(side, 2 * WARM_UP, rate=RATE, warm_up=WARM_UP)
        lasts = seconds / 2 if name == "Kafka" else seconds  # no target is beside Kafka's
        figures = latencies(side, WARM_UP + int(RATE * lasts), rate=RATE, warm_up=WARM_UP)
        rows.append([name, *figures])
        if name == "gateway":
            add_target(f"end to end at {RATE} records/s, p50 ms", 8, float(figures[0]), is_at_most=True)
    print_table(["", *_LATENCIES], rows)
    print()


_LATENCIES = ("p50 ms", "p99 ms", "max ms", "producer CPU %", "consumer CPU %", "broker or gateway CPU %")


def latencies(side: Broker, count: int, *, rate: float, warm_up: int) -> list[str]:
    """Cells of a row."""
    where = {"bootstrap": side.bootstrap, "topic": kafka_topic(side.bootstrap, partitions=1)}
    before, began = process_cpu_seconds(side.pid), time.monotonic()
    with Running(receive_kafka, count=count, rate=rate, warm_up=warm_up, **where) as receiver:
        receiver.hear()
        with Running(send_kafka, count=count, acks=1, rate=rate, **where) as sender:
            sent_cpu_s = sender.result()
        answer = receiver.result()
    after, took = process_cpu_seconds(side.pid), time.monotonic() - began
    samples, seconds = answer["samples"], count / rate
    of_server = float("nan") if before is None or after is None else (after - before) / took
    cpu = [sent_cpu_s / seconds, answer["cpu_s"] / seconds, of_server]
    figures = [percentile(samples, 50), percentile(samples, 99), max(samples)]
    return [*(f"{figure:.2f}" for figure in figures), *(f"{100 * part:.1f}" for part in cpu)]


def delayed(seconds: int) -> None:
    """The same on a store that takes 20 ms for a GET and 50 ms for a PUT."""
    with s3_or_none() as s3:
        if s3 is None:
            return
        warm_up = 2 * STORE_RATE
        s3.use(INSTANT)
        with running_gateway(s3.new_root()) as (served, _):
            s3.use(STANDARD_20_50)
            figures = latencies(served, warm_up + STORE_RATE * seconds, rate=STORE_RATE, warm_up=warm_up)
        print(f"End to end over a store of 20/50 ms, {STORE_RATE} records/s for {seconds} s")
        print_table(["", *_LATENCIES], [["gateway", *figures]])
        print()
        add_target("end to end over a store of 20/50 ms, p50 ms", 200, float(figures[0]), is_at_most=True)


def idle(seconds: float) -> None:
    """Connections that have asked for the versions and then say nothing."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root, running_gateway(root) as (served, _):
        before_mib = memory_mib(served.pid)
        with ExitStack() as stack:
            for _ in range(IDLE_CONNECTIONS):
                ask_versions(stack.enter_context(connected(served.bootstrap)))
            cpu, began = process_cpu_seconds(served.pid), time.monotonic()
            time.sleep(seconds)
            used_s = (process_cpu_seconds(served.pid) or float("nan")) - (cpu or 0)
            percent = 100 * used_s / (time.monotonic() - began)
            with_mib = memory_mib(served.pid)
    print(f"{IDLE_CONNECTIONS:,} idle connections for {seconds} s")
    print_table(
        ["", "gateway's memory, MiB", "without them", "CPU %"],
        [["", f"{with_mib:.0f}", f"{before_mib:.0f}", f"{percent:.1f}"]],
    )
    print()
    add_target(f"{IDLE_CONNECTIONS:,} idle connections, MiB", 200, with_mib, is_at_most=True)
    add_target(f"{IDLE_CONNECTIONS:,} idle connections, % of a core", 5, percent, is_at_most=True)


def memory_mib(pid: int) -> float:
    """What a process has in memory; NaN where there is no ``/proc`` to ask."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return float("nan")
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def starts() -> None:
    """From the start of the process to its first answer, with a new cluster."""
    taken = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root, running_gateway(root) as (_, seconds):
            taken.append(seconds)
    print(f"Start to the first answer, {ROUNDS} times: {', '.join(f'{one:.2f}' for one in taken)} s")
    add_target("start, s", 1.5, statistics.median(taken), is_at_most=True)
