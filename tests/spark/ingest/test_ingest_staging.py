"""Publishing what an ingest has written: offsets, and who came first. Without Spark: the files are made up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from sparklog.delta.actions import FAR_FUTURE_MS, AddFile, Metadata, SetTransaction
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import log_folder
from sparklog.errors import CorruptLogError, UnknownTopicOrPartitionError
from sparklog.log.state import TopicState, load_state
from sparklog.log.topic import create_topic, delete_topic
from sparklog.spark.ingest.ingest_rules import INGEST_APP_ID, name_app_id, next_txn_version
from sparklog.spark.ingest.ingest_staging import (
    FILE_COLUMN,
    Published,
    Verdict,
    file_uri,
    make_stage,
    plan_ingest,
    publish,
)
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, SimulatedCrash
from tests.support import DAY_MS, T0_MS, a_log, a_topic, a_writer, append, contents, foreign_file, foreign_records


def written(log: DeltaLog, *values: str, partition: int = 0, deltas: Sequence[int] | None = None) -> AddFile:
    """A file as Spark leaves it, in no log yet."""
    table = foreign_records(*values, deltas=deltas)
    last = max(deltas) if deltas else len(values) - 1
    stats = {"numRecords": len(values), "minValues": {"offset_delta": 0}, "maxValues": {"offset_delta": last}}
    return replace(foreign_file(log, table, partition=partition), stats=stats)


def publish_from(state: TopicState, *files: AddFile, **given: Any) -> Published:
    clock = state.log.clock
    default = {
        "name": "i",
        "txn_version": next_txn_version(state.transactions),
        "written_ticks_ms": clock.ticks_ms(),
        "deadline": clock.deadline_in(60_000),
    }
    topic_id = given.pop("topic_id", state.head.topic_id)
    return publish(state, topic_id, files, **{**default, **given})


def test_files_of_a_partition_share_a_base_offset_and_keep_their_numbers():
    log = a_topic(num_partitions=2)
    append(a_writer(log), "x", "y")
    files = [written(log, "a", "c", deltas=[0, 2]), written(log, "b", deltas=[1]), written(log, "z", partition=1)]
    done = publish_from(load_state(log), *files)
    assert done.verdict is Verdict.COMMITTED
    assert contents(log) == {0: [(0, "x"), (1, "y"), (2, "a"), (3, "b"), (4, "c")], 1: [(0, "z")]}
    state = load_state(log)
    assert state.position.version == done.delta_version
    assert state.transactions[INGEST_APP_ID] == SetTransaction(
        app_id=INGEST_APP_ID, version=0, last_updated_ms=FAR_FUTURE_MS
    )
    assert state.transactions[name_app_id("i")].version == 0
    assert state.head.log_end_offsets == (5, 1)


def test_producers_that_come_first_only_move_the_offsets():
    log = a_topic()
    state = load_state(log)
    for number in range(5):
        append(a_writer(log), f"x{number}")
    assert publish_from(state, written(log, "a")).verdict is Verdict.COMMITTED
    assert contents(log)[0][-1] == (5, "a")


@pytest.mark.parametrize("name", ["i", "another name"])
def test_of_two_ingests_that_were_decided_on_one_version_one_is_committed(name):
    log = a_topic()
    ours, theirs = load_state(log), load_state(log)
    assert publish_from(theirs, written(log, "a"), name=name).verdict is Verdict.COMMITTED
    append(a_writer(log), "x")
    assert publish_from(ours, written(log, "a")).verdict is Verdict.SUPERSEDED
    assert publish_from(load_state(log), written(log, "b")).verdict is Verdict.COMMITTED
    assert contents(log)[0] == [(0, "a"), (1, "x"), (2, "b")]


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.OWN_SUCCESS])
def test_an_answer_that_was_lost_stores_nothing_twice(kind):
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    file = written(a_topic(memory, clock), "a")
    state = load_state(a_log(FaultyStore(memory, Fault(kind=kind, ops=["create"])), clock))
    assert publish_from(state, file).verdict is Verdict.COMMITTED
    log = a_log(memory, clock)
    assert contents(log)[0] == [(0, "a")]
    # By a process that doesn't know what became of it: the files tell.
    assert publish_from(load_state(log), file, txn_version=0).verdict is Verdict.COMMITTED
    assert contents(log)[0] == [(0, "a")]


def test_a_crash_at_any_call_leaves_all_or_nothing():
    seen = set()
    for number in range(1_000):
        outcomes = []
        for fault in (Fault(kind=kind, at=number) for kind in (FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER)):
            clock = ManualClock(start_ms=T0_MS)
            memory = MemoryStore(clock=clock)
            file = written(a_topic(memory, clock), "a", "b")
            faulty = FaultyStore(memory, fault, clock=clock)
            with suppress(SimulatedCrash):
                publish_from(load_state(a_log(faulty, clock)), file)
            log = a_log(memory, clock)
            found = contents(log)[0]
            assert found in ([], [(0, "a"), (1, "b")])
            seen.add(bool(found))
            if not found:  # what the next run does, that finds none of the rows
                assert publish_from(load_state(log), written(log, "a", "b")).verdict is Verdict.COMMITTED
            assert contents(log)[0] == [(0, "a"), (1, "b")]
            outcomes.append(faulty.crashed)
        if not any(outcomes):
            break
    assert seen == {True, False}


def test_what_was_written_more_than_a_day_ago_isnt_committed():
    log = a_topic()
    state = load_state(log)
    done = publish_from(state, written(log, "a"), written_ticks_ms=log.clock.ticks_ms() - DAY_MS - 1)
    assert done.verdict is Verdict.TOO_OLD
    assert contents(log) == {0: []}


def test_a_topic_of_the_same_name_gets_nothing():
    log = a_topic()
    state = load_state(log)
    file = written(log, "a")
    topic_id = state.head.topic_id
    delete_topic(log, "t")
    create_topic(log, "t")
    with pytest.raises(UnknownTopicOrPartitionError, match="was deleted"):
        publish_from(state, file)
    with pytest.raises(UnknownTopicOrPartitionError, match="was deleted"):  # a process that has loaded it anew
        publish_from(load_state(log), file, topic_id=topic_id)
    assert contents(log) == {0: []}


@pytest.mark.parametrize(
    "change", [{"stats": None}, {"partition_values": {}}, {"partition_values": {"partition": "7"}}]
)
def test_a_file_without_numbers_or_partition_isnt_guessed_at(change):
    log = a_topic()
    with pytest.raises(CorruptLogError, match="no known partition or numbers"):
        plan_ingest(load_state(log), [replace(written(log, "a"), **change)], name="i", txn_version=0)


def test_a_stage_holds_the_rows_without_offsets_and_leaves_no_log():
    log = a_topic()
    append(a_writer(log), "x")
    state = load_state(log)
    stage = make_stage(state, "file:///a%20cluster/topics/t")
    assert stage.new_files() == []
    [entry] = stage.log.read_entries(0, 1)
    assert entry is not None
    assert [action for action in entry.actions if isinstance(action, AddFile)] == []
    [metadata] = [action for action in entry.actions if isinstance(action, Metadata)]
    assert list(metadata.partition_columns) == ["partition", "base_offset", FILE_COLUMN]
    assert json.loads(metadata.schema_string)["fields"][-1]["name"] == FILE_COLUMN
    assert metadata.configuration["delta.writePartitionColumnsToParquet"] == "false"
    assert log.store.list_names(log_folder(stage.log.table))
    stage.forget()
    assert not log.store.list_names(log_folder(stage.log.table))


def test_a_path_becomes_a_uri():
    assert file_uri("/a cluster: 100%/topics/t") == "file:///a%20cluster%3A%20100%25/topics/t"
    assert file_uri("s3a://bucket/an a/topics/t") == "s3a://bucket/an%20a/topics/t"
