"""What a topic is at one version: told by our own commits, and by what other engines' commits change."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparklog.config import TopicConfig
from sparklog.delta.actions import FAR_FUTURE_MS, AddFile, Entry, Metadata, RemoveFile, SetTransaction
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.errors import (
    CorruptLogError,
    NotATopicError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from sparklog.log.commit import Commit
from sparklog.log.follow import TopicFollower
from sparklog.log.head import TopicHead, head_after_entry, head_of_info, head_of_table, offset_actions
from sparklog.log.live_totals import LiveTotals
from sparklog.log.sequencing.sequencing import sequence_topic
from sparklog.log.state import load_state, open_state
from sparklog.log.topic import alter_topic, create_partitions, create_topic, delete_records, delete_topic
from tests.support import (
    a_topic,
    a_writer,
    append,
    contents,
    entry_lines,
    foreign_commit,
    foreign_file,
    foreign_records,
)

TABLE = "topics/t"
HEAD = TopicHead(
    delta_version=4,
    topic_id="id",
    deleted=False,
    config=TopicConfig.parse({"retention.ms": 5}),
    log_start_offsets=(2, 0),
    log_end_offsets=(10, 20),
    live_file_count=3,
    unsequenced_count=1,
)


def an_add(partition=0, base_offset=None, deltas=None, path="f"):
    stats = None
    if deltas is not None:
        low, high = ({"offset_delta": delta, "timestamp": "2023-11-14T22:13:20Z"} for delta in deltas)
        stats = {"numRecords": deltas[1] - deltas[0] + 1, "minValues": low, "maxValues": high}
    values = {"partition": partition, "base_offset": base_offset}
    return AddFile(
        path=path,
        partition_values={name: None if value is None else str(value) for name, value in values.items()},
        size_bytes=1,
        modification_ms=1,
        stats=stats,
    )


def a_remove(path="f"):
    return RemoveFile(path=path, deletion_ms=1)


def a_txn(app_id, version):
    return SetTransaction(app_id=app_id, version=version, last_updated_ms=1)


def some_metadata(head=HEAD, **properties):
    """The table's metadata as ``head`` has it, with some properties set and others (None) taken out."""
    changed = {name.replace("__", "."): value for name, value in properties.items()}
    all_of_them = {**head.to_properties(), **changed}
    return Metadata(
        table_id="x",
        schema_string="{}",
        partition_columns=("partition", "base_offset"),
        configuration={name: value for name, value in all_of_them.items() if value is not None},
    )


def after_foreign(*actions, head=HEAD):
    return head_after_entry(TABLE, head, Entry(version=head.delta_version + 1, token="x", actions=actions))


def test_our_own_entry_tells_the_whole_head():
    told = replace(HEAD, delta_version=5, deleted=True, log_end_offsets=(0,), log_start_offsets=(0,), topic_id="new")
    info = json.loads(json.dumps(told.to_info()))
    entry = Entry(version=5, token="x", actions=(an_add(0, 100, (0, 9)),), info=info)
    assert head_after_entry(TABLE, HEAD, entry) == told


@pytest.mark.parametrize("field", sorted(HEAD.to_info()))
def test_an_entry_of_ours_that_lacks_a_part_is_corrupt_and_named(field):
    info = {name: value for name, value in HEAD.to_info().items() if name != field}
    with pytest.raises(CorruptLogError, match=rf"topics/t, version 7: .*{field}"):
        head_of_info(TABLE, 7, info)


@pytest.mark.parametrize("garbled", [{"log_end_offsets": 7}, {"live_files": "many"}, {"config": 3}])
def test_an_entry_of_ours_that_is_garbled_is_corrupt_and_named(garbled):
    with pytest.raises(CorruptLogError, match="topics/t, version 7"):
        head_of_info(TABLE, 7, {**HEAD.to_info(), **garbled})


def test_a_foreign_append_without_a_base_offset_moves_no_end():
    head = after_foreign(an_add(0), an_add(1, path="g"))
    assert head == replace(HEAD, delta_version=5, live_file_count=5, unsequenced_count=3)


def test_a_foreign_removal_lowers_no_end_and_moves_no_start():
    assert after_foreign(a_remove()) == replace(HEAD, delta_version=5, live_file_count=2)


def test_the_count_of_live_files_never_falls_below_none():
    assert after_foreign(*(a_remove(str(n)) for n in range(9))).live_file_count == 0


