"""Timestamps outside the years 1 to 9999, which another engine may write: no statistic can tell them."""

from __future__ import annotations

import pytest

from sparklog.compaction import OptimizePolicy, Outcome, Step, maintain
from sparklog.delta.actions import RemoveFile
from sparklog.delta.log import DeltaLog
from sparklog.log.data.segments import can_format_timestamp, format_timestamp
from sparklog.log.topic import create_topic
from tests.compaction.support import append_each, live
from tests.support import T0_MS, a_writer, contents, foreign_commit, foreign_file, foreign_records
from tests.txn.support import a_cluster

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999


def test_what_statistics_can_tell() -> None:
    assert (format_timestamp(FIRST_MS)[:4], format_timestamp(LAST_MS)[:4]) == ("0001", "9999")
    assert [can_format_timestamp(at) for at in (FIRST_MS - 1, FIRST_MS, LAST_MS, LAST_MS + 1)] == [
        False,
        True,
        True,
        False,
    ]
    for outside in (FIRST_MS - 1, LAST_MS + 1):
        with pytest.raises(OverflowError):
            format_timestamp(outside)


def rewritten_in_place(log: DeltaLog, timestamp_ms: int) -> None:
    """Another engine gives the record at offset 1 this timestamp."""
    file = live(log)[1]
    add = foreign_file(log, foreign_records("2", timestamp_ms=timestamp_ms), base_offset=file.base_offset)
    remove = RemoveFile(
        path=file.path, deletion_ms=T0_MS, partition_values=file.partition_values(), size_bytes=file.size_bytes
    )
    foreign_commit(log, remove, add)


@pytest.mark.parametrize("timestamp_ms", [LAST_MS + 1_001, FIRST_MS - 5_000])
def test_a_file_with_such_a_record_is_merged_without_those_statistics(timestamp_ms: int) -> None:
    cluster = a_cluster()
    for topic in ("a", "z"):
        log = cluster.topic_log(topic)
        create_topic(log, topic, configs={"segment.ms": 2**62, "cleanup.policy": "compact"})
        append_each(a_writer(log, topic=topic), "1", "2", "3", "4")
    log = cluster.topic_log("a")
    rewritten_in_place(log, timestamp_ms)
    report = maintain(cluster, steps=[Step.OPTIMIZE], policy=OptimizePolicy(min_files=2, growth=1.1))
    assert report.failures == []
    for told in report.topics:
        assert told.optimize is not None
        assert [one.outcome for one in told.optimize.ranges] == [Outcome.DONE]
    merged = live(log)[0]
    assert (merged.min_offset_delta, merged.max_offset_delta) == (0, 2)
    assert timestamp_ms in (merged.min_timestamp_ms, merged.max_timestamp_ms)  # from the file itself
    assert contents(log, topic="a") == {0: list(enumerate("1234"))}
