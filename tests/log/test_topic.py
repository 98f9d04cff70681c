"""What is done to a topic as a whole: create, describe, change, delete records, delete, create again."""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from sparklog.delta.actions import FAR_FUTURE_MS
from sparklog.delta.names import log_folder
from sparklog.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    SparklogError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.follow import TopicFollower
from sparklog.log.producer_state import PRODUCER_EXPIRATION_MS
from sparklog.log.state import load_state, open_state
from sparklog.log.topic import (
    HIGH_WATERMARK,
    MAX_PARTITIONS,
    alter_topic,
    create_partitions,
    create_topic,
    delete_records,
    delete_topic,
    describe_topic,
)
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock
from sparklog.testing.interrupted_store import InterruptedStore
from tests.support import (
    DAY_MS,
    T0_MS,
    OvertakenStore,
    a_log,
    a_topic,
    a_writer,
    append,
    contents,
    copy_of,
    entry_lines,
    foreign_commit,
    foreign_file,
    foreign_records,
    two_days_of_others,
)


def live_paths(log):
    return set(load_state(log).require_whole().index.by_path)


def versions(log):
    return sum(info.path.endswith(".json") for info in log.store.list(log_folder(log.table)))


def actions(log, version, kind):
    return [line[kind] for line in entry_lines(log, version) if kind in line]


# Creating and describing


def test_a_topic_that_was_created_is_described():
    log = a_log()
    created = create_topic(log, "t", num_partitions=3, configs={"retention.ms": "5"})
    assert created == describe_topic(log, "t")
    assert (created.name, created.partition_count, created.delta_version) == ("t", 3, 0)
    assert created.log_start_offsets == created.log_end_offsets == (0, 0, 0)
    assert created.config["retention.ms"] == 5
    assert len(created.topic_id) == 32


def test_a_topic_has_one_partition_and_kafkas_settings_unless_told_otherwise():
    created = create_topic(a_log(), "t")
    assert created.partition_count == 1
    assert created.config.explicit == {}


def test_a_topics_table_is_one_that_every_delta_engine_reads_and_none_cleans():
    log = a_topic(num_partitions=2)
    (protocol,) = actions(log, 0, "protocol")
    (metadata,) = actions(log, 0, "metaData")
    assert protocol == {"minReaderVersion": 1, "minWriterVersion": 2}
    assert metadata["partitionColumns"] == ["partition", "base_offset"]
    properties = metadata["configuration"]
    assert properties["delta.enableExpiredLogCleanup"] == "false"  # rule L3
    assert int(properties["delta.checkpointInterval"]) > 10**9  # rule L3
    days = re.fullmatch(r"interval (\d+) days", properties["delta.setTransactionRetentionDuration"])
    assert days is not None
    assert int(days[1]) * DAY_MS >= PRODUCER_EXPIRATION_MS  # rule L7
    assert properties["sparklog.partitions"] == "2"
    assert {a["appId"]: (a["version"], a["lastUpdated"]) for a in actions(log, 0, "txn")} == {
        f"sparklog.{bound}.{partition}": (0, FAR_FUTURE_MS) for bound in ("start", "end") for partition in (0, 1)
    }  # rule L6


def test_a_topic_that_exists_is_not_created_again():
    log = a_topic(configs={"retention.ms": 5})
    append(a_writer(log), "a")
    before = describe_topic(log, "t")
    with pytest.raises(TopicAlreadyExistsError, match="'t' already exists"):
        create_topic(log, "t", num_partitions=7)
    assert describe_topic(log, "t") == before


@pytest.mark.parametrize("count", [0, -1, MAX_PARTITIONS + 1])
def test_a_number_of_partitions_out_of_bounds_is_refused(count):
    log = a_log()
    with pytest.raises(InvalidPartitionsError, match=f"got {count} partitions, expected 1 to 10000"):
        create_topic(log, "t", num_partitions=count)
    assert versions(log) == 0


def test_a_setting_that_is_refused_creates_nothing():
    log = a_log()
    with pytest.raises(InvalidConfigurationError, match="retention"):
        create_topic(log, "t", configs={"retention.hours": 1})
    assert versions(log) == 0


