"""A cluster that is used as it is meant to be has no errors and no warnings, and all of it was looked at."""

from __future__ import annotations

import pytest

from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path
from sparklog.errors import InvalidArgumentError, UnknownTopicOrPartitionError
from sparklog.integrity import check_cluster
from sparklog.testing import ManualClock
from tests.integrity.support import a_full_world, a_plain_world, codes
from tests.support import DAY_MS, a_writer, append, versions_of


@pytest.mark.slow
@pytest.mark.parametrize("deep", [False, True])
def test_a_cluster_that_has_seen_everything_is_healthy(deep: bool) -> None:
    _, _, cluster = a_full_world()
    report = check_cluster(cluster, deep=deep)
    assert [str(one) for one in (*report.errors, *report.warnings)] == []
    told = {one.code.value for one in report.infos}
    assert told == {"unsequenced-files", "orphans", "committed-topic-gone"}
    counts = report.counts
    assert (counts.topics, counts.groups, counts.transactional_ids) == (7, 2, 1)
    assert (counts.transactions, counts.committed_offsets) == (3, 3)
    assert counts.entries > 40
    assert counts.files > 10
    assert counts.records > 25


def test_a_deep_check_counts_what_it_read() -> None:
    _, _, cluster, _ = a_plain_world()
    assert check_cluster(cluster, deep=True).counts.records == 8
    assert check_cluster(cluster, ["t"]).counts.records == 8


@pytest.mark.slow
def test_a_check_writes_nothing() -> None:
    memory, _, cluster = a_full_world()
    before = {(one.path, one.etag) for one in memory.list("")}
    check_cluster(cluster, deep=True)
    assert {(one.path, one.etag) for one in memory.list("")} == before


def three_days_of_appends(log: DeltaLog, clock: ManualClock) -> None:
    """With a checkpoint of the newest but one."""
    writer = a_writer(log)
    for number in range(6):
        clock.advance(DAY_MS / 2)
        append(writer, f"later {number}")
    write_checkpoint(log)
    append(writer, "after")


def test_a_log_that_was_cleaned_is_healthy() -> None:
    _, clock, cluster, log = a_plain_world()
    three_days_of_appends(log, clock)
    cleaned = clean_log(log, retention_ms=DAY_MS)
    assert cleaned is not None
    assert cleaned.deleted_count > 3
    report = check_cluster(cluster, deep=True)
    assert codes(report) == set()
    assert report.counts.entries == 12 - cleaned.deleted_count


def test_a_log_whose_cleanup_was_killed_in_the_middle_is_healthy() -> None:
    """A bulk delete has no order: what it left below the mark counts for nothing."""
    memory, clock, cluster, log = a_plain_world()
    three_days_of_appends(log, clock)
    entries = {version: memory.read(entry_path(log.table, version)) for version in versions_of(log)}
    cleaned = clean_log(log, retention_ms=DAY_MS)
    assert cleaned is not None
    gone = sorted(entries.keys() - {*versions_of(log)})
    assert len(gone) > 3
    for version in gone[1::2]:
        memory.create(entry_path(log.table, version), entries[version])
    report = check_cluster(cluster, deep=True)
    assert codes(report) == set()
    assert report.counts.entries == len(entries) - len(gone)


def test_only_the_topics_that_are_named_are_checked() -> None:
    _, _, cluster = a_full_world()
    report = check_cluster(cluster, ["t", "u"])
    assert (report.counts.topics, report.counts.groups, report.counts.transactional_ids) == (2, 0, 0)
    with pytest.raises(UnknownTopicOrPartitionError):
        check_cluster(cluster, ["t", "nosuch"])
    with pytest.raises(InvalidArgumentError, match="no sparklog cluster"):
        check_cluster("memory://there-is-none")


def test_a_folder_of_somebody_else_is_passed_over() -> None:
    memory, _, cluster, _ = a_plain_world()
    memory.put("topics/readme/notes.txt", b"")
    memory.put("topics/not a topic/notes.txt", b"")
    memory.put("groups/a%zz/notes.txt", b"")
    report = check_cluster(cluster)
    assert (report.findings, report.counts.topics, report.counts.groups) == ((), 1, 0)


def test_a_report_is_readable() -> None:
    _, _, cluster, _ = a_plain_world()
    report = check_cluster(cluster)
    assert str(report).startswith("checked 1 topics, 5 entries, 4 files, 8 records, 0 groups")
    assert report.to_json()["counts"]["records"] == 8
