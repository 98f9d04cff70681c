"""Files of many plain records, which the compiled core puts together without Arrow."""

import struct
import subprocess
import sys
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
from sparklog.errors import InvalidArgumentError
from sparklog.log.data import plain_records, sorted_rows
from sparklog.log.data.encode import FEW_RECORDS, MAX_TIMESTAMP_MS, decode_file, encode_batch, encode_batches
from sparklog.log.data.producer_stamp import SEQUENCE_MODULUS, ProducerStamp
from sparklog.log.data.schema import TIMESTAMP
from sparklog.log.data.sorted_rows import SortedRows
from sparklog.producer.accumulator import native_columns

pytestmark = pytest.mark.skipif(CORE is None, reason="the native core isn't compiled")

MANY = FEW_RECORDS + 1
BOUNDED = ("offset_delta", "timestamp", "producer_id", "sequence")
STAMP = ProducerStamp(7, 1, 3)


def prepared(timestamps, keys, values):
    """Records as producers prepare them."""
    return pa.table(
        {
            "timestamp": pa.array(timestamps, pa.int64()).view(TIMESTAMP),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )


@st.composite
def some_rows(draw):
    """Rows of a table, in an order or in none, and not from its first value on."""
    count, seed = draw(st.integers(MANY, 400)), draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)

    def column():
        null_share, largest = draw(st.sampled_from([0.0, 0.3, 1.0])), draw(st.sampled_from([0, 20, 300]))
        return [
            None if random.random() < null_share else random.bytes(random.integers(largest + 1)) for _ in range(count)
        ]

    times = random.integers(0, MAX_TIMESTAMP_MS * 1000 + 999, count, endpoint=True)
    first = draw(st.integers(0, count - MANY))
    table = prepared(times, column(), column()).slice(first)
    order = random.permutation(table.num_rows).astype(np.int64) if draw(st.booleans()) else None
    start = draw(st.integers(0, table.num_rows - MANY))
    return SortedRows(table, order).part(start, draw(st.integers(MANY, table.num_rows - start)))


STAMPS = st.builds(
    ProducerStamp,
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 32_767),
    base_sequence=st.integers(0, SEQUENCE_MODULUS - 400),
)


def by_core_and_by_arrow(rows, stamp=STAMP, *, page_bytes=plain_records._PAGE_BYTES):
    with mock.patch.object(plain_records, "_PAGE_BYTES", page_bytes):
        by_core = encode_batch(rows, stamp)
    with mock.patch.object(sorted_rows, "CORE", None):
        by_arrow = encode_batch(rows.rows.__class__(rows.table()).part(0, rows.num_rows), stamp)
    assert creator(by_core).startswith("sparklog version")
    assert creator(by_arrow).startswith("parquet-cpp-arrow")
    return by_core, by_arrow


def creator(encoded):
    return pq.read_metadata(pa.BufferReader(encoded.data)).created_by


@settings(max_examples=60)
@given(some_rows(), STAMPS, st.sampled_from([1, 500, 2**20]))
def test_files_by_the_core_and_by_arrow_hold_the_same(rows, stamp, page_bytes):
    by_core, by_arrow = by_core_and_by_arrow(rows, stamp, page_bytes=page_bytes)
    found, expected = (open_parquet(pa.BufferReader(one.data)) for one in (by_core, by_arrow))
    records = found.read()
    records.validate(full=True)
    assert records == expected.read()
    assert records.select(["timestamp", "key", "value"]) == rows.table()
    assert found.schema.equals(expected.schema)
    for facts in ("record_count", "min_timestamp_ms", "max_timestamp_ms", "stamp", "value_stats"):
        assert getattr(by_core, facts) == getattr(by_arrow, facts)


