"""A live file that nobody can look into stops jobs where it lies, and that is told."""

from __future__ import annotations

import pytest

from sparklog.compaction import maintain
from sparklog.delta.actions import RemoveFile
from sparklog.log.data.object_paths import object_path
from sparklog.log.topic import create_topic
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.compaction.support import append_pairs, live
from tests.support import DAY_MS, T0_MS, a_writer, foreign_commit, foreign_file, foreign_records
from tests.txn.support import a_cluster


@pytest.mark.parametrize(
    ("policy", "told"),
    [("compact", ["compact"]), ("delete", ["retention"]), ("compact,delete", ["retention", "compact"])],
)
def test_it_is_a_failure_of_each_job_that_would_deal_with_it(policy: str, told: list[str]) -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    cluster = a_cluster(memory, clock)
    log = cluster.topic_log("t")
    create_topic(log, "t", configs={"cleanup.policy": policy, "retention.ms": 1_000, "file.delete.delay.ms": 0})
    for number in range(6):
        append_pairs(a_writer(log), [("k", str(number))])
    oldest = live(log)[0]
    without_statistics = foreign_file(log, foreign_records("2"), base_offset=oldest.base_offset)
    removed = RemoveFile(
        path=oldest.path, deletion_ms=T0_MS, partition_values=oldest.partition_values(), size_bytes=oldest.size_bytes
    )
    foreign_commit(log, removed, without_statistics)
    memory.put(object_path(log.table, without_statistics.path), b"garbage")
    clock.advance(40 * DAY_MS)
    for dry_run in (True, False):
        report = maintain(cluster, dry_run=dry_run)
        why = f"{without_statistics.path} can't be read, so nothing from there on is dealt with"
        assert report.failures == [f"topic t: {step}: {why}" for step in told]
        assert not report.may_succeed_later
