"""Foreign files of any size are copied in bounded memory: in pieces, into files that aren't large, in the same order.

The bounds are set so low that files of a few rows are large.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.delta.log import DeltaLog
from sparklog.errors import CorruptRecordError, StoreError
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.partitioned_writer import PartitionedWriter
from sparklog.log.data.segments import Segment, overlapping
from sparklog.log.follow import TopicFollower
from sparklog.log.sequencing.foreign_files import MAX_COPIED_BYTES, read_foreign
from sparklog.log.sequencing.foreign_source import ForeignSource
from sparklog.log.sequencing.sequencing import sequence_topic
from sparklog.log.state import load_state, open_state
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, WrappedStore
from tests.log.test_foreign_files import rows
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

LOW_BOUNDS = {
    "sequencing.foreign_source._HELD_BYTES": 0,
    "sequencing.foreign_source._PIECE_ROWS": 3,
    "sequencing.foreign_source._PIECE_BYTES": 200,
    "data.partitioned_writer._GATHERED_ROWS": 7,
    "data.partitioned_writer._OPEN_BYTES": 4_000,
    "data.partitioned_writer._OPEN_FILE_BYTES": 1_000,
    "sequencing.foreign_files.MAX_COPIED_BYTES": 0,
    "sequencing.foreign_files._BIN_BYTES": 500,
    "sequencing.foreign_files._MAX_RANKED_RECORDS": 10**9,
    "sequencing.foreign_scan._NUMBERS_AT_ONCE": 5,
    "sequencing.sequencing._COMMIT_BYTES": 1,
}


@contextmanager
def low_bounds(**others: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            **LOW_BOUNDS,
            **{name.replace("___", "._").replace("__", "."): value for name, value in others.items()},
        }.items():
            patch.setattr(f"sparklog.log.{name}", value)
        yield


def insert(log: DeltaLog, *tables: pa.Table, partition: int | None = None, row_group_size: int = 10) -> None:
    """Another engine commits a file of each table."""
    adds = []
    for number, table in enumerate(tables):
        path = f"{number}-{open_state(log).position.version}.parquet"
        add = foreign_file(log, table, path=path, partition=partition)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, row_group_size=row_group_size)
        log.store.put(object_path(log.table, add.path), bytes(sink.getvalue()))
        adds.append(replace(add, size_bytes=len(sink.getvalue())))
    foreign_commit(log, *adds)


def live(log: DeltaLog) -> list[Segment]:
    return [*load_state(log).require_whole().index.by_path.values()]


def many(count: int, *, seed: int = 0, **columns: Any) -> pa.Table:
    choose = np.random.default_rng(seed)
    return rows([b"k%d" % number for number in choose.integers(0, 20, count)], **columns)


@pytest.mark.slow
def test_a_file_without_a_partition_becomes_several_in_one_commit_and_in_its_order() -> None:
    log = a_topic(num_partitions=3)
    append(a_writer(log), "first", partition=1)
    insert(log, many(300))
    with low_bounds():
        result = sequence_topic(log)
    assert (result.sequenced_count, result.record_count, dict(result.refused)) == (1, 300, {})
    lines = entry_lines(log, result.delta_version)
    assert sum("remove" in line for line in lines) == 1
    added = [line["add"] for line in lines if "add" in line]
    assert len(added) > 6
    assert len({(add["partitionValues"]["partition"], add["partitionValues"]["base_offset"]) for add in added}) == 3
    for partition, found in contents(log).items():
        own = [(offset, value) for offset, value in found if value != "first"]
        first = 1 if partition == 1 else 0
        assert [offset for offset, _ in own] == [*range(first, first + len(own))]
        assert [int(value) for _, value in own] == sorted(int(value) for _, value in own)
    assert open_state(log).head == load_state(log).head
    for segment in live(log):
        assert segment.size_bytes == len(log.store.read(object_path(log.table, segment.path)))


def test_a_large_file_that_is_numbered_in_order_becomes_several_that_dont_overlap() -> None:
    log = a_topic()
    count = 200
    insert(log, many(count, deltas=[7 * n for n in range(count)], times_ms=[T0_MS] * count), partition=0)
    with low_bounds():
        sequence_topic(log)
    assert contents(log) == {0: [(7 * number, str(number)) for number in range(count)]}
    segments = live(log)
    assert len(segments) > 3
    assert {segment.base_offset for segment in segments} == {0}
    ordered = load_state(log).require_whole().index.partition(0)
    assert [len(together) for together in overlapping(ordered)] == [1] * len(segments)


@pytest.mark.slow
def test_a_large_file_in_no_order_becomes_files_of_which_few_overlap() -> None:
    """Whoever reads files that overlap has all of them in memory."""
    log = a_topic()
    count = 400
    numbers = np.random.default_rng(1).permutation(count)
    insert(log, many(count, deltas=numbers.tolist(), times_ms=[T0_MS] * count), partition=0)
    with low_bounds():
        sequence_topic(log)
    assert contents(log) == {0: [(number, str(row)) for number, row in sorted((n, r) for r, n in enumerate(numbers))]}
    ordered = load_state(log).require_whole().index.partition(0)
    most = max(sum(segment.record_count or 0 for segment in together) for together in overlapping(ordered))
    assert most <= count / 4


def test_a_file_up_to_the_limit_is_copied_as_it_is_though_it_is_read_by_ranges() -> None:
    log = a_topic()
    insert(log, many(100, deltas=[*range(100)], times_ms=[T0_MS] * 100), partition=0)
    (before,) = live(log)
    with low_bounds(sequencing__foreign_files__MAX_COPIED_BYTES=MAX_COPIED_BYTES):
        sequence_topic(log)
    (after,) = live(log)
    assert after.path != before.path
    assert len({log.store.read(object_path(log.table, segment.path)) for segment in (before, after)}) == 1


@pytest.mark.slow
def test_many_partitions_share_the_bounds() -> None:
    log = a_topic(num_partitions=50)
    insert(log, rows([b"%d" % number for number in range(500)]), row_group_size=500)
    held: list[int] = []
    finished: list[int] = []
    write, finish = PartitionedWriter.write, PartitionedWriter._finish

    def watched(writer: PartitionedWriter, *arguments: Any) -> None:
        write(writer, *arguments)
        held.append(sum(file.held_bytes for file in writer._open.values()))

    def finish_watched(writer: PartitionedWriter, numbers: list[int]) -> None:
        finished.append(len(writer._open))  # never more than now: each takes memory, however little is in it
        finish(writer, numbers)

    with low_bounds(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionedWriter, "write", watched)
        patch.setattr(PartitionedWriter, "_finish", finish_watched)
        assert sequence_topic(log).record_count == 500
    assert max(held) <= 4_000
    assert max(finished) <= 4_000 // 1_000
    assert sum(map(len, contents(log).values())) == 500


@pytest.mark.parametrize("unsorted", [False, True])
def test_where_a_number_is_there_twice_it_is_found_however_many_there_are(unsorted: bool) -> None:
    log = a_topic()
    numbers = [*range(100)]
    numbers[93] = numbers[4] if unsorted else numbers[92]
    insert(log, rows([b"k"] * 100, deltas=numbers, times_ms=[T0_MS] * 100), partition=0)
    with low_bounds():
        sequence_topic(log)
    assert contents(log) == {0: [(row, str(row)) for row in range(100)]}


def test_very_many_records_in_no_order_keep_their_numbers_gaps_and_all() -> None:
    log = a_topic(num_partitions=2)
    insert(log, many(60, deltas=[2 * number for number in range(60)][::-1]))
    with low_bounds(sequencing__foreign_files___MAX_RANKED_RECORDS=59):
        sequence_topic(log)
    found = contents(log)
    assert {59 - offset // 2: value for rows in found.values() for offset, value in rows} == {
        row: str(row) for row in range(60)
    }


def test_a_file_that_cannot_be_decoded_to_its_end_leaves_nothing_behind() -> None:
    memory = MemoryStore()
    log = a_topic(memory, num_partitions=3)
    insert(log, many(300))
    before = {found.path for found in memory.list("topics/")}
    (segment,) = live(log)

    def fail_late() -> None:
        if len([*memory.list("topics/")]) > len(before) + 2:
            raise CorruptRecordError("planted")

    with low_bounds(), pytest.raises(CorruptRecordError, match="planted"):
        read_foreign(log, segment, open_state(log).head, before_piece=fail_late)
    assert {found.path for found in memory.list("topics/")} == before


def test_a_file_that_is_shorter_than_the_log_says_is_refused() -> None:
    log = a_topic()
    insert(log, many(300))
    (segment,) = live(log)
    path = object_path(log.table, segment.path)
    log.store.put(path, log.store.read(path)[:-500])
    with low_bounds():
        (reason,) = sequence_topic(log).refused.values()
    assert reason.startswith(f"corrupt data file {path}")


@pytest.mark.parametrize("at", [0, 1, 5, 40])
def test_a_store_that_refuses_a_range_is_told_as_such(at: int) -> None:
    """It is no fault of the file."""
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    insert(a_topic(memory, clock), many(300))
    store = FaultyStore(memory, Fault(kind=FaultKind.THROTTLED, ops=["get"], path=".parquet", skip=at, times=None))
    (segment,) = live(a_log(memory, clock))
    with low_bounds(), pytest.raises(StoreError, match="503"):
        for _ in ForeignSource(store, f"topics/t/{segment.path}", segment.size_bytes, before_piece=lambda: None).pieces(
            ["key", "value"]
        ):
            pass


def test_files_written_together_get_offsets_together_and_later_files_afterwards() -> None:
    log = a_topic()
    insert(log, many(10), many(10, seed=1))
    insert(log, many(10, seed=2))
    before = open_state(log).position.version
    with low_bounds():
        assert sequence_topic(log).sequenced_count == 3
    removed = [sum("remove" in line for line in entry_lines(log, version)) for version in (before + 1, before + 2)]
    assert removed == [2, 1]
    assert open_state(log).position.version == before + 2


def test_of_a_large_file_without_statistics_only_needed_columns_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other engines' OPTIMIZE may leave statistics out; every client that loads the topic looks into such a file."""
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock)
    values = [str(random.Random(number).randbytes(1_000)) for number in range(200)]
    table = rows([b"k"] * 200, values=values, deltas=[*range(200)], times_ms=[T0_MS + n for n in range(200)])
    add = foreign_file(log, table, partition=0, base_offset=7)
    foreign_commit(log, add)
    read_bytes = 0

    class Counting(WrappedStore):
        def read(self, path: str) -> bytes:
            assert not path.endswith(add.path)
            return super().read(path)

        def read_range(self, path: str, start: int, end: int) -> bytes:
            nonlocal read_bytes
            read_bytes += end - start
            return super().read_range(path, start, end)

    monkeypatch.setattr("sparklog.log.data.record_reading.WHOLE_FILE_BYTES", 1)
    follower = TopicFollower(a_log(Counting(memory), clock), "t")
    assert follower.head.log_end_offsets == (207,)
    found = follower.offset_for_time(0, T0_MS + 40)
    assert found is not None
    assert found.offset == 47
    assert read_bytes < add.size_bytes / 2  # its footer, and two columns of three
    data = memory.read(object_path(log.table, add.path))
    memory.put(object_path(log.table, add.path), data[:-100])
    with pytest.raises(CorruptRecordError, match=add.path):
        follower.offset_for_time(0, T0_MS + 40)