@pytest.mark.parametrize(
    ("base_offset", "end"), [(3, 10), (8, 11), (100, 103)], ids=["below the end", "across the end", "beyond the end"]
)
def test_a_foreign_file_with_a_base_offset_raises_the_end_but_never_lowers_it(base_offset, end):
    assert after_foreign(an_add(0, base_offset, (0, 2))).log_end_offsets == (end, 20)


def test_a_foreign_rewrite_of_live_records_changes_no_offset():
    head = after_foreign(a_remove("a"), a_remove("b"), an_add(0, 2, (0, 7), path="ab"))
    assert (head.log_start_offsets, head.log_end_offsets) == (HEAD.log_start_offsets, HEAD.log_end_offsets)


@pytest.mark.parametrize("partition", [None, 2, -1])
def test_a_foreign_file_of_no_partition_of_the_topic_moves_no_end(partition):
    assert after_foreign(an_add(partition, 100, (0, 2))).log_end_offsets == HEAD.log_end_offsets


@pytest.mark.parametrize(
    ("app_id", "version", "starts", "ends"),
    [
        ("sparklog.end.1", 25, (2, 0), (10, 25)),
        ("sparklog.end.1", 19, (2, 0), (10, 20)),
        ("sparklog.start.0", 4, (4, 0), (10, 20)),
        ("sparklog.start.0", 1, (2, 0), (10, 20)),
        ("sparklog.end.2", 25, (2, 0), (10, 20)),
        ("sparklog.end.-1", 25, (2, 0), (10, 20)),
        ("sparklog.end.x", 25, (2, 0), (10, 20)),
        ("some.stream", 25, (2, 0), (10, 20)),
    ],
)
def test_starts_and_ends_in_a_foreign_commit_only_ever_grow(app_id, version, starts, ends):
    head = after_foreign(a_txn(app_id, version))
    assert (head.log_start_offsets, head.log_end_offsets) == (starts, ends)


def test_a_foreign_engine_may_change_settings():
    head = after_foreign(some_metadata(**{"sparklog__retention.ms": "9", "sparklog__segment.ms": "8", "other": "1"}))
    assert head == replace(HEAD, delta_version=5, config=TopicConfig.parse({"retention.ms": 9, "segment.ms": 8}))


def test_a_foreign_engine_may_unset_settings():
    assert after_foreign(some_metadata(**{"sparklog__retention.ms": None})).config == TopicConfig()


def test_partitions_that_a_foreign_engine_adds_start_at_zero():
    head = after_foreign(some_metadata(sparklog__partitions="4"), an_add(3, 0, (0, 4)))
    assert (head.log_start_offsets, head.log_end_offsets) == ((2, 0, 0, 0), (10, 20, 0, 5))


@pytest.mark.parametrize(
    ("properties", "error", "message"),
    [
        ({"sparklog__partitions": "1"}, NotATopicError, r"version 5: .*sparklog\.partitions=1, expected 2 or more"),
        ({"sparklog__topic.id": "other"}, NotATopicError, r"version 5: .*topic\.id from 'id' to 'other'"),
        ({"sparklog__topic.id": None}, NotATopicError, r"no sparklog topic: it has no property sparklog\.topic\.id"),
        ({"sparklog__format.version": None}, NotATopicError, "no sparklog topic"),
        ({"sparklog__format.version": "3"}, UnsupportedVersionError, "topic format 3; .*up to 2: upgrade"),
        ({"sparklog__format.version": "one"}, NotATopicError, "whole numbers"),
        ({"sparklog__partitions": None}, NotATopicError, "whole numbers"),
    ],
)
def test_what_a_foreign_engine_breaks_is_told(properties, error, message):
    metadata = some_metadata(**properties)
    with pytest.raises(error, match=message):
        after_foreign(metadata)
    if error is not NotATopicError or "version 5" not in message:  # a loaded table has no earlier head to compare with
        with pytest.raises(error, match=message):
            head_of_table(TABLE, 5, metadata, {}, live_end_offsets={}, live_file_count=0, unsequenced_count=0)


def test_a_garbled_setting_stays_as_it_was_and_is_the_default_in_a_loaded_table(
    caplog,
):
    metadata = some_metadata(**{"sparklog__retention.ms": "7 days", "sparklog__segment.ms": "8"})
    head = after_foreign(metadata)
    assert head == replace(HEAD, delta_version=5, config=TopicConfig.parse({"retention.ms": 5, "segment.ms": 8}))
    loaded = head_of_table(TABLE, 5, metadata, {}, live_end_offsets={}, live_file_count=0, unsequenced_count=0)
    assert loaded.config == TopicConfig.parse({"segment.ms": 8})
    assert len(caplog.messages) == 2
    assert all("sparklog.retention.ms is not used: retention.ms='7 days'" in told for told in caplog.messages)


