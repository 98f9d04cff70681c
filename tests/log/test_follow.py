"""Following a topic, and finding records by offset and by time."""

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparklog.delta.actions import RemoveFile
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.errors import (
    CorruptRecordError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    StoreUnavailableError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.record_reading import milliseconds
from sparklog.log.data.schema import DATA_SCHEMA
from sparklog.log.follow import TopicFollower
from sparklog.log.sequencing.sequencing import sequence_topic
from sparklog.log.state import load_state
from sparklog.log.topic import create_partitions, create_topic, delete_records, delete_topic
from sparklog.model import OffsetAndTimestamp
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock
from tests.support import (
    DAY_MS,
    T0_MS,
    a_log,
    a_topic,
    a_writer,
    append,
    foreign_commit,
    foreign_file,
    foreign_records,
    records,
    two_days_of_others,
    within,
)


def values(table):
    return [value.decode() for value in table["value"].to_pylist()]


def at(table):
    return list(zip(table["offset"].to_pylist(), values(table), strict=True))


def same_view(one, other):
    return (
        one.head == other.head
        and one.state.position.token == other.state.position.token
        and set(one.state.whole.index.by_path) == set(other.state.whole.index.by_path)
        and one.state.whole.metadata == other.state.whole.metadata
        and one.state.transactions == other.state.transactions
    )


def live(log):
    return load_state(log).require_whole().index.partition(0)


# Polling


def test_a_poll_applies_what_was_appended_since():
    log = a_topic(num_partitions=2)
    writer, follower = a_writer(log), TopicFollower(log, "t")
    assert follower.poll() == []
    append(writer, "a", "b")
    append(writer, "c", partition=1)
    assert [entry.version for entry in follower.poll()] == [1]
    assert follower.head.log_end_offsets == (2, 0)
    assert [entry.version for entry in follower.poll()] == [2]
    assert follower.poll() == []
    assert at(follower.read(0, 0)) == [(0, "a"), (1, "b")]
    assert at(follower.read(1, 0)) == [(0, "c")]
    assert same_view(follower, TopicFollower(log, "t"))


def test_a_poll_applies_removals_and_new_partitions():
    log = a_topic()
    writer, follower = a_writer(log), TopicFollower(log, "t")
    append(writer, "a")
    append(writer, "b")
    delete_records(log, "t", {0: 1})
    create_partitions(log, "t", 2)
    while follower.poll():
        pass
    assert (follower.head.log_start_offsets, follower.head.log_end_offsets) == ((1, 0), (2, 0))
    assert at(follower.read(0, 1)) == [(1, "b")]
    assert same_view(follower, TopicFollower(log, "t"))


def test_an_idle_poll_is_one_get_and_a_follower_that_is_behind_reads_ahead():
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock)
    store = CountingStore(memory)
    follower = TopicFollower(a_log(store, clock), "t")
    writer = a_writer(log)
    for number in range(40):
        append(writer, str(number))
    store.reset()
    found = []
    while entries := follower.poll():
        found.append(len(entries))
    assert found == [1, 1, 2, 4, 8, 16, 8]
    store.reset()
    assert follower.poll() == []
    assert store.counts() == {"get": 1}
    assert values(follower.read(0, 0)) == [str(number) for number in range(40)]


def test_a_follower_that_cleanup_left_behind_loads_the_topic_anew():
    clock = ManualClock(start_ms=T0_MS)
    log = a_topic(MemoryStore(clock=clock), clock)
    writer, follower = a_writer(log), TopicFollower(log, "t")
    for number in range(6):
        append(writer, str(number))
        clock.advance(DAY_MS)
    write_checkpoint(log)
    append(writer, "6")
    cleaned = clean_log(log, retention_ms=DAY_MS)
    assert cleaned is not None
    assert cleaned.cleaned_below > follower.head.delta_version + 1  # its next entry is gone
    assert follower.poll() == []
    assert same_view(follower, TopicFollower(log, "t"))
    assert at(follower.read(0, 0)) == [(number, str(number)) for number in range(7)]
    append(writer, "7")
    assert len(follower.poll()) == 1
    assert values(follower.read(0, 7)) == ["7"]


def test_a_follower_that_was_silent_but_whose_entry_is_still_there_goes_on():
    clock = ManualClock(start_ms=T0_MS)
    log = a_topic(MemoryStore(clock=clock), clock)
    append(a_writer(log), "a")
    follower = TopicFollower(log, "t")
    clock.advance(DAY_MS)
    assert follower.poll() == []
    append(a_writer(log), "b")
    assert len(follower.poll()) == 1
    assert same_view(follower, TopicFollower(log, "t"))


