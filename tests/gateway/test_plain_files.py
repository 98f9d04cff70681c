"""Data files of many plain records, of which the compiled core makes record batches without Arrow."""

from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog._native import CORE
from sparklog.delta.parquet_pages import zigzag
from sparklog.gateway import topic_view
from sparklog.gateway.records import batch_headers, encode_batches, plain_files
from sparklog.gateway.records.crc32c import crc32c_numpy
from sparklog.gateway.records.plain_files import encode_plain_file
from sparklog.log.data import plain_records
from sparklog.log.data.encode import encode_batch
from sparklog.log.data.plain_reading import plain_column_ranges, read_plain_columns
from sparklog.log.data.record_reading import milliseconds
from sparklog.log.data.record_streaming import RECORD_SCHEMA, open_segments
from tests.depth import by_depth
from tests.log.test_plain_reading import LOG, a_file, a_segment
from tests.log.test_plain_records import MANY, STAMP, prepared, some_rows

pytestmark = pytest.mark.skipif(CORE is None, reason="the native core isn't compiled")

core: Any = CORE
MOST = 2**22


def by_core(data, count, *, base_offset=0, start_offset=0, batch_bytes=2**18, is_append_time=False):
    return encode_plain_file(
        data,
        count,
        base_offset=base_offset,
        start_offset=start_offset,
        batch_bytes=batch_bytes,
        most_bytes=MOST,
        is_append_time=is_append_time,
    )


def by_arrow(data, count, *, base_offset=0, start_offset=0, batch_bytes=2**18, is_append_time=False):
    segment = a_segment(data, count, base_offset=base_offset)
    opened = open_segments(LOG, [segment], [data], start_offset=start_offset, piece_bytes=2**20)
    table = pa.Table.from_batches(opened.pieces, RECORD_SCHEMA)
    if not table.num_rows:
        return []
    table = table.set_column(1, "timestamp", milliseconds(table["timestamp"]))
    return [*encode_batches(table, batch_bytes=batch_bytes, is_append_time=is_append_time)]


@settings(max_examples=by_depth(gate=30, nightly=300))
@given(
    some_rows(),
    st.sampled_from([1, 500, 2**20]),
    st.sampled_from([0, 7, 2**40]),
    st.integers(-1, 450),
    st.sampled_from([0, 1, 100, 3_000, 2**18]),
    st.booleans(),
)
def test_the_batches_are_those_that_arrows_columns_make(rows, page_bytes, base_offset, skipped, batch_bytes, appends):
    with mock.patch.object(plain_records, "_PAGE_BYTES", page_bytes):
        data = encode_batch(rows, STAMP).data
    how: dict[str, Any] = {
        "base_offset": base_offset,
        "start_offset": base_offset + skipped,
        "batch_bytes": batch_bytes,
        "is_append_time": appends,
    }
    found = by_core(data, rows.num_rows, **how)
    assert found is not None
    assert found == by_arrow(data, rows.num_rows, **how)