def test_a_loaded_tables_starts_and_ends_are_its_txn_actions():
    transactions = {a.app_id: a for a in offset_actions(None, HEAD)}
    head = head_of_table(
        TABLE, 4, some_metadata(), transactions, live_end_offsets={}, live_file_count=3, unsequenced_count=1
    )
    assert head == HEAD


def test_live_files_raise_a_loaded_end_but_never_lower_it():
    transactions = {a.app_id: a for a in offset_actions(None, HEAD)}
    head = head_of_table(
        TABLE,
        4,
        some_metadata(),
        transactions,
        live_end_offsets={0: 12, 1: 5},
        live_file_count=3,
        unsequenced_count=1,
    )
    assert head.log_end_offsets == (12, 20)


def test_starts_and_ends_are_recorded_where_they_move_and_never_expire():
    moved = replace(HEAD, log_start_offsets=(5, 0), log_end_offsets=(10, 21))
    assert offset_actions(HEAD, moved) == [
        SetTransaction(app_id="sparklog.start.0", version=5, last_updated_ms=FAR_FUTURE_MS),
        SetTransaction(app_id="sparklog.end.1", version=21, last_updated_ms=FAR_FUTURE_MS),
    ]
    assert offset_actions(HEAD, HEAD) == []
    assert len(offset_actions(None, HEAD)) == 4


def test_ends_raised_by_a_foreign_file_are_recorded_by_a_commit_that_moves_none():
    assert offset_actions(HEAD, HEAD, {1}) == [
        SetTransaction(app_id="sparklog.end.1", version=20, last_updated_ms=FAR_FUTURE_MS)
    ]


def test_partitions_that_a_topic_created_again_has_lost_are_recorded_as_empty():
    before = replace(HEAD, log_start_offsets=(2, 3))
    smaller = replace(HEAD, log_start_offsets=(0,), log_end_offsets=(0,))
    assert {a.app_id: a.version for a in offset_actions(before, smaller)} == {
        "sparklog.start.0": 0,
        "sparklog.start.1": 0,
        "sparklog.end.0": 0,
        "sparklog.end.1": 0,
    }


def test_a_foreign_growth_after_a_smaller_re_creation_starts_at_zero_for_everyone():
    log = a_topic(num_partitions=2)
    append(a_writer(log), "old", partition=1)
    delete_topic(log, "t")
    create_topic(log, "t", num_partitions=1)
    writer = a_writer(log)
    metadata = load_state(log).require_whole().metadata
    foreign_commit(log, replace(metadata, configuration={**metadata.configuration, "sparklog.partitions": "2"}))
    append(writer, "a", partition=0)  # applies the foreign entry
    assert writer.head.log_end_offsets == load_state(log).head.log_end_offsets == (1, 0)


APPENDS = st.tuples(st.just("append"), st.integers(0, 2), st.integers(1, 3))
OPERATIONS = st.one_of(
    APPENDS,
    st.tuples(st.just("delete_records"), st.integers(0, 2), st.integers(0, 4)),
    st.tuples(st.just("create_partitions"), st.integers(1, 2), st.just(0)),
    st.tuples(st.just("alter"), st.integers(1, 3), st.just(0)),
    st.tuples(st.just("foreign_add"), st.integers(0, 3), st.integers(1, 3)),
    st.tuples(st.just("foreign_file_beyond_the_end_that_is_deleted"), st.integers(0, 2), st.integers(1, 3)),
    st.tuples(st.just("sequence"), st.just(0), st.just(0)),
    st.tuples(st.just("checkpoint"), st.just(0), st.just(0)),
    st.tuples(st.just("create_again"), st.integers(1, 3), st.just(0)),
    st.tuples(st.just("foreign_add_then_create_again"), st.integers(1, 3), st.just(0)),
)