# Topics that were deleted


def everything_it_does(follower):
    return (
        follower.poll,
        lambda: follower.read(0, 0),
        lambda: follower.read(0, 3),
        lambda: follower.segments(0, 0),
        lambda: follower.offset_for_time(0, T0_MS),
    )


def test_a_follower_is_told_that_its_topic_was_deleted():
    log = a_topic_with("abc")
    follower = TopicFollower(log, "t")
    delete_topic(log, "t")
    assert at(follower.read(0, 0)) == [(0, "a"), (1, "b"), (2, "c")]  # it doesn't know yet
    for do in everything_it_does(follower) * 2:
        with pytest.raises(UnknownTopicOrPartitionError, match=r"topic 't' with id \w+ was deleted"):
            do()
    with pytest.raises(UnknownTopicOrPartitionError, match="was deleted"):
        TopicFollower(log, "t")


@pytest.mark.parametrize("polls", [False, True], ids=["after it was created again", "in between"])
def test_a_follower_never_reads_what_took_its_topics_name(polls):
    log = a_topic_with("abc")
    follower = TopicFollower(log, "t")
    delete_topic(log, "t")
    if polls:
        with pytest.raises(UnknownTopicOrPartitionError, match="was deleted"):
            follower.poll()
    create_topic(log, "t")
    append(a_writer(log), *"uvwxyz")
    for do in everything_it_does(follower) * 4:
        with pytest.raises(UnknownTopicOrPartitionError, match="was deleted"):
            do()
    assert follower.head == load_state(log).head
    assert values(TopicFollower(log, "t").read(0, 3)) == ["x", "y", "z"]


def test_a_follower_far_behind_learns_of_a_new_topic_among_what_it_reads_ahead():
    log = a_topic()
    writer, follower = a_writer(log), TopicFollower(log, "t")
    for number in range(4):
        append(writer, str(number))
    assert [len(follower.poll()) for _ in range(3)] == [1, 1, 2]
    delete_topic(log, "t")
    create_topic(log, "t")
    with pytest.raises(UnknownTopicOrPartitionError, match="was deleted"):
        follower.poll()  # both at once
    with pytest.raises(UnknownTopicOrPartitionError, match="was deleted"):
        follower.read(0, 0)


@pytest.mark.parametrize("does", ["poll", "read", "search"])
def test_a_follower_that_loads_the_topic_anew_is_told_if_it_is_another(does):
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    append(a_writer(log), "a")
    follower = TopicFollower(log, "t")
    files = [object_path(log.table, segment.path) for segment in live(log)]
    delete_topic(log, "t")
    create_topic(log, "t")
    two_days_of_others(memory, clock)
    log.store.delete(files)
    act = {
        "poll": follower.poll,
        "read": lambda: follower.read(0, 0),
        "search": lambda: follower.offset_for_time(0, T0_MS),
    }[does]
    for _ in range(2):
        with pytest.raises(UnknownTopicOrPartitionError, match="was deleted"):
            act()
    assert follower.head == load_state(log).head  # it did load it


# Reading by offset


def a_topic_with(*files):
    log = a_topic()
    writer = a_writer(log)
    for file in files:
        append(writer, *file)
    return log


@pytest.mark.parametrize(
    ("offset", "max_records", "expected"),
    [
        (0, 500, "abcdef"),
        (0, 1, "a"),
        (0, 2, "ab"),
        (0, 3, "abc"),
        (1, 2, "bc"),
        (2, 3, "cde"),
        (5, 1, "f"),
        (4, 500, "ef"),
        (6, 500, ""),
        (3, 0, ""),
    ],
)
def test_reads_go_on_across_files_and_stop_at_max_records(offset, max_records, expected):
    follower = TopicFollower(a_topic_with("ab", "cde", "f"), "t")
    found = follower.read(0, offset, max_records=max_records)
    assert at(found) == list(zip(range(offset, 6), expected, strict=False))


def test_reads_have_all_columns_even_where_nothing_is_read():
    follower = TopicFollower(a_topic_with("a"), "t")
    expected = [pa.field("offset", pa.int64()), *(f for f in DATA_SCHEMA if f.name != "offset_delta")]
    for offset in (0, 1):
        found = follower.read(0, offset).schema
        assert [(f.name, f.type) for f in found] == [(f.name, f.type) for f in expected]


