"""Reading segments in pieces."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import CorruptRecordError, ObjectNotFoundError
from sparklog.log.data.record_streaming import RECORD_SCHEMA, open_segments
from sparklog.log.data.schema import DATA_SCHEMA
from sparklog.log.data.segments import Segment
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore
from tests.arrow_memory import arrow_peak
from tests.support import a_log, foreign_records


def a_segment(log, table, *, base_offset=0, name="f.parquet", **options):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    data = sink.getvalue().to_pybytes()
    log.store.put(f"{log.table}/{name}", data)
    deltas = [delta for delta in table["offset_delta"].to_pylist() if delta is not None]
    return Segment(
        path=name,
        partition=0,
        base_offset=base_offset,
        size_bytes=len(data),
        modification_ms=0,
        record_count=table.num_rows,
        min_offset_delta=min(deltas),
        max_offset_delta=max(deltas),
        min_timestamp_ms=None,
        max_timestamp_ms=None,
    )


def pieces(log, *segments, start_offset=0, piece_bytes=1, whole=True):
    data = [log.store.read(f"{log.table}/{segment.path}") for segment in segments] if whole else None
    return list(open_segments(log, segments, data, start_offset=start_offset, piece_bytes=piece_bytes).pieces)


def at(batches):
    batches = list(batches)
    assert all(batch.schema == RECORD_SCHEMA and batch.num_rows for batch in batches)
    return [(row["offset"], row["value"].decode()) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("dictionary", [True, False])
def test_a_file_is_read_in_pieces_of_bounded_size(whole, dictionary):
    log = a_log()
    values = [f"{number:0100}" for number in range(5_000)]
    segment = a_segment(log, foreign_records(*values), use_dictionary=dictionary, row_group_size=2_000)
    found = pieces(log, segment, piece_bytes=20_000, whole=whole)
    assert len(found) > 4
    assert at(found) == list(enumerate(values))
    most = 1_024 * 160 if dictionary else 40_000  # what a dictionary stands for can't be told from its size
    assert max(batch.nbytes for batch in found) < most


def test_a_view_of_a_file_that_is_read_in_pieces_is_copied():
    log = a_log()
    table = pa.table({"offset_delta": range(30_000), "value": [b"%d" % (number % 7) for number in range(30_000)]})
    segment = a_segment(log, table)
    memory = bytearray(log.store.read(f"{log.table}/{segment.path}"))
    opened = open_segments(log, [segment], [memoryview(memory)], start_offset=0, piece_bytes=1_000)
    memory[:] = bytes(len(memory))
    found = pa.Table.from_batches(opened.pieces)
    assert found["value"].to_pylist() == table["value"].to_pylist()


def test_a_small_file_is_one_piece_and_nothing_of_it_is_kept():
    log = a_log()
    segment = a_segment(log, foreign_records("a", "b"), base_offset=5)
    opened = open_segments(
        log, [segment], [log.store.read(f"{log.table}/f.parquet")], start_offset=0, piece_bytes=10**6
    )
    assert (at(opened.pieces), opened.held_bytes) == ([(5, "a"), (6, "b")], 0)


def test_a_file_by_ranges_reads_only_the_row_groups_and_columns_that_are_needed():
    memory = MemoryStore()
    table = foreign_records(*[f"{number:01000}" for number in range(4_000)])
    segment = a_segment(a_log(memory), table, use_dictionary=False, row_group_size=500)
    store = CountingStore(memory)
    log = a_log(store)
    assert at(pieces(log, segment, start_offset=3_990, piece_bytes=10_000, whole=False))[0][0] == 3_990
    assert store.counts()["get"] < 40


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("deltas", [[3, 1, 0, 7], [0, 1, 9, 8], [5, 4, 3, 2]])
def test_rows_that_are_not_in_order_are_put_into_order(deltas, whole):
    log = a_log()
    segment = a_segment(log, foreign_records(*"abcd", deltas=deltas), row_group_size=2)
    expected = sorted(zip(deltas, "abcd", strict=True))
    for start in range(11):
        found = at(pieces(log, segment, start_offset=start, whole=whole))
        assert found == [record for record in expected if record[0] >= start]


@pytest.mark.parametrize("file_count", [1, 2])
def test_records_in_no_order_take_the_memory_of_their_files_and_of_a_piece(file_count):
    log = a_log()
    count, rows_each = 4_000, 4_000 // file_count
    deltas = [(number * 1_237) % count for number in range(count)]
    segments = [
        a_segment(
            log,
            foreign_records(*[f"{delta:01000}" for delta in own], deltas=own),
            name=f"{number}.parquet",
            row_group_size=300,
            use_dictionary=False,
        )
        for number, own in enumerate(deltas[at : at + rows_each] for at in range(0, count, rows_each))
    ]
    data = [log.store.read(f"{log.table}/{segment.path}") for segment in segments]
    with arrow_peak() as peak:
        opened = open_segments(log, segments, data, start_offset=0, piece_bytes=100_000)
        seen = [offset for batch in opened.pieces for offset in batch.column(0).to_pylist()]
        most_bytes = peak()
    assert seen == [*range(count)]
    assert 4_000_000 < opened.held_bytes < most_bytes < 5_500_000


@pytest.mark.slow
@given(st.sets(st.integers(0, 30), min_size=1, max_size=20), st.integers(1, 7), st.integers(0, 32), st.booleans())
@settings(max_examples=40)
def test_whatever_the_gaps_and_row_groups_the_records_from_the_start_on_are_read(deltas, group_size, start, whole):
    log = a_log()
    ordered = sorted(deltas)
    table = foreign_records(*map(str, ordered), deltas=ordered)
    segment = a_segment(log, table, base_offset=100, row_group_size=group_size, use_dictionary=False)
    found = at(pieces(log, segment, start_offset=100 + start, whole=whole))
    assert found == [(100 + delta, str(delta)) for delta in ordered if delta >= start]


def test_columns_that_are_missing_are_null_and_those_of_another_width_are_cast():
    log = a_log()
    table = foreign_records("a").select(["offset_delta", "value"])
    table = table.set_column(0, "offset_delta", pa.array([4], pa.int16()))
    segment = a_segment(log, table.set_column(1, "value", pa.array(["a"], pa.large_string())))
    for piece_bytes in (1, 10**6):
        (batch,) = pieces(log, segment, piece_bytes=piece_bytes)
        assert batch.to_pylist() == [{"offset": 4, "timestamp": None, "key": None, "value": b"a", "headers": None}]


@pytest.mark.parametrize("piece_bytes", [1, 10**6])
def test_a_file_that_cannot_be_understood_is_named(piece_bytes):
    log = a_log()
    good = a_segment(log, foreign_records("a", "b"))
    broken = {
        "nulls": foreign_records("a", "b", deltas=[0, None]),
        "text": foreign_records("a").set_column(0, "offset_delta", pa.array(["x"])),
        "times": foreign_records("a").set_column(1, "timestamp", pa.array(["x"])),
        "none": foreign_records("a").drop(["offset_delta"]),
    }
    for name, table in broken.items():
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        log.store.put(f"{log.table}/f.parquet", sink.getvalue().to_pybytes())
        with pytest.raises(CorruptRecordError, match=r"corrupt data file topics/t/f\.parquet"):
            pieces(log, good, piece_bytes=piece_bytes)
        assert name
    log.store.put(f"{log.table}/f.parquet", b"PAR1 no more")
    for whole in (True, False):
        with pytest.raises(CorruptRecordError, match=r"corrupt data file topics/t/f\.parquet"):
            pieces(log, good, piece_bytes=piece_bytes, whole=whole)


def test_a_file_that_is_gone_is_named_also_in_the_middle():
    log = a_log()
    table = foreign_records(*[f"{number:01000}" for number in range(4_000)])
    segment = a_segment(log, table, use_dictionary=False, row_group_size=1_000)
    opened = open_segments(log, [segment], None, start_offset=0, piece_bytes=10_000)
    next(opened.pieces)
    log.store.delete([f"{log.table}/f.parquet"])
    with pytest.raises(ObjectNotFoundError, match=r"topics/t/f\.parquet"):
        list(opened.pieces)
    for data in (None, [None]):
        with pytest.raises(ObjectNotFoundError, match=r"topics/t/f\.parquet"):
            open_segments(log, [segment], data, start_offset=0, piece_bytes=1)


def test_segments_that_overlap_are_read_by_offset():
    log = a_log()
    one = a_segment(log, foreign_records("a", "c", deltas=[0, 2]), name="1.parquet")
    other = a_segment(log, foreign_records("b", "d", deltas=[1, 5]), name="2.parquet")
    assert at(pieces(log, one, other, start_offset=1)) == [(1, "b"), (2, "c"), (5, "d")]


def test_what_a_consumer_reads_are_columns_of_the_topic():
    assert all(field == DATA_SCHEMA.field(field.name) for field in RECORD_SCHEMA if field.name != "offset")