@settings(max_examples=by_depth(gate=30, nightly=100))
@given(st.integers(MANY, 200), st.integers(1, 5), st.sampled_from([50, 2**18]))
def test_batches_whose_times_the_log_has_set_have_one_time_each(count, run, batch_bytes):
    times = [(number // run) * 1_000 + 500 for number in range(count)]
    data = bytes(encode_batch(prepared(times, [None] * count, [b"value"] * count), STAMP).data)
    found = by_core(data, count, batch_bytes=batch_bytes, is_append_time=True)
    assert found == by_arrow(data, count, batch_bytes=batch_bytes, is_append_time=True)
    assert all(header.is_log_append_time for batch in found for header in batch_headers(batch))


def test_large_values_and_many_pages_are_read():
    random, count = np.random.default_rng(1), 1_500
    values = [random.bytes(int(random.integers(4_000))) for _ in range(count)]
    data = a_file(count, values=values)
    found = by_core(data, count)
    assert found == by_arrow(data, count)
    assert len(found) > 5
    assert b"".join(values[:3])[:100] in found[0]
    for batch in found:
        assert crc32c_numpy(memoryview(batch)[21:]) == int.from_bytes(batch[17:21], "big")


@pytest.mark.parametrize("size", [100, 1_024, 10_000])
def test_four_batches_are_about_what_clients_ask_for(size):
    count = 1_500_000 // size
    data = a_file(count, values=[bytes(size)] * count)
    found = by_core(data, count, batch_bytes=topic_view._BATCH_BYTES)
    assert len(found) > 4
    assert 0.9 < sum(map(len, found[:4])) / topic_view._ASKED_BYTES <= 1


@settings(max_examples=by_depth(gate=50, nightly=300))
@given(st.data())
def test_a_file_with_wrong_bytes_is_read_within_its_bounds_or_left_to_arrow(data):
    file = bytearray(a_file(24))
    for _ in range(data.draw(st.integers(1, 3))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    found = by_core(bytes(file), 24)
    if found is not None:
        assert sum(header.count for batch in found for header in batch_headers(batch)) == 24
        assert found == by_arrow(bytes(file), 24)


def test_a_value_longer_than_its_page_is_not_read():
    file = bytearray(a_file())
    assert by_core(bytes(file), MANY) is not None
    file[file.index(b"\x05\x00\x00\x00value")] = 200
    assert by_core(bytes(file), MANY) is None
    file[file.index(b"\xc8\x00\x00\x00value") + 3] = 0x80  # as a signed number less than 0
    assert by_core(bytes(file), MANY) is None


def ranges_of(file: bytes | bytearray) -> list[tuple[int, int]]:
    """The columns of a file of many plain records."""
    ranges = plain_column_ranges(memoryview(file), MANY, MOST)
    assert ranges is not None
    return ranges


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("level", [2, 3, 129, 255])
def test_a_level_that_arrow_refuses_is_not_read(number, level):
    rows = prepared(range(MANY), [b"k"] * MANY, [b"value"] * MANY)
    file = bytearray(encode_batch(rows, STAMP).data)
    run = b"\x02\x00\x00\x00" + bytes([MANY << 1])
    begin, _ = ranges_of(file)[number]
    place = file.index(run, begin) + len(run)
    assert file[place] == 1
    file[place] = level
    assert by_core(bytes(file), MANY) is None
    assert read_plain_columns(bytes(file), MANY, MOST) is None


def test_a_negative_number_in_the_footer_is_not_read():
    data = a_file()
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    times, *_ = ranges_of(data)
    for number in (MANY, times[0], times[1] - times[0]):
        place = data.index(zigzag(number), end)
        file = bytearray(data)
        while place >= 0:  # the number stands in several places, which agree
            file[place] |= 1
            place = data.find(zigzag(number), place + 1)
        assert by_core(bytes(file), MANY) is None


def test_any_other_file_is_left_to_arrow():
    data = a_file()
    others = {
        "another count": (data, MANY + 1),
        "no count": (data, 0),
        "few records": (a_file(4), 4),
        "compressed": (a_file(compression="zstd", values=[b"x" * 500] * MANY), MANY),
        "cut off": (data[:-1], MANY),
    }
    assert [name for name, given_file in others.items() if by_core(*given_file) is not None] == []
    with mock.patch.object(plain_files, "CORE", None):
        assert by_core(data, MANY) is None


@pytest.mark.parametrize(
    ("count", "places", "first"),
    [
        (0, ((0, 8),) * 3, 0),
        (1, ((0, 8),) * 2, 0),
        (1, ((0, 8),) * 3, -1),
        (1, ((0, 8),) * 3, 2),
        (1, ((-1, 8), (0, 8), (0, 8)), 0),
        (1, ((8, 0), (0, 8), (0, 8)), 0),
        (1, ((0, 101), (0, 8), (0, 8)), 0),
    ],
)
def test_places_that_make_no_sense_are_refused(count, places, first):
    with pytest.raises(ValueError, match=r"rows|bytes"):
        core.plain_batches(bytes(100), count, places, 0, first, 2**18)


def test_no_memory_is_taken_for_more_rows_than_there_can_be():
    data = a_file()
    places = plain_column_ranges(memoryview(data), MANY, MOST)
    assert places is not None
    assert core.plain_batches(data, 2**50, tuple(places), 0, 0, 2**18) is None
