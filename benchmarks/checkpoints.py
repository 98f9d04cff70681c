"""Checkpoints and log cleanup: what one costs, how far a burst leaves its newest checkpoint behind, entries a second.

The peer of the first is deltalake, which writes a checkpoint of the same log.
"""

from __future__ import annotations

import json
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from benchmarks.extent import Extent
from benchmarks.harness import peak_memory_mib, print_table, progress, resident_mib, run
from benchmarks.log import TOPIC, records
from sparklog.clock import SystemClock
from sparklog.delta.actions import Metadata, Protocol
from sparklog.delta.by_deltalake import checkpoint_by_deltalake
from sparklog.delta.checkpoint_writing import next_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.delta.listing import read_hint
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import checkpoint_path, entry_path, last_checkpoint_path
from sparklog.log.append import TopicWriter
from sparklog.log.cluster import open_cluster
from sparklog.log.data.table_schema import SCHEMA_STRING, table_properties
from sparklog.log.topic import create_topic
from sparklog.storage import MemoryStore, ObjectInfo, ObjectStore, open_store
from sparklog.testing import ManualClock, WrappedStore

T = TypeVar("T")
TABLE = "topics/bench"
TAIL = 250
DAY_MS = 86_400_000
CALL_MS = 50.0


def checkpoints(extent: Extent) -> None:
    """Each kind of table in a process of its own, because memory counts."""
    part = extent.of(10, 4, 1)
    rows = []
    for live, removed in ((0, 0), (20_000 // part, 0), (0, 600_000 // part)):
        with tempfile.TemporaryDirectory() as root:
            run(write_objects, root=root, live=live, removed=removed)
            for name, is_peer in (("sparklog", False), ("deltalake", True)):
                progress(f"{name}, {live} live files, {removed} removed")
                cpu_ms, mib, size = run(write_next, root=root, is_peer=is_peer)
                rows.append([name, f"{live:,}", f"{removed:,}", f"{cpu_ms:.0f}", f"{mib:.0f}", f"{size / 1e6:.2f}"])
    progress("")
    print(f"One checkpoint, {TAIL} entries behind the one before")
    print_table(["", "live files", "removed", "CPU ms", "peak MiB", "MB"], rows)


def write_objects(root: str, *, live: int, removed: int) -> None:
    """A checkpoint of version 1, and the entries behind it."""
    first = [entry(TABLE_ACTIONS), entry([*map(an_add, range(live)), *map(a_removal, range(removed))])]
    store = open_store(root)
    store.put(checkpoint_path(TABLE, 1), next_checkpoint({}, first, now_ms=now_ms()).data)
    for number in range(TAIL):
        store.put(entry_path(TABLE, 2 + number), entry([an_add(live + number), a_txn(number)]))


def write_next(root: str, *, is_peer: bool) -> tuple[float, float, int]:
    """CPU milliseconds (median of five), peak memory beyond what was there before, and bytes."""
    store = open_store(root)
    before = {checkpoint_path(TABLE, 1): store.read(checkpoint_path(TABLE, 1))}
    tail = {path: store.read(path) for path in (entry_path(TABLE, 2 + number) for number in range(TAIL))}
    resident, taken, size = resident_mib(), [], 0
    for _ in range(5):
        began = time.process_time()
        if is_peer:
            size = len(checkpoint_by_deltalake(TABLE, 1 + TAIL, {**before, **tail}).data)
        else:
            size = len(next_checkpoint(before, tail.values(), now_ms=now_ms()).data)
        taken.append((time.process_time() - began) * 1000)
    return statistics.median(taken), peak_memory_mib() - resident, size


def burst(extent: Extent) -> None:
    """Single-record commits as fast as they go, and how many versions then follow the newest checkpoint."""
    count = extent.of(500, 2_000, 5_000)
    with tempfile.TemporaryDirectory() as root:
        log = open_cluster(root).topic_log(TOPIC)
        create_topic(log, TOPIC)
        writer = TopicWriter(log, TOPIC)
        batch = records().slice(0, 1)
        cpu, began, most = time.process_time(), time.perf_counter(), 0
        for number in range(count):
            writer.append(writer.upload([(0, batch)]), deadline=log.clock.deadline_in(60_000))
            if number % 25 == 0:
                most = max(most, writer.state.position.version - read_hint(log))
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
        left = writer.state.position.version - read_hint(log)
        writer.close()
        closed = writer.state.position.version - read_hint(log)
    print(f"{count} commits of one record, local folder: {count / wall:.0f}/s, {cpu / count * 1000:.2f} ms of CPU each")
    print(f"versions behind the newest checkpoint: {most} at most, {left} at the end, {closed} after close()")


def cleanup(extent: Extent) -> None:
    """Old entries deleted a second: in a folder, and on a store whose every request takes 50 ms."""
    count = extent.of(2_000, 5_000, 20_000)
    rows = []
    with tempfile.TemporaryDirectory() as root:
        folder = old_log(open_cluster(root).store, SystemClock(), count, age_ms=0)
        began = time.perf_counter()
        deleted = clean_entries(folder)
        rows.append(["local folder", f"{deleted:,}", f"{deleted / (time.perf_counter() - began):,.0f}"])
    clock = ManualClock()
    slow = old_log(SlowStore(MemoryStore(clock=clock), clock), clock, count, age_ms=2 * DAY_MS)
    began_ms = clock.ticks_ms()
    deleted = clean_entries(slow)
    rows.append(
        [f"{CALL_MS:.0f} ms a request", f"{deleted:,}", f"{deleted / (clock.ticks_ms() - began_ms) * 1000:,.0f}"]
    )
    print("Log entries deleted by one cleanup, and a second")
    print_table(["", "entries", "per s"], rows)


class SlowStore(WrappedStore):
    """Each request takes its time: of a listing each page of 1,000 names, of a bulk delete four of 1,000 at a time."""

    def __init__(self, store: ObjectStore, clock: ManualClock) -> None:
        super().__init__(store)
        self._clock = clock

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        for number, found in enumerate(self._store.list(prefix, after=after)):
            if number % 1_000 == 0:
                self._clock.advance(CALL_MS)
            yield found

    def delete(self, paths: Iterable[str]) -> None:
        gone = [*paths]
        self._clock.advance(CALL_MS * -(-len(gone) // 4_000))
        self._store.delete(gone)

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        self._clock.advance(CALL_MS)
        return call()


def old_log(store: ObjectStore, clock: SystemClock | ManualClock, count: int, *, age_ms: float) -> DeltaLog:
    """A log of so many entries and a checkpoint of the last but one of them; then ``age_ms`` pass before the last."""
    inner = store._store if isinstance(store, SlowStore) else store
    data = [entry(TABLE_ACTIONS), *(entry([an_add(number), a_txn(number)]) for number in range(count - 1))]
    for version, found in enumerate(data):
        inner.create(entry_path(TABLE, version), found)
    encoded = next_checkpoint({}, data, now_ms=now_ms())
    inner.create(checkpoint_path(TABLE, count - 1), encoded.data)
    inner.put(last_checkpoint_path(TABLE), json.dumps({"version": count - 1, "size": encoded.row_count}).encode())
    if isinstance(clock, ManualClock):
        clock.advance(age_ms)
    inner.create(entry_path(TABLE, count), entry([an_add(count)]))
    return DeltaLog(store=store, table=TABLE, clock=clock, tail_trust_ms=0)


def clean_entries(log: DeltaLog) -> int:
    result = clean_log(log, retention_ms=0)
    return 0 if result is None else result.deleted_count


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def entry(actions: Iterable[Mapping[str, object]]) -> bytes:
    return "\n".join(map(json.dumps, [{"commitInfo": {"timestamp": 1}}, *actions])).encode()


TABLE_ACTIONS = [
    Protocol(min_reader_version=1, min_writer_version=2).to_json(),
    Metadata(
        table_id="bench",
        schema_string=SCHEMA_STRING,
        partition_columns=("partition", "base_offset"),
        configuration=table_properties(),
    ).to_json(),
]


def an_add(number: int) -> dict[str, object]:
    bounds = {"offset_delta": 0, "timestamp": "2026-11-21T10:00:00.000Z", "producer_id": number * 7, "sequence": number}
    stats = {"numRecords": 1, "minValues": bounds, "maxValues": bounds, "nullCount": dict.fromkeys(bounds, 0)}
    return {
        "add": {
            "path": f"partition={number % 12}/{secrets.token_hex(16)}.parquet",
            "partitionValues": {"partition": str(number % 12), "base_offset": str(number)},
            "size": 1_000 + number % 777,
            "modificationTime": now_ms(),
            "dataChange": True,
            "stats": json.dumps(stats, separators=(",", ":")),
        }
    }


def a_removal(number: int) -> dict[str, object]:
    path = f"partition={number % 12}/{secrets.token_hex(16)}.parquet"
    return {"remove": {"path": path, "deletionTimestamp": now_ms(), "dataChange": False}}


def a_txn(number: int) -> dict[str, object]:
    return {"txn": {"appId": str(number % 3), "version": number, "lastUpdated": now_ms()}}