@pytest.mark.parametrize(
    "operate",
    [
        describe_topic,
        lambda log, name: alter_topic(log, name, {"retention.ms": 1}),
        lambda log, name: create_partitions(log, name, 2),
        lambda log, name: delete_records(log, name, {0: 0}),
        delete_topic,
        TopicFollower,
        lambda log, name: a_writer(log),
    ],
    ids=["describe", "alter", "create_partitions", "delete_records", "delete", "follow", "write"],
)
def test_a_topic_that_is_not_there_is_unknown(operate):
    log = a_log()
    with pytest.raises(UnknownTopicOrPartitionError, match="topics/t"):
        operate(log, "t")
    assert versions(log) == 0


def test_of_concurrent_creates_one_wins():
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)

    def create(number):
        try:
            return create_topic(a_log(memory, clock), "t", num_partitions=number + 1)
        except TopicAlreadyExistsError:
            return None

    with ThreadPoolExecutor(8) as threads:
        created = [found for found in threads.map(create, range(8)) if found is not None]
    assert created == [describe_topic(a_log(memory, clock), "t")]


def test_of_concurrent_creates_of_a_deleted_topic_one_wins():
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock)
    delete_topic(log, "t")

    def create(number):
        try:
            return create_topic(a_log(memory, clock), "t", num_partitions=number + 1)
        except TopicAlreadyExistsError:
            return None

    with ThreadPoolExecutor(8) as threads:
        created = [found for found in threads.map(create, range(8)) if found is not None]
    assert created == [describe_topic(log, "t")]
    assert versions(log) == 3


# Changing settings and partitions


def test_settings_are_changed_one_by_one():
    log = a_topic(configs={"retention.ms": 5, "segment.ms": 6})
    altered = alter_topic(log, "t", {"retention.ms": None, "segment.ms": "7"})
    assert altered == describe_topic(log, "t")
    assert dict(altered.config.explicit) == {"segment.ms": 7}
    assert load_state(log).head.config == altered.config


def test_a_change_that_changes_nothing_is_no_commit():
    log = a_topic(configs={"retention.ms": 5})
    alter_topic(log, "t", {"retention.ms": "5", "segment.ms": None})
    assert versions(log) == 1


def test_a_change_that_is_refused_is_no_commit():
    log = a_topic()
    with pytest.raises(InvalidConfigurationError, match=r"retention\.ms=-2"):
        alter_topic(log, "t", {"segment.ms": 7, "retention.ms": -2})
    assert versions(log) == 1


def test_concurrent_changes_all_land():
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock)
    names = [
        "retention.ms",
        "segment.ms",
        "delete.retention.ms",
        "segment.jitter.ms",
        "file.delete.delay.ms",
        "min.compaction.lag.ms",
        "retention.bytes",
        "message.timestamp.after.max.ms",
    ]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: alter_topic(a_log(memory, clock), "t", {name: 7}), names))
    assert describe_topic(log, "t").config.explicit == dict.fromkeys(names, 7)
    assert load_state(log).head.config.explicit == dict.fromkeys(names, 7)
    assert versions(log) == 9


def test_what_others_put_into_the_tables_metadata_survives_a_change():
    log = a_topic()
    metadata = load_state(log).require_whole().metadata
    theirs = {"owner": "billing", "sparklog.of.tomorrow": "x", "delta.logRetentionDuration": "interval 1 days"}
    changed = replace(metadata, configuration={**metadata.configuration, **theirs}, description="orders")
    foreign_commit(log, changed)
    alter_topic(log, "t", {"retention.ms": 5})
    after = load_state(log).require_whole().metadata
    assert after == replace(changed, configuration={**changed.configuration, "sparklog.retention.ms": "5"})


def test_a_change_of_settings_keeps_starts_ends_and_records():
    log = a_topic(num_partitions=2)
    writer = a_writer(log)
    append(writer, "a", "b", "c")
    delete_records(log, "t", {0: 1})
    altered = alter_topic(log, "t", {"retention.ms": 5})
    assert (altered.log_start_offsets, altered.log_end_offsets) == ((1, 0), (3, 0))
    assert actions(log, altered.delta_version, "txn") == []
    append(writer, "d")
    assert contents(log) == {0: [(1, "b"), (2, "c"), (3, "d")], 1: []}


