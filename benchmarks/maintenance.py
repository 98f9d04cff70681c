"""Maintenance on Spark: merging small files, beside Spark that reads and writes them itself; retention; compaction.

All cases share one session, whose JVM is warm. CPU is all of Spark and its Python workers. Each case works on a copy of
the topic whose data files are hard links.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count as numbers
from itertools import islice
from typing import Any

import pyarrow as pa

from benchmarks.extent import Extent
from benchmarks.harness import Case, Usage, compare, progress
from benchmarks.peers import PARTITIONS, records
from benchmarks.produce import TOPIC
from benchmarks.report import add_target
from benchmarks.spark import Session, spark_session
from sparklog.log.append import TopicWriter
from sparklog.log.cluster import open_cluster
from sparklog.log.state import load_state
from sparklog.log.topic import create_topic

__all__ = ["compact", "optimize", "retention"]

VALUE_SIZE = 100
RECORDS_PER_FILE = 100
MONTH_MS = 30 * 86_400_000
_NUMBERS = numbers()


def optimize(extent: Extent) -> None:
    """Small files into large ones; in a full run also how long a scan takes before and after it."""
    files = extent.of(600, 5_000, 10_000)
    count = files // PARTITIONS * PARTITIONS * RECORDS_PER_FILE
    with spark_and_folder() as (session, folder):
        many = a_topic(f"{folder}/many", count, records_per_file=RECORDS_PER_FILE)
        size = parquet_bytes(many)
        few = copy_of(many)
        session.usage("optimize_topic", root=few, count=count)
        print(
            f"Merges {live_files(many):,} files of {count:,} records, {size / 1e6:,.0f} MB of Parquet, into "
            f"{live_files(few)}"
        )
        cases = [
            Case("Spark reads and writes them", partial(fresh, session, "rewrite_plainly", many, count), is_peer=True),
            Case("optimize", partial(fresh, session, "optimize_topic", many, count)),
        ]
        for case in cases:
            case.work()  # the JVM compiles
        plainly, merging = compare(cases).values()
        for case, usage in zip(cases, (plainly, merging), strict=True):
            print(f"{case.name}: {size / usage.wall_s / 1e6:,.0f} MB/s of Parquet")
        add_target("merging small files: wall, × Spark's plain rewriting", 0.7, plainly.wall_s / merging.wall_s)
        if extent is Extent.USUAL:  # scans have no target here
            return
        print("Reads the topic's view: count(*), sum(length(value))")
        work = {"topic": TOPIC, "count": count, "value_bytes": count * VALUE_SIZE}
        scans = [
            Case(f"{when} optimize", partial(session.usage, "read_view", root=root, **work))
            for when, root in (("before", many), ("after", few))
        ]
        for case in scans:
            case.work()
        compare(scans)


def retention(extent: Extent) -> None:
    """Files that are too old leave by commits of the log alone."""
    files = extent.of(600, 10_000, 10_000)
    count = files // PARTITIONS * PARTITIONS
    print(f"Removes {count:,} files that are too old")
    with spark_and_folder() as (session, folder):
        old = a_topic(f"{folder}/old", count, records_per_file=1, age_ms=MONTH_MS)
        case = Case("run_retention", partial(fresh, session, "retain", old, count))
        case.work()
        [usage] = compare([case]).values()
        print(f"{usage.wall_s:.2f} s beside the session's start")
        add_target("retention of 10,000 files, s", 2, usage.wall_s * 10_000 / count, is_at_most=True)


def compact(extent: Extent) -> None:
    """Ten records of each key, in a hundred files; the last one stays, but for the newest files."""
    count = extent.of(100_000, 200_000, 1_000_000)
    print(f"Compacts {count:,} records of {count // 10:,} keys, values of {VALUE_SIZE} bytes, {PARTITIONS} partitions")
    with spark_and_folder() as (session, folder):
        configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01}
        keyed = a_topic(f"{folder}/keyed", count, records_per_file=count // 100, keys=count // 10, configs=configs)
        cases = [
            Case(name, partial(fresh, session, "compact_topic", keyed, count, small_bytes=small_bytes))
            for name, small_bytes in (("by a shuffle", 0), ("the driver alone", 2**40))
        ]
        for case in cases:
            case.work()
        compare(cases)


@contextmanager
def spark_and_folder() -> Iterator[tuple[Session, str]]:
    with spark_session() as session, tempfile.TemporaryDirectory() as folder:
        yield session, folder


def a_topic(
    root: str,
    count: int,
    *,
    records_per_file: int,
    keys: int | None = None,
    age_ms: int = 0,
    configs: Mapping[str, object] | None = None,
) -> str:
    """Fill a topic, a file in each partition at a time; the newest files, which jobs leave alone, are among them.

    Args:
        keys: how many there are, each in one partition, where they go round; else as many as records.
    """
    progress("filling a topic")
    cluster = open_cluster(root)
    log = cluster.topic_log(TOPIC)
    create_topic(log, TOPIC, num_partitions=PARTITIONS, configs=dict(configs or {}))
    writer = TopicWriter(log, TOPIC)
    source = records(count, VALUE_SIZE)
    timestamp = cluster.clock.now_ms() - age_ms
    for start in range(0, count, records_per_file * PARTITIONS):
        batches = []
        for partition in range(PARTITIONS):
            block = [*islice(source, records_per_file)]
            if not block:
                break
            first = start // PARTITIONS
            names = [key for key, _ in block]
            if keys is not None:
                names = [b"%d-%d" % (partition, (first + at) % (keys // PARTITIONS)) for at in range(len(block))]
            columns = {
                "key": pa.array(names, pa.binary()),
                "value": pa.array([value for _, value in block], pa.binary()),
                "timestamp": pa.array([timestamp] * len(block), pa.int64()),
            }
            batches.append((partition, pa.table(columns)))
        writer.append(writer.upload(batches), deadline=log.clock.deadline_in(60_000))
    writer.close()
    progress("")
    return root


def copy_of(root: str) -> str:
    """Another cluster with the same files; what is written into one isn't seen in the other."""
    to = f"{root}-{next(_NUMBERS)}"
    shutil.copytree(root, to, copy_function=os.link)
    return to


def fresh(session: Session, work: str, root: str, count: int, **arguments: Any) -> Usage:
    """Do it to a copy."""
    at = copy_of(root)
    try:
        return session.usage(work, root=at, count=count, **arguments)
    finally:
        shutil.rmtree(at)


def live_files(root: str) -> int:
    return load_state(open_cluster(root).topic_log(TOPIC)).head.live_file_count


def parquet_bytes(root: str) -> int:
    index = load_state(open_cluster(root).topic_log(TOPIC)).require_whole().index
    return sum(segment.size_bytes for number in index.partitions() for segment in index.partition(number))
