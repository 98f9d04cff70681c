"""Old log entries and files that nobody needs go; what readers may still need stays."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.clock import SystemClock
from sparklog.compaction.due import checkpoint_worthwhile
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.vacuum import VacuumReport, vacuum_topic
from sparklog.delta.actions import Action, Protocol
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.listing import read_hint
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import last_checkpoint_path
from sparklog.errors import (
    CorruptLogError,
    InvalidConfigurationError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from sparklog.log import Cluster
from sparklog.log.follow import TopicFollower
from sparklog.log.state import load_state
from sparklog.log.topic import alter_topic, create_topic, delete_records, delete_topic
from sparklog.paths import transaction_entry
from sparklog.storage import LocalStore, MemoryStore
from sparklog.testing import ManualClock
from sparklog.txn.orphans import ORPHAN_AGE_MS
from sparklog.txn.recovery import EXPIRATION_MS, recover_transactions
from tests.compaction.support import append_each, live
from tests.support import DAY_MS, T0_MS, a_log, a_writer, contents, foreign_commit, unsequenced_file, versions_of
from tests.txn.support import Driver, a_cluster, data_files

WEEK_MS = ORPHAN_AGE_MS


def a_world(count: int = 9) -> tuple[MemoryStore, ManualClock, Cluster]:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    cluster = a_cluster(memory, clock)
    create_topic(cluster.topic_log("t"), "t")
    append_each(a_writer(cluster.topic_log("t")), *map(str, range(count)))
    return memory, clock, cluster


def vacuum(cluster: Cluster, **more: bool) -> VacuumReport:
    return vacuum_topic(cluster, "t", timeout_ms=60_000, **more)


def test_a_checkpoint_is_worth_it_after_20_versions_or_a_hundredth_of_the_files() -> None:
    assert not checkpoint_worthwhile(version=29, checkpoint_version=10, live_file_count=0)
    assert checkpoint_worthwhile(version=30, checkpoint_version=10, live_file_count=2_099)
    assert not checkpoint_worthwhile(version=30, checkpoint_version=10, live_file_count=2_100)


def test_old_entries_go_once_a_checkpoint_says_the_same() -> None:
    _, clock, cluster = a_world(count=25)
    log = cluster.topic_log("t")
    report = vacuum(cluster)
    assert (report.checkpoint_version, report.entries_deleted, report.files_deleted) == (25, 0, 0)
    clock.advance(2 * DAY_MS)
    append_each(a_writer(log), "new", "newer")
    report = vacuum(cluster)
    assert (report.checkpoint_version, report.entries_deleted) == (None, 25)
    assert versions_of(log) == [25, 26, 27]
    assert len(contents(log)[0]) == 27
    assert read_hint(log) == 25


def test_how_long_entries_stay_is_the_topics_setting() -> None:
    _, clock, cluster = a_world(count=25)
    log = cluster.topic_log("t")
    alter_topic(log, "t", {"log.retention.ms": 3 * DAY_MS})
    vacuum(cluster)
    clock.advance(2 * DAY_MS)
    append_each(a_writer(log), "new")
    assert vacuum(cluster).entries_deleted == 0


def set_by_sql(log: DeltaLog, *actions: Action, **properties: str) -> None:
    """Commit as another engine's ``ALTER TABLE``: actions, and the metadata with more ``delta.`` properties."""
    found = load_state(log).require_whole().metadata
    more = {f"delta.{name}": value for name, value in properties.items()}
    metadata = replace(found, configuration={**found.configuration, **more})
    foreign_commit(log, *actions, metadata)


