"""Repairing: what is safe to mend is mended, and nothing is lost by it; everything else stays as it is."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TypeVar

import pyarrow.parquet as pq
import pytest

from sparklog.compaction.vacuum import vacuum_topic
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.listing import read_hint
from sparklog.delta.names import checkpoint_path, entry_path, last_checkpoint_path
from sparklog.delta.parquet_reading import open_parquet
from sparklog.errors import CorruptLogError, StorePermissionError
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.rows import Decider
from sparklog.integrity import check_cluster, repair_cluster
from sparklog.integrity.checkpoint_repair import replace_damaged_checkpoints
from sparklog.integrity.repair import MENDED
from sparklog.testing import WrappedStore
from sparklog.txn.entries import TopicFiles
from tests.compaction.support import live
from tests.integrity.support import a_plain_world, codes, found, infos
from tests.integrity.test_group_faults import AT, a_group_world, a_transaction, pend
from tests.support import (
    DAY_MS,
    a_writer,
    append,
    contents,
    foreign_commit,
    foreign_file,
    foreign_records,
    unsequenced_file,
)
from tests.txn.support import TIMEOUT_MS, Driver, a_cluster, a_world, values

T = TypeVar("T")


def test_a_healthy_cluster_is_left_alone() -> None:
    memory, _, cluster, _ = a_plain_world()
    before = {(one.path, one.etag) for one in memory.list("")}
    repaired = repair_cluster(cluster, check_cluster(cluster))
    assert (repaired.done, repaired.failed) == ([], [])
    assert {(one.path, one.etag) for one in memory.list("")} == before


def test_a_decided_transaction_is_finished() -> None:
    _, clock, cluster = a_world()
    driver = Driver(cluster).init()
    driver.begin()
    driver.send("t", "half")
    driver.send("u", "half")
    named = {
        topic: TopicFiles(topic_id=driver.writers[topic].topic_id, files=tuple(driver.files[topic]))
        for topic in ("t", "u")
    }
    marker = driver.session.commit(named, deadline=driver.deadline)
    driver.writers["t"].publish(driver.files["t"], marker, known_version=0, deadline=driver.deadline)
    clock.advance(10_000)
    report = check_cluster(cluster)
    assert codes(report) == {"transaction-unfinished"}
    assert repair_cluster(cluster, report).done == ["transactional id tx: committed"]
    assert found(cluster) == set()
    assert values(cluster, "t") == values(cluster, "u") == ["half"]


def test_a_session_past_its_time_out_is_aborted() -> None:
    _, clock, cluster = a_world()
    driver = Driver(cluster).init()
    driver.begin()
    driver.send("t", "never")
    clock.advance(2 * TIMEOUT_MS)
    report = check_cluster(cluster)
    assert codes(report) == {"transaction-timed-out"}
    assert repair_cluster(cluster, report).done == ["transactional id tx: timed out"]
    assert found(cluster) == set()
    assert values(cluster, "t") == []


def test_files_without_offsets_get_some() -> None:
    _, _, cluster, log = a_plain_world()
    unsequenced_file(log, "x", "y")
    report = check_cluster(cluster)
    assert infos(cluster) == {"unsequenced-files"}
    assert repair_cluster(cluster, report).done == ["topic t: gave offsets to 2 records of 1 files"]
    assert infos(cluster) == set()
    assert [value for _, value in contents(log)[0]][-2:] == ["x", "y"]


def test_a_file_that_cannot_be_given_offsets_is_told() -> None:
    _, _, cluster, log = a_plain_world()
    foreign_commit(log, foreign_file(log, foreign_records("a"), partition=9))
    repaired = repair_cluster(cluster, check_cluster(cluster))
    assert repaired.done == []
    assert len(repaired.failed) == 1
    assert "its partition is 9" in repaired.failed[0]


def aside(log) -> list[str]:
    return [one.path.rpartition("/")[2][:31] for one in log.store.list(f"{log.table}/_delta_log/_set_aside/")]


def test_a_damaged_checkpoint_of_the_newest_version_is_replaced_by_a_right_one() -> None:
    _, _, cluster, log = a_plain_world()
    write_checkpoint(log)
    path = checkpoint_path(log.table, 4)
    whole = log.store.read(path)
    log.store.put(path, whole[:-100])
    report = check_cluster(cluster)
    assert codes(report) == {"checkpoint-corrupt"}
    repaired = repair_cluster(cluster, report)
    assert repaired.failed == []
    assert repaired.done == [
        "topic t: wrote a checkpoint of version 4 from the entries",
        "topic t: set the damaged checkpoint of version 4 aside, in _set_aside",
    ]
    assert aside(log) == ["00000000000000000004.checkpoint"]
    assert found(cluster) == set()


def flipped(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def test_a_flipped_bit_of_an_older_checkpoint_gets_a_successor() -> None:
    _, _, cluster, log = a_plain_world()
    write_checkpoint(log)
    path = checkpoint_path(log.table, 4)
    log.store.put(path, flipped(log.store.read(path)))
    append(a_writer(log), "it goes on")
    before = contents(log)
    report = check_cluster(cluster)
    assert codes(report) == {"checkpoint-corrupt"}
    assert repair_cluster(cluster, report).done == [
        "topic t: wrote a checkpoint of version 5 from the entries",
        "topic t: set the damaged checkpoint of version 4 aside, in _set_aside",
    ]
    assert not log.store.exists(path)
    assert read_hint(log) == 5
    assert found(cluster) == set()
    assert contents(log) == before


def without_files(data: bytes) -> bytes:
    """A checkpoint that reads back, without its last row: that of a live file."""
    table = open_parquet(data).read()
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(None).slice(0, len(table) - 1), sink)
    return sink.getvalue()


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_checkpoint_that_lacks_a_file_is_found_and_made_anew(goes_on: bool) -> None:
    _, clock, cluster, log = a_plain_world()
    before = contents(log)
    write_checkpoint(log)
    path = checkpoint_path(log.table, 4)
    log.store.put(path, without_files(log.store.read(path)))
    if goes_on:
        append(a_writer(log), "it goes on")
    clock.advance(9 * DAY_MS)
    report = check_cluster(cluster)
    assert "checkpoint-differs" in codes(report)
    with pytest.raises(CorruptLogError, match="no file is deleted"):
        vacuum_topic(cluster, "t", timeout_ms=TIMEOUT_MS)
    done = repair_cluster(cluster, report).done
    assert done[1] == "topic t: set the damaged checkpoint of version 4 aside, in _set_aside"
    assert found(cluster) <= {"orphans"}
    assert contents(log)[0][: len(before[0])] == before[0]
    assert repair_cluster(cluster, check_cluster(cluster)).done == []


def test_a_checkpoint_that_differs_stays_where_the_entries_before_it_are_gone() -> None:
    _, _, _, log = a_plain_world()
    write_checkpoint(log)
    path = checkpoint_path(log.table, 4)
    damaged = without_files(log.store.read(path))
    log.store.put(path, damaged)
    log.store.delete([entry_path(log.table, 0), entry_path(log.table, 1)])
    with pytest.raises(CorruptLogError, match="version 4 differs from the entries, and no right one can be made"):
        replace_damaged_checkpoints(log, differs=True)
    assert log.store.read(path) == damaged
    assert aside(log) == []


def test_a_hint_that_is_wrong_is_written_anew() -> None:
    _, _, cluster, log = a_plain_world()
    write_checkpoint(log)
    append(a_writer(log), "it goes on")
    log.store.put(last_checkpoint_path(log.table), b"no JSON")
    report = check_cluster(cluster)
    assert codes(report) == {"hint-wrong"}
    assert repair_cluster(cluster, report).done == ["topic t: wrote a checkpoint of version 5"]
    assert found(cluster) == set()


def test_offsets_that_wait_for_a_finished_transaction_are_settled() -> None:
    _, _, cluster = a_group_world()
    a_transaction(cluster, commits=False)
    pend(cluster, Decider("tx", 0, 2))
    report = check_cluster(cluster)
    assert codes(report) == {"pending-aborted"}
    [done] = repair_cluster(cluster, report).done
    assert done == "group h: forgot the offsets that wait for transaction 2 of transactional id tx"
    assert found(cluster) == set()
    row = OffsetTable(cluster, "h").fetch()[AT]
    assert row.committed is not None
    assert (row.committed.offset, row.pending) == (5, None)


def test_an_offset_of_an_open_transaction_stays() -> None:
    _, _, cluster = a_group_world()
    a_transaction(cluster, commits=False)
    pend(cluster, Decider("tx", 0, 4))
    report = check_cluster(cluster)
    assert codes(report) == set()
    repair_cluster(cluster, report)
    assert OffsetTable(cluster, "h").fetch()[AT].pending is not None


def test_what_is_lost_is_not_mended() -> None:
    memory, _, cluster, log = a_plain_world()
    log.store.delete([f"{log.table}/{live(log)[0].path}"])
    before = {(one.path, one.etag) for one in memory.list("")}
    report = check_cluster(cluster)
    assert not {one.code for one in report.errors} & MENDED
    repaired = repair_cluster(cluster, report)
    assert (repaired.done, repaired.failed) == ([], [])
    assert {(one.path, one.etag) for one in memory.list("")} == before


class ReadOnlyStore(WrappedStore):
    """Refuses every write."""

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if op in ("put", "create", "delete"):
            raise StorePermissionError(f"{op} {path}: read-only")
        return call()


def test_a_check_needs_no_right_to_write_and_a_repair_tells_that_it_lacks_it() -> None:
    memory, clock, _, log = a_plain_world()
    unsequenced_file(log, "x")
    read_only = a_cluster(ReadOnlyStore(memory), clock)
    report = check_cluster(read_only, deep=True)
    assert codes(report) == set()
    repaired = repair_cluster(read_only, report)
    assert repaired.done == []
    assert [line.split(":")[0] for line in repaired.failed] == ["topic t"]
