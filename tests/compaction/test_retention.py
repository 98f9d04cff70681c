"""Retention: a prefix of whole files goes, the log start moves to its end and never back, producers go on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.compaction.retention import ExpiredFiles, RetentionRules, plan_retention, retain_topic
from sparklog.delta.actions import RemoveFile
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.log import DeltaLog
from sparklog.errors import InvalidConfigurationError, PolicyViolationError, UnknownTopicOrPartitionError
from sparklog.log.data.segments import Segment
from sparklog.log.follow import TopicFollower
from sparklog.log.head import start_app_id
from sparklog.log.state import load_state, open_state
from sparklog.log.topic import alter_topic, create_topic, delete_records, delete_topic
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.compaction.support import a_segment, append_at, append_each, live, row_of
from tests.support import (
    DAY_MS,
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

HOUR_MS = 3_600_000
ALL = RetentionRules(deletes=True, retention_ms=-1, retention_bytes=-1)


def plan(
    segments: list[Segment],
    *,
    retention_ms: int = -1,
    retention_bytes: int = -1,
    deletes: bool = True,
    log_start_offset: int = 0,
    now_ms: int = T0_MS,
    **more: int,
) -> ExpiredFiles:
    rules = RetentionRules(deletes=deletes, retention_ms=retention_ms, retention_bytes=retention_bytes)
    more = {"end_offset": 10**9, **more}
    return plan_retention(
        segments,
        rules,
        partition=0,
        log_start_offset=log_start_offset,
        now_ms=now_ms,
        **more,
    )


# The rule, pure. Expected from Kafka's UnifiedLog.deleteOldSegments


def aged(*ages_ms: int) -> list[Segment]:
    """Files of ten records whose newest are of these ages."""
    return [a_segment(10 * at, max_timestamp_ms=T0_MS - age) for at, age in enumerate(ages_ms)]


@pytest.mark.parametrize(
    ("ages", "removed", "start"),
    [
        ([], 0, 0),
        ([3, 2, 1], 0, 0),
        ([11, 10, 1], 1, 10),  # strictly older: startMs - largestTimestamp > retentionMs
        ([13, 12, 11], 3, 30),  # the newest, too: Kafka rolls a new segment first
        ([13, 1, 12], 1, 10),  # always a prefix
        ([1, 13, 12], 0, 0),
        ([-5, 13], 0, 0),  # a future timestamp holds a segment
    ],
)
def test_a_prefix_goes_by_its_largest_timestamps(ages: list[int], removed: int, start: int) -> None:
    expired = plan(aged(*ages), retention_ms=10)
    assert (len(expired.too_old), expired.log_start_offset) == (removed, start)


@pytest.mark.parametrize(
    ("sizes", "limit", "removed"),
    [
        ([100, 100, 100], 300, 0),
        ([100, 100, 100], 200, 1),  # while total - segment >= limit
        ([100, 100, 100], 201, 0),
        ([100, 100, 100], 0, 3),
        ([50, 100, 100], 200, 1),
        ([60, 100, 100], 200, 1),
        ([61, 1, 100, 100], 200, 2),
        ([100, 1, 100], 150, 0),  # the second would fit, but the first stays
        ([100, 100, 100], -1, 0),
    ],
)
def test_a_prefix_goes_while_what_stays_is_large_enough(sizes: list[int], limit: int, removed: int) -> None:
    assert len(plan(row_of(*sizes), retention_bytes=limit).too_many) == removed


def test_size_is_looked_at_before_age_and_each_goes_on_where_the_other_stopped() -> None:
    expired = plan(aged(12, 12, 12, 1), retention_ms=10, retention_bytes=3_000)
    assert [len(expired.below_start), len(expired.too_many), len(expired.too_old)] == [0, 1, 2]
    assert expired.log_start_offset == 30


def test_without_delete_only_what_lies_below_the_log_start_goes() -> None:
    expired = plan(aged(99, 99, 99), deletes=False, retention_ms=1, retention_bytes=0, log_start_offset=15)
    assert [segment.first_offset for segment in expired.segments] == [0]
    assert expired.log_start_offset == 15


def test_a_file_across_the_log_start_stays_and_the_start_is_not_moved_back() -> None:
    expired = plan(aged(99, 99), retention_ms=10, log_start_offset=15)
    assert (len(expired.below_start), len(expired.too_old), expired.log_start_offset) == (1, 1, 20)
    expired = plan(aged(99), retention_ms=10, log_start_offset=25)
    assert (len(expired.below_start), expired.log_start_offset) == (1, 25)


def test_files_that_overlap_go_together_or_stay_together() -> None:
    files = [
        a_segment(0, max_offset_delta=19, max_timestamp_ms=T0_MS - 99),
        a_segment(0, 10, path="second", min_offset_delta=5, max_offset_delta=14, max_timestamp_ms=T0_MS),
    ]
    assert plan(files, retention_ms=10).segments == ()
    assert len(plan(files, retention_ms=10, now_ms=T0_MS + 11).segments) == 2
    assert len(plan(files, retention_ms=10, now_ms=T0_MS + 11, most_files=1).segments) == 2


def test_a_file_without_timestamps_ages_and_one_without_offsets_stops_retention() -> None:
    timeless = a_segment(0, max_timestamp_ms=None, min_timestamp_ms=None, modification_ms=T0_MS - 11)
    assert len(plan([timeless], retention_ms=10).too_old) == 1
    unreadable = a_segment(10, record_count=None, min_offset_delta=None, max_offset_delta=None)
    files = [timeless, unreadable, *aged(99, 99, 99)[2:]]
    assert plan(files, retention_ms=10).segments == (timeless,)


def test_what_came_after_the_job_began_stays_and_a_plan_keeps_to_its_bound() -> None:
    assert len(plan(aged(99, 99, 99), retention_ms=10, end_offset=20).segments) == 2
    assert len(plan(aged(99, 99, 99), retention_ms=10, most_files=1).segments) == 1


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 300)), max_size=12),
    st.integers(-1, 40),
    st.integers(-1, 2_000),
    st.integers(0, 130),
)
def test_what_goes_is_a_prefix_and_the_start_is_its_end(
    files: list[tuple[int, int]], retention_ms: int, retention_bytes: int, log_start_offset: int
) -> None:
    segments = [
        a_segment(10 * at, max_timestamp_ms=T0_MS - age, size_bytes=size) for at, (age, size) in enumerate(files)
    ]
    start = min(log_start_offset, 10 * len(files))
    expired = plan(segments, retention_ms=retention_ms, retention_bytes=retention_bytes, log_start_offset=start)
    gone = len(expired.segments)
    assert list(expired.segments) == segments[:gone]
    assert start <= expired.log_start_offset <= 10 * len(files)
    assert expired.log_start_offset == max(start, 10 * gone)
    left = segments[gone:]
    if left and retention_ms >= 0:
        assert left[0].max_timestamp_ms is not None
        assert T0_MS - left[0].max_timestamp_ms <= retention_ms
    if left and retention_bytes >= 0:
        assert sum(segment.size_bytes for segment in left[1:]) < retention_bytes


# The act


def three_days(**configs: object) -> tuple[MemoryStore, ManualClock, DeltaLog]:
    """A topic with a file a day, of now and the two days before."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock, configs={"retention.ms": DAY_MS, **configs})
    writer = a_writer(log)
    for age in (3, 2, 0):
        append_at(writer, T0_MS - age * DAY_MS, f"a{age}", f"b{age}")
    return memory, clock, log