def test_a_log_with_protected_checkpoints_is_kept_until_all_of_it_may_go() -> None:
    """Delta's ``checkpointProtection``, which a ``DROP FEATURE`` leaves."""
    _, clock, cluster = a_world(count=25)
    log = cluster.topic_log("t")
    append_each(a_writer(log), "c")
    write_checkpoint(log)
    clock.advance(DAY_MS // 2)
    append_each(a_writer(log), "d")
    set_by_sql(log, requireCheckpointProtectionBeforeVersion="29")
    append_each(a_writer(log), *map(str, range(25)))
    clock.advance(DAY_MS // 2 + 1)
    assert vacuum(cluster).entries_deleted == 0
    assert versions_of(log)[0] == 0
    clock.advance(DAY_MS)
    append_each(a_writer(log), "e")
    assert vacuum(cluster).entries_deleted > 29
    assert versions_of(log)[0] >= 29


def test_a_protecting_property_that_is_no_version_stops_the_vacuum() -> None:
    _, clock, cluster = a_world(count=25)
    set_by_sql(cluster.topic_log("t"), requireCheckpointProtectionBeforeVersion="soon")
    clock.advance(2 * DAY_MS)
    with pytest.raises(InvalidConfigurationError, match="requireCheckpointProtectionBeforeVersion: got 'soon'"):
        vacuum(cluster)


@pytest.mark.parametrize("dry_run", [False, True])
def test_nothing_is_deleted_below_a_feature_that_sparklog_does_not_know(dry_run: bool) -> None:
    """The feature may keep files of its own in the table's folder (Delta protocol, "VACUUM Protocol Check")."""
    memory, clock, cluster = a_world()
    log = cluster.topic_log("t")
    memory.put("topics/t/partition=0/of-the-feature.parquet", b"")
    unknown = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("a feature of tomorrow",))
    set_by_sql(log, unknown)
    clock.advance(ORPHAN_AGE_MS + 1)
    with pytest.raises(UnsupportedVersionError, match="a feature of tomorrow"):
        vacuum(cluster, dry_run=dry_run)
    assert memory.exists("topics/t/partition=0/of-the-feature.parquet")
    set_by_sql(log, replace(unknown, writer_features=("vacuumProtocolCheck",)))
    assert vacuum(cluster, dry_run=dry_run).files_deleted == 1


def test_changed_rows_go_in_a_table_that_keeps_such() -> None:
    """As Delta's own VACUUM has it; a table that never kept changes may have a folder of that name from elsewhere."""
    memory, clock, cluster = a_world()
    for path in (
        "_change_data/cdc-1.parquet",
        "_change_data/partition=0/cdc-2.parquet",
        "_change_data/.hidden.parquet",
    ):
        memory.put(f"topics/t/{path}", b"")
    clock.advance(ORPHAN_AGE_MS + 1)
    assert vacuum(cluster).files_deleted == 0
    set_by_sql(cluster.topic_log("t"), enableChangeDataFeed="false")
    assert vacuum(cluster).files_deleted == 2
    assert memory.exists("topics/t/_change_data/.hidden.parquet")


def test_files_that_were_merged_go_a_week_later_and_followers_go_on_until_then() -> None:
    _, clock, cluster = a_world()
    log = cluster.topic_log("t")
    slow = TopicFollower(log, "t")
    optimize_topic(log, "t")
    clock.advance(WEEK_MS)
    assert vacuum(cluster).files_deleted == 0
    assert slow.read(0, 0).num_rows == 9
    clock.advance(1)
    told = vacuum(cluster, dry_run=True)
    assert (told.files_deleted, len(data_files(cluster, "t"))) == (8, 10)
    done = vacuum(cluster)
    assert (done.files_deleted, done.bytes_deleted) == (8, told.bytes_deleted)
    assert len(data_files(cluster, "t")) == len(live(log)) == 2
    assert slow.read(0, 0).num_rows == 9


def test_where_nothing_is_to_be_done_nothing_is_written() -> None:
    memory, clock, cluster = a_world()
    clock.advance(30 * DAY_MS)
    version = load_state(cluster.topic_log("t")).position.version
    before = {found.path for found in memory.list("topics/")}
    vacuum(cluster)
    assert load_state(cluster.topic_log("t")).position.version == version
    assert {found.path for found in memory.list("topics/")} == before


def test_what_waits_for_offsets_gets_them_before_a_checkpoint_forgets_its_order() -> None:
    _, _, cluster = a_world(count=25)
    log = cluster.topic_log("t")
    unsequenced_file(log, "f")
    assert vacuum(cluster).checkpoint_version == 27
    assert contents(log)[0][-1] == (25, "f")


def test_removed_files_stay_as_long_as_the_table_says_but_a_day_at_least() -> None:
    _, clock, cluster = a_world()
    log = cluster.topic_log("t")
    metadata = load_state(log).require_whole().metadata
    for said, expected_ms in (
        ("interval 30 days", 30 * DAY_MS),
        ("interval 3 days", 3 * DAY_MS),
        ("interval 1 hour", DAY_MS),
    ):
        name = "delta.deletedFileRetentionDuration"
        foreign_commit(log, replace(metadata, configuration={**metadata.configuration, name: said}))
        assert vacuum(cluster).retention_ms == expected_ms
    foreign_commit(log, replace(metadata, configuration={**metadata.configuration, name: "interval 30 days"}))
    delete_records(log, "t", {0: 5})
    clock.advance(30 * DAY_MS)
    assert vacuum(cluster).files_deleted == 0
    clock.advance(1)
    assert vacuum(cluster).files_deleted == 5


def days_ago(days: int) -> tuple[ManualClock, DeltaLog, Cluster]:
    """A topic whose clock stands so many days before the real time, which is what ``deltalake`` asks when it decides
    what a checkpoint forgets; with two files that are 30 days old."""
    clock = ManualClock(start_ms=int(time.time() * 1_000) - (days + 30) * DAY_MS)
    cluster = a_cluster(MemoryStore(clock=clock), clock)
    log = cluster.topic_log("t")
    create_topic(log, "t")
    append_each(a_writer(log), "a", "b")
    clock.advance(30 * DAY_MS)
    return clock, log, cluster


def set_property(log: DeltaLog, name: str, value: str) -> None:
    metadata = load_state(log).require_whole().metadata
    foreign_commit(log, replace(metadata, configuration={**metadata.configuration, name: value}))


def test_a_checkpoint_alone_tells_for_a_week_what_was_removed() -> None:
    clock, log, cluster = days_ago(3)
    delete_records(log, "t", {0: 1})
    append_each(a_writer(log), "one more")
    clock.advance(DAY_MS)
    append_each(a_writer(log), "a day later")
    write_checkpoint(log)
    clock.advance(DAY_MS)
    append_each(a_writer(log), "two days later")
    assert vacuum(cluster).files_deleted == 0
    assert versions_of(log)[0] > 3  # the entry that removed it is gone
    clock.advance(5 * DAY_MS)
    assert vacuum(cluster).files_deleted == 0
    clock.advance(1)
    assert vacuum(cluster).files_deleted == 1


@pytest.mark.parametrize("log_retention_ms", [600_000, DAY_MS])
def test_a_file_stays_for_a_day_though_the_checkpoint_forgot_its_removal(log_retention_ms: int) -> None:
    """A table that keeps removed files for an hour; by when an entry was written, the log itself tells more."""
    clock, log, cluster = days_ago(3)
    alter_topic(log, "t", {"log.retention.ms": log_retention_ms})
    set_property(log, "delta.deletedFileRetentionDuration", "interval 1 hour")
    delete_records(log, "t", {0: 1})
    clock.advance(7_200_000)
    append_each(a_writer(log), "one more")
    write_checkpoint(log)
    clock.advance(3_600_000)
    append_each(a_writer(log), "behind it")
    assert vacuum(cluster).files_deleted == 0
    clock.advance(DAY_MS - 3 * 3_600_000)
    assert vacuum(cluster).files_deleted == 0
    clock.advance(1)
    assert vacuum(cluster).files_deleted == 1


def test_a_remover_whose_clock_is_far_behind_takes_no_file_from_todays_readers() -> None:
    clock, log, cluster = days_ago(3)
    delete_records(a_log(log.store, ManualClock(start_ms=clock.now_ms() - 20 * DAY_MS)), "t", {0: 1})
    append_each(a_writer(log), "one more")
    write_checkpoint(log)
    append_each(a_writer(log), "behind it")
    clock.advance(DAY_MS)
    assert vacuum(cluster).files_deleted == 0


def test_what_was_never_committed_stays_for_a_week_however_soon_removed_files_go() -> None:
    clock, log, cluster = days_ago(3)
    set_property(log, "delta.deletedFileRetentionDuration", "interval 1 hour")
    cluster.store.put("topics/t/partition=0/left.parquet", b"")
    append_each(a_writer(log), "young")
    delete_records(log, "t", {0: 3})
    clock.advance(DAY_MS + 1)
    assert vacuum(cluster).files_deleted == 3  # also the one that was removed as soon as it was written
    clock.advance(WEEK_MS - DAY_MS - 1)
    assert vacuum(cluster).files_deleted == 0
    clock.advance(1)
    assert vacuum(cluster).files_deleted == 1


def test_where_it_does_not_say_so_intelligibly_nothing_is_deleted() -> None:
    memory, clock, cluster = a_world()
    log = cluster.topic_log("t")
    metadata = load_state(log).require_whole().metadata
    odd = {**metadata.configuration, "delta.deletedFileRetentionDuration": "30"}
    foreign_commit(log, replace(metadata, configuration=odd))
    delete_records(log, "t", {0: 5})
    clock.advance(90 * DAY_MS)
    before = {found.path for found in memory.list("topics/")}
    with pytest.raises(InvalidConfigurationError, match="deletedFileRetentionDuration: got '30'"):
        vacuum(cluster)
    assert {found.path for found in memory.list("topics/")} == before


def test_transactional_ids_that_are_past_their_time_are_let_go() -> None:
    _, clock, cluster = a_world()
    driver = Driver(cluster, topics=("t",)).init()
    driver.begin()
    driver.send("t", "x")
    driver.commit()
    driver.complete()
    driver.session.close()
    for expected in (0, 0, 1, 0):
        assert vacuum(cluster, dry_run=True).expired_ids == expected
        assert vacuum(cluster).expired_ids == expected
        clock.advance(WEEK_MS + 1)
        recover_transactions(cluster, expire_after_ms=EXPIRATION_MS)


def test_the_files_of_a_deleted_topic_go_too() -> None:
    _, clock, cluster = a_world()
    delete_topic(cluster.topic_log("t"), "t")
    clock.advance(WEEK_MS + 1)
    assert vacuum(cluster).files_deleted == 9
    assert data_files(cluster, "t") == set()
    with pytest.raises(UnknownTopicOrPartitionError):
        vacuum_topic(cluster, "never", timeout_ms=1)


def test_a_garbled_retention_is_named_and_nothing_is_deleted() -> None:
    _, clock, cluster = a_world(count=25)
    log = cluster.topic_log("t")
    metadata = load_state(log).require_whole().metadata
    foreign_commit(log, replace(metadata, configuration={**metadata.configuration, "sparklog.log.retention.ms": "5"}))
    clock.advance(30 * DAY_MS)
    with pytest.raises(InvalidConfigurationError, match=r"sparklog\.log\.retention\.ms"):
        vacuum(cluster)
    assert versions_of(log)[0] == 0


def test_a_transactional_id_that_cannot_be_read_keeps_no_topic_from_being_cleaned() -> None:
    _, clock, cluster = a_world(count=25)
    driver = Driver(cluster, topics=("t",)).init()
    driver.begin()
    driver.send("t", "x")
    driver.commit()
    driver.complete()
    cluster.store.put(transaction_entry("tx", 50), b"{")
    with pytest.raises(CorruptLogError, match="transaction"):
        vacuum(cluster)
    assert load_state(cluster.topic_log("t")).checkpoint_version == 26
    clock.advance(2 * DAY_MS)
    append_each(a_writer(cluster.topic_log("t")), "new", "newer")
    with pytest.raises(CorruptLogError):
        vacuum(cluster)
    assert versions_of(cluster.topic_log("t"))[0] == 26


def test_a_hint_of_a_checkpoint_that_is_not_there_keeps_nobody_from_writing_one() -> None:
    memory, _, cluster = a_world(count=25)
    log = cluster.topic_log("t")
    memory.put(last_checkpoint_path(log.table), b'{"version":1000000,"size":5}')
    assert vacuum(cluster).checkpoint_version == 25
    assert read_hint(log) == 25


def test_old_empty_folders_of_announced_files_go_on_a_file_system(tmp_path: Path) -> None:
    cluster = a_cluster(LocalStore(tmp_path), SystemClock())
    create_topic(cluster.topic_log("t"), "t")
    old, young = (tmp_path / "topics/t/announced/000000000000" / name for name in ("0", "1"))
    for folder in (old, young):
        folder.mkdir(parents=True)
    week_ago = time.time() - WEEK_MS / 1_000 - 60
    os.utime(old, (week_ago, week_ago))
    vacuum(cluster, dry_run=True)
    assert old.exists()
    vacuum(cluster)
    assert (old.exists(), young.exists()) == (False, True)
