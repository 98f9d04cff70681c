"""Files of many plain records, which the compiled core reads without Arrow."""

from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog._native import CORE
from sparklog.delta.parquet_reading import open_parquet
from sparklog.log.data import record_streaming
from sparklog.log.data.encode import encode_batch
from sparklog.log.data.plain_reading import read_plain_columns
from sparklog.log.data.record_streaming import RECORD_SCHEMA, open_segments
from sparklog.log.data.segments import Segment
from tests.depth import by_depth
from tests.log.test_plain_records import MANY, STAMP, STAMPS, by_core_and_by_arrow, prepared, some_rows
from tests.support import a_log

pytestmark = pytest.mark.skipif(CORE is None, reason="the native core isn't compiled")

core: Any = CORE
COLUMNS = ["timestamp", "key", "value"]
MOST = 2**22
LOG = a_log()


def by_arrow(data):
    table = open_parquet(pa.BufferReader(data)).read(COLUMNS)
    return [table[name].combine_chunks() for name in COLUMNS]


def a_file(count=MANY, *, values=None, **options):
    rows = prepared(range(count), [None, b"k"] * (count // 2) + [b""] * (count % 2), values or [b"value"] * count)
    return bytes(encode_batch(rows, STAMP, **options).data)


def a_segment(data, count, *, base_offset=0):
    return Segment(
        path="partition=0/f.parquet",
        partition=0,
        base_offset=base_offset,
        size_bytes=len(data),
        modification_ms=0,
        record_count=count,
        min_offset_delta=0,
        max_offset_delta=count - 1,
        min_timestamp_ms=0,
        max_timestamp_ms=0,
    )


@settings(max_examples=60)
@given(some_rows(), STAMPS, st.sampled_from([1, 500, 2**20]))
def test_the_core_reads_what_arrow_reads(rows, stamp, page_bytes):
    encoded, _ = by_core_and_by_arrow(rows, stamp, page_bytes=page_bytes)
    found = read_plain_columns(encoded.data, rows.num_rows, MOST)
    assert found is not None
    for column, expected in zip(found, by_arrow(encoded.data), strict=True):
        column.validate(full=True)
        assert column.equals(expected)
        assert column.null_count == expected.null_count


@settings(max_examples=30)
@given(some_rows(), st.integers(0, 1_000), st.integers(0, 1_500))
def test_the_records_are_the_same_from_any_offset_on(rows, base_offset, start_offset):
    data = by_core_and_by_arrow(rows)[0].data
    segment = a_segment(data, rows.num_rows, base_offset=base_offset)

    def pieces():
        return [*open_segments(LOG, [segment], [data], start_offset=start_offset, piece_bytes=2**20).pieces]

    found = pieces()
    with mock.patch.object(record_streaming, "read_plain_columns", return_value=None):
        expected = pieces()
    assert pa.Table.from_batches(found, RECORD_SCHEMA) == pa.Table.from_batches(expected, RECORD_SCHEMA)
    assert [batch.num_rows for batch in found] == [batch.num_rows for batch in expected]


def test_any_other_file_is_left_to_arrow():
    data = a_file()
    assert read_plain_columns(data, MANY, MOST) is not None
    assert read_plain_columns(pa.py_buffer(data), MANY, MOST) is not None
    others = {
        "another count": (data, MANY + 1, MOST),
        "no count": (data, 0, MOST),
        "too large": (data, MANY, len(data) - 1),
        "few records": (a_file(4), 4, MOST),
        "compressed": (a_file(compression="zstd", values=[b"x" * 500] * MANY), MANY, MOST),
        "cut off": (data[:-1], MANY, MOST),
        "without its beginning": (data[1:], MANY, MOST),
        "empty": (b"", MANY, MOST),
        "nothing but marks": (b"PAR1\0\0\0\0PAR1", MANY, MOST),
    }
    table = open_parquet(pa.BufferReader(data)).read()
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    others["by another engine"] = (sink.getvalue(), MANY, MOST)
    assert [name for name, given_file in others.items() if read_plain_columns(*given_file) is not None] == []


def test_offsets_that_do_not_count_from_0_on_are_left_to_arrow():
    data = bytearray(a_file())
    at = data.index(b"\x80\x01\x04" + bytes([MANY]) + b"\x00")  # the first of ``offset_delta``, 0
    data[at + 4] = 2
    assert read_plain_columns(data, MANY, MOST) is None


@settings(max_examples=by_depth(gate=50, nightly=300))
@given(st.data())
def test_a_file_with_wrong_bytes_is_read_within_its_bounds_or_left_to_arrow(data):
    file = bytearray(a_file(24))
    for _ in range(data.draw(st.integers(1, 3))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    found = read_plain_columns(bytes(file), 24, MOST)
    for column in found or ():
        column.validate(full=True)
        assert len(column) == 24


def test_a_value_longer_than_its_page_is_not_read():
    file = bytearray(a_file())
    file[file.index(b"\x05\x00\x00\x00value")] = 200
    assert read_plain_columns(bytes(file), MANY, MOST) is None
    file[file.index(b"\xc8\x00\x00\x00value") + 3] = 0x80  # as a signed number less than 0
    assert read_plain_columns(bytes(file), MANY, MOST) is None


@pytest.mark.parametrize(
    ("count", "places", "parts"),
    [
        (0, ((0, 8),) * 3, (0,) * 7),
        (1, ((0, 8),) * 2, (0,) * 7),
        (1, ((0, 8),) * 3, (0,) * 6),
        (1, ((-1, 8), (0, 8), (0, 8)), (0,) * 7),
        (1, ((8, 0), (0, 8), (0, 8)), (0,) * 7),
        (1, ((0, 101), (0, 8), (0, 8)), (0,) * 7),
        (1, ((0, 8),) * 3, (0, 0, 0, 0, 0, 0, 193)),
        (1, ((0, 8),) * 3, (0, -1, 0, 0, 0, 0, 0)),
        (1, ((0, 8),) * 3, (4, 0, 0, 0, 0, 0, 0)),
        (100, ((0, 8),) * 3, (0,) * 7),
    ],
)
def test_places_that_make_no_sense_are_refused(count, places, parts):
    with pytest.raises(ValueError, match=r"rows|bytes|part"):
        core.read_plain(bytes(100), count, places, bytearray(200), parts)


def test_nothing_is_written_to_what_cannot_be_written_to():
    with pytest.raises(BufferError):
        core.read_plain(bytes(100), 1, ((0, 8),) * 3, bytes(200), (0,) * 7)


def test_many_pages_of_each_column_are_read():
    count = 140_000
    rng = np.random.default_rng(1)
    values = [rng.bytes(at % 40) for at in range(count)]
    data = a_file(count, values=values)
    found = read_plain_columns(data, count, 2**24)
    assert found is not None
    for column, expected in zip(found, by_arrow(data), strict=True):
        column.validate(full=True)
        assert column.equals(expected)