def test_offsets_out_of_range_are_refused_at_both_ends():
    log = a_topic_with("ab", "cd")
    delete_records(log, "t", {0: 1})
    follower = TopicFollower(log, "t")
    assert at(follower.read(0, 1)) == [(1, "b"), (2, "c"), (3, "d")]
    assert at(follower.read(0, 4)) == []
    for offset in (0, 5, -1):
        with pytest.raises(
            OffsetOutOfRangeError, match=f"offset {offset} of t-0 is out of range: log start 1, log end 4"
        ):
            follower.read(0, offset)


@pytest.mark.parametrize("partition", [1, -1])
def test_an_unknown_partition_is_refused(partition):
    follower = TopicFollower(a_topic(), "t")
    with pytest.raises(UnknownTopicOrPartitionError, match=f"no partition {partition}; it has 0 to 0"):
        follower.read(partition, 0)
    with pytest.raises(UnknownTopicOrPartitionError):
        follower.offset_for_time(partition, 0)


def compact(log):
    """Replace the live files of partition 0 by one, as another engine's OPTIMIZE would, and vacuum the old ones."""
    old = live(log)
    follower = TopicFollower(log, "t")
    whole = follower.read(0, 0, max_records=100)
    rows = foreign_records(*values(whole), deltas=whole["offset"].to_pylist())
    new = foreign_file(log, rows.set_column(1, "timestamp", whole["timestamp"]), base_offset=0)
    foreign_commit(log, *(RemoveFile(path=s.path, deletion_ms=1) for s in old), new, places=True)
    log.store.delete([object_path(log.table, s.path) for s in old])


def test_a_reader_whose_file_was_replaced_and_vacuumed_loads_the_topic_anew():
    log = a_topic_with("ab", "c")
    follower = TopicFollower(log, "t")
    compact(log)
    assert at(follower.read(0, 1)) == [(1, "b"), (2, "c")]
    assert same_view(follower, TopicFollower(log, "t"))


def test_a_search_by_time_whose_file_was_replaced_and_vacuumed_loads_the_topic_anew():
    log = a_topic_with("ab", "c")
    follower = TopicFollower(log, "t")
    compact(log)
    assert follower.offset_for_time(0, T0_MS + 1) == OffsetAndTimestamp(1, T0_MS + 1)


def test_a_live_file_that_is_gone_is_named():
    log = a_topic_with("a")
    follower = TopicFollower(log, "t")
    path = object_path(log.table, live(log)[0].path)
    log.store.delete([path])
    with pytest.raises(ObjectNotFoundError, match=path):
        follower.read(0, 0)


# Files of other engines: rule F1


@pytest.mark.parametrize("loaded", [True, False], ids=["loaded", "followed"])
def test_rows_in_any_order_are_read_by_offset(loaded):
    log = a_topic_with("ab")
    follower = TopicFollower(log, "t")
    rows = foreign_records("g", "e", "c", "d", deltas=[4, 2, 0, 1])
    foreign_commit(log, foreign_file(log, rows, base_offset=2))
    if loaded:
        follower = TopicFollower(log, "t")
    follower.poll()
    assert follower.head.log_end_offsets == (7,)
    found = [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "e"), (6, "g")]
    append(a_writer(log), "h")
    follower.poll()
    assert follower.head.log_end_offsets == (8,)
    assert at(follower.read(0, 0)) == [*found, (7, "h")]
    assert at(follower.read(0, 3, max_records=2)) == [(3, "d"), (4, "e")]
    assert at(follower.read(0, 5)) == [(6, "g"), (7, "h")]


def test_a_file_without_statistics_is_searched_by_what_is_in_it():
    log = a_topic_with("ab")
    add = foreign_file(log, foreign_records("c", "d", deltas=[0, 3], timestamp_ms=T0_MS + 50), base_offset=2)
    assert add.stats is None
    foreign_commit(log, add)
    follower = TopicFollower(log, "t")
    segment = follower.state.require_whole().index.by_path[add.path]
    assert (segment.record_count, segment.first_offset, segment.last_offset) == (2, 2, 5)
    assert (segment.min_timestamp_ms, segment.max_timestamp_ms) == (T0_MS + 50, T0_MS + 51)
    assert at(follower.read(0, 3)) == [(5, "d")]
    assert follower.offset_for_time(0, T0_MS + 51) == OffsetAndTimestamp(5, T0_MS + 51)


def test_the_offsets_of_a_file_without_statistics_are_not_given_again():
    log = a_topic_with("ab")
    writer = a_writer(log)
    foreign_commit(log, foreign_file(log, foreign_records("c", "d", deltas=[0, 3]), base_offset=2))
    append(writer, "e")
    assert writer.head == load_state(log).head
    follower = TopicFollower(log, "t")
    assert at(follower.read(0, 0)) == [(0, "a"), (1, "b"), (2, "c"), (5, "d"), (6, "e")]


