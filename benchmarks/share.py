"""Share groups: members that take records of a topic and accept them, each a process of its own."""

from __future__ import annotations

import multiprocessing
import tempfile
import time

from benchmarks.extent import Extent
from benchmarks.harness import print_table, progress
from benchmarks.peers import expect
from benchmarks.report import add_target

__all__ = ["share"]

PARTITIONS = 8
TOPIC = "bench"


def share(extent: Extent) -> None:
    """Records of 100 bytes that a group accepts, by members and records a poll; no peer: Kafka's broker does the work
    of its members."""
    count = extent.of(40_000, 200_000, 400_000)
    groups = [(8, 500), (8, 2_000), (1, 500), (16, 500)][: extent.of(4, 1, 4)]
    print(f"A share group, {count:,} records of 100 bytes, {PARTITIONS} partitions, implicit acknowledgement; a folder")
    rows = []
    for members, max_records in groups:
        progress(f"share {members} members")
        with tempfile.TemporaryDirectory() as root:
            seconds, cpu_s = run_group(root, members, max_records, count)
        if (members, max_records) == (8, 500):
            add_target("a share group of 8 members, records/s", 20_000, count / seconds)
        rows.append((str(members), f"{max_records:,}", f"{count / seconds:,.0f}", f"{cpu_s / count * 1e6:.1f}"))
    print_table(["members", "records a poll", "records/s", "CPU µs a record"], rows)


def run_group(root: str, members: int, max_records: int, count: int) -> tuple[float, float]:
    """Seconds, and CPU seconds of all members, from a common start, before they join, until all is accepted."""
    from sparklog import Admin, NewTopic, Producer

    with Admin(root) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])
    with Producer(root) as producer:
        for number in range(count):
            producer.send(TOPIC, b"x" * 100, partition=number % PARTITIONS)
    context = multiprocessing.get_context("spawn")
    begin, results = context.Barrier(members + 1), context.Queue()
    left = context.Value("q", count)
    processes = [context.Process(target=_take, args=(root, max_records, begin, left, results)) for _ in range(members)]
    for process in processes:
        process.start()
    begin.wait()
    began = time.perf_counter()
    found = [results.get() for _ in processes]
    seconds = max(end for _, _, end in found) - began
    for process in processes:
        process.join()
    expect("records accepted", sum(taken for taken, _, _ in found), count)
    return seconds, sum(cpu_s for _, cpu_s, _ in found)


def _take(root: str, max_records: int, begin: object, left: object, results: object) -> None:
    from sparklog import ShareConsumer

    taken = 0
    with ShareConsumer(TOPIC, cluster=root, group_id="g", share_auto_offset_reset="earliest") as consumer:
        begin.wait()  # type: ignore[attr-defined]
        cpu_s, end = time.process_time(), 0.0
        while left.value > 0:  # type: ignore[attr-defined]
            found = sum(map(len, consumer.poll(50, max_records=max_records).values()))
            if found:
                consumer.commit_sync()
                taken += found
                end = time.perf_counter()
                with left.get_lock():  # type: ignore[attr-defined]
                    left.value -= found  # type: ignore[attr-defined]
        results.put((taken, time.process_time() - cpu_s, end))  # type: ignore[attr-defined]
