"""Consuming from an object store: a topic from its beginning, idle consumers, and opening many topics."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from benchmarks.consume import poll_batches_sparklog, poll_sparklog
from benchmarks.extent import Extent
from benchmarks.harness import Usage, print_table, progress, run, used
from benchmarks.peers import sparklog_topic
from benchmarks.produce import TOPIC, send_sparklog
from benchmarks.stores.delayed_s3 import INSTANT, PROFILES, STANDARD_20_50, DelayedS3
from benchmarks.stores.figures import COST_HEADING, cost_cells

__all__ = ["consuming", "idle_consumers", "opening"]

VALUE_SIZE = 100
MONTH_S = 30 * 86_400


def consuming(s3: DelayedS3, extent: Extent) -> Mapping[str, float]:
    """A topic of a million records, by records and by Arrow batches."""
    count = extent.of(200_000, 1_000_000, 1_000_000)
    profiles = (INSTANT, STANDARD_20_50) if extent.is_quick else PROFILES
    root = s3.new_root()
    s3.use(INSTANT)
    sparklog_topic(root, TOPIC)
    run(send_sparklog, root=root, count=count, value_size=VALUE_SIZE, linger_ms=50)
    rows = []
    for work, name in ((poll_sparklog, "poll"), (poll_batches_sparklog, "poll_batches")):
        for profile in profiles:
            progress(f"{name}, {profile.name}")
            s3.use(profile)
            how = {"max_poll_records": 500} if work is poll_sparklog else {}
            usage = Usage(**run(work, root=root, count=count, value_size=VALUE_SIZE, **how))
            cost = cost_cells(usage.requests, count / 1_000_000, profile.prices)
            rows.append(
                [f"{name}, {profile.name}", f"{usage.per_second:,.0f}", f"{usage.cpu_s_per_million:.2f}", *cost]
            )
    progress("")
    print(f"One consumer, {count:,} records of {VALUE_SIZE} bytes, with its opening; requests of a million records")
    print_table(["", "per s", "CPU s per million", *COST_HEADING], rows)
    return {}


def idle_consumers(s3: DelayedS3, extent: Extent) -> Mapping[str, float]:
    """Consumers of one topic in one process to which nothing comes."""
    seconds = extent.of(3.0, 6.0, 15.0)
    root = s3.new_root()
    s3.use(INSTANT)
    sparklog_topic(root, TOPIC)
    run(send_sparklog, root=root, count=100, value_size=VALUE_SIZE)
    rows, figures = [], {}
    for profile in (INSTANT, STANDARD_20_50) if extent.is_full else (STANDARD_20_50,):
        for consumers in extent.of((1, 8), (1,), (1, 8)):
            progress(f"{consumers} idle consumers, {profile.name}")
            s3.use(profile)
            usage = Usage(**run(idle, root=root, consumers=consumers, seconds=seconds))
            cpu = 100 * usage.cpu_s / usage.wall_s
            cost = cost_cells(usage.requests, usage.wall_s, profile.prices)
            cost[-1] = cost_cells(usage.requests, usage.wall_s / MONTH_S, profile.prices)[-1]
            rows.append([f"{consumers}, {profile.name}", f"{cpu:.2f}", *cost])
            if consumers == 1:
                figures[f"{profile.name}: CPU of an idle consumer"] = cpu
                figures[f"{profile.name}: GETs a second of an idle consumer"] = (usage.requests or {}).get(
                    "GET", 0.0
                ) / usage.wall_s
    progress("")
    print(f"Idle consumers of one topic in one process, for {seconds:.0f} s; requests a second, $ a month of 30 days")
    print_table(["", "CPU %", *COST_HEADING], rows)
    return figures


def idle(root: str, *, consumers: int, seconds: float) -> Usage:
    """Poll with so many consumers, each in a thread of its own, as nothing comes."""
    from sparklog.consumer import Consumer

    opened = threading.Barrier(consumers + 1, timeout=60)
    may_end = threading.Event()

    def poll() -> None:
        consumer = Consumer(TOPIC, cluster=root, auto_offset_reset="latest")
        consumer.poll(timeout_ms=500)
        opened.wait()
        while not may_end.is_set():
            consumer.poll(timeout_ms=1000)
        consumer.close()

    threads = [threading.Thread(target=poll) for _ in range(consumers)]
    for thread in threads:
        thread.start()
    opened.wait()
    with used(1) as usage:
        time.sleep(seconds)
    may_end.set()
    for thread in threads:
        thread.join()
    return usage


def opening(s3: DelayedS3, extent: Extent) -> Mapping[str, float]:
    """From a consumer's construction until it has returned a record of each of its topics."""
    root = s3.new_root()
    names = [f"topic-{number:03d}" for number in range(extent.of(20, 200, 200))]
    s3.use(INSTANT)
    run(fill_topics, root=root, names=names)
    rows = []
    for profile in (STANDARD_20_50,) if extent.is_quick else PROFILES:
        for some in (names[:1], names):
            progress(f"opening {len(some)} topics, {profile.name}")
            s3.use(profile)
            usage = Usage(**run(first_records, root=root, names=some))
            cost = cost_cells(usage.requests, 1, profile.prices)
            rows.append([f"{len(some)}, {profile.name}", f"{usage.wall_s:.2f}", f"{usage.cpu_s:.2f}", *cost])
    progress("")
    print("Topics with a record each: from Consumer() until poll has returned them all; requests of it")
    print_table(["", "s", "CPU s", *COST_HEADING], rows)
    return {}


def fill_topics(root: str, *, names: list[str]) -> None:
    """Create topics, and send a record to each."""
    from sparklog.producer import Producer

    for name in names:
        sparklog_topic(root, name, partitions=1)
        with Producer(root, acks=1) as producer:
            producer.send(name, value=b"x")


def first_records(root: str, *, names: list[str]) -> Usage:
    """Read the record of each topic."""
    from sparklog.consumer import Consumer

    seen = 0
    with used(len(names)) as usage:
        consumer = Consumer(*names, cluster=root, auto_offset_reset="earliest")
        while seen < len(names):
            seen += sum(map(len, consumer.poll(timeout_ms=1000).values()))
    consumer.close()
    return usage
