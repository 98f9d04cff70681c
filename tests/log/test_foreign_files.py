"""What sequencing fills in of files that say no partition, number nothing or give no time: as a producer would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.log import DeltaLog
from sparklog.log.data.murmur2 import key_partitions
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.schema import DATA_SCHEMA
from sparklog.log.follow import TopicFollower
from sparklog.log.sequencing.sequencing import sequence_topic
from sparklog.log.state import load_state, open_state
from sparklog.producer import Producer
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.depth import by_depth
from tests.producer import support as producers
from tests.support import (
    T0_MS,
    a_log,
    a_topic,
    a_writer,
    append,
    contents,
    copy_of,
    entry_lines,
    foreign_commit,
    foreign_file,
)

MODIFIED_MS = T0_MS - 5_000


def rows(
    keys: Sequence[bytes | None],
    *,
    values: list[str] | None = None,
    deltas: Sequence[int | None] | None = None,
    times_ms: Sequence[int | None] | None = None,
) -> pa.Table:
    """Rows of the columns that are given; values tell the row's place unless told otherwise."""
    values = values or [str(place) for place in range(len(keys))]
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array([v.encode() for v in values], pa.binary())}
    if deltas is not None:
        columns["offset_delta"] = pa.array(deltas, pa.int64())
    if times_ms is not None:
        columns["timestamp"] = pa.array(times_ms, pa.timestamp("ms", "UTC"))
    return pa.table(columns)


def insert(log: DeltaLog, *tables: pa.Table, partition: int | None = None, row_group_size: int | None = None) -> None:
    """Another engine commits a file of each table; their paths sort in the other order."""
    adds = []
    for name, table in zip("zyxwv", tables, strict=False):
        add = foreign_file(log, table, path=f"{name}-{open_state(log).position.version}.parquet", partition=partition)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, row_group_size=row_group_size)
        log.store.put(object_path(log.table, add.path), bytes(sink.getvalue()))
        adds.append(replace(add, size_bytes=len(sink.getvalue()), modification_ms=MODIFIED_MS))
    foreign_commit(log, *adds)


def sequenced(log: DeltaLog) -> dict[int, list[tuple[int, str]]]:
    """All that is readable after a sequencing that refuses nothing."""
    result = sequence_topic(log)
    assert result.refused == {}
    assert open_state(log).head == load_state(log).head
    return contents(log)


def values(log: DeltaLog) -> dict[int, str]:
    return {partition: "".join(value for _, value in found) for partition, found in sequenced(log).items()}


def test_keys_go_to_the_partitions_that_a_producer_sends_them_to() -> None:
    keys = [f"customer {number}".encode() for number in range(200)] + [b"", b"\xff" * 33]
    cluster = producers.a_topic(partitions=7)
    with Producer(cluster=cluster) as producer:
        sent = [producer.send("t", key=key, value=b"v") for key in keys]
        expected = [future.get(60).partition for future in sent]
    assert len(set(expected)) == 7
    log = a_topic(num_partitions=7)
    insert(log, rows(keys))
    found = sequenced(log)
    places = {int(value): partition for partition, records in found.items() for _, value in records}
    assert [places[place] for place in range(len(keys))] == expected
    assert [len(records) for records in found.values()] == [expected.count(partition) for partition in range(7)]


def test_a_file_without_a_partition_becomes_one_for_each_in_a_single_commit() -> None:
    log = a_topic(num_partitions=3)
    append(a_writer(log), "first", partition=1)
    keys = [b"a", b"b", b"c", b"d", b"e"]
    insert(log, rows(keys))
    result = sequence_topic(log)
    assert (result.sequenced_count, result.record_count, dict(result.refused)) == (1, 5, {})
    lines = entry_lines(log, result.delta_version)
    (removed,) = [line["remove"] for line in lines if "remove" in line]
    added = [line["add"] for line in lines if "add" in line]
    expected = sorted(set(key_partitions(pa.array(keys), 3).tolist()))
    assert removed["path"] not in {add["path"] for add in added}
    assert removed["partitionValues"] == {"partition": None, "base_offset": None}
    assert removed["dataChange"] is True
    assert [add["partitionValues"]["partition"] for add in added] == [str(partition) for partition in expected]
    assert all(add["dataChange"] for add in added)
    assert lines[0]["commitInfo"]["isBlindAppend"] is False
    assert all(add["size"] == len(log.store.read(object_path(log.table, add["path"]))) for add in added)
    assert open_state(log).head.live_file_count == 1 + len(expected)
    assert open_state(log).head.unsequenced_count == 0


