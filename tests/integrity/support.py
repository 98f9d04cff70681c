"""What tests of the check need: a healthy cluster that has everything, words for findings, and planting damage."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sparklog.compaction import OptimizePolicy, maintain
from sparklog.delta.actions import RemoveFile
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path
from sparklog.groups.offsets.changes import Change, CommitOffsets, TakePartitions
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.rows import Stamp
from sparklog.integrity import Code, Report, Severity, check_cluster
from sparklog.log import Cluster, create_topic, delete_records, delete_topic, sequence_topic
from sparklog.log.commit import Commit, commit
from sparklog.log.data.data_files import UploadedFile
from sparklog.log.data.encode import encode_batch
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.producer_stamp import ProducerStamp
from sparklog.log.head import TopicHead
from sparklog.log.state import TopicState, load_state
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.paths import new_data_file
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.compaction.support import append_at, append_pairs
from tests.support import (
    DAY_MS,
    T0_MS,
    a_writer,
    append,
    foreign_commit,
    foreign_file,
    foreign_records,
    records,
    resealed,
    unsequenced_file,
)
from tests.txn.support import Driver, a_cluster, with_generation

Lines = list[dict[str, Any]]
ANN = Stamp(1, "ann")


def a_plain_world(*, appends: int = 4, partitions: int = 1) -> tuple[MemoryStore, ManualClock, Cluster, DeltaLog]:
    """A cluster with one topic ``t``, to which a writer appended two records at a time, a second apart."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    cluster = a_cluster(memory, clock)
    log = cluster.topic_log("t")
    create_topic(log, "t", num_partitions=partitions)
    writer = a_writer(log)
    for number in range(appends):
        clock.advance(1_000)
        append(writer, f"a{number}", f"b{number}")
    return memory, clock, cluster, log


def a_full_world() -> tuple[MemoryStore, ManualClock, Cluster]:
    """A cluster in which everything has happened that may happen to one that is used as it is meant to be."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    cluster = a_cluster(memory, clock)
    for topic, configs in (
        ("t", {}),
        ("u", {}),
        ("keyed", {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}),
        ("cut", {}),
        ("again", {}),
        ("gone", {}),
        ("in", {}),
    ):
        create_topic(cluster.topic_log(topic), topic, num_partitions=2, configs=configs)
    _transactions(cluster, clock)
    keyed = a_writer(cluster.topic_log("keyed"), topic="keyed")
    for number in range(6):
        append_pairs(keyed, [("a", str(number)), ("b", None if number == 3 else str(number))])
    cut = cluster.topic_log("cut")
    writer = a_writer(cut, topic="cut")
    append_at(writer, T0_MS - 8 * DAY_MS, "old", "too")
    for number in range(6):
        append(writer, f"x{number}", f"y{number}", partition=number % 2)
    delete_records(cut, "cut", {1: 1})
    _by_others(cut)
    write_checkpoint(cut)
    maintain(cluster, policy=OptimizePolicy(min_files=3))
    for number in range(3):
        append(writer, f"z{number}")
    writer.upload([(0, records("never committed"))])
    unsequenced_file(cut, "waits")
    for topic in ("again", "gone"):
        append(a_writer(cluster.topic_log(topic), topic=topic), "one", "two", partition=1)
        delete_topic(cluster.topic_log(topic), topic)
    create_topic(cluster.topic_log("again"), "again", num_partitions=1)
    append(a_writer(cluster.topic_log("again"), topic="again"), "anew")
    _group(cluster)
    return memory, clock, cluster


def _transactions(cluster: Cluster, clock: ManualClock) -> None:
    _take(cluster)
    driver = Driver(cluster).init()
    for number in range(3):
        driver.begin()
        driver.send("t", f"{number}", partition=0)
        driver.send("t", f"{number}", f"{number}", partition=1)
        driver.send("u", f"{number}")
        driver.send_offset(number)
        driver.commit()
        clock.advance(10)
    driver.begin()
    driver.send("t", "aborted")
    driver.send_offset(9)
    driver.abort()
    Driver(cluster).init().begin()  # fenced the first one, and may have one open


def _take(cluster: Cluster) -> None:
    at = TopicPartition("in", 0)
    append(a_writer(cluster.topic_log("in"), topic="in"), *map(str, range(10)))
    topic_id = load_state(cluster.topic_log("in")).head.topic_id
    changes: list[Change] = [
        TakePartitions(topic_ids={at: topic_id}, stamp=ANN),
        CommitOffsets(offsets={at: OffsetAndMetadata(5)}, stamps={at: ANN}, topic_ids={at: topic_id}),
    ]
    with_generation(cluster, "g", ANN)
    done = OffsetTable(cluster, "g").change(changes, deadline=cluster.clock.deadline_in(60_000))
    assert done.errors == (None, None)


def _by_others(log: DeltaLog) -> None:
    """Another engine appends, with numbers that leave gaps; deletes a record, and merges two files."""
    add = foreign_file(log, foreign_records("f0", "f1", "f2", deltas=[0, 2, 5]))
    foreign_commit(log, add)
    sequence_topic(log)
    segment = load_state(log).require_whole().index.partition(0)[1]
    kept = foreign_records("x0", deltas=[0])
    rewritten = foreign_file(log, kept, base_offset=segment.base_offset)
    foreign_commit(log, RemoveFile(path=segment.path, deletion_ms=T0_MS), rewritten)


def _group(cluster: Cluster) -> None:
    at = TopicPartition("again", 0)
    head = load_state(cluster.topic_log("again")).head
    commit_offset(cluster, at, 1, topic_id=head.topic_id)
    commit_offset(cluster, TopicPartition("gone", 1), 2, topic_id="another")


def commit_offset(cluster: Cluster, at: TopicPartition, offset: int, *, topic_id: str | None = None) -> None:
    """A member of group ``h`` takes a partition and commits an offset, whatever the topic's log says."""
    topic_id = load_state(cluster.topic_log(at.topic)).head.topic_id if topic_id is None else topic_id
    changes: list[Change] = [
        TakePartitions(topic_ids={at: topic_id}, stamp=ANN),
        CommitOffsets(offsets={at: OffsetAndMetadata(offset)}, stamps={at: ANN}, topic_ids={at: topic_id}),
    ]
    with_generation(cluster, "h", ANN)
    done = OffsetTable(cluster, "h").change(changes, deadline=cluster.clock.deadline_in(60_000))
    assert done.errors == (None, None)