def test_an_append_between_the_look_and_the_change_is_kept():
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    writer = a_writer(a_topic(memory, clock))
    store = OvertakenStore(memory, lambda: append(writer, "meanwhile"))
    altered = alter_topic(a_log(store, clock), "t", {"retention.ms": 5})
    assert altered.log_end_offsets == (1,)
    assert contents(a_log(memory, clock)) == {0: [(0, "meanwhile")]}


def test_new_partitions_start_empty_and_take_records():
    log = a_topic()
    writer = a_writer(log)
    append(writer, "a")
    grown = create_partitions(log, "t", 3)
    assert (grown.partition_count, grown.log_end_offsets) == (3, (1, 0, 0))
    append(writer, "b")  # learns of it by losing the race
    append(writer, "c", partition=2)
    assert contents(log) == {0: [(0, "a"), (1, "b")], 1: [], 2: [(0, "c")]}


@pytest.mark.parametrize("count", [1, 2, 0])
def test_partitions_only_grow(count):
    log = a_topic(num_partitions=2)
    with pytest.raises(InvalidPartitionsError):
        create_partitions(log, "t", count)
    assert versions(log) == 1


def test_two_that_let_a_topic_grow_to_the_same_size_both_succeed_and_one_commits():
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock)
    store = OvertakenStore(memory, lambda: create_partitions(log, "t", 3))
    assert create_partitions(a_log(store, clock), "t", 3).partition_count == 3
    assert versions(log) == 2


# Deleting records


def a_topic_of_three_files():
    """Partition 0 holds offsets 0-2, 3-4 and 5-8, a file each; partition 1 one file, offsets 0-1."""
    log = a_topic(num_partitions=3)
    writer = a_writer(log)
    for values in ("abc", "de", "fghi"):
        append(writer, *values)
    append(writer, "x", "y", partition=1)
    return log


@pytest.mark.parametrize(
    ("before", "start", "files_left"),
    [(0, 0, 3), (1, 1, 3), (2, 2, 3), (3, 3, 2), (4, 4, 2), (5, 5, 1), (8, 8, 1), (9, 9, 0), (HIGH_WATERMARK, 9, 0)],
)
def test_the_log_start_moves_and_only_whole_files_are_removed(before, start, files_left):
    log = a_topic_of_three_files()
    described = delete_records(log, "t", {0: before})
    assert (described.log_start_offsets, described.log_end_offsets) == ((start, 0, 0), (9, 2, 0))
    assert described == describe_topic(log, "t")
    assert len(load_state(log).require_whole().index.partition(0)) == files_left
    assert contents(log) == {0: list(enumerate("abcdefghi"))[start:], 1: [(0, "x"), (1, "y")], 2: []}
    assert load_state(log).head.log_start_offsets == (start, 0, 0)


def test_readers_are_told_that_what_was_deleted_is_out_of_range():
    log = a_topic_of_three_files()
    delete_records(log, "t", {0: 4})
    follower = TopicFollower(log, "t")
    assert follower.read(0, 4, max_records=1)["offset"].to_pylist() == [4]
    with pytest.raises(OffsetOutOfRangeError, match="offset 3 of t-0 is out of range: log start 4, log end 9"):
        follower.read(0, 3)


def test_deleting_below_the_log_start_changes_nothing_and_is_no_commit():
    log = a_topic_of_three_files()
    delete_records(log, "t", {0: 4})
    count = versions(log)
    assert delete_records(log, "t", {0: 2, 1: 0}).log_start_offsets == (4, 0, 0)
    assert delete_records(log, "t", {}).log_start_offsets == (4, 0, 0)
    assert versions(log) == count


@pytest.mark.parametrize("offset", [10, -2, 2**62])
def test_deleting_beyond_the_log_end_is_refused_for_all_partitions(offset):
    log = a_topic_of_three_files()
    with pytest.raises(OffsetOutOfRangeError, match=f"delete_records of t-0 before {offset}: expected 0 to 9"):
        delete_records(log, "t", {1: 1, 0: offset})
    assert describe_topic(log, "t").log_start_offsets == (0, 0, 0)