def test_old_files_leave_the_table_by_one_commit_that_moves_the_log_start() -> None:
    _, _, log = three_days()
    old = live(log)[:2]
    report = retain_topic(log, "t", now_ms=T0_MS)
    assert (report.removed_files, report.removed_bytes) == (2, sum(segment.size_bytes for segment in old))
    assert dict(report.log_start_offsets) == {0: (0, 4)}
    assert contents(log) == {0: [(4, "a0"), (5, "b0")]}
    info, *actions = entry_lines(log, report.delta_version)
    assert info["commitInfo"]["operation"] == "RETENTION"
    assert info["commitInfo"]["isBlindAppend"] is False
    assert [line["remove"]["path"] for line in actions[:2]] == [segment.path for segment in old]
    assert [line["remove"]["dataChange"] for line in actions[:2]] == [True, True]
    assert [(line["txn"]["appId"], line["txn"]["version"]) for line in actions[2:]] == [(start_app_id(0), 4)]
    assert open_state(log).head == load_state(log).head
    assert open_state(log).head.live_file_count == 1
    again = retain_topic(log, "t", now_ms=T0_MS)
    assert (again.removed_files, again.delta_version) == (0, report.delta_version)


def test_everything_may_go_and_no_offset_is_given_twice() -> None:
    _, _, log = three_days()
    retain_topic(log, "t", now_ms=T0_MS + 2 * DAY_MS)
    assert live(log) == []
    write_checkpoint(log)
    head = load_state(log).head
    assert (head.log_start_offsets, head.log_end_offsets) == ((6,), (6,))
    assert append(a_writer(log), "next").base_offsets == (6,)