def test_a_follower_that_cannot_look_into_such_a_file_now_stays_where_it_is():
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock)
    add = foreign_file(log, foreign_records("a"), base_offset=0)
    fault = Fault(kind=FaultKind.THROTTLED, ops=["get"], path=add.path, times=None)
    faulty = FaultyStore(memory, fault)
    follower = TopicFollower(a_log(faulty, clock), "t")
    foreign_commit(log, add)
    append(a_writer(log), "b")
    before = follower.head
    with pytest.raises(StoreUnavailableError):
        follower.poll()
    assert follower.head == before
    with pytest.raises(StoreUnavailableError):
        follower.poll()
    mended = TopicFollower(log, "t")
    assert at(mended.read(0, 0)) == [(0, "a"), (1, "b")]


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["a", "b", "c", None], ids=lambda kept: f"all but {kept}")
def test_files_of_one_base_that_are_packed_in_any_order_are_read_by_offset(kept):
    """OPTIMIZE in Spark or deltalake packs what has the same partition values, by size."""
    log = a_topic_with("xy")
    deltas = {"a": [0, 1], "b": [2, 3], "c": [4, 5, 9]}
    times = {"a": T0_MS, "b": T0_MS + 50, "c": T0_MS}
    adds = [
        foreign_file(log, foreign_records(*map(str, of), deltas=of, timestamp_ms=times[name]))
        for name, of in deltas.items()
    ]
    foreign_commit(log, *adds)
    sequence_topic(log)
    of_one_base = [segment.path for segment in live(log) if segment.base_offset == 2]
    path_of = dict(zip(deltas, of_one_base, strict=True))
    append(a_writer(log), "z")
    before = TopicFollower(log, "t").read(0, 0)
    packed = sorted(delta for name, of in deltas.items() if name != kept for delta in of)
    rows = foreign_records(*map(str, packed), deltas=packed)
    removes = [RemoveFile(path=path_of[name], deletion_ms=1) for name in deltas if name != kept]
    foreign_commit(log, *removes, foreign_file(log, rows, base_offset=2))
    follower = TopicFollower(log, "t")
    everything = at(before)
    assert [offset for offset, _ in everything] == [0, 1, 2, 3, 4, 5, 6, 7, 11, 12]
    for offset in range(13):
        expected = [found for found in everything if found[0] >= offset]
        assert at(follower.read(0, offset)) == expected
        for max_records in (1, 3):
            assert at(follower.read(0, offset, max_records=max_records)) == expected[:max_records]
    found = follower.read(0, 0)
    stamped = [*zip(found["offset"].to_pylist(), milliseconds(found["timestamp"]).to_pylist(), strict=True)]
    for wanted in (T0_MS, T0_MS + 2, T0_MS + 3, T0_MS + 51, T0_MS + 52):
        first = next((OffsetAndTimestamp(*record) for record in stamped if record[1] >= wanted), None)
        assert follower.offset_for_time(0, wanted) == first


def test_columns_that_another_engine_left_out_are_null():
    log = a_topic()
    rows = foreign_records("a", "b").select(["offset_delta", "value"])
    foreign_commit(log, foreign_file(log, rows, base_offset=0))
    found = TopicFollower(log, "t").read(0, 0)
    assert at(found) == [(0, "a"), (1, "b")]
    assert all(found[name].null_count == 2 for name in found.column_names if name not in ("offset", "value"))
    assert [f.type for f in found.schema if f.name != "offset"] == [
        f.type for f in DATA_SCHEMA if f.name != "offset_delta"
    ]


def test_columns_that_another_engine_wrote_in_another_width_are_read_as_the_topics():
    log = a_topic()
    rows = foreign_records("a").set_column(0, "offset_delta", pa.array([0], pa.int32()))
    rows = rows.set_column(rows.schema.get_field_index("value"), "value", pa.array(["a"], pa.large_string()))
    rows = rows.set_column(rows.schema.get_field_index("producer_id"), "producer_id", pa.array([7], pa.int32()))
    foreign_commit(log, foreign_file(log, rows, base_offset=0))
    found = TopicFollower(log, "t").read(0, 0)
    assert found.select(["offset", "value", "producer_id"]).to_pylist() == [
        {"offset": 0, "value": b"a", "producer_id": 7}
    ]
    assert found.schema.field("offset").type == pa.int64()


