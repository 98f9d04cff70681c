"""Files of a few records, which are put together without Arrow."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.delta.parquet_reading import open_parquet
from sparklog.errors import InvalidArgumentError
from sparklog.log.data import encode, few_records, sorted_rows
from sparklog.log.data.encode import FEW_RECORDS, MAX_TIMESTAMP_MS, encode_batch
from sparklog.log.data.producer_stamp import SEQUENCE_MODULUS, ProducerStamp
from sparklog.log.data.schema import TIMESTAMP

BYTES = st.none() | st.binary(max_size=300)
RECORDS = st.lists(
    st.tuples(st.integers(0, MAX_TIMESTAMP_MS * 1000 + 999), BYTES, BYTES), min_size=1, max_size=FEW_RECORDS
)
STAMPS = st.builds(
    ProducerStamp,
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 32_767),
    base_sequence=st.integers(0, SEQUENCE_MODULUS - 1),
)
BOUNDED = ("offset_delta", "timestamp", "producer_id", "sequence")


def prepared(records):
    """Records as producers prepare them."""
    timestamps, keys, values = zip(*records, strict=True)
    return pa.table(
        {
            "timestamp": pa.array(timestamps, pa.int64()).view(TIMESTAMP),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )


def by_hand_and_by_arrow(table, stamp):
    with pytest.MonkeyPatch.context() as patch:
        by_hand = encode_batch(table, stamp)
        patch.setattr(encode, "FEW_RECORDS", 0)
        patch.setattr(sorted_rows, "CORE", None)
        return by_hand, encode_batch(table, stamp)


@settings(max_examples=25)
@given(RECORDS, STAMPS)
def test_files_by_hand_and_by_arrow_hold_the_same(records, stamp):
    by_hand, by_arrow = by_hand_and_by_arrow(prepared(records), stamp)
    assert by_hand.data != by_arrow.data
    found, expected = (open_parquet(pa.BufferReader(one.data)) for one in (by_hand, by_arrow))
    assert found.read() == expected.read()
    assert found.schema.equals(expected.schema)
    for facts in ("record_count", "min_timestamp_ms", "max_timestamp_ms", "stamp", "value_stats"):
        assert getattr(by_hand, facts) == getattr(by_arrow, facts)


@settings(max_examples=25)
@given(RECORDS, STAMPS)
def test_statistics_and_sizes_in_the_footer_are_as_arrow_has_them(records, stamp):
    by_hand, by_arrow = by_hand_and_by_arrow(prepared(records), stamp)
    found, expected = (pq.read_metadata(pa.BufferReader(one.data)) for one in (by_hand, by_arrow))
    assert (found.num_rows, found.num_row_groups) == (expected.num_rows, expected.num_row_groups)
    group, other = found.row_group(0), expected.row_group(0)
    assert group.total_byte_size == sum(group.column(at).total_compressed_size for at in range(group.num_columns))
    ends = [4 + group.column(0).total_compressed_size]
    for at in range(group.num_columns):
        column, same = group.column(at), other.column(at)
        assert column.num_values == same.num_values
        if at:
            assert column.data_page_offset == ends[-1]
            ends.append(ends[-1] + column.total_compressed_size)
        if column.path_in_schema in BOUNDED:
            bounds = column.statistics
            assert (bounds.min_raw, bounds.max_raw) == (same.statistics.min_raw, same.statistics.max_raw)
            assert (bounds.null_count, bounds.has_null_count) == (0, True)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.append_column("headers", pa.array([[{"key": "k", "value": b"v"}]])),
        lambda table: table.set_column(0, "timestamp", pa.array([5])),
        lambda table: table.drop_columns(["key"]),
    ],
)
def test_others_are_encoded_by_arrow(change):
    encoded = encode_batch(change(prepared([(5_000, b"k", b"v")])), ProducerStamp(1, 0, 0))
    assert pq.read_metadata(pa.BufferReader(encoded.data)).created_by.startswith("parquet-cpp-arrow")


def test_a_compressed_file_is_encoded_by_arrow():
    encoded = encode_batch(prepared([(5_000, b"k", b"v")]), ProducerStamp(1, 0, 0), compression="zstd")
    assert pq.read_metadata(pa.BufferReader(encoded.data)).row_group(0).column(3).compression == "ZSTD"


@pytest.mark.parametrize("timestamps", [[None, 5], [-1, 5], [5, (MAX_TIMESTAMP_MS + 1) * 1000]])
def test_times_that_no_batch_may_have_are_refused_in_a_small_one_too(timestamps):
    table = pa.table(
        {
            "timestamp": pa.array(timestamps, pa.int64()).view(TIMESTAMP),
            "key": pa.nulls(2, pa.binary()),
            "value": pa.nulls(2, pa.binary()),
        }
    )
    with pytest.raises(InvalidArgumentError, match="timestamps"):
        encode_batch(table, ProducerStamp(1, 0, 0))


@settings(max_examples=40)
@given(RECORDS, STAMPS, STAMPS)
def test_a_file_is_the_same_whatever_came_before(records, stamp, other):
    """What files of the same sizes, and of the same producer, have in common is remembered."""
    table = prepared(records)
    earlier = prepared([(max(0, MAX_TIMESTAMP_MS * 1000 - time), key, value) for time, key, value in records])
    for each in (few_records._frame, few_records._of_producer):
        each.cache_clear()
    alone = encode_batch(table, stamp).data
    for before in (stamp, other):
        encode_batch(earlier, before)
        assert encode_batch(table, stamp).data == alone