def operate(log, writer, operation, number, count):
    """Carry out one operation; returns the writer to go on with."""
    partitions = writer.head.partition_count
    values = [f"v{n}" for n in range(count)]
    if operation == "append":
        append(writer, *values, partition=number % partitions)
    elif operation == "delete_records":
        partition = number % partitions
        end = load_state(log).head.log_end_offsets[partition]
        delete_records(log, "t", {partition: max(0, end - count)})
    elif operation == "create_partitions":
        create_partitions(log, "t", load_state(log).head.partition_count + number)
    elif operation == "alter":
        alter_topic(log, "t", {"retention.ms": number})
    elif operation == "foreign_add":
        foreign_commit(log, foreign_file(log, foreign_records(*values), partition=number))
    elif operation == "foreign_file_beyond_the_end_that_is_deleted":
        partition = number % partitions
        end = load_state(log).head.log_end_offsets[partition]
        add = foreign_file(log, foreign_records(*values), partition=partition, base_offset=end + 7)
        foreign_commit(log, add)
        append(writer, "records the end")
        assert load_state(log).head.log_end_offsets[partition] >= end + 7 + count
        foreign_commit(log, RemoveFile(path=add.path, deletion_ms=1))
    elif operation == "sequence":
        sequence_topic(log)
    elif operation == "checkpoint":
        write_checkpoint(log)
    else:
        delete_topic(log, "t")
        if operation == "foreign_add_then_create_again":
            foreign_commit(log, foreign_file(log, foreign_records("late")))
        create_topic(log, "t", num_partitions=number)
        return a_writer(log)
    return writer


@pytest.mark.slow
@given(st.lists(OPERATIONS, min_size=2, max_size=10))
@settings(max_examples=15)
@example([("append", 1, 2), ("create_again", 1, 0), ("create_partitions", 2, 0), ("append", 1, 1)])
@example([("append", 1, 2), ("create_again", 1, 0), ("checkpoint", 0, 0), ("create_partitions", 2, 0)])
@example([("foreign_add", 0, 1), ("append", 0, 1), ("sequence", 0, 0), ("append", 0, 1)])
@example([("foreign_add", 0, 1), ("checkpoint", 0, 0), ("append", 0, 1), ("sequence", 0, 0), ("append", 0, 1)])
@example([("foreign_add_then_create_again", 1, 0), ("append", 0, 1)])
@example([("append", 0, 3), ("append", 0, 1), ("delete_records", 0, 2), ("delete_records", 0, 0)])
@example([("create_partitions", 1, 0), ("foreign_file_beyond_the_end_that_is_deleted", 1, 2), ("checkpoint", 0, 0)])
def test_the_newest_commit_tells_what_the_whole_table_tells(operations):
    log = a_topic()
    writer, follower = a_writer(log), TopicFollower(log, "t")
    before = follower.head
    for operation in operations:
        writer = operate(log, writer, *operation)
        head = load_state(log).head
        assert open_state(log).head == head
        if head.topic_id != before.topic_id:  # it goes on to know of the log, but tells its reader
            while follower.head.delta_version < head.delta_version:
                with pytest.raises(UnknownTopicOrPartitionError, match="was deleted"):
                    follower.poll()
            assert follower.head == head
            follower = TopicFollower(log, "t")
        while follower.poll():
            pass
        assert follower.head == head
        assert all(start <= end for start, end in zip(head.log_start_offsets, head.log_end_offsets, strict=True))
        if head.topic_id == before.topic_id:  # rule L6
            for old, new in zip(before.log_end_offsets, head.log_end_offsets, strict=False):
                assert new >= old
            for old, new in zip(before.log_start_offsets, head.log_start_offsets, strict=False):
                assert new >= old
        before = head
    append(writer, "last")  # a writer that lay behind all the while knows as much
    assert writer.head == load_state(log).head


def test_an_end_stays_where_it_is_when_a_user_deletes_the_newest_file():
    log = a_topic()
    writer = a_writer(log)
    append(writer, "a", "b")
    append(writer, "c", "d")
    newest = load_state(log).require_whole().index.partition(0)[-1]
    foreign_commit(log, RemoveFile(path=newest.path, deletion_ms=1))
    assert load_state(log).head.log_end_offsets == (4,)
    append(a_writer(log), "e")
    append(writer, "f")
    assert contents(log) == {0: [(0, "a"), (1, "b"), (4, "e"), (5, "f")]}


def recorded_ends(log, version):
    txns = [line["txn"] for line in entry_lines(log, version) if "txn" in line]
    return {txn["appId"]: txn["version"] for txn in txns if txn["appId"].startswith("sparklog.end.")}


