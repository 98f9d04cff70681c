"""Sealed files that are read by ranges: no bit of a page's header can change without being noticed."""

import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.delta.parquet_checks import CheckedPages
from sparklog.delta.parquet_reading import by_ranges, open_parquet, read_footer
from sparklog.delta.parquet_seals import WRITER_OPTIONS, close_sealed
from sparklog.delta.thrift import ThriftError, read_struct
from tests.delta.page_headers import page_headers
from tests.depth import by_depth

ROWS = 24
DRAW = random.Random(1)
TABLE = pa.table(
    {
        "number": pa.array(range(ROWS), pa.int64()),
        "key": pa.array([None if number % 3 else b"k%d" % number for number in range(ROWS)], pa.binary()),
        "text": pa.array([f"{'t' * 40}{number // 2}" if number > 7 else None for number in range(ROWS)]),
        "data": pa.array([{"n": number if number % 5 else None} if number % 4 else None for number in range(ROWS)]),
        "names": pa.array([None if number % 4 == 0 else ["a", None] * (number % 3) for number in range(ROWS)]),
    }
)
WRONG = (pa.ArrowException, OSError, ValueError)


def a_file(compression: str = "none") -> bytes:
    """With several pages in each column; those of ``text`` are of two encodings, as its dictionary grows large."""
    sink = io.BytesIO()
    writer = pq.ParquetWriter(
        sink,
        TABLE.schema,
        compression=compression,
        use_dictionary=["text"],
        column_encoding={"number": "DELTA_BINARY_PACKED"},
        dictionary_pagesize_limit=120,
        data_page_size=40,
        write_batch_size=5,
        store_schema=False,
        **WRITER_OPTIONS,
    )
    writer.write_table(TABLE)
    return close_sealed(writer, sink)


def read(data: bytes, *columns: str) -> pa.Table:
    return open_parquet(pa.BufferReader(data)).read([*columns], use_threads=False)


def test_the_file_has_several_pages_of_each_column_and_two_encodings_in_one():
    pages = page_headers(a_file())
    for path in ("key", "text", "data.n", "names.list.element"):
        assert sum(page.path == path for page in pages) > 1
    assert {page.encoding for page in pages if page.path == "text"} == {0, 8}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_each_bit_of_a_page_header_that_changes_is_found(compression):
    data = a_file(compression)
    whole = {name: read(data, name) for name in TABLE.column_names}
    assert pa.table({name: whole[name][name] for name in whole}).equals(TABLE)
    for page in page_headers(data):
        column = page.path.partition(".")[0]
        for at in range(page.start, page.begin):
            for bit in range(8)[:: by_depth(gate=3, nightly=1)]:
                changed = bytearray(data)
                changed[at] ^= 1 << (bit + at) % 8
                try:
                    found = read(bytes(changed), column)
                except WRONG:
                    continue
                assert found.equals(whole[column]), f"byte {at - page.start} of a header of {page.path}"


def test_a_page_without_a_checksum_is_refused():
    sink = io.BytesIO()
    writer = pq.ParquetWriter(sink, TABLE.schema, write_page_checksum=False)
    writer.write_table(TABLE)
    data = close_sealed(writer, sink)
    assert open_parquet(data).read().equals(TABLE)
    with pytest.raises(pa.ArrowInvalid, match=r"column key, bytes \d+ to \d+: the page at \d+ has no checksum"):
        read(data, "key")


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 800)), max_size=12))
def test_whatever_is_read_of_a_file_is_what_is_there(reads):
    data = a_file()
    source = pa.BufferReader(data)
    file = CheckedPages(source, read_footer(source))
    for at, size in reads:
        file.seek(at)
        assert file.read(size) == data[at : at + size]
    file.seek(0)
    assert file.read() == data


def test_a_file_without_a_seal_is_read_as_it_is():
    sink = io.BytesIO()
    pq.write_table(TABLE, sink)
    source = pa.BufferReader(sink.getvalue())
    assert by_ranges(source, read_footer(source)) is source
    assert read(sink.getvalue(), *TABLE.column_names).equals(TABLE)


@settings(max_examples=200)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_struct_or_an_error(data):
    try:
        _, end = read_struct(data, 0)
    except ThriftError:
        return
    assert 0 < end <= len(data)


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        (b"\x19\xfc\xff\xff\xff\xff\x0f", "4294967295 elements"),
        (b"\x18\x7fabc", "127 bytes at 2"),
        (b"\x1c" * 40, "structs within structs"),
        (b"\x19" * 40, "lists within lists"),
        (b"\x15" + b"\xff" * 12, "more than 64 bits"),
        (b"\x1e\x00", "a value of kind 14"),
        (b"\x15\x02\x05\x02\x04\x00", "field 1 twice"),
        (b"\x15", "doesn't end"),
    ],
)
def test_numbers_that_make_no_sense_ask_for_no_memory(data, wrong):
    with pytest.raises(ThriftError, match=wrong):
        read_struct(data, 0)
