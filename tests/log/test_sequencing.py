"""Giving offsets to files that other engines wrote without: rules F1, F2, L4, L13."""

import json
import logging
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.delta.actions import AddFile, RemoveFile
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.segments import segment_of_add
from sparklog.log.follow import TopicFollower
from sparklog.log.sequencing.sequencing import sequence_topic
from sparklog.log.state import load_state, open_state
from sparklog.log.topic import alter_topic, create_partitions, delete_records, delete_topic
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, ManualClock
from tests.support import (
    T0_MS,
    OvertakenStore,
    a_log,
    a_topic,
    a_writer,
    append,
    contents,
    entry_lines,
    foreign_commit,
    foreign_file,
    foreign_records,
)


def insert(log, *values, deltas=None, **file):
    """Another engine commits one file; returns its path."""
    add = foreign_file(log, foreign_records(*values, deltas=deltas), **file)
    foreign_commit(log, add)
    return add.path


def live(log):
    return load_state(log).require_whole().index.by_path


def version(log):
    return open_state(log).position.version


def actions(log, kind, at=None):
    return [line[kind] for line in entry_lines(log, version(log) if at is None else at) if kind in line]


def data_files(log):
    return {info.path for info in log.store.list("topics/") if info.path.endswith(".parquet")}


def copies(log, *paths):
    """The live files that hold, byte for byte, what these unsequenced files held; under paths of their own."""
    by_bytes = {log.store.read(object_path(log.table, path)): segment for path, segment in live(log).items()}
    found = [by_bytes[log.store.read(object_path(log.table, path))] for path in paths]
    assert not {segment.path for segment in found} & set(paths)
    return found


def base_offsets(log, paths):
    return [segment.base_offset for segment in copies(log, *paths)]


def test_a_file_without_a_base_offset_is_not_read_until_it_is_sequenced():
    log = a_topic()
    append(a_writer(log), "a")
    insert(log, "b", "c")
    assert contents(log) == {0: [(0, "a")]}
    assert open_state(log).head.unsequenced_count == 1
    result = sequence_topic(log)
    assert (result.sequenced_count, dict(result.refused), result.delta_version) == (1, {}, version(log))
    assert contents(log) == {0: [(0, "a"), (1, "b"), (2, "c")]}
    assert open_state(log).head == load_state(log).head
    assert open_state(log).head.unsequenced_count == 0


# What is kept and what is rewritten: rule F1


@pytest.mark.parametrize(
    ("deltas", "offsets"),
    [
        ([0, 1, 2], [2, 3, 4]),
        ([2, 1, 0], [4, 3, 2]),
        ([0, 5, 3], [2, 7, 5]),
        ([1, 2, 3], [3, 4, 5]),
        ([100, 101, 110], [102, 103, 112]),  # the base is the log end: a gap is legal, a base given twice isn't
        ([2**48, 7, 8], [2**48 + 2, 9, 10]),
    ],
)
def test_numbers_that_are_distinct_are_kept_and_the_file_is_copied_as_it_is(deltas, offsets):
    log = a_topic()
    append(a_writer(log), "x", "y")
    path = insert(log, "a", "b", "c", deltas=deltas)
    before = data_files(log)
    sequence_topic(log)
    (copy,) = copies(log, path)
    assert data_files(log) - before == {object_path(log.table, copy.path)}
    assert copy.base_offset == 2
    assert path not in live(log)
    assert object_path(log.table, path) in data_files(log)  # vacuum's business
    expected = sorted(zip(offsets, "abc", strict=True))
    assert contents(log) == {0: [(0, "x"), (1, "y"), *expected]}
    assert load_state(log).head.log_end_offsets == (max(offsets) + 1,)