@pytest.mark.parametrize("partition", [3, -1])
def test_deleting_in_an_unknown_partition_is_refused(partition):
    log = a_topic_of_three_files()
    with pytest.raises(UnknownTopicOrPartitionError, match=f"no partition {partition}; it has 0 to 2"):
        delete_records(log, "t", {0: 1, partition: 0})
    assert describe_topic(log, "t").log_start_offsets == (0, 0, 0)


def test_several_partitions_are_deleted_in_one_commit():
    log = a_topic_of_three_files()
    count = versions(log)
    described = delete_records(log, "t", {0: 5, 1: HIGH_WATERMARK, 2: HIGH_WATERMARK})
    assert described.log_start_offsets == (5, 2, 0)
    assert versions(log) == count + 1
    (info,) = actions(log, count, "commitInfo")
    assert (info["operation"], info["isBlindAppend"]) == ("DELETE RECORDS", False)  # rule L13
    assert actions(log, count, "metaData") == []  # rule L6
    assert len(actions(log, count, "remove")) == 3


def test_offsets_go_on_after_everything_was_deleted():
    log = a_topic_of_three_files()
    delete_records(log, "t", {0: HIGH_WATERMARK})
    append(a_writer(log), "j")
    assert contents(log)[0] == [(9, "j")]


def test_files_that_were_not_sequenced_yet_are_not_deleted():
    log = a_topic_of_three_files()
    add = foreign_file(log, foreign_records("late"))
    foreign_commit(log, add)
    delete_records(log, "t", {0: HIGH_WATERMARK})
    assert add.path in live_paths(log)


def test_what_is_appended_while_everything_is_being_deleted_stays():
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock, num_partitions=2)
    writer = a_writer(log)
    append(writer, "old1", "old2")
    store = OvertakenStore(memory, lambda: append(writer, "new"), times=3)
    described = delete_records(a_log(store, clock), "t", {0: HIGH_WATERMARK, 1: HIGH_WATERMARK})
    assert described.log_start_offsets == (2, 0)
    assert contents(log)[0] == [(2, "new"), (3, "new"), (4, "new")]


@pytest.mark.parametrize("after", [False, True], ids=["not carried out", "carried out"])
def test_what_is_appended_while_a_deletion_of_all_records_sleeps_for_days_stays(after):
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    append(a_writer(log), "old1", "old2")
    store = InterruptedStore(memory)
    calls = InterruptedStore(copy_of(memory))
    delete_records(a_log(calls, clock), "t", {0: HIGH_WATERMARK})
    store.interrupt(lambda: two_days_of_others(memory, clock), at=calls.call_count - 1, after=after)
    described = delete_records(a_log(store, clock), "t", {0: HIGH_WATERMARK}, timeout_ms=10**12)
    assert described.log_start_offsets == (2,)
    assert [offset for offset, _ in contents(log)[0]] == [*range(2, 15)]


@pytest.mark.parametrize("policy", ["compact", ""])
def test_records_of_a_topic_whose_policy_has_no_delete_are_not_deleted(policy):
    """Source: Kafka Partition.deleteRecordsOnLeader."""
    log = a_topic(configs={"cleanup.policy": policy})
    append(a_writer(log), "a")
    for offset in (0, 1, HIGH_WATERMARK):
        with pytest.raises(PolicyViolationError, match=f"cleanup.policy is '{policy}', expected one with delete"):
            delete_records(log, "t", {0: offset})
    assert versions(log) == 2
    assert contents(log) == {0: [(0, "a")]}
    alter_topic(log, "t", {"cleanup.policy": "compact,delete"})
    assert delete_records(log, "t", {0: HIGH_WATERMARK}).log_start_offsets == (1,)


# Settings that somebody set by SQL


def set_property(log, name, value):
    """As SQL's ALTER TABLE … SET TBLPROPERTIES does, which checks nothing."""
    metadata = load_state(log).require_whole().metadata
    foreign_commit(log, replace(metadata, configuration={**metadata.configuration, f"sparklog.{name}": value}))