def test_records_of_a_partition_keep_the_order_of_the_rows_and_have_no_gaps() -> None:
    log = a_topic(num_partitions=2)
    append(a_writer(log), "x", "y", partition=0)
    keys = [b"k%d" % (number % 9) for number in range(100)]
    insert(log, rows(keys), row_group_size=7)
    places = key_partitions(pa.array(keys), 2)
    found = sequenced(log)
    for partition, before in ((0, 2), (1, 0)):
        own = np.flatnonzero(places == partition).tolist()
        assert found[partition][before:] == [(before + at, str(place)) for at, place in enumerate(own)]


def test_numbers_that_the_writer_gave_are_the_order_of_the_records() -> None:
    log = a_topic()
    insert(log, rows([b"a", None, b"c", b"d"], deltas=[40, 7, 1_000, 0]))
    assert sequenced(log) == {0: [(0, "3"), (1, "1"), (2, "0"), (3, "2")]}


def test_files_of_one_commit_are_ordered_by_their_numbers_or_else_by_their_paths() -> None:
    log = a_topic()
    insert(log, rows([b"a"] * 2, values=["a", "b"], deltas=[0, 1]), rows([b"a"] * 2, values=["c", "d"], deltas=[2, 3]))
    insert(log, rows([b"a"], values=["f"]), rows([b"a"], values=["e"]))
    assert values(log) == {0: "abcdef"}


def test_behind_a_checkpoint_files_without_a_partition_are_ordered_by_time() -> None:
    log = a_topic(num_partitions=2)
    for number in range(6):
        table = rows([None], values=[str(number)])
        path = f"{9 - number}.parquet"
        partition = None if number % 2 else 1
        foreign_commit(log, foreign_file(log, table, path=path, partition=partition, modified_ms=MODIFIED_MS + number))
    write_checkpoint(log)
    found = sequenced(log)
    assert sum(map(len, found.values())) == 6
    for records in found.values():
        assert [value for _, value in records] == sorted(value for _, value in records)


def test_records_without_a_key_stay_together_wherever_the_file_is_sequenced() -> None:
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock, num_partitions=5)
    insert(log, rows([None, None, b"key", None, None]))
    other = a_log(copy_of(memory), clock)
    found = sequenced(log)
    together = [partition for partition, records in found.items() if {"0", "1", "3", "4"} <= {v for _, v in records}]
    assert len(together) == 1
    assert [value for _, value in found[together[0]] if value != "2"] == ["0", "1", "3", "4"]
    assert sequenced(other) == found  # whoever sequences it