@pytest.mark.parametrize(
    "deltas",
    [
        [None, None, None],
        [0, None, 1],
        [0, 0, 1],
        [5, 6, 5],
        [-1, 0, 1],
        [-3, -2, -1],
        [0, 1, 2**48 + 1],
        [0, 1, 2**63 - 1],  # would leave no offset for anybody
    ],
    ids=str,
)
def test_numbers_that_are_not_usable_are_replaced_in_a_rewritten_file(deltas):
    log = a_topic()
    append(a_writer(log), "x", "y")
    path = insert(log, "a", "b", "c", deltas=deltas)
    sequence_topic(log)
    assert contents(log) == {0: list(enumerate("xyabc"))}
    assert path not in live(log)
    (removed,) = actions(log, "remove")
    (added,) = actions(log, "add")
    assert removed["path"] == path
    assert removed["partitionValues"] == {"partition": "0", "base_offset": None}
    assert added["path"] != path
    assert object_path(log.table, path) in data_files(log)  # vacuum's business
    assert open_state(log).head == load_state(log).head


def test_a_column_of_numbers_that_is_missing_is_replaced_too():
    log = a_topic()
    foreign_commit(log, foreign_file(log, foreign_records("a", "b").drop(["offset_delta", "key", "headers"])))
    sequence_topic(log)
    assert contents(log) == {0: [(0, "a"), (1, "b")]}


def test_a_rewritten_file_holds_the_same_records():
    log = a_topic()
    rows = foreign_records("a", "b", deltas=[None, None])
    headers = pa.array([[{"key": "k", "value": None}], None], rows.schema.field("headers").type)
    rows = rows.set_column(4, "headers", headers)
    rows = rows.set_column(2, "key", pa.array([b"", None], pa.binary()))
    rows = rows.set_column(7, "sequence", pa.array([7, 8], pa.int32()))
    foreign_commit(log, foreign_file(log, rows))
    sequence_topic(log)
    found = TopicFollower(log, "t").read(0, 0).drop(["offset"])
    assert found.to_pylist() == rows.drop(["offset_delta"]).to_pylist()


@pytest.mark.parametrize("deltas", [[0, 5], [None, None]], ids=["kept", "rewritten"])
def test_what_is_published_tells_everything_that_readers_search_by(deltas):
    log = a_topic()
    rows = foreign_records("a", "b", deltas=deltas, timestamp_ms=T0_MS + 7)
    foreign_commit(log, foreign_file(log, rows, modified_ms=123))
    sequence_topic(log)
    (added,) = actions(log, "add")
    segment = segment_of_add(
        AddFile(
            path=added["path"],
            partition_values=added["partitionValues"],
            size_bytes=added["size"],
            modification_ms=added["modificationTime"],
            stats=json.loads(added["stats"]),
        ),
        0,
    )
    assert segment.has_stats
    assert (segment.first_offset, segment.last_offset) == (0, 5 if deltas[0] == 0 else 1)
    assert (segment.min_timestamp_ms, segment.max_timestamp_ms, segment.record_count) == (T0_MS + 7, T0_MS + 8, 2)
    assert (added["modificationTime"], added["dataChange"]) == (123, True)
    assert added["size"] == len(log.store.read(object_path(log.table, added["path"])))


def insert_together(log, *files, partition=0):
    """One foreign commit of several files, each given by its deltas; values tell file and delta. Returns the paths."""
    adds = []
    for name, deltas in zip("zyxwv", files, strict=False):  # paths in the other order than the numbers
        rows = foreign_records(*(f"{name}{delta}" for delta in deltas), deltas=deltas)
        adds.append(foreign_file(log, rows, path=f"{name}-{partition}-{version(log)}.parquet", partition=partition))
    foreign_commit(log, *adds)
    return [add.path for add in adds]


def test_files_of_one_commit_in_disjoint_ranges_share_a_base_offset():
    log = a_topic()
    append(a_writer(log), "a", "b", "c")
    paths = insert_together(log, [3, 4], [0, 2], [7])
    sequence_topic(log)
    assert base_offsets(log, paths) == [3, 3, 3]
    assert contents(log)[0][3:] == [(3, "y0"), (5, "y2"), (6, "z3"), (7, "z4"), (10, "x7")]
    assert load_state(log).head.log_end_offsets == (11,)