KEYS = st.one_of(st.none(), st.binary(max_size=2))
NUMBERS = st.one_of(st.none(), st.integers(-1, 200))
ROWS = st.lists(st.tuples(KEYS, NUMBERS, st.booleans()), min_size=1, max_size=40)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    given_rows=ROWS,
    partition=st.sampled_from([None, 0, 2]),
    row_group_size=st.integers(1, 20),
    numbered=st.booleans(),
    is_sorted=st.booleans(),
)
def test_the_records_and_their_offsets_are_the_same_whatever_the_bounds(
    given_rows: list[tuple[Any, Any, bool]],
    partition: int | None,
    row_group_size: int,
    numbered: bool,
    is_sorted: bool,
) -> None:
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock, num_partitions=3)
    append(a_writer(log), "own", partition=2)
    deltas = [delta for _, delta, _ in given_rows]
    if numbered:
        deltas = [5 * row if is_sorted else (row * 17) % 331 for row in range(len(given_rows))]
    times = [T0_MS + row if timed or numbered else None for row, (_, _, timed) in enumerate(given_rows)]
    table = rows([key for key, _, _ in given_rows], deltas=deltas, times_ms=times)
    insert(log, table, partition=partition, row_group_size=row_group_size)
    other = a_log(copy_of(memory), clock)
    assert sequence_topic(other).refused == {}
    with low_bounds():
        assert sequence_topic(log).refused == {}
    assert contents(log) == contents(other)
    heads = [load_state(one).head for one in (log, other)]
    assert heads[0].log_end_offsets == heads[1].log_end_offsets
    times_read = [TopicFollower(one, "t").read(0, 0)["timestamp"].to_pylist() for one in (log, other)]
    assert times_read[0] == times_read[1]
