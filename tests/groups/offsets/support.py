"""What tests of offset tables need: a cluster in memory on a clock that stands still, short words for changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sparklog.clock import Clock
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.delta.log import DeltaLog
from sparklog.groups.offsets.changes import GENERATION_FENCE, Change, CommitOffsets, CommitUnowned, TakePartitions
from sparklog.groups.offsets.offset_commit import Changed
from sparklog.groups.offsets.offset_maintenance import sweep
from sparklog.groups.offsets.offset_state import load_state, load_whole
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.rows import OffsetRow, Rows, Stamp
from sparklog.log.cluster import Cluster
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.storage import LocalStore, MemoryStore, ObjectStore
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import ManualClock
from tests.support import DAY_MS, T0_MS

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
ANN, BOB, EVE = Stamp(1, "ann"), Stamp(2, "bob"), Stamp(3, "eve")
HOUR_MS = 3_600_000


def a_cluster(store: ObjectStore | None = None, clock: Clock | None = None) -> Cluster:
    """A cluster that costs no call to open."""
    clock = clock or ManualClock(start_ms=T0_MS)
    store = store if store is not None else MemoryStore(clock=clock)
    return Cluster(cluster_id="c", store=RetryingStore(store, clock=clock), clock=clock)


def a_table(store: ObjectStore | None = None, clock: Clock | None = None) -> OffsetTable:
    return OffsetTable(a_cluster(store, clock), "g")


def change(table: OffsetTable, *changes: Change, timeout_ms: float = 120_000) -> Changed:
    """Carry changes out; refusals are returned."""
    return table.change(changes, deadline_ticks_ms=table.log.clock.ticks_ms() + timeout_ms)


def do(table: OffsetTable, *changes: Change, timeout_ms: float = 120_000) -> Rows:
    """Carry changes out; a refusal is raised."""
    done = change(table, *changes, timeout_ms=timeout_ms)
    for error in done.errors:
        if error is not None:
            raise error
    return done.rows


def take(stamp: Stamp, *partitions: TopicPartition, topic_id: str = "id") -> TakePartitions:
    return TakePartitions(topic_ids=dict.fromkeys(partitions, topic_id), stamp=stamp)


def commit(stamp: Stamp, offsets: Mapping[TopicPartition, int], *, metadata: str = "") -> CommitOffsets:
    return CommitOffsets(
        offsets={partition: OffsetAndMetadata(offset, metadata) for partition, offset in offsets.items()},
        stamps=dict.fromkeys(offsets, stamp),
        topic_ids={},
    )


def unowned(offsets: Mapping[TopicPartition, int], *, generation: int = 0) -> CommitUnowned:
    return CommitUnowned(
        offsets={partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()},
        topic_ids=dict.fromkeys(offsets, "id"),
        generation=generation,
    )


def a_row(
    offset: int | None = 5, *, stamp: Stamp = ANN, topic_id: str = "id", at_ms: int = T0_MS, metadata: str = ""
) -> OffsetRow:
    committed = None if offset is None else OffsetAndMetadata(offset, metadata)
    return OffsetRow(topic_id=topic_id, stamp=stamp, committed=committed, commit_timestamp_ms=at_ms)


def a_fence(generation: int, *, at_ms: int = T0_MS) -> dict[TopicPartition, OffsetRow]:
    """The row that stays when rows are deleted."""
    return {GENERATION_FENCE: a_row(None, stamp=Stamp(generation, ""), topic_id="", at_ms=at_ms)}


def offsets_of(rows: Rows) -> dict[TopicPartition, int | None]:
    return {partition: row.committed.offset if row.committed else None for partition, row in rows.items()}


def two_days_of_commits(memory: MemoryStore, clock: ManualClock) -> None:
    """Others commit for P2 over two days; then what only the past needs is deleted: log entries and data files."""
    table = a_table(memory, clock)
    for number in range(8):
        do(table, unowned({P2: number}, generation=9))
        clock.advance(DAY_MS / 4)
    write_checkpoint(table.log)
    do(table, unowned({P2: 99}, generation=9))
    assert sweep(table.log) > 0
    cleaned = clean_log(table.log, retention_ms=DAY_MS)
    assert cleaned is not None
    assert cleaned.deleted_count > 0


def check_whole(memory: MemoryStore, clock: Clock) -> Rows:
    """The table reads the same from its newest commit and as a whole, and takes another commit."""
    table = a_table(memory, clock)
    rows = table.fetch()
    log: DeltaLog = table.log
    assert load_whole(log)[0].rows == load_state(log).rows == rows
    assert do(table, unowned({TopicPartition("goes on", 0): 1}, generation=10**6)).items() >= rows.items()
    return rows


def copy_to(memory: MemoryStore, folder: Path) -> str:
    """Lay a store's objects into a folder, for engines that read no memory; returns where the table is."""
    local = LocalStore(folder)
    for found in memory.list(""):
        local.put(found.path, memory.read(found.path))
    return f"{folder}/groups/g/offsets"