@settings(max_examples=25)
@given(some_rows(), STAMPS, st.sampled_from([500, 2**20]))
def test_the_footer_tells_what_arrows_does(rows, stamp, page_bytes):
    by_core, by_arrow = by_core_and_by_arrow(rows, stamp, page_bytes=page_bytes)
    found, expected = (pq.read_metadata(pa.BufferReader(one.data)) for one in (by_core, by_arrow))
    assert (found.num_rows, found.num_row_groups) == (expected.num_rows, expected.num_row_groups)
    group, other = found.row_group(0), expected.row_group(0)
    assert group.total_byte_size == sum(group.column(at).total_compressed_size for at in range(group.num_columns))
    end = 4
    for at in range(group.num_columns):
        column, same = group.column(at), other.column(at)
        assert column.num_values == same.num_values
        is_constant = column.path_in_schema in ("producer_id", "producer_epoch")
        assert column.has_dictionary_page == same.has_dictionary_page == is_constant
        assert (column.dictionary_page_offset if is_constant else column.data_page_offset) == end
        assert is_constant <= (column.data_page_offset > end)
        assert {*column.encodings} == {*same.encodings}
        end += column.total_compressed_size
        if column.path_in_schema in BOUNDED:
            bounds = column.statistics
            assert (bounds.min_raw, bounds.max_raw) == (same.statistics.min_raw, same.statistics.max_raw)
            assert (bounds.null_count, bounds.has_null_count) == (0, True)
    assert struct.unpack("<I", by_core.data[-8:-4])[0] == len(by_core.data) - 8 - end


def test_a_large_batch_has_pages_of_a_megabyte():
    count = 140_000
    values = [b"x" * 40] * count
    values[5] = b"y" * 3_000_000
    rows = SortedRows(prepared(range(count), [None] * count, values)).part(0, count)
    by_core, by_arrow = by_core_and_by_arrow(rows)
    found, expected = (open_parquet(pa.BufferReader(one.data)) for one in (by_core, by_arrow))
    assert found.read() == expected.read()
    assert [batch.num_rows for batch in found.iter_batches(70_000)] == [70_000, 70_000]


def changed(change):
    return change(prepared(range(MANY), [b"k"] * MANY, [b"v"] * MANY))


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.append_column("headers", pa.array([[{"key": "k", "value": b"v"}]] * MANY)),
        lambda table: table.set_column(0, "timestamp", pa.array([5] * MANY)),
        lambda table: table.drop_columns(["key"]),
    ],
)
def test_others_are_encoded_by_arrow(change):
    assert creator(encode_batch(changed(change), STAMP)).startswith("parquet-cpp-arrow")


def test_a_batch_whose_sequences_wrap_is_encoded_by_arrow():
    rows = changed(lambda table: table)
    last = ProducerStamp(1, 0, SEQUENCE_MODULUS - MANY)
    assert creator(encode_batch(rows, last)).startswith("sparklog version")
    wraps = encode_batch(rows, ProducerStamp(1, 0, SEQUENCE_MODULUS - MANY + 1))
    assert creator(wraps).startswith("parquet-cpp-arrow")


def test_record_batches_and_tables_are_encoded_alike():
    table = changed(lambda table: table)
    expected = encode_batch(SortedRows(table).part(0, MANY), STAMP)
    assert encode_batch(table, STAMP) == encode_batch(table.to_batches()[0], STAMP) == expected
    assert encode_batch(pa.concat_tables([table, table]), STAMP).record_count == 2 * MANY


@pytest.mark.parametrize("timestamp", [None, -1, (MAX_TIMESTAMP_MS + 1) * 1000])
def test_times_that_no_batch_may_have_are_refused(timestamp):
    table = prepared([timestamp, *range(MANY)], [None] * (MANY + 1), [None] * (MANY + 1))
    with pytest.raises(InvalidArgumentError, match="timestamps"):
        encode_batch(table, STAMP)


def large(number, count=2_000):
    """Rows whose file takes 2 MB or so."""
    values = [bytes([number]) * 1_000] * count
    return SortedRows(prepared(range(count), [b"k"] * count, values)).part(0, count)


def test_large_files_of_an_upload_lie_in_one_block_as_far_as_they_fit():
    parts = [(number, large(number)) for number in range(6)]
    encoded = encode_batches(parts, [STAMP] * 6)
    views: list[Any] = [batch.data for _, batch in encoded if type(batch.data) is not bytes]
    assert len(views) == 4
    assert {type(view) for view in views} == {memoryview}
    assert {id(view.obj) for view in views} == {id(views[0].obj)}
    assert all(view.readonly for view in views)
    for (_, batch), (_, rows) in zip(encoded, parts, strict=True):
        alone = encode_batch(rows, STAMP)
        assert type(alone.data) is bytes
        assert batch == alone
        assert decode_file("f", batch.data).column("value") == rows.table().column("value")


def test_a_small_file_takes_no_block():
    [(_, batch)] = encode_batches([(0, changed(lambda table: table))], [STAMP])
    assert type(batch.data) is bytes