def property_of(log, name):
    return load_state(log).require_whole().metadata.configuration.get(f"sparklog.{name}")


def test_a_setting_that_somebody_garbled_stops_neither_writers_nor_followers(caplog):
    log = a_topic(configs={"retention.ms": 5})
    writer, follower = a_writer(log), TopicFollower(log, "t")
    append(writer, "a")
    set_property(log, "retention.ms", "7 days")
    append(writer, "b")
    while follower.poll():
        pass
    assert follower.read(0, 0)["value"].to_pylist() == [b"a", b"b"]
    assert writer.head.config["retention.ms"] == follower.head.config["retention.ms"] == 5  # as it was
    assert describe_topic(log, "t").config["retention.ms"] == 5  # by the newest commit, which is the writer's
    assert load_state(log).head.config["retention.ms"] == 604_800_000
    append(a_writer(log), "c")
    assert contents(log)[0] == [(0, "a"), (1, "b"), (2, "c")]
    assert "table property sparklog.retention.ms is not used: retention.ms='7 days'" in caplog.text


@pytest.mark.parametrize("value", [7, None], ids=["set", "taken back to its default"])
def test_a_setting_that_somebody_garbled_is_mended_by_a_change(value, caplog):
    log = a_topic(configs={"segment.ms": 6})
    writer = a_writer(log)
    set_property(log, "retention.ms", "7 days")
    alter_topic(log, "t", {"retention.ms": value})
    assert property_of(log, "retention.ms") == (None if value is None else "7")
    caplog.clear()
    expected = {"segment.ms": 6, **({} if value is None else {"retention.ms": value})}
    assert dict(load_state(log).head.config.explicit) == dict(describe_topic(log, "t").config.explicit) == expected
    append(writer, "a")
    assert writer.head.config == load_state(log).head.config
    count = versions(log)
    alter_topic(log, "t", {"retention.ms": value})
    assert versions(log) == count
    load_state(log)
    assert [told for told in caplog.messages if "7 days" in told] == caplog.messages  # the writer that lay behind


def test_a_topic_with_a_garbled_setting_may_be_grown_and_deleted():
    log = a_topic()
    set_property(log, "cleanup.policy", "delete;compact")
    assert create_partitions(log, "t", 2).partition_count == 2
    assert property_of(log, "cleanup.policy") is None
    set_property(log, "cleanup.policy", "delete;compact")
    assert delete_records(log, "t", {0: HIGH_WATERMARK}).log_start_offsets == (0, 0)
    delete_topic(log, "t")


# Deleting a topic and creating it again: rule L8


def test_a_deleted_topic_is_unknown_and_its_table_is_empty():
    log = a_topic_of_three_files()
    count = versions(log)
    delete_topic(log, "t")
    assert versions(log) == count + 1
    assert live_paths(log) == set()
    for operate in (
        describe_topic,
        delete_topic,
        TopicFollower,
        lambda log, name: create_partitions(log, name, 9),
        lambda log, name: alter_topic(log, name, {"retention.ms": 5}),
        lambda log, name: delete_records(log, name, {0: 1}),
        lambda log, name: a_writer(log),
    ):
        with pytest.raises(UnknownTopicOrPartitionError, match=r"'t' (with id \w+ )?was deleted"):
            operate(log, "t")
    assert versions(log) == count + 1


def test_deleting_a_topic_deletes_no_object():
    log = a_topic_of_three_files()
    before = {info.path for info in log.store.list("")}
    delete_topic(log, "t")
    assert before < {info.path for info in log.store.list("")}


@pytest.mark.parametrize("num_partitions", [1, 2, 3, 5])
def test_a_topic_created_again_has_a_new_id_its_own_settings_and_offsets_from_zero(num_partitions):
    log = a_topic_of_three_files()
    first = alter_topic(log, "t", {"retention.ms": 5})
    delete_records(log, "t", {0: 4})
    delete_topic(log, "t")
    count = versions(log)
    again = create_topic(log, "t", num_partitions=num_partitions, configs={"segment.ms": 6})
    assert again.topic_id != first.topic_id
    assert again.delta_version == count  # the log goes on
    assert again.log_start_offsets == again.log_end_offsets == (0,) * num_partitions
    assert dict(again.config.explicit) == {"segment.ms": 6}
    assert open_state(log).head == load_state(log).head
    append(a_writer(log), "new", partition=num_partitions - 1)
    assert [*contents(log).values()] == [[]] * (num_partitions - 1) + [[(0, "new")]]