@pytest.mark.slow
def test_files_without_keys_are_spread_over_the_partitions() -> None:
    log = a_topic(num_partitions=4)
    for number in range(40):
        insert(log, rows([None], values=[str(number)]))
    counts = [len(records) for records in sequenced(log).values()]
    assert sum(counts) == 40
    assert min(counts) >= 2


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("CreateTime", [MODIFIED_MS, 3, MODIFIED_MS]), ("LogAppendTime", [T0_MS + 60_000, 3, T0_MS + 60_000])],
)
@pytest.mark.parametrize("partition", [0, None])
def test_a_missing_timestamp_is_the_files_or_the_log_append_time_of_its_sequencing(
    kind: str, expected: list[int], partition: int | None
) -> None:
    clock = ManualClock(start_ms=T0_MS)
    log = a_topic(MemoryStore(), clock, configs={"message.timestamp.type": kind})
    insert(log, rows([b"a", b"b", b"c"], times_ms=[None, 3, None]), partition=partition)
    clock.advance(60_000)
    sequence_topic(log)
    found = TopicFollower(log, "t").read(0, 0)["timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    assert found.to_pylist() == expected
    (segment,) = load_state(log).require_whole().index.by_path.values()
    assert (segment.min_timestamp_ms, segment.max_timestamp_ms) == (min(expected), max(expected))


@pytest.mark.parametrize(("modified_ms", "expected_ms"), [(-7, 0), (10**17, 253_402_300_799_999)])
def test_a_file_that_was_written_at_no_time_at_all_gets_one_that_can_be_shown(
    modified_ms: int, expected_ms: int
) -> None:
    log = a_topic()
    foreign_commit(log, foreign_file(log, rows([b"a"]), modified_ms=modified_ms))
    assert sequenced(log) == {0: [(0, "0")]}
    (segment,) = load_state(log).require_whole().index.by_path.values()
    assert segment.min_timestamp_ms == segment.max_timestamp_ms == expected_ms


def test_numbers_of_a_file_with_a_partition_are_kept_where_only_timestamps_miss() -> None:
    log = a_topic()
    insert(log, rows([b"a", b"b"], deltas=[9, 7]), rows([b"c"], values=["2"], deltas=[5]), partition=0)
    assert sequenced(log) == {0: [(5, "2"), (7, "1"), (9, "0")]}  # one base: their writer numbered them together
    assert {segment.base_offset for segment in load_state(log).require_whole().index.by_path.values()} == {0}


@pytest.mark.parametrize("name", ["key", "value"])
def test_one_column_is_enough(name: str) -> None:
    log = a_topic()
    insert(log, pa.table({name: pa.array(["a", "b"])}))  # text, as people have it
    sequence_topic(log)
    found = TopicFollower(log, "t").read(0, 0)
    assert found[name].to_pylist() == [b"a", b"b"]
    others = ({"key", "value"} - {name}) | {"headers", "producer_id", "producer_epoch", "sequence"}
    assert all(found[other].null_count == 2 for other in others)


def test_headers_and_producer_columns_are_kept() -> None:
    log = a_topic()
    table = rows([b"a", b"a"])
    headers = pa.array([[{"key": "h", "value": None}, {"key": "h", "value": b""}], None], DATA_SCHEMA.field(4).type)
    table = table.append_column("headers", headers).append_column("sequence", pa.array([5, None], pa.int32()))
    insert(log, table.append_column("producer_id", pa.array([2**62, None])), row_group_size=1)
    sequence_topic(log)
    found = TopicFollower(log, "t").read(0, 0)
    assert found["headers"].to_pylist() == headers.to_pylist()
    assert (found["sequence"].to_pylist(), found["producer_id"].to_pylist()) == ([5, None], [2**62, None])


@pytest.mark.parametrize(("codec", "expected"), [("zstd", "ZSTD"), ("producer", "SNAPPY")])
def test_a_rewritten_file_is_compressed_as_the_topic_says(codec: str, expected: str) -> None:
    log = a_topic(configs={"compression.type": codec})
    insert(log, rows([b"a"]))
    sequence_topic(log)
    (path,) = load_state(log).require_whole().index.by_path
    file = pq.ParquetFile(pa.BufferReader(log.store.read(object_path(log.table, path))))
    assert file.metadata.row_group(0).column(0).compression == expected


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (pa.table({"value": pa.array([{"a": 1}])}), "column value is struct<a: int64>, expected binary"),
        (pa.table({"value": [b"v"], "headers": pa.array([[1]])}), "column headers is list"),
        (pa.table({"value": [b"v"], "headers": pa.array([[{"key": None, "value": b""}]])}), "no header without a key"),
        (pa.table({"value": [b"v"], "timestamp": pa.array([10**18], pa.timestamp("us", "UTC"))}), "its timestamps run"),
        (pa.table({"value": [b"v"], "offset_delta": [1.5]}), "column offset_delta is double"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_what_is_no_record_is_refused_whether_it_says_a_partition_or_not(table: pa.Table, reason: str) -> None:
    log = a_topic()
    for partition in (None, 0):
        foreign_commit(log, foreign_file(log, table, partition=partition))
    result = sequence_topic(log)
    assert result.sequenced_count == 0
    assert [reason in told for told in result.refused.values()] == [True, True]


def test_an_empty_row_group_holds_up_nobody() -> None:
    log = a_topic()
    schema = rows([b"a"]).schema
    empty = schema.empty_table()
    for tables in ([rows([b"a"], values=["1"]), empty, rows([b"a"], values=["2"])], [empty] * 2):
        sink = pa.BufferOutputStream()
        with pq.ParquetWriter(sink, schema) as writer:
            for table in tables:
                writer.write_table(table)
        add = foreign_file(log, rows([b"a"]), path=f"{len(tables)}.parquet", partition=None)
        log.store.put(object_path(log.table, add.path), bytes(sink.getvalue()))
        foreign_commit(log, replace(add, size_bytes=len(sink.getvalue()), stats=None))
    result = sequence_topic(log)
    assert list(result.refused.values()) == ["it holds no record"]
    assert [[value for _, value in found] for found in contents(log).values() if found] == [["1", "2"]]


def test_records_without_a_key_are_refused_where_the_topic_is_compacted_by_keys() -> None:
    log = a_topic(configs={"cleanup.policy": "compact"})
    insert(log, rows([b"a", None]))
    insert(log, rows([b"a"], values=["good"]))
    result = sequence_topic(log)
    assert ["1 of its records have no key" in reason for reason in result.refused.values()] == [True]
    assert contents(log) == {0: [(0, "good")]}


# Columns that no topic has


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize(
    ("name", "column", "hint"),
    [
        ("valeu", pa.array([None, b"12"]), " (is 'value' meant?)"),
        ("Value", pa.array(["1", "2"]), " (is 'value' meant?)"),
        ("colour", pa.array([None, "red"]), ""),
        ("tags", pa.array([[], None], pa.list_(pa.string())), ""),
        ("place", pa.array([None, {"x": None}], pa.struct([("x", pa.int32())])), ""),
    ],
)
def test_a_file_with_values_in_an_unknown_column_is_refused_and_hinders_no_other(
    name: str, column: pa.Array, hint: str, statistics: bool
) -> None:
    log = a_topic()
    table = pa.table({"key": [b"ann", b"bob"], name: column})
    numbered = table.append_column("offset_delta", pa.array([0, 1])).append_column(
        "timestamp", pa.array([T0_MS] * 2, pa.timestamp("ms", "UTC"))
    )
    for written, partition in ((table, None), (table.drop_columns("key"), 0), (numbered, 0)):
        add = foreign_file(log, written, partition=partition)
        sink = pa.BufferOutputStream()
        pq.write_table(written, sink, write_statistics=statistics)
        log.store.put(object_path(log.table, add.path), bytes(sink.getvalue()))
        foreign_commit(log, replace(add, size_bytes=len(sink.getvalue())))
    insert(log, rows([b"a"], values=["good"]))
    result = sequence_topic(log)
    assert set(result.refused.values()) == {
        f"its column {name!r} holds values, and a topic has no such column{hint}; expected partition, base_offset, "
        "offset_delta, timestamp, key, value, headers, producer_id, producer_epoch, sequence"
    }
    assert len(result.refused) == 3
    assert contents(log) == {0: [(0, "good")]}


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.string()), pa.struct([("x", pa.int32())])], ids=str)
def test_a_column_of_nothing_but_nulls_hinders_nothing_whatever_it_is_called(
    kind: pa.DataType, statistics: bool
) -> None:
    """Once the table has the column, engines write it in every file."""
    log = a_topic()
    table = rows([b"a", b"b"], deltas=[0, 1], times_ms=[T0_MS] * 2).append_column("valeu", pa.nulls(2, kind))
    for partition in (None, 0):
        add = foreign_file(log, table, partition=partition)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, write_statistics=statistics)
        log.store.put(object_path(log.table, add.path), bytes(sink.getvalue()))
        foreign_commit(log, replace(add, size_bytes=len(sink.getvalue())))
    assert sequenced(log) == {0: [(0, "0"), (1, "1"), (2, "0"), (3, "1")]}