NEXT_COMMITS = {
    "a writer's that was there": lambda log, writer: append(writer, "b", partition=1),
    "a writer's that comes later": lambda log, writer: append(a_writer(log), "b", partition=1),
    "a change of settings": lambda log, writer: alter_topic(log, "t", {"retention.ms": 5}),
    "a growth": lambda log, writer: create_partitions(log, "t", 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("next_commit", NEXT_COMMITS.values(), ids=NEXT_COMMITS)
@pytest.mark.parametrize("checkpoint", [False, True], ids=["", "behind a checkpoint"])
def test_an_end_raised_by_a_foreign_file_is_recorded_and_outlives_the_file(next_commit, checkpoint):
    log = a_topic(num_partitions=2)
    writer = a_writer(log)
    append(writer, "a")
    add = foreign_file(log, foreign_records("x", "y"), base_offset=100)
    version = foreign_commit(log, add)
    if checkpoint:
        write_checkpoint(log)
    next_commit(log, writer)
    assert recorded_ends(log, version + 1)["sparklog.end.0"] == 102
    append(writer, "c", partition=1)
    assert "sparklog.end.0" not in recorded_ends(log, version + 2)  # once
    foreign_commit(log, RemoveFile(path=add.path, deletion_ms=1))
    for _ in range(2):
        assert load_state(log).head.log_end_offsets[0] == open_state(log).head.log_end_offsets[0] == 102
        append(writer, "d", partition=1)
    assert delete_records(log, "t", {1: 1}).log_end_offsets[0] == 102
    assert append(a_writer(log), "again").base_offsets == (102,)


def test_an_end_raised_by_foreign_commits_that_a_writer_lay_behind_is_recorded():
    log = a_topic(num_partitions=2)
    writer = a_writer(log)
    add = foreign_file(log, foreign_records("x"), base_offset=100)
    foreign_commit(log, add)
    foreign_commit(log, foreign_file(log, foreign_records("later"), partition=1))
    foreign_commit(log, RemoveFile(path=add.path, deletion_ms=1))
    append(writer, "b", partition=1)
    assert load_state(log).head == open_state(log).head == writer.head
    assert writer.head.log_end_offsets == (101, 1)


def test_the_end_of_a_partition_that_a_foreign_engine_adds_is_recorded_too():
    log = a_topic()
    writer = a_writer(log)
    metadata = load_state(log).require_whole().metadata
    grown = replace(metadata, configuration={**metadata.configuration, "sparklog.partitions": "2"})
    add = foreign_file(log, foreign_records("x", "y"), partition=1, base_offset=100)
    foreign_commit(log, grown, add)
    append(writer, "a")
    foreign_commit(log, RemoveFile(path=add.path, deletion_ms=1))
    assert load_state(log).head.log_end_offsets == (1, 102)
    append(writer, "b")
    assert load_state(log).head.log_end_offsets == open_state(log).head.log_end_offsets == (2, 102)


def test_who_commits_knows_the_topic_as_whoever_reads_the_entry():
    log = a_topic(num_partitions=2, configs={"retention.ms": "7", "compression.type": "zstd"})
    writers, follower = [a_writer(log), a_writer(log)], TopicFollower(log, "t")
    for number in range(8):
        writer = writers[number // 3 % 2]  # each appends again after its own entry, and after the other's
        append(writer, f"{number}", partition=number % 2)
        if number == 4:
            alter_topic(log, "t", {"retention.ms": "9"})
            writer.refresh()
        follower.poll()
        follower.poll()
        fresh = open_state(log)
        assert writer.head == follower.head == fresh.head
        assert writer.version == fresh.position.version
    assert follower.head.config.explicit["retention.ms"] == 9


def differences(one, other):
    return {each.name for each in fields(one) if getattr(one, each.name) is not getattr(other, each.name)}


def test_what_an_append_changes_leaves_all_else():
    """Fields that a later version adds must be handed on, too: none has its default here."""
    anything: dict[str, Any] = {each.name: object() for each in fields(TopicHead)}
    head = TopicHead(**anything)
    changed: dict[str, Any] = {
        "delta_version": 5,
        "log_end_offsets": (11, 20),
        "live_file_count": 4,
        "totals": LiveTotals(4, 100, 9, None),
    }
    moved = head.moved(**changed)
    assert differences(moved, head) == changed.keys()
    assert {name: getattr(moved, name) for name in changed} == changed
    anything = {each.name: object() for each in fields(Commit)}
    commit = Commit(**anything)
    assert differences(commit.with_head(moved), commit) == {"head"}
    assert commit.with_head(moved).head is moved
