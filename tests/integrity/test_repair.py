"""Repairing: what is safe to mend is mended, and nothing is lost by it; everything else stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.names import checkpoint_path, last_checkpoint_path
from sparklog.errors import StorePermissionError
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.rows import Decider
from sparklog.integrity import check_cluster, repair_cluster
from sparklog.integrity.repair import MENDED
from sparklog.testing import WrappedStore
from sparklog.txn.entries import TopicFiles
from tests.compaction.support import live
from tests.integrity.support import a_plain_world, codes, found, infos
from tests.integrity.test_group_faults import AT, a_group_world, a_transaction, pend
from tests.support import a_writer, append, contents, foreign_commit, foreign_file, foreign_records, unsequenced_file
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


def test_a_damaged_checkpoint_gets_a_successor() -> None:
    _, _, cluster, log = a_plain_world()
    write_checkpoint(log)
    path = checkpoint_path(log.table, 4)
    log.store.put(path, log.store.read(path)[:-100])
    report = check_cluster(cluster)
    repaired = repair_cluster(cluster, report)
    assert repaired.done == []
    assert [line.split(": ")[1] for line in repaired.failed] == ["repair it again once the topic has a newer version"]
    append(a_writer(log), "it goes on")
    assert repair_cluster(cluster, report).done == ["topic t: wrote a checkpoint of version 5"]
    assert found(cluster) == set()


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
