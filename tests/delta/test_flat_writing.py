"""Parquet files of a few rows, written by hand."""

import io
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.delta.flat_parquet import read_flat
from sparklog.delta.flat_writing import write_flat

TYPES = {
    "string": pa.string(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
VALUES = {
    "string": st.text(max_size=40),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "timestamp": st.integers(0, 4_000_000_000_000_000),
}


def by_arrow(columns, values):
    schema = pa.schema([pa.field(name, TYPES[kind]) for name, kind in columns.items()])
    arrays = [pa.array(column, field.type) for column, field in zip(values, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


@st.composite
def tables(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=20))
    count = draw(st.integers(1, 40))
    columns = {f"{kind}_{number}": kind for number, kind in enumerate(kinds)}
    values = [
        draw(st.lists(st.none() | VALUES[kind], min_size=count, max_size=count))
        if draw(st.booleans())
        else [None] * count
        for kind in kinds
    ]
    return columns, values


@given(tables())
def test_every_reader_finds_what_arrow_would_have_written(given_table):
    columns, values = given_table
    data = write_flat(columns, values)
    expected = by_arrow(columns, values)
    found = pq.ParquetFile(io.BytesIO(data))
    assert found.read() == expected
    assert read_flat(data, columns) == dict(zip(columns, values, strict=True))
    sink = io.BytesIO()
    pq.write_table(expected, sink, store_schema=False, write_statistics=False)
    assert found.schema.equals(pq.ParquetFile(sink).schema)
    assert found.schema_arrow == expected.schema


def test_the_footer_tells_where_the_pages_are():
    columns = {"name": "string", "number": "long"}
    data = write_flat(columns, [["a", None, "b"], [1, 2, 3]])
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    end = 4
    for at in range(group.num_columns):
        column = group.column(at)
        assert (column.data_page_offset, column.num_values, column.compression) == (end, 3, "UNCOMPRESSED")
        assert not column.has_dictionary_page
        assert {*column.encodings} == {"PLAIN", "RLE"}
        end += column.total_compressed_size
    assert group.total_byte_size == end - 4
    assert struct.unpack("<I", data[-8:-4])[0] == len(data) - 8 - end


def test_a_number_out_of_range_is_refused():
    with pytest.raises(struct.error):
        write_flat({"number": "integer"}, [[2**31]])
