"""Damage to a topic, each kind planted into a cluster that is healthy otherwise: it is found, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sparklog.delta.actions import AddFile, RemoveFile, SetTransaction
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import checkpoint_path, entry_path, last_checkpoint_path
from sparklog.integrity import Code, check_cluster
from sparklog.integrity.log_listing import LogListing, check_checkpoints
from sparklog.integrity.totals import TotalsFollowed
from sparklog.log.announced.names import Announcement
from sparklog.log.commit import Commit
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.producer_stamp import ProducerStamp
from sparklog.log.data.segments import format_timestamp
from sparklog.log.live_totals import LiveTotals
from sparklog.log.producer_state import ProducerEntry, announcer_txn, producer_txn
from sparklog.log.state import TopicState, load_state
from sparklog.log.topic import alter_topic
from tests.compaction.support import live
from tests.integrity.support import (
    Lines,
    a_plain_world,
    codes,
    edit_entry,
    found,
    own_commit,
    seen,
    set_stats,
    uploaded,
    with_end,
)
from tests.support import DAY_MS, T0_MS, a_writer, append, foreign_commit, foreign_file, foreign_records

PRODUCER = 77
STATS = {
    "numRecords": 3,
    "minValues": {"offset_delta": 0, "timestamp": format_timestamp(T0_MS)},
    "maxValues": {"offset_delta": 0, "timestamp": format_timestamp(T0_MS)},
}


def path_of(log: DeltaLog, number: int) -> str:
    return object_path(log.table, live(log)[number].path)


# Files.


def missing(log: DeltaLog) -> None:
    log.store.delete([path_of(log, 1)])


def truncated(log: DeltaLog) -> None:
    path = path_of(log, 1)
    log.store.put(path, log.store.read(path)[:-7])


def garbled(log: DeltaLog) -> None:
    path = path_of(log, 1)
    log.store.put(path, b"x" * len(log.store.read(path)))


def outside(log: DeltaLog) -> None:
    add = foreign_file(log, foreign_records("a"))
    foreign_commit(log, replace(add, path="s3://elsewhere/a.parquet"))


def twice_in_a_file(log: DeltaLog) -> None:
    add = foreign_file(log, foreign_records("a", "b", deltas=[0, 0]), base_offset=8)
    foreign_commit(log, replace(add, stats=STATS | {"numRecords": 1}))


@pytest.mark.parametrize(
    ("damage", "fast", "deep"),
    [
        (missing, {"file-missing"}, {"file-missing"}),
        (truncated, {"file-size"}, {"file-size"}),
        (garbled, set(), {"file-corrupt"}),
        (outside, {"file-outside"}, {"file-outside"}),
    ],
)
def test_a_damaged_file_is_found(damage: Callable[[DeltaLog], None], fast: set[str], deep: set[str]) -> None:
    _, _, cluster, log = a_plain_world()
    damage(log)
    assert found(cluster, deep=False) == fast
    assert found(cluster, deep=True) == deep


def test_a_file_that_is_gone_is_named_with_what_was_in_it() -> None:
    _, _, cluster, log = a_plain_world()
    path = path_of(log, 1)
    log.store.delete([path])
    [finding] = check_cluster(cluster).errors
    assert finding.subject.path == path
    assert (finding.subject.topic, finding.subject.partition) == ("t", 0)
    assert finding.expected == "2 records at offsets 2 to 3"
    assert str(finding) == f"error: file-missing: topic t-0, {path}: it isn't there; expected {finding.expected}"


def test_two_records_of_one_offset_in_a_file_are_found() -> None:
    _, _, cluster, log = a_plain_world()
    twice_in_a_file(log)
    assert found(cluster, deep=False) == set()
    assert found(cluster, deep=True) == {"file-corrupt", "stats-wrong"}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"minValues": {"timestamp": "2099-01-01T00:00:00.000Z"}}, "least timestamp"),
        ({"maxValues": {"timestamp": "2101-01-01T00:00:00.000Z"}}, "greatest timestamp"),
    ],
)
def test_statistics_that_the_rows_contradict_are_found(changes: dict[str, dict[str, object]], what: str) -> None:
    _, _, cluster, log = a_plain_world()
    edit_entry(log, 2, lambda lines: set_stats(lines, changes))
    assert found(cluster, deep=False) <= {"totals-wrong"}  # which tell the oldest record, too
    report = check_cluster(cluster, deep=True)
    assert codes(report) - {"totals-wrong"} == {"stats-wrong"}
    assert what in seen(report, Code.STATS_WRONG)[0]


def test_a_column_partition_that_says_another_is_found() -> None:
    _, _, cluster, log = a_plain_world()
    table = foreign_records("a").append_column("partition", pa.array([5], pa.int32()))
    foreign_commit(log, foreign_file(log, table, base_offset=8))
    assert found(cluster) == {"stats-wrong"}


# Offsets.


def test_a_file_whose_offsets_another_has_is_found() -> None:
    _, _, cluster, log = a_plain_world()
    foreign_commit(log, foreign_file(log, foreign_records("a", "b", "c"), base_offset=1))
    assert found(cluster) == {"offsets-overlap"}


def test_files_of_one_base_offset_may_lie_between_one_another() -> None:
    _, _, cluster, log = a_plain_world()
    outer = foreign_file(log, foreign_records("a", "c", deltas=[0, 2]), base_offset=8)
    inner = foreign_file(log, foreign_records("b", deltas=[1]), base_offset=8)
    foreign_commit(log, outer, inner)
    assert found(cluster) == set()


def test_offsets_that_nobody_removed_are_missed() -> None:
    """As a retention would that forgot to move the log start."""
    _, _, cluster, log = a_plain_world()
    gone = live(log)[1]

    def decide(state: TopicState) -> Commit:
        return Commit(actions=[_remove(gone.path)], head=state.head, operation="RETENTION")

    own_commit(log, decide)
    report = check_cluster(cluster)
    assert codes(report) == {"offsets-missing"}
    assert seen(report, Code.OFFSETS_MISSING) == ["2 offsets have none: 2 to 3"]


def test_offsets_that_sql_deleted_are_not_missed() -> None:
    _, _, cluster, log = a_plain_world()
    foreign_commit(log, _remove(live(log)[1].path))
    assert found(cluster) == set()


def test_offsets_that_were_gone_before_the_log_begins_are_told() -> None:
    _, _, cluster, log = a_plain_world()
    foreign_commit(log, _remove(live(log)[1].path))
    append(a_writer(log), "later")
    write_checkpoint(log)
    log.store.delete([entry_path(log.table, version) for version in range(6)])
    report = check_cluster(cluster)
    assert codes(report) == set()
    assert seen(report, Code.OFFSETS_MISSING_LONG_AGO) == ["2 offsets have none: 2 to 3"]


def test_a_file_above_the_log_end_is_found() -> None:
    _, _, cluster, log = a_plain_world()

    def decide(state: TopicState) -> Commit:
        add = uploaded(log, "a", "b").to_add(8)
        return Commit(actions=[add], head=state.head, operation="COMPACT")

    own_commit(log, decide)
    assert found(cluster) == {"offsets-above-end"}


def test_a_file_of_a_partition_that_is_not_there_is_found() -> None:
    _, _, cluster, log = a_plain_world()
    foreign_commit(log, foreign_file(log, foreign_records("a"), partition=9, base_offset=0))
    assert found(cluster) == {"partition-unknown"}


# The log.


@pytest.mark.parametrize("version", [0, 2, 3])
def test_a_missing_entry_is_found(version: int) -> None:
    _, _, cluster, log = a_plain_world()
    log.store.delete([entry_path(log.table, version)])
    report = check_cluster(cluster)
    assert codes(report) == {"log-gap"}
    assert f"version {version}" in seen(report, Code.LOG_GAP)[0]


def test_a_missing_entry_below_a_checkpoint_is_a_warning() -> None:
    _, _, cluster, log = a_plain_world()
    write_checkpoint(log)
    append(a_writer(log), "later")
    log.store.delete([entry_path(log.table, 2)])
    report = check_cluster(cluster)
    assert codes(report) == {"log-gap-below-checkpoint"}
    assert report.errors == ()


def test_what_a_sleeper_created_below_a_cleaned_log_is_nothing() -> None:
    _, clock, cluster, log = a_plain_world()
    stray = log.store.read(entry_path(log.table, 1))
    write_checkpoint(log)
    append(a_writer(log), "later")
    log.store.delete([entry_path(log.table, version) for version in range(4)])
    clock.advance(1_000)
    log.store.put(entry_path(log.table, 1), stray)
    assert found(cluster) == set()
    log.store.put(entry_path(log.table, 3), stray)
    assert found(cluster) == set()


def test_a_truncated_entry_is_found() -> None:
    _, _, cluster, log = a_plain_world()
    path = entry_path(log.table, 2)
    log.store.put(path, log.store.read(path)[:-40])
    assert found(cluster) == {"entry-corrupt"}


def test_a_log_without_a_beginning_is_found() -> None:
    _, _, cluster, log = a_plain_world()
    write_checkpoint(log)
    append(a_writer(log), "later")
    log.store.delete([entry_path(log.table, version) for version in range(5)])
    assert found(cluster) == set()
    log.store.delete([checkpoint_path(log.table, 4), last_checkpoint_path(log.table)])
    assert found(cluster) == {"log-gap"}


def test_a_damaged_checkpoint_is_found() -> None:
    _, _, cluster, log = a_plain_world()
    write_checkpoint(log)
    path = checkpoint_path(log.table, 4)
    log.store.put(path, log.store.read(path)[:-100])
    assert found(cluster) == {"checkpoint-corrupt"}
    log.store.delete([entry_path(log.table, 1)])
    report = check_cluster(cluster)
    assert codes(report) == {"checkpoint-corrupt", "log-gap-below-checkpoint", "topic-unreadable"}


def test_a_checkpoint_that_forgot_a_file_is_found() -> None:
    _, _, cluster, log = a_plain_world()
    write_checkpoint(log)
    path = checkpoint_path(log.table, 4)
    table = pq.read_table(pa.BufferReader(log.store.read(path)))
    paths = pc.struct_field(table["add"], "path")
    sink = pa.BufferOutputStream()
    pq.write_table(table.filter(pc.not_equal(pc.fill_null(paths, ""), live(log)[1].path)), sink)
    log.store.put(path, bytes(sink.getvalue()))
    assert found(cluster) == {"checkpoint-differs", "offsets-missing", "totals-wrong"}


@pytest.mark.parametrize("hint", [b"no JSON", b'{"version": 2, "size": 1}'])
def test_a_hint_that_is_wrong_is_found(hint: bytes) -> None:
    _, _, cluster, log = a_plain_world()
    write_checkpoint(log)
    log.store.put(last_checkpoint_path(log.table), hint)
    assert found(cluster) == {"hint-wrong"}


def test_no_checkpoint_for_far_too_long_is_told() -> None:
    _, _, _, log = a_plain_world(appends=1)
    for count, expected in ((1_001, []), (1_002, [Code.CHECKPOINT_DUE])):
        kept = LogListing(entries=dict.fromkeys(range(count - 1), 0), checkpoints={})
        assert [one.code for one in check_checkpoints(log, kept, "t", live_file_count=1)] == expected


def test_a_setting_that_is_not_understood_is_found() -> None:
    _, _, cluster, log = a_plain_world()
    alter_topic(log, "t", {"retention.ms": 1_000})
    metadata = load_state(log).require_whole().metadata
    wrong = {**metadata.configuration, "sparklog.retention.ms": "a week"}
    foreign_commit(log, replace(metadata, configuration=wrong))
    report = check_cluster(cluster)
    assert codes(report) == {"config-not-understood"}
    assert "retention.ms" in seen(report, Code.CONFIG_NOT_UNDERSTOOD)[0]


# What entries say of starts, ends and producers.


def test_a_log_end_that_goes_back_is_found() -> None:
    _, _, cluster, log = a_plain_world()
    own_commit(log, lambda state: Commit(actions=[], head=with_end(state.head, 6), operation="COMPACT"))
    report = check_cluster(cluster)
    assert codes(report) == {"offset-went-back", "offsets-above-end"}
    assert seen(report, Code.OFFSET_WENT_BACK) == ["the log end went from 8 to 6"]


def test_a_log_start_that_goes_back_is_found() -> None:
    _, _, cluster, log = a_plain_world()

    def with_start(state: TopicState, start: int) -> Commit:
        return Commit(actions=[], head=replace(state.head, log_start_offsets=(start,)), operation="COMPACT")

    for start in (4, 2):
        own_commit(log, partial(with_start, start=start))
    assert found(cluster) == {"offset-went-back"}


def test_a_log_end_that_another_engine_lowers_is_found() -> None:
    _, _, cluster, log = a_plain_world()
    foreign_commit(log, SetTransaction(app_id="sparklog.end.0", version=3, last_updated_ms=T0_MS))
    assert "offset-went-back" in found(cluster)


def test_an_action_that_says_another_end_than_commit_info_is_found() -> None:
    _, _, cluster, log = a_plain_world()

    def edit(lines: Lines) -> None:
        action = next(line["txn"] for line in lines if line.get("txn", {}).get("appId") == "sparklog.end.0")
        action["version"] += 1

    edit_entry(log, 2, edit)
    assert found(cluster) == {"offsets-disagree"}


def test_an_end_that_no_action_tells_is_found() -> None:
    _, _, cluster, log = a_plain_world()

    def edit(lines: Lines) -> None:
        lines[:] = [line for line in lines if line.get("txn", {}).get("appId") != "sparklog.end.0"]
        lines[0]["commitInfo"]["sparklog"]["actions"] -= 1

    edit_entry(log, 2, edit)
    assert found(cluster) == {"offsets-disagree"}


def test_totals_that_are_not_those_of_the_live_files_are_found_where_they_went_wrong() -> None:
    _, _, cluster, log = a_plain_world()

    def count_twice(lines: Lines) -> None:
        totals = lines[0]["commitInfo"]["sparklog"]["totals"]
        totals[0] += 1

    edit_entry(log, 2, count_twice)
    report = check_cluster(cluster)
    assert codes(report) == {"totals-wrong"}
    told = [one.subject.delta_version for one in report.warnings]
    assert told == [2, 3]  # what follows goes on from it in none of them
    for version in (3, 4):
        edit_entry(log, version, count_twice)
    report = check_cluster(cluster)
    assert [one.subject.delta_version for one in report.warnings] == [2, 4]
    assert seen(report, Code.TOTALS_WRONG)[1].startswith("commitInfo carries 5 files, ")


def test_totals_of_a_log_that_begins_later_are_compared_with_the_live_files() -> None:
    _, clock, cluster, log = a_plain_world()
    writer = a_writer(log)
    for _ in range(6):
        clock.advance(DAY_MS / 2)
        append(writer, "later")
    write_checkpoint(log)
    append(writer, "after")
    assert clean_log(log, retention_ms=DAY_MS) is not None
    assert found(cluster) == set()
    edit_entry(log, 11, lambda lines: lines[0]["commitInfo"]["sparklog"].update(totals=[1, 2, 3, None]))
    assert found(cluster) == {"totals-wrong"}


def test_an_append_that_skips_offsets_is_found() -> None:
    _, _, cluster, log = a_plain_world()

    def decide(state: TopicState) -> Commit:
        add = uploaded(log, "a", "b").to_add(10)
        return Commit(actions=[add], head=with_end(state.head, 12), operation="WRITE", blind_append=True)

    own_commit(log, decide)
    report = check_cluster(cluster)
    assert codes(report) == {"append-wrong", "offsets-missing"}
    assert seen(report, Code.OFFSETS_MISSING) == ["2 offsets have none: 8 to 9"]


def test_an_append_whose_statistics_lie_of_its_records_is_found() -> None:
    _, _, cluster, log = a_plain_world()
    edit_entry(log, 2, lambda lines: set_stats(lines, {"maxValues": {"offset_delta": 0}}))
    assert found(cluster, deep=False) == {"append-wrong", "stats-wrong", "offsets-missing"}


def test_a_merge_that_loses_a_record_is_found() -> None:
    _, _, cluster, log = a_plain_world()
    first, second = live(log)[:2]

    def decide(state: TopicState) -> Commit:
        add = uploaded(log, "a0", "b0", "a1").to_add(0)
        removes = [_remove(one.path) for one in (first, second)]
        return Commit(actions=[*removes, replace(add, data_change=False)], head=state.head, operation="OPTIMIZE")

    own_commit(log, decide)
    assert found(cluster) == {"rewrite-lost-records", "offsets-missing"}


def _appended(log: DeltaLog, *, counter: int, sequence: int, end: int, epoch: int = 0) -> None:
    """A commit of a producer, as it would be if its writer forgot the rules."""

    def decide(state: TopicState) -> Commit:
        file = uploaded(log, "a", "b", stamp=ProducerStamp(PRODUCER, epoch, sequence))
        entry = producer_txn(PRODUCER, ProducerEntry(producer_epoch=epoch, counter=counter), now_ms=T0_MS)
        return Commit(
            actions=[file.to_add(end - 2), entry], head=with_end(state.head, end), operation="WRITE", blind_append=True
        )

    own_commit(log, decide)


@pytest.mark.parametrize(("counter", "epoch"), [(0, 0), (2, 0), (1, 1)])
def test_a_commit_that_a_producer_counted_otherwise_is_found(counter: int, epoch: int) -> None:
    _, _, cluster, log = a_plain_world()
    _appended(log, counter=0, sequence=0, end=10)
    assert found(cluster) == set()
    _appended(log, counter=counter, epoch=epoch, sequence=2, end=12)
    assert found(cluster) == {"producer-counter"}


def _settled(log: DeltaLog, number: int | None, *, file_number: int, end: int) -> None:
    """An announced flush of two records, in an entry that settles ``number``, or none."""

    def decide(state: TopicState) -> Commit:
        file = uploaded(log, "a", "b")
        stated = Announcement(
            known=1, partition=0, topic=1, announcer=7, number=file_number, ahead=1, part=0, parts=1, record_count=2,
            size_bytes=file.size_bytes, min_timestamp_ms=file.min_timestamp_ms, max_timestamp_ms=file.max_timestamp_ms,
            stamp=file.stamp, uploaded_ms=1, salt=end,
        )  # fmt: skip
        log.store.put(f"{log.table}/{stated.path}", log.store.read(f"{log.table}/{file.path}"))
        add = replace(file, path=stated.path).to_add(end - 2)
        txns = [] if number is None else [announcer_txn(7, number, now_ms=T0_MS)]
        return Commit(actions=[add, *txns], head=with_end(state.head, end), operation="WRITE", blind_append=True)

    own_commit(log, decide)


@pytest.mark.parametrize(("number", "file_number"), [(4, 4), (3, 3), (6, 4), (6, 7), (None, 5)])
def test_an_announced_number_that_is_settled_twice_or_wrongly_is_found(number: int | None, file_number: int) -> None:
    _, _, cluster, log = a_plain_world()
    _settled(log, 2, file_number=2, end=10)
    _settled(log, 4, file_number=3, end=12)
    assert found(cluster) == set()
    _settled(log, number, file_number=file_number, end=14)
    assert found(cluster) == {"announced-number"}


def test_a_batch_that_is_there_twice_is_found() -> None:
    _, _, cluster, log = a_plain_world()
    _appended(log, counter=0, sequence=0, end=10)
    _appended(log, counter=1, sequence=100, end=12)  # what lies between was aborted
    assert found(cluster) == set()
    _appended(log, counter=2, sequence=100, end=14)
    report = check_cluster(cluster)
    assert codes(report) == {"sequence-repeated"}
    assert len(report.errors) == 1


def test_a_batch_that_is_there_twice_is_found_among_the_rows_when_the_log_is_gone() -> None:
    _, _, cluster, log = a_plain_world()
    for counter in (0, 1):
        _appended(log, counter=counter, sequence=0, end=10 + 2 * counter)
    append(a_writer(log), "later")
    write_checkpoint(log)
    log.store.delete([entry_path(log.table, version) for version in range(7)])
    assert found(cluster, deep=False) == set()
    assert found(cluster, deep=True) == {"sequence-repeated"}


def test_sequences_may_wrap() -> None:
    _, _, cluster, log = a_plain_world()
    for counter, sequence in enumerate([2**31 - 3, 2**31 - 1, 1, 3]):
        _appended(log, counter=counter, sequence=sequence, end=10 + 2 * counter)
    assert found(cluster) == set()


def test_of_very_many_findings_the_rest_is_counted() -> None:
    _, _, cluster, log = a_plain_world(appends=1)
    files = [foreign_file(log, foreign_records("a"), base_offset=0) for _ in range(3)]
    adds: list[AddFile] = []
    for number in range(60):
        base = 10 + number
        values = {"partition": "0", "base_offset": str(base)}
        adds.append(replace(files[number % 3], path=f"partition=0/{number}.parquet", partition_values=values))
    foreign_commit(log, *(replace(add, stats=STATS) for add in adds))
    report = check_cluster(cluster)
    wrong = [one for one in report.errors if one.code is Code.STATS_WRONG]
    assert len(wrong) == 21
    assert wrong[-1].seen == "40 more of these"


def _remove(path: str) -> RemoveFile:
    return RemoveFile(path=path, deletion_ms=T0_MS)


def test_a_file_that_another_engine_adds_again_is_no_reason_to_call_totals_wrong() -> None:
    _, _, _, log = a_plain_world()
    again, *_ = load_state(log).require_whole().index.by_path.values()
    followed, carried = TotalsFollowed(), LiveTotals(12, 1_200, 12, 5)
    assert followed.apply(7, [], [], carried) is None  # the log begins here: nothing is known of its files
    assert followed.apply(8, [again], [], None) is None
    assert followed.apply(9, [], [], carried) is None
    assert followed.apply(10, [], [], carried) is None
    assert followed.apply(11, [], [], LiveTotals(13, 1_200, 12, 5)) == carried