def test_partitions_that_come_back_after_a_smaller_re_creation_start_at_zero():
    log = a_topic_of_three_files()
    delete_records(log, "t", {1: 1})
    delete_topic(log, "t")
    create_topic(log, "t", num_partitions=1)
    grown = create_partitions(log, "t", 3)
    assert grown.log_start_offsets == grown.log_end_offsets == (0, 0, 0)
    assert load_state(log).head == open_state(log).head
    append(a_writer(log), "new", partition=1)
    assert contents(log) == {0: [], 1: [(0, "new")], 2: []}


def test_a_writer_of_a_deleted_topic_stores_nothing_in_the_one_that_took_its_name():
    log = a_topic()
    old, follower = a_writer(log), TopicFollower(log, "t")
    append(old, "a")
    staged = old.upload([(0, foreign_records("late").select(["timestamp", "value"]))])
    delete_topic(log, "t")
    create_topic(log, "t")
    count = versions(log)
    for _ in range(2):
        with pytest.raises(UnknownTopicOrPartitionError, match="was deleted"):
            old.append(staged, timeout_ms=1_000)
    with pytest.raises(UnknownTopicOrPartitionError, match="was deleted"):
        append(old, "later")
    assert versions(log) == count
    assert contents(log) == {0: []}
    assert len(follower.poll()) == 1  # what was appended before
    while follower.head.delta_version < count - 1:
        with pytest.raises(UnknownTopicOrPartitionError, match="was deleted"):
            follower.poll()
    assert follower.head == load_state(log).head
    append(a_writer(log), "new")
    assert contents(log) == {0: [(0, "new")]}


def test_a_writer_of_a_deleted_topic_is_told_before_it_is_created_again():
    log = a_topic()
    writer = a_writer(log)
    delete_topic(log, "t")
    with pytest.raises(UnknownTopicOrPartitionError, match="was deleted"):
        append(writer, "late")


def test_a_change_that_was_meant_for_the_deleted_topic_does_not_change_its_successor():
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock)

    def recreate():
        delete_topic(log, "t")
        create_topic(log, "t", num_partitions=2)

    for change in (
        lambda log: alter_topic(log, "t", {"retention.ms": 5}),
        lambda log: create_partitions(log, "t", 9),
        lambda log: delete_records(log, "t", {0: HIGH_WATERMARK}),
    ):
        append(a_writer(log), "a")
        store = OvertakenStore(memory, recreate)
        with pytest.raises(UnknownTopicOrPartitionError, match="was deleted"):
            change(a_log(store, clock))
        assert describe_topic(log, "t").partition_count == 2
        assert dict(describe_topic(log, "t").config.explicit) == {}


def test_deleting_a_topic_that_was_deleted_and_created_meanwhile_spares_the_new_one():
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock)

    def recreate():
        delete_topic(log, "t")
        create_topic(log, "t")

    store = OvertakenStore(memory, recreate)
    delete_topic(a_log(store, clock), "t")
    assert describe_topic(log, "t").partition_count == 1


def test_deleting_a_topic_that_another_deletes_meanwhile_is_done_and_one_commit():
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock)
    delete_topic(a_log(OvertakenStore(memory, lambda: delete_topic(log, "t")), clock), "t")
    assert load_state(log).head.deleted
    assert versions(log) == 2


@pytest.mark.parametrize("after", [False, True], ids=["not carried out", "carried out"])
def test_a_deletion_that_sleeps_through_another_and_two_days_of_a_new_topic_is_done(after):
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)

    def two_days_of_a_new_topic():
        if not open_state(log).head.deleted:
            delete_topic(log, "t")
        create_topic(log, "t")
        two_days_of_others(memory, clock)

    store = InterruptedStore(memory)
    calls = InterruptedStore(copy_of(memory))
    delete_topic(a_log(calls, clock), "t")
    store.interrupt(two_days_of_a_new_topic, at=calls.call_count - 1, after=after)
    delete_topic(a_log(store, clock), "t", timeout_ms=10**12)
    assert not load_state(log).head.deleted
    assert len(contents(log)[0]) == 13