def test_blocks_are_used_again_only_once_nothing_refers_to_them():
    expected = {number: encode_batch(large(number), STAMP).data for number in range(8)}
    kept = {}
    for number in range(8):
        [(_, batch)] = encode_batches([(0, large(number))], [STAMP])
        if number % 2:
            kept[number] = batch.data[:]
    assert kept == {number: data for number, data in expected.items() if number % 2}


WITHOUT_MEMORY = """
import resource
from tests.log.test_plain_records import STAMP, encode_batch, large
from sparklog._native import CORE

rows = large(1, 500)
expected = encode_batch(rows, STAMP).data
used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize")) * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + 4 * 2**20, resource.RLIM_INFINITY))
room = CORE.FileRoom()
for _ in range(3):
    data = encode_batch(rows, STAMP, room=room).data
    assert type(data) is bytes and data == expected
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
data = encode_batch(rows, STAMP, room=room).data
assert type(data) is memoryview and data == expected
"""


@pytest.mark.skipif(sys.platform != "linux", reason="bounds memory as Linux does")
def test_where_there_is_no_memory_for_a_block_files_are_bytes():
    subprocess.run([sys.executable, "-c", WITHOUT_MEMORY], check=True, timeout=120)


def test_columns_grow_into_blocks_and_beyond_them():
    assert CORE is not None
    for total in (400_000, 600_000, 6_000_000, 8_388_608, 8_388_609, 20_000_000):
        records = CORE.Accumulator()
        records.room_bytes = 2**40
        values = [bytes([at % 251]) * min(100_000, total - at) for at in range(0, total, 100_000)]
        for value in values:
            records.append(None, value, 0, None, len(value))
        column = native_columns(records)[2]
        column.validate(full=True)
        assert column.to_pylist() == values
        dropped = CORE.Accumulator()
        dropped.room_bytes = 2**40
        dropped.append(None, b"x" * total, 0, None, total)
        dropped.drop()


def plain(count=3, *, order=None, offsets=(0, 1, 2, 3), data=b"abc", bits=None):
    binary = (bits, np.array(offsets, np.int32), data, 0)
    assert CORE is not None
    return CORE.PlainRows(np.arange(count), 0, count, binary, binary, None if order is None else np.array(order))


@pytest.mark.parametrize(
    "arguments",
    [
        {"count": 4},
        {"count": -1},
        {"offsets": (0, 2, 1, 3)},
        {"offsets": (-1, 1, 2, 3)},
        {"data": b"ab"},
        {"bits": b""},
        {"order": [0, 3]},
        {"order": [-1]},
    ],
)
def test_columns_that_make_no_sense_are_refused(arguments):
    with pytest.raises(ValueError, match=r"."):
        plain(**arguments)


@pytest.mark.parametrize(
    ("parts", "size"),
    [
        ([b"ab"], 3),
        ([(0, 0, 3, 23)], 23),
        ([(1, 0, 3, 14)], 14),
        ([(1, 0, 3, 16)], 16),
        ([(2, 0, 4, 20)], 20),
        ([(3, -1, 2, 1)], 1),
        ([(3, 0, 3, 2)], 2),
        ([(5, 0, 3, 1)], 1),
        ([(-1, 0, 3, 1)], 1),
        ([(1, 0, 0, -1), b"a"], 0),
    ],
)
def test_parts_that_make_no_sense_are_refused(parts, size):
    with pytest.raises(ValueError, match=r"."):
        plain().assemble(parts, size)


def test_rows_that_are_not_there_are_refused():
    rows = plain(order=[2, 0])
    assert (rows.count, rows.bounds(0, 2), rows.next_page(1, 0, 2, 2**20)) == (2, (0, 2), (2, 10, 0))
    assert rows.next_page(0, 0, 2, 1) == (1, 5, 0)
    assert rows.assemble([(2, 0, 2, 10), (4, 0, 2, 1)], 11) == b"\1\0\0\0c\1\0\0\0a\3"
    for start, count in ((0, 3), (-1, 1), (3, 0), (0, -1)):
        with pytest.raises(ValueError, match=r"."):
            rows.bounds(start, count)
        with pytest.raises(ValueError, match=r"."):
            rows.next_page(0, start, count, 1)
    with pytest.raises(ValueError, match="no rows"):
        rows.bounds(0, 0)
    with pytest.raises(ValueError, match="column 2"):
        rows.next_page(2, 0, 1, 1)