def test_the_log_start_is_the_end_of_what_went_and_not_the_log_end() -> None:
    """A user's DELETE removed the newest file: the end stays, and so does what it says of the records before."""
    _, _, log = three_days()
    newest = live(log)[-1]
    foreign_commit(log, RemoveFile(path=newest.path, deletion_ms=T0_MS))
    report = retain_topic(log, "t", now_ms=T0_MS)
    assert dict(report.log_start_offsets) == {0: (0, 4)}
    assert load_state(log).head.log_end_offsets == (6,)


def test_a_dry_run_tells_the_same_and_changes_nothing() -> None:
    _, _, log = three_days()
    before = load_state(log).position.version
    told = retain_topic(log, "t", now_ms=T0_MS, dry_run=True)
    assert load_state(log).position.version == before
    done = retain_topic(log, "t", now_ms=T0_MS)
    assert (told.removed_files, told.removed_bytes) == (done.removed_files, done.removed_bytes)
    assert told.log_start_offsets == done.log_start_offsets


def test_each_partition_goes_by_its_own_files() -> None:
    clock = ManualClock(start_ms=T0_MS)
    log = a_topic(MemoryStore(clock=clock), clock, num_partitions=3, configs={"retention.ms": DAY_MS})
    writer = a_writer(log)
    append_at(writer, T0_MS - 2 * DAY_MS, "old", partition=0)
    append_at(writer, T0_MS, "new", partition=0)
    append_at(writer, T0_MS - 2 * DAY_MS, "a", "b", partition=2)
    report = retain_topic(log, "t", now_ms=T0_MS)
    assert dict(report.log_start_offsets) == {0: (0, 1), 2: (0, 2)}
    assert contents(log) == {0: [(1, "new")], 1: [], 2: []}


def test_what_delete_records_left_behind_goes() -> None:
    """It removes whole files itself, so only a file that was over the start then may be left below."""
    _, _, log = three_days(**{"retention.ms": -1})
    delete_records(log, "t", {0: 1})
    assert retain_topic(log, "t", now_ms=T0_MS).removed_files == 0
    alter_topic(log, "t", {"retention.ms": 2 * DAY_MS})
    report = retain_topic(log, "t", now_ms=T0_MS)
    assert dict(report.log_start_offsets) == {0: (1, 2)}
    assert contents(log)[0][0] == (2, "a2")


def test_unsequenced_files_stay() -> None:
    _, _, log = three_days()
    path = unsequenced_file(log, "waiting")
    retain_topic(log, "t", now_ms=T0_MS + 9 * DAY_MS)
    assert list(load_state(log).require_whole().index.by_path) == [path]


@pytest.mark.parametrize("name", ["retention.ms", "retention.bytes", "cleanup.policy"])
def test_a_garbled_property_stops_the_job_and_is_named(name: str) -> None:
    """By SQL anybody may set it so; a producer goes on with what it was, but nothing is deleted by a guess."""
    _, _, log = three_days()
    metadata = load_state(log).require_whole().metadata
    garbled = {**metadata.configuration, f"sparklog.{name}": "one week"}
    foreign_commit(log, replace(metadata, configuration=garbled))
    append(a_writer(log), "producers go on")
    with pytest.raises(InvalidConfigurationError, match=rf"topics/t: table property sparklog\.{name}='one week'"):
        retain_topic(log, "t", now_ms=T0_MS)
    assert len(live(log)) == 4


def test_an_append_only_table_is_left_alone() -> None:
    _, _, log = three_days()
    metadata = load_state(log).require_whole().metadata
    properties = {**metadata.configuration, "delta.appendOnly": "true"}
    foreign_commit(log, replace(metadata, configuration=properties))
    with pytest.raises(PolicyViolationError, match=r"delta\.appendOnly"):
        retain_topic(log, "t", now_ms=T0_MS)
    assert retain_topic(log, "t", now_ms=T0_MS - 9 * DAY_MS).removed_files == 0