@pytest.mark.parametrize("files", [([0, 1], [0, 1]), ([0, 5], [3]), ([0, 1, 2], [2])])
def test_files_of_one_commit_whose_ranges_overlap_get_base_offsets_of_their_own(files):
    log = a_topic()
    paths = insert_together(log, *files)
    sequence_topic(log)
    assert len(set(base_offsets(log, paths))) == 2
    found = [offset for offset, _ in contents(log)[0]]
    assert len(found) == len(set(found)) == sum(map(len, files))


def test_files_of_one_commit_of_which_one_is_rewritten_get_base_offsets_of_their_own():
    log = a_topic()
    kept, rewritten = insert_together(log, [0, 1], [9, 9])
    sequence_topic(log)
    (copy,) = copies(log, kept)
    assert not {kept, rewritten} & set(live(log))
    assert len(live(log)) == len({segment.base_offset for segment in live(log).values()}) == 2
    assert copy.base_offset in (0, 2)
    assert [offset for offset, _ in contents(log)[0]] == [0, 1, 2, 3]


def test_files_of_several_commits_never_share_a_base_offset():
    log = a_topic()
    one = insert_together(log, [0, 1])
    two = insert_together(log, [2, 3])
    sequence_topic(log)
    assert base_offsets(log, one + two) == [0, 2]  # though the second would fit behind the first
    three = insert_together(log, [0, 2])
    four = insert_together(log, [10, 11])
    sequence_topic(log)
    assert [offset for offset, _ in contents(log)[0]] == [0, 1, 4, 5, 6, 8, 19, 20]
    assert base_offsets(log, one + two + three + four) == [0, 2, 6, 9]


def packed(log, *segments):
    """Another engine's OPTIMIZE packs live files of the same partition values, in any order, into one."""
    (values,) = {(segment.partition, segment.base_offset) for segment in segments}
    parts = [pq.read_table(pa.BufferReader(log.store.read(object_path(log.table, s.path)))) for s in segments]
    whole = foreign_file(log, pa.concat_tables(parts), partition=values[0], base_offset=values[1])
    foreign_commit(log, *(RemoveFile(path=s.path, deletion_ms=1, data_change=False) for s in segments), whole)


@pytest.mark.slow
def test_a_file_numbered_far_ahead_gets_a_new_base_so_packing_by_base_keeps_reads():
    """A base given to two groups let an OPTIMIZE pack files from both sides of a third one: whoever read from between
    them found the file around it, and nothing of it, for ever."""
    log = a_topic()
    insert(log, *(f"a{number}" for number in range(10)))
    sequence_topic(log)
    append(a_writer(log), *(f"b{number}" for number in range(5)))
    insert(log, *(f"c{number}" for number in range(5)), deltas=range(100, 105))
    sequence_topic(log)
    found = list(live(log).values())
    assert sorted(segment.base_offset for segment in found) == [0, 10, 15]
    before = contents(log)[0]
    assert [offset for offset, _ in before] == [*range(15), *range(115, 120)]
    for base_offset in {segment.base_offset for segment in found}:
        packed(log, *(segment for segment in found if segment.base_offset == base_offset))
    follower = TopicFollower(log, "t")
    for start in range(120):
        expected = [offset for offset, _ in before if offset >= start]
        assert follower.read(0, start)["offset"].to_pylist() == expected


