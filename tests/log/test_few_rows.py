"""Files of a few records, read without Arrow: what is found is what Arrow finds, and all else is left to it."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.delta.parquet_reading import open_parquet
from sparklog.log.data.encode import FEW_RECORDS, encode_batch
from sparklog.log.data.few_rows import FewRows, as_batch, decode_few_records, offset_at
from sparklog.log.data.producer_stamp import ProducerStamp
from sparklog.log.data.schema import PLAIN_RECORDS, RECORD_SCHEMA
from tests.depth import by_depth
from tests.log.test_few_records import BYTES, RECORDS, STAMPS, prepared

FEW = st.lists(st.tuples(st.integers(0, 10**15), BYTES, BYTES), min_size=1, max_size=4)


STAMP = ProducerStamp(7, 1, 3)


def encoded(records, stamp=STAMP) -> bytes:
    return bytes(encode_batch(prepared(records), stamp).data)


def rows_of(records, base_offset=0) -> FewRows:
    times, keys, values = (list(column) for column in zip(*records, strict=True))
    return FewRows(range(base_offset, base_offset + len(records)), times, keys, values)


def by_arrow(data: bytes, base_offset: int) -> list[dict[str, object]]:
    table = open_parquet(pa.BufferReader(data)).read(["offset_delta", "timestamp", "key", "value"])
    table = table.set_column(1, "timestamp", table["timestamp"].cast(pa.int64()))
    return [{**row, "offset_delta": row["offset_delta"] + base_offset} for row in table.to_pylist()]


@settings(max_examples=50)
@given(RECORDS, STAMPS, st.integers(0, 2**62))
def test_what_is_read_by_hand_is_what_arrow_reads(records, stamp, base_offset):
    data = encoded(records, stamp)
    rows = decode_few_records(data, base_offset)
    assert rows is not None
    names = ("offset_delta", "timestamp", "key", "value")
    columns = (rows.offsets, rows.timestamps_us, rows.keys, rows.values)
    assert [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] == by_arrow(data, base_offset)


@settings(max_examples=by_depth(gate=50, nightly=100))
@given(FEW, st.data())
def test_of_a_file_that_was_changed_nothing_is_made_up(records, data):
    """It is left to Arrow, or is read as it is now: with other bytes in a value, in a key, in a time."""
    right = encoded(records)
    at = data.draw(st.integers(0, len(right) - 1))
    wrong = bytearray(right)
    wrong[at] ^= data.draw(st.integers(1, 255))
    rows = decode_few_records(bytes(wrong), 0)
    if rows is not None:
        assert rows.num_rows == len(records)
        found = [
            dict(zip(("offset_delta", "timestamp", "key", "value"), row, strict=True))
            for row in zip(rows.offsets, rows.timestamps_us, rows.keys, rows.values, strict=True)
        ]
        try:
            expected = by_arrow(bytes(wrong), 0)
        except (pa.ArrowException, OSError, ValueError):
            return  # of the footer, what no reader of these records needs
        assert found == expected


@settings(max_examples=25)
@given(FEW, st.data())
def test_a_file_that_is_cut_or_longer_is_left_to_arrow(records, data):
    right = encoded(records)
    assert decode_few_records(right[: data.draw(st.integers(0, len(right) - 1))], 0) is None
    assert decode_few_records(right[: data.draw(st.integers(4, len(right) - 9))] + right[-8:], 0) is None
    assert decode_few_records(right + b"\0", 0) is None


def test_files_of_others_are_left_to_arrow():
    records = [(5_000, b"k", b"v")]
    table = prepared(records)
    headers = table.append_column("headers", pa.array([[{"key": "k", "value": b"v"}]]))
    stamp = ProducerStamp(1, 0, 0)
    for data in (
        encode_batch(headers, stamp).data,
        encode_batch(table, stamp, compression="zstd").data,
        encode_batch(prepared(records * (FEW_RECORDS + 1)), stamp).data,
    ):
        assert decode_few_records(bytes(data), 0) is None


@settings(max_examples=25)
@given(RECORDS, st.integers(0, 2**62), st.integers(0, 5), st.integers(0, 20))
def test_a_part_is_the_same_rows_as_of_arrows_batch(records, base_offset, start, count):
    rows = rows_of(records, base_offset)
    batch = as_batch(rows)
    assert batch.schema.equals(RECORD_SCHEMA)
    assert as_batch(rows.slice(start, count)) == batch.slice(start, count)
    assert rows.slice(start).num_rows == batch.slice(start).num_rows
    assert [offset_at(each, -1) for each in (rows, batch)] == [base_offset + len(records) - 1] * 2


def test_rows_together_are_those_of_all_parts():
    parts = [rows_of([(1, b"a", None)], 5), rows_of([(2, None, b"b"), (3, b"c", b"")], 9)]
    together = FewRows.together(parts)
    assert as_batch(together) == pa.concat_batches([as_batch(part) for part in parts])
    assert list(together.offsets) == [5, 9, 10]
    assert FewRows.together(parts[:1]) is parts[0]


@pytest.mark.parametrize("count", [1, 3])
def test_as_a_table_they_are_what_producers_prepare(count):
    records = [(5, b"k", None)] * count
    assert rows_of(records).to_table().equals(prepared(records))
    assert rows_of(records).to_table().schema.equals(PLAIN_RECORDS)
