"""The log layer: appends a second, and how long opening takes as a topic grows old.

The peer is ``deltalake.write_deltalake`` in append mode, which is what a Python process would use to add small batches
to a Delta table; it is run on the same machine, in the same run, with the same records.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.extent import Extent
from benchmarks.shared import lent
from sparklog.delta.log import DeltaLog
from sparklog.log.append import TopicWriter
from sparklog.log.cluster import Cluster, open_cluster
from sparklog.log.follow import TopicFollower
from sparklog.log.maintenance import Checkpoints
from sparklog.log.topic import create_topic

RECORDS_PER_APPEND = 100
TOPIC = "bench"


def records() -> pa.Table:
    """100 records of 100 bytes with 16-byte keys."""
    now_ms = time.time_ns() // 1_000_000
    return pa.table(
        {
            "key": [b"key-%012d" % number for number in range(RECORDS_PER_APPEND)],
            "value": [b"v" * 100] * RECORDS_PER_APPEND,
            "timestamp": pa.array([now_ms] * RECORDS_PER_APPEND, pa.int64()),
        }
    )


Span = tuple[float, float, float]
"""Wall time at the start and the end of a writer's appends, and the CPU seconds between them."""


def append_sparklog(root: str, count: int, sync: bool) -> Span:
    log = open_cluster(root).topic_log(TOPIC)
    writer = TopicWriter(log, TOPIC, sync=sync)
    batch = records()
    began, cpu = time.time(), time.process_time()
    for _ in range(count):
        writer.append(writer.upload([(0, batch)]), deadline=log.clock.deadline_in(600_000))
    writer.close()
    return began, time.time(), time.process_time() - cpu


def append_deltalake(root: str, count: int, sync: bool) -> Span:
    batch = records()
    began, cpu = time.time(), time.process_time()
    for _ in range(count):
        write_deltalake(f"{root}/peer", batch, mode="append")
    return began, time.time(), time.process_time() - cpu


def timed(work: Callable[[str, int, bool], Span], root: str, *, writers: int, count: int, sync: bool) -> Span:
    """Of ``writers`` processes that do ``count`` appends each, from the first one's first to the last one's last."""
    if writers == 1:
        return work(root, count, sync)
    with ProcessPoolExecutor(writers, mp_context=multiprocessing.get_context("spawn")) as pool:
        spans = list(pool.map(work, [root] * writers, [count] * writers, [sync] * writers))
    return min(span[0] for span in spans), max(span[1] for span in spans), sum(span[2] for span in spans)


def append_rate(extent: Extent) -> None:
    """Appends a second with 1 and 8 writers, beside deltalake's with one."""
    total = extent.of(160, 400, 1_600)
    print(f"Appends of {RECORDS_PER_APPEND} records (100 bytes, 16-byte keys), one commit each, local folder")
    print(f"{'':34}{'appends':>9}{'per s':>9}{'CPU ms each':>13}")
    cases: list[tuple[str, Callable[[str, int, bool], Span], int, bool]] = [
        ("sparklog, 1 writer", append_sparklog, 1, False),
        ("sparklog, 1 writer, fsync", append_sparklog, 1, True),
        ("sparklog, 8 writer processes", append_sparklog, 8, False),
        ("deltalake write_deltalake, 1 writer", append_deltalake, 1, False),
    ]
    for name, work, writers, sync in cases:
        with tempfile.TemporaryDirectory() as root:
            create_topic(open_cluster(root).topic_log(TOPIC), TOPIC)
            count = (total if work is append_sparklog else total // 8) // writers
            began, ended, cpu = timed(work, root, writers=writers, count=count, sync=sync)
            done = count * writers
            print(f"{name:34}{done:>9}{done / (ended - began):>9.0f}{cpu / done * 1000:>13.2f}", flush=True)


def median_ms(work: Callable[[], object], *, times: int) -> float:
    samples = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        samples.append((time.perf_counter() - began) * 1000)
    return statistics.median(samples)


def grow(cluster: Cluster, *, to_version: int) -> None:
    """Append until the topic is at ``to_version``, with checkpoints as its own writers would write them."""
    checkpoints = Checkpoints(run=lambda work: work(), max_delay_ms=0)
    writer = TopicWriter(cluster.topic_log(TOPIC), TOPIC, checkpoints=checkpoints)
    batch = records().slice(0, 1)
    while writer.state.position.version < to_version:
        writer.append(writer.upload([(0, batch)]), deadline=cluster.clock.deadline_in(60_000))


def old_age(extent: Extent) -> int:
    """Commits of an old topic."""
    return extent.of(1_000, 20_000, 20_000)


@contextmanager
def growing_topic() -> Iterator[str]:
    """The root of a cluster whose topic is to be grown; whoever comes later finds it as old as it was left."""
    with lent("growing topic", _new_topic) as root:
        yield root


@contextmanager
def _new_topic() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as root:
        create_topic(open_cluster(root).topic_log(TOPIC), TOPIC)
        yield root


def open_time(extent: Extent) -> None:
    """Time to open for writing, to load for reading, to append and to poll, at three ages; beside deltalake's open."""
    ages = (10, extent.of(100, 1_000, 1_000), old_age(extent))
    print("Milliseconds (median) at an age of so many commits, one file each, local folder")
    print(f"{'commits':>9}{'open to write':>15}{'append':>9}{'load to read':>14}{'idle poll':>11}{'DeltaTable()':>14}")
    with growing_topic() as root:
        cluster = open_cluster(root)
        log = cluster.topic_log(TOPIC)
        for age in ages:
            grow(cluster, to_version=age)
            print(measured_at(log, age, peer=str(Path(root) / log.table)), flush=True)


def measured_at(log: DeltaLog, age: int, *, peer: str) -> str:
    """A row of the table."""
    none = Checkpoints(run=lambda work: None)
    batch = records().slice(0, 1)
    writer = TopicWriter(log, TOPIC, checkpoints=none)
    opened = median_ms(lambda: TopicWriter(log, TOPIC, checkpoints=none), times=20)
    appended = median_ms(
        lambda: writer.append(writer.upload([(0, batch)]), deadline=log.clock.deadline_in(60_000)), times=20
    )
    loaded = median_ms(lambda: TopicFollower(log, TOPIC), times=3)
    follower = TopicFollower(log, TOPIC)
    polled = median_ms(follower.poll, times=50)
    opened_by_peer = median_ms(lambda: DeltaTable(peer), times=3)
    return f"{age:>9}{opened:>15.2f}{appended:>9.2f}{loaded:>14.1f}{polled:>11.3f}{opened_by_peer:>14.1f}"