NUMBERS = st.lists(st.integers(0, 12), min_size=1, max_size=4, unique=True)
COMMITS = st.lists(st.lists(NUMBERS, min_size=1, max_size=3), min_size=1, max_size=4)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.lists(COMMITS, min_size=1, max_size=3))
def test_a_base_offset_is_greater_than_all_before_and_no_offset_is_given_twice(rounds):
    log = a_topic()
    seen: dict[int, str] = {}
    for commits in rounds:
        append(a_writer(log), "ours")
        (end,) = load_state(log).head.log_end_offsets
        known = set(live(log))
        for files in commits:
            insert_together(log, *files)
        sequence_topic(log)
        given = {segment.base_offset for path, segment in live(log).items() if path not in known}
        assert min(given) == end
        found = contents(log)[0]
        assert len({offset for offset, _ in found}) == len(found)
        assert len(found) == len(seen) + 1 + sum(len(numbers) for files in commits for numbers in files)
        assert dict(found).items() >= seen.items()
        seen = dict(found)


def test_partitions_are_numbered_each_for_itself_in_one_commit():
    log = a_topic(num_partitions=3)
    append(a_writer(log), "a", partition=1)
    before = version(log)
    insert_together(log, [0, 1], partition=0)
    insert_together(log, [0], partition=1)
    assert sequence_topic(log).sequenced_count == 2
    assert version(log) == before + 3
    assert contents(log) == {0: [(0, "z0"), (1, "z1")], 1: [(0, "a"), (1, "z0")], 2: []}
    assert load_state(log).head.log_end_offsets == (2, 2, 0)


# In which order: rule F2


def test_files_are_numbered_in_the_order_of_their_commits():
    log = a_topic()
    insert(log, "first", path="z.parquet", modified_ms=300)
    insert(log, "second", path="a.parquet", modified_ms=200)
    insert(log, "third", path="m.parquet", modified_ms=100)
    sequence_topic(log)
    assert contents(log) == {0: [(0, "first"), (1, "second"), (2, "third")]}


def test_behind_a_checkpoint_files_are_numbered_by_modification_time_and_path():
    log = a_topic()
    insert(log, "third", path="a.parquet", modified_ms=300)
    insert(log, "second", path="z.parquet", modified_ms=200)
    insert(log, "first", path="m.parquet", modified_ms=200)
    write_checkpoint(log)
    insert(log, "fourth", path="0.parquet", modified_ms=100)  # its version is still known: it came later
    sequence_topic(log)
    assert [value for _, value in contents(log)[0]] == ["first", "second", "third", "fourth"]


def test_behind_a_checkpoint_files_of_one_commit_get_base_offsets_of_their_own():
    log = a_topic()
    insert_together(log, [0, 1], [2, 3])
    write_checkpoint(log)
    assert sequence_topic(log).sequenced_count == 2
    assert contents(log) == {0: [(2, "y2"), (3, "y3"), (4, "z0"), (5, "z1")]}  # by path: their commit isn't known


# What the commit looks like: rule L13


@pytest.mark.parametrize("deltas", [[0, 1], [None, None]], ids=["kept", "rewritten"])
def test_a_file_is_removed_and_its_copy_added_under_a_new_path_not_blindly(deltas):
    """An add alone would let an OPTIMIZE that has read the file commit without a conflict (decision 0003); the old path
    again would make deltalake lose it."""
    log = a_topic()
    path = insert(log, "a", "b", deltas=deltas)
    sequence_topic(log)
    assert [next(iter(line)) for line in entry_lines(log, version(log))] == ["commitInfo", "remove", "add", "txn"]
    (info,) = actions(log, "commitInfo")
    assert (info["isBlindAppend"], info["operation"]) == (False, "SEQUENCE")
    (removed,) = actions(log, "remove")
    assert (removed["path"], removed["partitionValues"]) == (path, {"partition": "0", "base_offset": None})
    (added,) = actions(log, "add")
    assert added["path"] != path
    assert added["partitionValues"] == {"partition": "0", "base_offset": "0"}
    assert removed["dataChange"] is added["dataChange"] is True  # the rows' base offset changes
    (txn,) = actions(log, "txn")
    assert (txn["appId"], txn["version"]) == ("sparklog.end.0", 2)