def without_deltas():
    return foreign_records("x").drop(["offset_delta"])


def null_deltas():
    return foreign_records("x", "y", deltas=[0, None])


def text_deltas():
    return foreign_records("x").set_column(0, "offset_delta", pa.array(["first"]))


def text_timestamps():
    return foreign_records("x").set_column(1, "timestamp", pa.array(["today"]))


@pytest.mark.parametrize("rows", [without_deltas, null_deltas, text_deltas, text_timestamps])
def test_a_file_that_makes_no_sense_is_named_and_other_partitions_stay_readable(rows):
    log = a_topic(num_partitions=2)
    append(a_writer(log), "a", partition=1)
    add = foreign_file(log, rows(), base_offset=0)
    follower = TopicFollower(log, "t")
    foreign_commit(log, add)
    follower.poll()
    for reader in (follower, TopicFollower(log, "t")):
        assert values(reader.read(1, 0)) == ["a"]
        with pytest.raises(CorruptRecordError, match=add.path):
            reader.read(0, 0)


def test_paths_are_percent_decoded():
    log = a_topic()
    add = foreign_file(log, foreign_records("a"), path="partition=0/a%20b%25.parquet", base_offset=0)
    foreign_commit(log, add)
    assert "topics/t/partition=0/a b%.parquet" in {info.path for info in log.store.list("topics/")}
    assert values(TopicFollower(log, "t").read(0, 0)) == ["a"]


# Searching by time

FILES = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), min_size=1, max_size=4)


@pytest.mark.slow
@given(FILES, st.integers(0, 4))
@settings(max_examples=15)
@example([[5, 1], [9], [2], [9]], 0)
@example([[5, 1, 7], [3]], 2)
@example([[9], [1]], 1)
def test_a_search_by_time_finds_the_first_record_that_is_not_older(files, start):
    """Timestamps may go backwards (CreateTime). Source: semantics.md, section 8."""
    log = a_topic()
    writer = a_writer(log)
    for times in files:
        table = pa.table({"value": [b"v"] * len(times), "timestamp": pa.array(times, pa.int64())})
        writer.append(writer.upload([(0, table)]), deadline=within(writer, 1_000))
    times = [time for file in files for time in file]
    start = min(start, len(times))
    delete_records(log, "t", {0: start})
    follower = TopicFollower(log, "t")
    for wanted in range(0, 11):
        young = [OffsetAndTimestamp(n, time) for n, time in enumerate(times) if n >= start and time >= wanted]
        assert follower.offset_for_time(0, wanted) == (young[0] if young else None)


def test_a_search_by_time_in_an_empty_partition_finds_nothing():
    assert TopicFollower(a_topic(), "t").offset_for_time(0, 0) is None


def test_a_search_by_time_compares_milliseconds():
    log = a_topic()
    writer = a_writer(log)
    times = pa.array([T0_MS * 1000 + 1_500], pa.timestamp("us", "UTC"))
    writer.append(writer.upload([(0, pa.table({"value": [b"a"], "timestamp": times}))]), deadline=within(writer, 1_000))
    follower = TopicFollower(log, "t")
    assert follower.offset_for_time(0, T0_MS + 1) == OffsetAndTimestamp(0, T0_MS + 1)
    assert follower.offset_for_time(0, T0_MS + 2) is None


def test_a_search_by_time_reads_only_files_that_may_hold_it():
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock)
    writer = a_writer(log)
    for number in range(20):
        writer.append(writer.upload([(0, records("x", timestamp_ms=T0_MS + number))]), deadline=within(writer, 1_000))
    store = CountingStore(memory)
    follower = TopicFollower(a_log(store, clock), "t")
    store.reset()
    assert follower.offset_for_time(0, T0_MS + 13) == OffsetAndTimestamp(13, T0_MS + 13)
    assert store.counts() == Counter(get=1)


def test_what_a_writer_stored_is_read_back_with_its_producers_numbers():
    log = a_topic()
    writer = a_writer(log)
    append(writer, "a", "b")
    append(writer, "c")
    found = TopicFollower(log, "t").read(0, 0)
    assert found["producer_id"].to_pylist() == [writer.producer_id] * 3
    assert found["producer_epoch"].to_pylist() == [0] * 3
    assert found["sequence"].to_pylist() == [0, 1, 2]
    assert found["key"].to_pylist() == [b"a", b"b", b"c"]
    stored = pq.read_schema(pa.BufferReader(log.store.read(object_path(log.table, live(log)[0].path)))).names
    assert stored == [name for name in DATA_SCHEMA.names if name != "headers"]