KEYS = st.one_of(st.none(), st.binary(max_size=3))
NUMBERS = st.one_of(st.none(), st.integers(-1, 30))
ROWS = st.lists(st.tuples(KEYS, NUMBERS, st.booleans()), min_size=1, max_size=12)
FILES = st.lists(st.tuples(ROWS, st.sampled_from([None, None, 0, 1, 2]), st.integers(1, 5)), min_size=1, max_size=3)


@pytest.mark.slow
@settings(max_examples=by_depth(gate=20, nightly=50))
@given(commits=st.lists(FILES, min_size=1, max_size=3))
def test_any_mix_of_files_gives_every_record_once_in_file_order_and_moves_none(
    commits: list[list[tuple[list[tuple[Any, Any, bool]], int | None, int]]],
) -> None:
    log = a_topic(num_partitions=3)
    writer = a_writer(log)
    sent: dict[str, tuple[str, int, int | None, Any]] = {}
    for at, files in enumerate(commits):
        append(writer, f"own {at}", partition=at)
        for number, (given_rows, partition, row_group_size) in enumerate(files):
            names = [f"{at} {number} {row}" for row in range(len(given_rows))]
            deltas = [delta for _, delta, _ in given_rows]
            is_usable = None not in deltas and min(deltas) >= 0 and len(set(deltas)) == len(deltas)
            for row, (name, (key, delta, _)) in enumerate(zip(names, given_rows, strict=True)):
                sent[name] = (f"{at} {number}", delta if is_usable else row, partition, key)
            table = rows(
                [key for key, _, _ in given_rows],
                values=names,
                deltas=deltas,
                times_ms=[T0_MS if timed else None for _, _, timed in given_rows],
            )
            insert(log, table, partition=partition, row_group_size=row_group_size)
        before = contents(log)
        after = sequenced(log)
        assert all(after[partition][: len(found)] == found for partition, found in before.items())
    ends = load_state(log).head.log_end_offsets
    places: dict[str, int] = {}
    for partition, found in after.items():
        offsets = [offset for offset, _ in found]
        assert offsets == sorted(set(offsets))
        assert all(0 <= offset < ends[partition] for offset in offsets)
        foreign = [sent[value] for _, value in found if value in sent]
        places |= {value: partition for _, value in found if value in sent}
        for file in {one[0] for one in foreign}:
            order = [place for name, place, _, _ in foreign if name == file]
            assert order == sorted(order)
    assert places.keys() == sent.keys()
    assert sum(map(len, after.values())) == len(sent) + len(commits)
    for value, (_, _, said, key) in sent.items():
        if said is not None:
            assert places[value] == said
        elif key is not None:
            assert places[value] == key_partitions(pa.array([key]), 3)[0]
