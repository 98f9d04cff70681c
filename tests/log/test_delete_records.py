"""Deleting records of a topic with many files, and of tables from which nothing may be removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.compaction.compact import compact_topic
from sparklog.compaction.retention import retain_topic
from sparklog.consumer import Consumer
from sparklog.delta.actions import FAR_FUTURE_MS
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.log import DeltaLog
from sparklog.errors import OffsetOutOfRangeError, PolicyViolationError
from sparklog.log import open_cluster, topic
from sparklog.log.follow import TopicFollower
from sparklog.log.sequencing.sequencing import sequence_topic
from sparklog.log.state import load_state
from sparklog.log.topic import create_topic, delete_records, delete_topic
from sparklog.model import OffsetAndTimestamp, TopicPartition
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.compaction.support import append_pairs
from tests.support import (
    T0_MS,
    OvertakenStore,
    a_log,
    a_topic,
    a_writer,
    append,
    contents,
    entry_lines,
    foreign_commit,
    unsequenced_file,
)


def removes(log: DeltaLog) -> int:
    """In the newest entry."""
    return sum("remove" in line for line in entry_lines(log, load_state(log).position.version))


def live_count(log: DeltaLog) -> int:
    return len(load_state(log).require_whole().index)


def test_one_entry_removes_no_more_files_than_its_bound_and_retention_takes_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic, "_MOST_REMOVED", 4)
    log = a_topic(num_partitions=2)
    writer = a_writer(log)
    for number in range(5):
        append(writer, f"a{number}", f"b{number}")
        append(writer, f"c{number}", partition=1)
    follower = TopicFollower(log, "t")
    found = delete_records(log, "t", {0: 7, 1: 5})
    assert (found.log_start_offsets, found.log_end_offsets) == ((7, 5), (10, 5))
    assert (removes(log), live_count(log)) == (4, 6)
    # Whatever lies there still: nobody reads it, who was at work already or comes now, also from a checkpoint.
    for checkpointed in (False, True):
        if checkpointed:
            write_checkpoint(log)
        for reader in (follower, TopicFollower(log, "t")):
            reader.poll()
            assert reader.read(0, 7)["offset"].to_pylist() == [7, 8, 9]
            assert reader.offset_for_time(0, 0) == OffsetAndTimestamp(7, T0_MS + 1)
            for partition, offset in ((0, 0), (0, 6), (1, 4)):
                with pytest.raises(OffsetOutOfRangeError):
                    reader.read(partition, offset)
        assert contents(log) == {0: [(7, "b3"), (8, "a4"), (9, "b4")], 1: []}
    report = retain_topic(log, "t", now_ms=T0_MS, timeout_ms=60_000)
    assert (report.removed_files, report.log_start_offsets) == (4, {})
    assert live_count(log) == 2
    assert contents(log) == {0: [(7, "b3"), (8, "a4"), (9, "b4")], 1: []}


def test_asked_again_it_removes_further_files_and_then_is_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic, "_MOST_REMOVED", 2)
    log = a_topic()
    for number in range(5):
        append(a_writer(log), str(number))
    left = []
    for _ in range(4):
        version = delete_records(log, "t", {0: 5}).delta_version
        left.append((live_count(log), version))
    assert left == [(3, 6), (1, 7), (0, 8), (0, 8)]


def test_a_consumer_that_begins_at_the_beginning_begins_at_the_log_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(topic, "_MOST_REMOVED", 1)
    cluster = open_cluster(f"file://{tmp_path}")
    log = cluster.topic_log("t")
    create_topic(log, "t")
    for number in range(4):
        append(a_writer(log), str(number))
    delete_records(log, "t", {0: 3})
    assert live_count(log) == 3
    with Consumer(cluster=cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        polled = consumer.poll(timeout_ms=10_000)
        assert [record.offset for records in polled.values() for record in records] == [3]


# Tables from which nothing may be removed


def append_only(*values: str) -> DeltaLog:
    log = a_topic()
    for value in values:
        append(a_writer(log), value)
    metadata = load_state(log).require_whole().metadata
    foreign_commit(log, replace(metadata, configuration={**metadata.configuration, "delta.appendOnly": "TRUE"}))
    return log


@pytest.mark.parametrize(
    "act",
    [lambda log: delete_records(log, "t", {0: -1}), lambda log: delete_topic(log, "t")],
    ids=["records", "topic"],
)
def test_nothing_is_deleted_of_an_append_only_table(act: Callable[[DeltaLog], object]) -> None:
    log = append_only("1", "2")
    version = load_state(log).position.version
    with pytest.raises(PolicyViolationError, match=r"topics/t: delta\.appendOnly is true"):
        act(log)
    assert load_state(log).position.version == version
    assert contents(log) == {0: [(0, "1"), (1, "2")]}


def test_who_forbids_it_meanwhile_is_heeded() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    append(a_writer(log), "1")
    metadata = load_state(log).require_whole().metadata
    forbidden = replace(metadata, configuration={**metadata.configuration, "delta.appendOnly": "true"})
    late = a_log(OvertakenStore(memory, lambda: foreign_commit(log, forbidden)), clock)
    with pytest.raises(PolicyViolationError):
        delete_topic(late, "t")
    assert contents(log) == {0: [(0, "1")]}


def test_records_get_offsets_there_and_the_commit_says_that_it_removes_none() -> None:
    log = append_only("1")
    unsequenced_file(log, "2", "3")
    assert sequence_topic(log).sequenced_count == 1
    lines = entry_lines(log, load_state(log).position.version)
    told = {kind: body["dataChange"] for line in lines for kind, body in line.items() if kind in ("add", "remove")}
    assert told == {"remove": False, "add": True}
    assert contents(log) == {0: [(0, "1"), (1, "2"), (2, "3")]}
    free = a_topic()
    unsequenced_file(free, "1")
    sequence_topic(free)
    lines = entry_lines(free, load_state(free).position.version)
    assert [line["remove"]["dataChange"] for line in lines if "remove" in line] == [True]


# What a deleted topic leaves


def test_a_topic_created_again_forgets_what_compaction_remembered_of_the_old_one() -> None:
    log = a_topic(configs={"cleanup.policy": "compact"})
    for pair in (("a", "1"), ("a", "2"), ("b", "1")):
        append_pairs(a_writer(log), [pair])
    compact_topic(log, "t", now_ms=T0_MS)

    def cleaners() -> dict[str, int]:
        transactions = load_state(log).transactions.values()
        return {txn.app_id: txn.last_updated_ms for txn in transactions if txn.app_id.startswith("sparklog.cleaner.")}

    first = cleaners()
    assert len(first) == 4
    assert set(first.values()) == {FAR_FUTURE_MS}
    delete_topic(log, "t")
    log.clock.sleep_ms(5_000)
    create_topic(log, "t", configs={"cleanup.policy": "compact"})
    assert cleaners() == dict.fromkeys(first, T0_MS + 5_000)
    for pair in (("a", "1"), ("a", "2"), ("b", "1")):
        append_pairs(a_writer(log), [pair])
    compact_topic(log, "t", now_ms=T0_MS)
    second = {app_id: at for app_id, at in cleaners().items() if app_id not in first}
    assert len(second) == 4
    delete_topic(log, "t")
    log.clock.sleep_ms(5_000)
    create_topic(log, "t")
    assert {cleaners()[app_id] for app_id in first} == {T0_MS + 5_000}  # not once more
    assert {cleaners()[app_id] for app_id in second} == {T0_MS + 10_000}