@pytest.mark.parametrize(
    "change",
    [
        lambda log: alter_topic(log, "t", {"retention.ms": 5}),
        lambda log: create_partitions(log, "t", 7),
        lambda log: delete_records(log, "t", {0: 1}),
        lambda log: delete_records(log, "t", {0: HIGH_WATERMARK}),
    ],
    ids=["alter", "create partitions", "delete records", "delete all records"],
)
def test_a_change_of_a_topic_that_is_deleted_meanwhile_changes_nothing(change):
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock)
    append(a_writer(log), "a", "b")
    store = OvertakenStore(memory, lambda: delete_topic(log, "t"))
    with pytest.raises(UnknownTopicOrPartitionError, match="was deleted"):
        change(a_log(store, clock))
    head = load_state(log).head
    assert (head.deleted, head.partition_count, head.log_start_offsets) == (True, 1, (0,))
    assert dict(head.config.explicit) == {}
    assert versions(log) == 3


# Faults at the one create: rule L2

OPERATIONS = {
    "create": lambda log: create_topic(log, "t", num_partitions=3),
    "create again": lambda log: create_topic(log, "t", num_partitions=3),
    "alter": lambda log: alter_topic(log, "t", {"retention.ms": 5}),
    "create partitions": lambda log: create_partitions(log, "t", 3),
    "delete records": lambda log: delete_records(log, "t", {0: 2}),
    "delete": lambda log: delete_topic(log, "t"),
}
PASSING = [
    FaultKind.LOST_ANSWER,
    FaultKind.LOST_REQUEST,
    FaultKind.OWN_SUCCESS,
    FaultKind.CONFLICT,
    FaultKind.THROTTLED,
]


def a_topic_to_change(memory, clock, operation):
    log = a_log(memory, clock)
    if operation != "create":
        create_topic(log, "t")
        append(a_writer(log), "a", "b")
        append(a_writer(log), "c")
    if operation == "create again":
        delete_topic(log, "t")
    return log


def outcome(memory, clock):
    """All that an operation may change, but for what is random."""
    log = a_log(memory, clock)
    head = load_state(log).head
    return replace(head, topic_id=""), len(live_paths(log)), versions(log)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("kind", PASSING, ids=lambda kind: kind.name)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_whose_create_meets_a_fault_is_carried_out_once(operation, kind, times):
    undisturbed, disturbed = MemoryStore(), MemoryStore()
    clock = ManualClock(start_ms=T0_MS)
    OPERATIONS[operation](a_topic_to_change(undisturbed, clock, operation))
    log = a_topic_to_change(disturbed, clock, operation)
    before = None if operation == "create" else open_state(log).head.topic_id
    store = FaultyStore(disturbed, Fault(kind=kind, ops=["create"], path=log.table, times=times))
    told = OPERATIONS[operation](a_log(store, clock))
    assert outcome(disturbed, clock) == outcome(undisturbed, clock)
    if told is not None:
        assert told == describe_topic(log, "t")
    creates = Counter(call.op for call in store.calls)["create"]
    assert creates == (1 if kind is FaultKind.OWN_SUCCESS else 1 + times)
    if operation not in ("create", "create again"):
        assert open_state(log).head.topic_id == before


@pytest.mark.parametrize("kind", [FaultKind.DISK_FULL, FaultKind.READ_ONLY], ids=lambda kind: kind.name)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_that_the_store_refuses_changes_nothing_and_may_be_tried_again(operation, kind):
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic_to_change(memory, clock, operation)
    before = None if operation == "create" else outcome(memory, clock)
    with pytest.raises(SparklogError, match=kind.value) as caught:
        OPERATIONS[operation](a_log(FaultyStore(memory, Fault(kind=kind, ops=["create"])), clock))
    assert not caught.value.retriable
    if before is not None:
        assert outcome(memory, clock) == before
    OPERATIONS[operation](log)