def test_producer_commits_alone_are_blind_appends():
    log = a_topic(num_partitions=1)
    append(a_writer(log), "a")
    assert actions(log, "commitInfo")[0]["isBlindAppend"] is True
    for operate in (
        lambda: alter_topic(log, "t", {"retention.ms": 1}),
        lambda: create_partitions(log, "t", 2),
        lambda: delete_records(log, "t", {0: 1}),
        lambda: delete_topic(log, "t"),
    ):
        operate()
        assert actions(log, "commitInfo")[0]["isBlindAppend"] is False


# At once, in between, and again: rule L4


def a_shared_topic(**options):
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    return memory, clock, a_topic(memory, clock, **options)


@pytest.mark.parametrize("deltas", [[0, 1], [None, None]], ids=["kept", "rewritten"])
def test_two_sequencers_at_once_publish_each_file_once(deltas):
    memory, clock, log = a_shared_topic()
    insert(log, "a", "b", deltas=deltas)
    insert(log, "c", "d", deltas=deltas)
    before = version(log)
    late = sequence_topic(a_log(OvertakenStore(memory, lambda: sequence_topic(log)), clock))
    assert late.sequenced_count == 0
    assert version(log) == before + 1
    assert contents(log) == {0: list(enumerate("abcd"))}


@pytest.mark.parametrize("renamed", [True, False], ids=["under a new path", "under its old path, as once"])
def test_a_sequencer_publishes_what_another_left_over(renamed):
    memory, clock, log = a_shared_topic()
    one, other = insert(log, "a"), insert(log, "b")

    def publish_one():
        add = foreign_file(log, foreign_records("a"), path=None if renamed else one, base_offset=0)
        foreign_commit(log, *([RemoveFile(path=one, deletion_ms=1)] if renamed else []), add, places=True)

    late = sequence_topic(a_log(OvertakenStore(memory, publish_one), clock))
    assert late.sequenced_count == 1
    assert base_offsets(log, [other]) == [1]
    assert contents(log) == {0: [(0, "a"), (1, "b")]}


def test_sequencing_again_is_no_commit():
    log = a_topic()
    insert(log, "a")
    sequence_topic(log)
    before = version(log)
    result = sequence_topic(log)
    assert (result.sequenced_count, result.delta_version) == (0, before)
    assert version(log) == before


@pytest.mark.parametrize("deltas", [[0], [None]], ids=["kept", "rewritten"])
def test_a_file_that_a_user_deletes_meanwhile_stays_deleted(deltas):
    memory, clock, log = a_shared_topic()
    gone, stays = insert(log, "gone", deltas=deltas), insert(log, "stays")
    delete = RemoveFile(path=gone, deletion_ms=1)
    late = sequence_topic(a_log(OvertakenStore(memory, lambda: foreign_commit(log, delete)), clock))
    assert late.sequenced_count == 1
    assert open_state(log).head.unsequenced_count == 0
    assert list(live(log).values()) == copies(log, stays)
    assert contents(log) == {0: [(0, "stays")]}


def test_a_file_whose_partition_another_changes_meanwhile_is_left_to_the_next():
    memory, clock, log = a_shared_topic(num_partitions=2)
    path = insert(log, "a", path="x.parquet")
    move = foreign_file(log, foreign_records("a"), path=path, partition=1)
    late = sequence_topic(a_log(OvertakenStore(memory, lambda: foreign_commit(log, move)), clock))
    assert late.sequenced_count == 0
    assert sequence_topic(log).sequenced_count == 1
    assert contents(log) == {0: [], 1: [(0, "a")]}


def test_what_producers_append_meanwhile_comes_first():
    memory, clock, log = a_shared_topic()
    writer = a_writer(log)
    insert(log, "a", "b", deltas=[5, 6])
    insert(log, "c")
    sequence_topic(a_log(OvertakenStore(memory, lambda: append(writer, "x", "y", "z")), clock))
    append(writer, "last")
    assert contents(log) == {0: [(0, "x"), (1, "y"), (2, "z"), (8, "a"), (9, "b"), (10, "c"), (11, "last")]}


