"""Compaction by key: the last record of each key stays, offsets and order too, and everybody goes on meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.compaction.clean_arrow import clean_with_arrow
from sparklog.compaction.commit_replacement import Outcome
from sparklog.compaction.compact import CleanedPartition, CompactReport, compact_topic
from sparklog.compaction.keys import LatestOffsets
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.plan_cleaning import CleanerState, Reason, compaction_due_ms
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.consumer import Consumer
from sparklog.delta.actions import RemoveFile
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.log import DeltaLog
from sparklog.errors import InvalidConfigurationError, PolicyViolationError
from sparklog.integrity import check_cluster
from sparklog.log import open_cluster
from sparklog.log.data.object_paths import object_path
from sparklog.log.follow import TopicFollower
from sparklog.log.state import load_state
from sparklog.log.topic import create_topic, delete_records, delete_topic
from sparklog.model import TopicPartition
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.compaction.support import Key, append_pairs, delete_files, live, pairs_of, stored
from tests.support import DAY_MS, T0_MS, OvertakenStore, a_log, a_topic, a_writer, entry_lines, foreign_commit
from tests.txn.support import a_cluster

Pairs = Sequence[tuple[Key, str | None]]


def compact(log: DeltaLog, *, now_ms: int = T0_MS, **more: object) -> CompactReport:
    return compact_topic(log, "t", now_ms=now_ms, **more)  # type: ignore[arg-type]


def partition_of(report: CompactReport, partition: int = 0) -> CleanedPartition:
    [found] = [one for one in report.partitions if one.partition == partition]
    return found


def a_compacted_topic(*files: Pairs, **configs: object) -> tuple[MemoryStore, ManualClock, DeltaLog]:
    """A topic with a file for each of the lists of pairs, and a newest one that stays."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock, configs={"cleanup.policy": "compact", **configs})
    for pairs in (*files, [NEWEST] if files else []):
        if pairs:
            append_pairs(a_writer(log), pairs)
    return memory, clock, log