def test_a_deleted_topic_is_unknown_and_one_that_is_deleted_meanwhile_is_left_alone() -> None:
    memory, clock, log = three_days()

    def again() -> None:
        delete_topic(log, "t")
        create_topic(log, "t")
        append_at(a_writer(log), T0_MS - 99 * DAY_MS, "of another topic")

    report = retain_topic(a_log(OvertakenStore(memory, again), clock), "t", now_ms=T0_MS)
    assert report.removed_files == 0
    assert not report.log_start_offsets
    assert contents(log)[0] == [(0, "of another topic")]
    delete_topic(log, "t")
    with pytest.raises(UnknownTopicOrPartitionError):
        retain_topic(log, "t", now_ms=T0_MS)


def test_producers_that_win_every_race_lose_nothing_and_the_job_gets_through() -> None:
    memory, clock, log = three_days()
    writer = a_writer(log)
    overtaken = OvertakenStore(memory, lambda: append(writer, "meanwhile"), times=6)
    report = retain_topic(a_log(overtaken, clock), "t", now_ms=T0_MS)
    assert report.removed_files == 2
    assert [value for _, value in contents(log)[0]] == ["a0", "b0", *["meanwhile"] * 6]


def test_two_jobs_at_once_remove_each_file_once() -> None:
    memory, clock, log = three_days()
    reports = []
    overtaken = OvertakenStore(memory, lambda: reports.append(retain_topic(log, "t", now_ms=T0_MS)))
    reports.append(retain_topic(a_log(overtaken, clock), "t", now_ms=T0_MS))
    assert [report.removed_files for report in reports] == [2, 0]
    assert contents(log) == {0: [(4, "a0"), (5, "b0")]}


def test_a_log_start_that_moves_meanwhile_is_not_moved_back() -> None:
    memory, clock, log = three_days()
    overtaken = OvertakenStore(memory, lambda: delete_records(log, "t", {0: 5}))
    retain_topic(a_log(overtaken, clock), "t", now_ms=T0_MS)
    assert load_state(log).head.log_start_offsets == (5,)


def test_a_setting_that_changes_meanwhile_counts() -> None:
    memory, clock, log = three_days()
    overtaken = OvertakenStore(memory, lambda: alter_topic(log, "t", {"cleanup.policy": "compact"}))
    assert retain_topic(a_log(overtaken, clock), "t", now_ms=T0_MS).removed_files == 0


def test_many_files_go_in_several_commits_and_smaller_ones_if_producers_are_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sparklog.compaction.retention._MOST_FILES", 8)
    monkeypatch.setattr("sparklog.compaction.retention._LEAST_FILES", 2)
    memory, clock, log = three_days()
    writer = a_writer(log)
    for _ in range(20):
        append_at(writer, T0_MS - 9 * DAY_MS, "old")
    before = load_state(log).position.version
    overtaken = OvertakenStore(memory, lambda: append(writer, "meanwhile"), times=2)
    report = retain_topic(a_log(overtaken, clock), "t", now_ms=T0_MS + 9 * DAY_MS)
    assert report.removed_files == 23
    removes = [
        sum("remove" in line for line in entry_lines(log, version))
        for version in range(before + 1, load_state(log).position.version + 1)
    ]
    assert removes == [0, 0, 2, 8, 8, 5]
    assert contents(log)[0] == [(26, "meanwhile"), (27, "meanwhile")]


def test_a_reader_that_stands_below_the_new_start_is_told_and_one_above_goes_on() -> None:
    _, _, log = three_days()
    follower = TopicFollower(log, "t")
    retain_topic(log, "t", now_ms=T0_MS)
    assert follower.read(0, 0).num_rows == 6  # as of what it knows: the files are still there
    follower.poll()
    assert follower.head.log_start_offsets == (4,)
    assert follower.read(0, 4).num_rows == 2


def test_a_writer_that_knows_nothing_of_it_goes_on() -> None:
    _, _, log = three_days()
    writer = a_writer(log)
    append_each(writer, "x")
    retain_topic(log, "t", now_ms=T0_MS)
    append_each(writer, "y")
    assert contents(log)[0] == [(4, "a0"), (5, "b0"), (6, "x"), (7, "y")]