def test_a_topic_that_is_deleted_meanwhile_stays_deleted():
    memory, clock, log = a_shared_topic()
    insert(log, "a")
    late = sequence_topic(a_log(OvertakenStore(memory, lambda: delete_topic(log, "t")), clock))
    assert late.sequenced_count == 0
    assert open_state(log).head.deleted
    assert live(log) == {}


def test_a_topic_without_foreign_files_costs_no_commit_and_no_file():
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    a_topic(memory, clock)
    store = CountingStore(memory)
    sequence_topic(a_log(store, clock))
    assert not {"put", "create"} & set(store.counts())


# What can't be sequenced


def with_column(log, name, values, **file):
    rows = foreign_records(*("x" for _ in values))
    return foreign_file(log, rows.set_column(rows.schema.get_field_index(name), name, values), **file)


def with_a_timestamp_that_is_none(log):
    return with_column(log, "timestamp", pa.array([T0_MS * 1000, -1], pa.timestamp("us", "UTC")), partition=None)


def with_headers_of_other_names(log):
    return with_column(log, "headers", pa.array([[{"name": "k", "value": b"v"}]]))


def with_numbers_for_values(log):
    return with_column(log, "value", pa.array([7]))


def without_records(log):
    return foreign_file(log, foreign_records())


def with_text_for_numbers(log):
    return foreign_file(log, foreign_records("x").set_column(0, "offset_delta", pa.array(["x"])))


def truncated(log):
    add = foreign_file(log, foreign_records("x"))
    path = object_path(log.table, add.path)
    log.store.put(path, log.store.read(path)[:-7])
    return add


def that_is_gone(log):
    add = foreign_file(log, foreign_records("x"))
    log.store.delete([object_path(log.table, add.path)])
    return add


def outside_of_the_table(log):
    return replace(foreign_file(log, foreign_records("x")), path="s3://elsewhere/x.parquet")


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (lambda log: foreign_file(log, foreign_records("x"), partition=2), "its partition is 2, the topic has 0 to 1"),
        (lambda log: foreign_file(log, foreign_records("x"), partition=-1), "its partition is -1"),
        (with_a_timestamp_that_is_none, "its timestamps run from -1 to 4102444800000000 µs, expected 0 to"),
        (with_headers_of_other_names, "its headers are list"),
        (with_numbers_for_values, "column value is int64, expected binary"),
        (without_records, "holds no record"),
        (with_text_for_numbers, "column offset_delta is string"),
        (truncated, "corrupt data file"),
        (that_is_gone, "no such object"),
        (outside_of_the_table, "outside of the table"),
    ],
)
def test_a_file_that_cannot_be_sequenced_stays_is_reported_and_stops_no_other(refused, reason, caplog):
    log = a_topic(num_partitions=2)
    add = refused(log)
    foreign_commit(log, add)
    insert(log, "good")
    before = data_files(log)
    with caplog.at_level(logging.WARNING):
        result = sequence_topic(log)
    assert result.sequenced_count == 1
    assert list(result.refused) == [add.path]
    assert reason in result.refused[add.path]
    assert add.path in caplog.text
    assert reason in caplog.text
    assert contents(log) == {0: [(0, "good")], 1: []}
    assert live(log)[add.path].base_offset is None
    assert len(data_files(log) - before) == 1  # the copy of the good one
    before = data_files(log), version(log)
    assert list(sequence_topic(log).refused) == [add.path]
    assert (data_files(log), version(log)) == before


def test_a_file_of_a_partition_that_comes_later_is_sequenced_then():
    log = a_topic()
    insert(log, "a", partition=1)
    assert sequence_topic(log).sequenced_count == 0
    create_partitions(log, "t", 2)
    assert sequence_topic(log).sequenced_count == 1
    assert contents(log) == {0: [], 1: [(0, "a")]}