def codes(report: Report, *severities: Severity) -> set[str]:
    """The codes of what was found, by default of errors and warnings."""
    wanted = severities or (Severity.ERROR, Severity.WARNING)
    return {one.code.value for one in report.findings if one.severity in wanted}


def found(cluster: Cluster, *, deep: bool = True) -> set[str]:
    """The codes of the errors and warnings of a check."""
    return codes(check_cluster(cluster, deep=deep))


def infos(cluster: Cluster) -> set[str]:
    return codes(check_cluster(cluster), Severity.INFO)


def seen(report: Report, code: Code) -> list[str]:
    """What was seen, of one code."""
    return [one.seen for one in report.findings if one.code is code]


def edit_entry(log: DeltaLog, version: int, edit: Callable[[Lines], object]) -> None:
    """Change the lines of an entry in place, as nobody ever should; it keeps its modification time no longer."""
    path = entry_path(log.table, version)
    lines = [json.loads(line) for line in log.store.read(path).splitlines()]
    edit(lines)
    log.store.put(path, resealed("".join(json.dumps(line) + "\n" for line in lines).encode()))


def own_commit(log: DeltaLog, decide: Callable[[TopicState], Commit]) -> None:
    """Commit as sparklog would, what sparklog never should."""
    done = False

    def once(state: TopicState) -> Commit | None:
        nonlocal done
        if done:
            return None
        done = True
        return decide(state)

    commit(load_state(log), once, deadline=log.clock.deadline_in(60_000), sync=False)


def with_end(head: TopicHead, end: int) -> TopicHead:
    """The head with another log end of partition 0."""
    return replace(head, log_end_offsets=(end, *head.log_end_offsets[1:]))


def uploaded(log: DeltaLog, *values: str, stamp: ProducerStamp | None = None) -> UploadedFile:
    """A file for partition 0 that is in no log."""
    batch = encode_batch(records(*values), stamp or ProducerStamp(77, 0, 0))
    path = new_data_file(0)
    log.store.put(object_path(log.table, path), batch.data)
    return UploadedFile.of(path, 0, batch, uploaded_ms=log.clock.now_ms())


def action_of(lines: Lines, kind: str) -> dict[str, Any]:
    """The first action of a kind in an entry's lines."""
    body: dict[str, Any] = next(line[kind] for line in lines if kind in line)
    return body


def set_stats(lines: Lines, changes: Mapping[str, Mapping[str, object]]) -> None:
    """Change the statistics of the first file that an entry adds."""
    add = action_of(lines, "add")
    stats = json.loads(add["stats"])
    for name, values in changes.items():
        stats[name] |= values
    add["stats"] = json.dumps(stats)
