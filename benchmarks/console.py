"""The console and the exporter with very many topics: the overview of one that starts, and of one that runs, where each
request takes 20 ms; memory of the exporter; and a record found by its key."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from benchmarks.extent import Extent
from benchmarks.filled import filled_folder
from benchmarks.harness import print_table, progress, run
from benchmarks.produce import TOPIC
from benchmarks.report import add_target
from sparklog.parallel import parallel_map
from sparklog.testing import WrappedStore

__all__ = ["console"]

T = TypeVar("T")

PARTITIONS = 4
VALUE_SIZE = 100
DELAY_S = 0.02
WARM_PAGES = 20
WAIT_S = 60.0


class DelayedStore(WrappedStore):
    """Takes 20 ms for each request; objects that are asked for together come together."""

    def read_many(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        time.sleep(DELAY_S)
        return self._store.read_many(paths)

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        time.sleep(DELAY_S)
        return call()


def fill(root: str, *, topics: int, groups: int) -> None:
    """Topics of four partitions with two files each, and groups that have committed in one of them."""
    from sparklog.admin import Admin
    from sparklog.log.append import TopicWriter
    from sparklog.log.cluster import open_cluster
    from sparklog.log.topic import create_topic
    from sparklog.model import OffsetAndMetadata, TopicPartition

    cluster = open_cluster(root)
    batch = pa.table({"key": [b"k"], "value": [b"v" * VALUE_SIZE], "timestamp": [time.time_ns() // 1_000_000]})

    def create(number: int) -> None:
        log, name = cluster.topic_log(f"topic-{number:04}"), f"topic-{number:04}"
        create_topic(log, name, num_partitions=PARTITIONS)
        writer = TopicWriter(log, name, sync=False)
        for _ in range(2):
            writer.append(
                writer.upload([(each, batch) for each in range(PARTITIONS)]), deadline=log.clock.deadline_in(60_000)
            )
        writer.close()

    def commit(number: int) -> None:
        at = TopicPartition(f"topic-{number % topics:04}", 0)
        Admin(cluster).alter_group_offsets(f"group-{number:03}", {at: OffsetAndMetadata(1)})

    parallel_map(create, range(topics), at_once=4)
    parallel_map(commit, range(groups), at_once=4)


def overview(root: str, *, topics: int, groups: int) -> dict[str, float]:
    """Seconds until a console that starts shows all topics and groups, and of a page of it once it has looked."""
    from sparklog.console import Backend, ConsoleSettings, create_app
    from sparklog.log.cluster import open_cluster
    from sparklog.storage import LocalStore

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from starlette.testclient import TestClient

    began = time.perf_counter()
    store = DelayedStore(LocalStore(Path(root)))
    backend = Backend(lambda: open_cluster(store, create=False), ConsoleSettings())
    with TestClient(create_app(backend), base_url="http://localhost") as client:
        while True:
            page = client.get("/").text
            seen = backend.seen()
            is_overview = 'class="tiles"' in page  # before, it has names alone
            if is_overview and seen is not None and len(seen.topics) == topics and len(seen.groups) == groups:
                cold_s = time.perf_counter() - began
                break
        while backend.figures() is None:
            time.sleep(0.05)
        warm = []
        for _ in range(WARM_PAGES):
            started = time.perf_counter()
            page = client.get("/").text
            warm.append(time.perf_counter() - started)
        if "topic-0000" not in page:
            raise RuntimeError("the overview shows no topic")
    return {"cold_s": cold_s, "warm_s": statistics.median(warm)}


def exporter_mib(root: str) -> float:
    """The most memory of an exporter that has looked and was scraped."""
    command = [sys.executable, "-m", "sparklog", "-c", root, "exporter", "--listen", "127.0.0.1:0", "--interval", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stderr.readline() if process.stderr else ""
            address = line.partition(" at ")[2].strip()
            until = time.monotonic() + WAIT_S
            while time.monotonic() < until:
                with suppress(urllib.error.HTTPError), urllib.request.urlopen(address) as answer:
                    if b"sparklog_up 1" in answer.read():
                        break
                time.sleep(0.2)
            status = Path(f"/proc/{process.pid}/status").read_text()
        finally:
            process.terminate()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def search(root: str) -> dict[str, float]:
    """Seconds to the first record with a key, and to all, where the key's own partition is read alone."""
    from sparklog.console.statements import TopicShape, wanted
    from sparklog.consumer import Consumer
    from sparklog.log.cluster import open_cluster
    from sparklog.sql.search import TopicSearch

    cluster = open_cluster(root)
    with Consumer(TOPIC, cluster=cluster, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        found: dict[Any, Any] = {}
        while not found:
            found = consumer.poll(1_000, max_records=1)
        [[record]] = found.values()
        partitions = consumer.partitions_for_topic(TOPIC) or set()
    shape = TopicShape(name=TOPIC, partition_count=len(partitions), values=None, masks=frozenset(), named_schema=None)
    given = {"mode": "key", "key": record.key.hex(), "key_format": "hex", "home": "1", "limit": "500"}
    began = time.perf_counter()
    first_s, count = None, 0
    for some in TopicSearch(cluster, TOPIC, wanted(given, shape).search):
        count += len(some)
        if count and first_s is None:
            first_s = time.perf_counter() - began
    if first_s is None:
        raise RuntimeError("no record was found by its key")
    return {"first_s": first_s, "all_s": time.perf_counter() - began, "count": count}


def console(extent: Extent) -> None:
    """The overview, cold and warm; the exporter's memory; a search by key."""
    topics, groups = extent.of(100, 1_000, 1_000), extent.of(20, 200, 200)
    with tempfile.TemporaryDirectory() as root:
        progress("creating topics")
        run(fill, root=root, topics=topics, groups=groups)
        page = run(overview, root=root, topics=topics, groups=groups)
        mib = exporter_mib(root)
    count = extent.of(100_000, 1_000_000, 10_000_000)
    with filled_folder(count, VALUE_SIZE) as root:
        found = run(search, root=root)
    print_table(
        ["", "s"],
        [
            [
                f"the overview of {topics:,} topics and {groups} groups, cold, at 20 ms a request",
                f"{page['cold_s']:.2f}",
            ],
            ["the same, warm", f"{page['warm_s']:.3f}"],
            [f"the first record with a key among {count:,}", f"{found['first_s']:.2f}"],
            [f"all {found['count']:,.0f} of them (at most 500)", f"{found['all_s']:.2f}"],
        ],
    )
    print(f"The exporter took {mib:.0f} MiB at most.")
    add_target("overview cold, s", 1.5, page["cold_s"], is_at_most=True)
    add_target("overview warm, s", 0.1, page["warm_s"], is_at_most=True)
    add_target("exporter, MiB", 80, mib, is_at_most=True)
    add_target("search by key: first, s", 0.3, found["first_s"], is_at_most=True)
    add_target("search by key: all, s", 2.0, found["all_s"], is_at_most=True)