NEWEST = ("newest", "n")
A1, A2, A3, B1, B2, C1 = ("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("b", "2"), ("c", "1")
NO_A, NO_B = ("a", None), ("b", None)


def state_of(log: DeltaLog, partition: int = 0) -> CleanerState:
    state = load_state(log)
    return CleanerState.of(state.transactions, state.head.topic_id, partition)


def test_the_last_record_of_each_key_stays_where_it_was() -> None:
    _, _, log = a_compacted_topic([A1, B1, A2], [C1], [B2, A3])
    before = {row["offset"]: row for row in stored(log)}
    report = compact(log)
    assert pairs_of(log) == [(3, *C1), (4, *B2), (5, *A3), (6, *NEWEST)]
    assert stored(log) == [before[offset] for offset in (3, 4, 5, 6)]
    found = partition_of(report)
    assert (found.outcome, found.reason, found.first_dirty_offset) == (Outcome.DONE, Reason.DIRTY, 6)
    assert (found.counts.records, found.counts.superseded, found.counts.dropped) == (6, 3, 3)
    assert (found.files_before, found.files_after) == (1, 0)  # only what changes is replaced
    assert load_state(log).head.log_start_offsets == (0,)
    assert load_state(log).head.log_end_offsets == (7,)


def test_it_is_a_change_of_data_and_what_was_cleaned_is_remembered_in_the_table() -> None:
    _, _, log = a_compacted_topic([A1, B1], [A2])
    report = compact(log)
    replaced, remembered = (entry_lines(log, report.delta_version - back) for back in (1, 0))
    assert replaced[0]["commitInfo"]["operation"] == remembered[0]["commitInfo"]["operation"] == "COMPACT"
    assert replaced[0]["commitInfo"]["isBlindAppend"] is False
    assert [next(iter(line)) for line in replaced] == ["commitInfo", "remove", "add"]
    assert replaced[1]["remove"]["dataChange"] is replaced[2]["add"]["dataChange"] is True
    assert {next(iter(line)) for line in remembered[1:]} == {"txn"}
    write_checkpoint(log)
    assert state_of(log).first_dirty_offset == 3


def test_neighbours_that_change_become_one_file_and_those_that_do_not_stay() -> None:
    _, _, log = a_compacted_topic([A1, B1], [A2, C1], [("x", "1")], [A3, ("y", "1")], [("a", "4")])
    kept = live(log)[2]
    compact(log)
    assert [value for _, _, value in pairs_of(log)] == ["1", "1", "1", "1", "4", "n"]
    assert [file.first_offset for file in live(log)] == [1, 4, 6, 7, 8]
    assert live(log)[1] == kept
    assert (live(log)[0].base_offset, live(log)[0].min_offset_delta, live(log)[0].max_offset_delta) == (0, 1, 3)


def test_a_topic_without_compact_in_its_policy_is_left_alone() -> None:
    _, _, log = a_compacted_topic([A1], [A2], **{"cleanup.policy": "delete"})
    before = load_state(log).position.version
    report = compact(log)
    assert (report.compacts, report.partitions, report.delta_version) == (False, (), before)


def test_both_policies_at_once_compact_too() -> None:
    _, _, log = a_compacted_topic([A1], [A2], **{"cleanup.policy": "compact,delete"})
    compact(log)
    assert pairs_of(log) == [(1, *A2), (2, *NEWEST)]


def test_what_is_not_due_is_told_and_left_alone() -> None:
    _, _, log = a_compacted_topic([A1], [A2])
    compact(log)
    version = load_state(log).position.version
    found = partition_of(compact(log))
    assert (found.reason, found.outcome, found.dirty_ratio, found.oldest_dirty_ms) == (Reason.NONE, None, 0.0, None)
    assert load_state(log).position.version == version


def test_a_dry_run_tells_what_is_due_and_changes_nothing() -> None:
    _, _, log = a_compacted_topic([A1], [A2])
    version = load_state(log).position.version
    found = partition_of(compact(log, dry_run=True))
    assert (found.reason, found.outcome, found.dirty_ratio) == (Reason.DIRTY, Outcome.PLANNED, 1.0)
    assert found.oldest_dirty_ms == T0_MS
    assert load_state(log).position.version == version


def test_the_newest_file_is_cleaned_once_a_record_has_waited_for_too_long() -> None:
    configs = {"max.compaction.lag.ms": 1_000, "delete.retention.ms": 5_000, "min.cleanable.dirty.ratio": 1}
    memory, clock, log = a_compacted_topic(**configs)

    def compact_after(wait_ms: int) -> CleanedPartition:
        clock.advance(wait_ms)
        return partition_of(compact(log, now_ms=int(clock.now_ms())))

    append_pairs(a_writer(log), [A1, B1, NO_A])
    assert compact_after(1_000).outcome is None
    assert compaction_due_ms(load_state(log), now_ms=T0_MS + 1_000) == T0_MS + 1_001
    assert compact_after(1).reason is Reason.OLD
    assert pairs_of(log) == [(1, *B1), (2, *NO_A)]
    assert compact_after(4_999).outcome is None
    assert compact_after(1).reason is Reason.TOMBSTONES
    assert pairs_of(log) == [(1, *B1)]
    append_pairs(a_writer(log), [NO_B])
    compact_after(1_001)
    compact_after(5_000)
    assert pairs_of(log) == []
    assert load_state(log).head.log_end_offsets == (4,)
    append_pairs(a_writer(log), [C1])
    assert pairs_of(log) == [(4, *C1)]
    assert [*check_cluster(a_cluster(memory, clock), deep=True).findings] == []


def test_a_newest_file_that_is_too_young_for_compaction_stays() -> None:
    _, _, log = a_compacted_topic(**{"max.compaction.lag.ms": 2_000, "min.compaction.lag.ms": 2_000})
    append_pairs(a_writer(log), [A1, A2])
    compact(log, now_ms=T0_MS + 1_999)
    assert len(pairs_of(log)) == 2
    compact(log, now_ms=T0_MS + 2_001)
    assert pairs_of(log) == [(1, *A2)]


def test_later_passes_look_at_the_clean_part_for_the_keys_that_came_again() -> None:
    _, _, log = a_compacted_topic([A1, B1], [C1])
    compact(log)
    append_pairs(a_writer(log), [A2, B2, C1, A3])
    append_pairs(a_writer(log), [NEWEST])
    found = partition_of(compact(log))
    assert found.counts.superseded == 4  # a, b, c, and a once more
    assert pairs_of(log) == [(3, *NEWEST), (5, *B2), (6, *C1), (7, *A3), (8, *NEWEST)]


def test_records_without_a_key_go_and_are_counted() -> None:
    """Source: Kafka Cleaner.shouldRetainRecord. They are older than the policy: later ones are refused at send."""
    _, _, log = a_compacted_topic([(None, "x"), A1, ("", "empty isn't null")], [(None, None), ("", "again")])
    found = partition_of(compact(log))
    assert (found.counts.keyless, found.counts.superseded) == (2, 1)
    assert pairs_of(log) == [(1, *A1), (4, "", "again"), (5, *NEWEST)]


# Tombstones


def test_a_tombstone_stays_for_its_retention_from_the_first_pass_and_then_goes() -> None:
    _, _, log = a_compacted_topic([A1, B1], [NO_A])
    compact(log)
    assert pairs_of(log) == [(1, *B1), (2, *NO_A), (3, *NEWEST)]
    assert state_of(log).tombstone_count == 1
    for waited in (DAY_MS - 1, 0):
        found = partition_of(compact(log, now_ms=T0_MS + waited))
        assert (found.reason, found.tombstones_due) == (Reason.NONE, 0)
    found = partition_of(compact(log, now_ms=T0_MS + DAY_MS))
    assert (found.reason, found.tombstones_due, found.counts.tombstones_dropped) == (Reason.TOMBSTONES, 1, 1)
    assert pairs_of(log) == [(1, *B1), (3, *NEWEST)]
    assert state_of(log).tombstone_count == 0
    assert partition_of(compact(log, now_ms=T0_MS + 9 * DAY_MS)).reason is Reason.NONE


@pytest.mark.slow
def test_passes_in_between_do_not_prolong_a_tombstones_life() -> None:
    _, _, log = a_compacted_topic([A1], [NO_A], **{"min.cleanable.dirty.ratio": 0.0})
    compact(log)
    for hour in range(1, 24):
        append_pairs(a_writer(log), [("b", str(hour))])
        compact(log, now_ms=T0_MS + hour * 3_600_000)
        assert (1, *NO_A) in pairs_of(log)
    append_pairs(a_writer(log), [NO_B])
    append_pairs(a_writer(log), [NEWEST])
    compact(log, now_ms=T0_MS + DAY_MS)
    assert [pair for pair in pairs_of(log) if pair[2] is None] == [(26, *NO_B)]
    compact(log, now_ms=T0_MS + 2 * DAY_MS - 1)
    assert (26, *NO_B) in pairs_of(log)
    compact(log, now_ms=T0_MS + 2 * DAY_MS)
    assert [pair for pair in pairs_of(log) if pair[2] is None] == []


def test_a_tombstone_is_superseded_like_any_record_and_a_lone_one_counts_too() -> None:
    _, _, log = a_compacted_topic([NO_A, NO_B], [A1])
    compact(log)
    assert pairs_of(log) == [(1, *NO_B), (2, *A1), (3, *NEWEST)]


def test_time_that_a_pass_takes_counts_for_the_readers() -> None:
    """Readers have the whole retention after the commit that remembers them, not after the job began."""
    memory, clock, log = a_compacted_topic([A1], [NO_A])
    compact(a_log(OvertakenStore(memory, lambda: clock.advance(1_000)), clock))
    assert state_of(log).horizon_ms == T0_MS + 1_000


# What others do meanwhile


def test_producers_that_win_every_race_for_a_while_lose_nothing() -> None:
    memory, clock, log = a_compacted_topic([A1, B1], [A2])
    writer = a_writer(log)
    found = compact(a_log(OvertakenStore(memory, lambda: append_pairs(writer, [A3]), times=4), clock))
    assert partition_of(found).outcome is Outcome.DONE
    assert pairs_of(log) == [(1, *B1), (2, *A2), (3, *NEWEST), (4, *A3), (5, *A3), (6, *A3), (7, *A3)]


def test_two_jobs_at_once_clean_once() -> None:
    memory, clock, log = a_compacted_topic([A1, B1], [A2])
    reports = []
    overtaken = OvertakenStore(memory, lambda: reports.append(compact(log)))
    reports.append(compact(a_log(overtaken, clock)))
    assert [partition_of(report).outcome for report in reports] == [Outcome.DONE, Outcome.OVERTAKEN]
    assert pairs_of(log) == [(1, *B1), (2, *A2), (3, *NEWEST)]
    assert state_of(log).first_dirty_offset == 3


def test_two_jobs_that_both_find_nothing_to_drop_remember_it_once() -> None:
    memory, clock, log = a_compacted_topic([A1], [NO_B])
    reports = []
    overtaken = OvertakenStore(memory, lambda: reports.append(compact(log, now_ms=T0_MS + 5)))
    reports.append(compact(a_log(overtaken, clock)))
    assert [partition_of(report).outcome for report in reports] == [Outcome.DONE, Outcome.OVERTAKEN]
    assert state_of(log).horizon_ms == T0_MS + 5


def test_a_range_that_somebody_changed_ends_the_pass_and_the_next_begins_anew() -> None:
    memory, clock, log = a_compacted_topic([A1, B1], [C1], [A2, ("x", "1")], [("x", "2"), B2])

    def erased() -> None:
        file = live(log)[0]
        foreign_commit(log, RemoveFile(path=file.path, deletion_ms=T0_MS))

    found = partition_of(compact(a_log(OvertakenStore(memory, erased), clock)))
    assert found.outcome is Outcome.OVERTAKEN
    assert state_of(log) == CleanerState()
    assert (4, "x", "1") in pairs_of(log)
    compact(log)
    assert pairs_of(log) == [(2, *C1), (3, *A2), (5, "x", "2"), (6, *B2), (7, *NEWEST)]


def test_records_below_the_log_start_do_not_come_back() -> None:
    memory, clock, log = a_compacted_topic([A1, B1], [A2, C1], [A3], **{"cleanup.policy": "compact,delete"})
    overtaken = OvertakenStore(memory, lambda: delete_records(log, "t", {0: 2}))
    compact(a_log(overtaken, clock))
    assert load_state(log).head.log_start_offsets == (2,)
    compact(log)
    assert pairs_of(log) == [(3, *C1), (4, *A3), (5, *NEWEST)]


def test_a_topic_that_is_created_again_begins_dirty() -> None:
    memory, clock, log = a_compacted_topic([A1, B1], [A2])

    def again() -> None:
        delete_topic(log, "t")
        create_topic(log, "t", configs={"cleanup.policy": "compact"})
        for pairs in ([A1], [A2], [NEWEST]):
            append_pairs(a_writer(log), pairs)

    compact(log)
    append_pairs(a_writer(log), [A3, A3, A3, A3])
    append_pairs(a_writer(log), [NEWEST])
    found = partition_of(compact(a_log(OvertakenStore(memory, again), clock)))
    assert found.outcome is Outcome.OVERTAKEN
    assert state_of(log) == CleanerState()
    assert pairs_of(log) == [(0, *A1), (1, *A2), (2, *NEWEST)]
    compact(log)
    assert pairs_of(log) == [(1, *A2), (2, *NEWEST)]


def test_a_file_that_makes_no_sense_is_told_and_the_other_partitions_are_cleaned() -> None:
    clock = ManualClock(start_ms=T0_MS)
    log = a_topic(MemoryStore(clock=clock), clock, num_partitions=2, configs={"cleanup.policy": "compact"})
    for partition in (0, 1):
        for pairs in ([A1], [A2], [NEWEST]):
            append_pairs(a_writer(log), pairs, partition=partition)
    broken = live(log, 0)[0]
    log.store.put(object_path(log.table, broken.path), b"no parquet")
    report = compact(log)
    assert [found.outcome for found in report.partitions] == [Outcome.FAILED, Outcome.DONE]
    assert broken.path in partition_of(report).error
    assert pairs_of(log, 1) == [(1, *A2), (2, *NEWEST)]


def test_a_garbled_setting_is_named_and_an_append_only_table_is_left_alone() -> None:
    _, _, log = a_compacted_topic([A1], [A2])
    metadata = load_state(log).require_whole().metadata
    for name, value, error in (
        ("delta.appendOnly", "true", PolicyViolationError),
        ("sparklog.delete.retention.ms", "1d", InvalidConfigurationError),
    ):
        properties = {**metadata.configuration, name: value}
        foreign_commit(log, replace(metadata, configuration=properties))
        with pytest.raises(error, match=name.replace(".", r"\.")):
            compact(log)
    assert len(live(log)) == 3


# Keys that don't fit in memory at once


def test_a_pass_cleans_as_far_as_its_keys_fit_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.compaction.clean_arrow._LEARNED_AT_ONCE", 1)
    files = [[(f"k{number % 7}", str(number)), (f"x{number}", "x")] for number in range(20)]
    _, _, log = a_compacted_topic(*files)
    found = partition_of(compact(log, clean=partial(clean_with_arrow, key_bytes=40)))
    assert found.outcome is Outcome.DONE
    assert found.first_dirty_offset == 40
    assert found.counts.superseded == 13
    last = {key: (at, key, value) for at, (key, value) in enumerate(pair for pairs in files for pair in pairs)}
    assert pairs_of(log) == [*sorted(last.values()), (40, *NEWEST)]


def test_what_is_gone_before_the_next_pass_ends_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.compaction.clean_arrow._LEARNED_AT_ONCE", 1)
    memory, clock, log = a_compacted_topic([B1], [A1], [A2], [A3], **{"cleanup.policy": "compact,delete"})
    overtaken = a_log(OvertakenStore(memory, lambda: delete_records(log, "t", {0: 4})), clock)
    found = partition_of(compact(overtaken, clean=partial(clean_with_arrow, key_bytes=0)))
    assert (found.outcome, found.first_dirty_offset) == (Outcome.DONE, 1)
    assert pairs_of(log) == [(4, *NEWEST)]


def test_latest_offsets_know_every_key_that_was_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.compaction.keys._WAITING_ROWS", 3)
    latest = LatestOffsets()
    for offset, key in enumerate([b"a", b"", None, b"b", b"a", b"c", None, b""]):
        latest.add(pa.chunked_array([[key]], pa.binary()), pa.chunked_array([[offset]], pa.int64()))
    asked = pa.chunked_array([[b"a", None], [b"", b"z", b"b"]], pa.binary())
    assert latest.of(asked).tolist() == [4, -1, 7, -1, 3]
    assert len(latest) == 4
    assert latest.exceeds(20)
    assert not latest.exceeds(100)
    assert LatestOffsets().of(asked).tolist() == [-1] * 5


# Readers


@pytest.mark.slow
def test_a_consumer_sees_every_keys_last_record_in_order_while_files_are_replaced() -> None:
    cluster = open_cluster(MemoryStore())
    log = cluster.topic_log("t")
    create_topic(log, "t", configs={"cleanup.policy": "compact"})
    writer = a_writer(log)
    sent = [(f"k{number % 5}", str(number)) for number in range(40)]
    for pair in sent:
        append_pairs(writer, [pair])
    at = TopicPartition("t", 0)
    seen: list[tuple[int, str, str]] = []
    with Consumer(cluster=cluster, auto_offset_reset="earliest", max_partition_fetch_bytes=1) as consumer:
        consumer.assign([at])
        compacted = False
        while not seen or seen[-1][0] < 39:
            for record in consumer.poll(timeout_ms=5_000, max_records=1).get(at, []):
                seen.append((record.offset, record.key.decode(), record.value.decode()))
            if len(seen) >= 3 and not compacted:
                compacted, old = True, live(log)[:-1]
                compact(log)
                delete_files(log, [file for file in old if file not in live(log)])
    assert [offset for offset, _, _ in seen] == sorted({offset for offset, _, _ in seen})
    assert len(seen) < 40
    assert {key: value for _, key, value in seen} == dict(sent)
    assert all(sent[offset] == (key, value) for offset, key, value in seen)


def test_a_follower_at_the_head_sees_every_record() -> None:
    _, _, log = a_compacted_topic([A1], [A2])
    follower = TopicFollower(log, "t")
    position = 3
    seen: list[int] = []
    for number in range(6):
        append_pairs(a_writer(log), [("a", str(number))])
        while follower.poll():
            pass
        found = follower.read(0, position)["offset"].to_pylist()
        seen += found
        position = found[-1] + 1
        compact(log)
    assert seen == list(range(3, 9))


# Properties

KEYS = st.sampled_from(["a", "b", "c", "d"])
FILES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.text("xyz", max_size=2))), min_size=1, max_size=5)
STEPS = st.lists(
    st.one_of(FILES, st.sampled_from(["compact", "optimize", "checkpoint"]), st.integers(1, 2 * DAY_MS)),
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_whatever_the_history_of_keys_and_tombstones(steps: list[Any]) -> None:
    """The last value of each key is there, no offset or order changes, and a tombstone is gone only after its time."""
    _, _, log = a_compacted_topic(**{"min.cleanable.dirty.ratio": 0.0})
    now_ms = T0_MS
    sent: list[tuple[str, str | None]] = []
    times: list[int] = []
    for step in [*steps, "compact"]:
        if isinstance(step, int):
            now_ms += step
        elif step == "compact":
            compact(log, now_ms=now_ms)
        elif step == "optimize":
            optimize_topic(log, "t", policy=OptimizePolicy(min_files=2, growth=1.5))
        elif step == "checkpoint":
            write_checkpoint(log)
        else:
            append_pairs(a_writer(log), step)
            sent += step
            times += [now_ms] * len(step)
    left = pairs_of(log)
    offsets = [offset for offset, _, _ in left]
    assert offsets == sorted(set(offsets))
    assert all((key, value) == sent[offset] for offset, key, value in left)
    last = {key: offset for offset, (key, _) in enumerate(sent)}
    for key, offset in last.items():
        is_there = offset in offsets
        assert is_there or (sent[offset][1] is None and now_ms - times[offset] >= DAY_MS)
        if not is_there:  # nor may an older value come back
            assert key not in {found for _, found, _ in left}
    newest_file = live(log)[-1].first_offset if left else 0
    assert sorted(offset for offset in offsets if offset < newest_file) == sorted(
        offset
        for offset in offsets
        if offset < newest_file
        and offset == max(o for o, (k, _) in enumerate(sent[:newest_file]) if k == sent[offset][0])
    )
    follower = TopicFollower(log, "t")
    assert follower.read(0, 0, max_records=999)["offset"].to_pylist() == offsets
    assert follower.head.log_end_offsets == (len(sent),)
