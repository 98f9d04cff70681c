"""Files of typed records, whose columns of values are written without Arrow's writer."""

import datetime
import decimal
from unittest import mock

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog._native import CORE
from sparklog.delta.parquet_reading import open_parquet
from sparklog.errors import InvalidArgumentError
from sparklog.log.data import sorted_rows, typed_columns, typed_records
from sparklog.log.data.carried_stats import carried_stats
from sparklog.log.data.encode import MAX_TIMESTAMP_MS, decode_file, encode_batch
from sparklog.log.data.producer_stamp import SEQUENCE_MODULUS, ProducerStamp
from sparklog.log.data.schema import HEADERS, TIMESTAMP
from sparklog.log.data.sorted_rows import SortedRows
from sparklog.log.data.value_columns import indexed_leaves
from tests.depth import by_depth

pytestmark = pytest.mark.skipif(CORE is None, reason="the native core isn't compiled")

STAMP = ProducerStamp(7, 1, 3)
TYPES = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.date32(),
    TIMESTAMP,
    pa.string(),
    pa.binary(),
]
FLOATS = [0.0, -0.0, 1.5, -2.25, float("inf"), float("-inf"), float("nan"), 1e300]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
TEXTS = ["", "a", "é", "\x00", "\U0010ffff", "x" * 33, "日本" * 20, "y" * 4_096, "z" * 4_097]


def some_values(kind, count, random, variety):
    """Values of a type, of which so many are different, at most."""
    if pa.types.is_boolean(kind):
        found = random.integers(0, 2, variety) > 0
    elif pa.types.is_integer(kind):
        info = np.iinfo(kind.to_pandas_dtype())
        found = random.integers(info.min, info.max, variety, endpoint=True)
    elif pa.types.is_floating(kind):
        known = [one for one in FLOATS if abs(one) < 1e38 or not np.isfinite(one) or kind == pa.float64()]
        which = known[: random.integers(1, len(known) + 1)]
        found = np.array([*which, *random.normal(size=variety)])[-variety:] if random.random() < 0.5 else which
    elif pa.types.is_date(kind):
        found = [datetime.date.fromordinal(int(one)) for one in random.integers(1, 3_652_059, variety)]
    elif pa.types.is_timestamp(kind):
        found = [EPOCH + datetime.timedelta(microseconds=int(one)) for one in random.integers(-(2**55), 2**55, variety)]
    else:
        texts = TEXTS[: random.integers(1, len(TEXTS) + 1)]
        found = [texts[at] if at < len(texts) else f"text {at}" for at in range(variety)]
        found = found if pa.types.is_string(kind) else [one.encode() for one in found]
    order = random.integers(0, len(found), count)
    return [found[at].item() if hasattr(found[at], "item") else found[at] for at in order]


def column(kind, count, random, null_share, variety):
    values = some_values(kind, count, random, variety)
    if null_share:
        values = [None if random.random() < null_share else one for one in values]
    if random.random() < 0.2:  # long runs
        values = sorted(values, key=repr)
    return pa.array(values, kind)


def prepared(values, seed=0, *, schema_id=3, times=None, keys=None):
    """Records as producers prepare them."""
    count = len(values)
    random = np.random.default_rng(seed)
    times = random.integers(0, MAX_TIMESTAMP_MS * 1000, count) if times is None else times
    keys = [None if at % 3 == 0 else b"k%d" % at for at in range(count)] if keys is None else keys
    ids = [schema_id if one else None for one in values.is_valid().to_pylist()]
    return pa.table(
        {
            "timestamp": pa.array(times, pa.int64()).view(TIMESTAMP),
            "key": pa.array(keys, pa.binary()),
            "value": pa.nulls(count, pa.binary()),
            "data": values,
            "schema_id": pa.array(ids, pa.int32()),
        }
    )


@st.composite
def some_rows(draw):
    """Rows of a table, in an order or in none, and not from its first value on."""
    count, seed = draw(st.integers(1, 700)), draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    kinds = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=16))
    columns = [
        column(kind, count, random, draw(st.sampled_from([0.0, 0.0, 0.3, 1.0])), draw(st.sampled_from([1, 2, 9, 600])))
        for kind in kinds
    ]
    fields = [pa.field(f"field{at}", kind) for at, kind in enumerate(kinds)]
    mask = pa.array(random.random(count) < draw(st.sampled_from([0.0, 0.0, 0.4])))
    values = pa.StructArray.from_arrays(columns, fields=fields, mask=mask)
    first = draw(st.integers(0, count - 1))
    table = prepared(values, seed).slice(first)
    order = random.permutation(table.num_rows).astype(np.int64) if draw(st.booleans()) else None
    start = draw(st.integers(0, table.num_rows - 1))
    return SortedRows(table, order).part(start, draw(st.integers(1, table.num_rows - start)))


def by_us_and_by_arrow(rows, *, rows_a_page=typed_columns._ROWS_A_PAGE, page_bytes=2**20, leaves=None, carries=False):
    kind = rows.schema.field("data").type
    leaves = indexed_leaves(kind, "") if leaves is None else leaves
    how = {"leaves": leaves, "carries_stats": carries}
    with (
        mock.patch.object(typed_columns, "_ROWS_A_PAGE", rows_a_page),
        mock.patch.object(typed_columns, "_PAGE_BYTES", page_bytes),
        mock.patch.object(typed_records, "_FEW_ROWS", 0),
    ):
        ours = encode_batch(rows, STAMP, **how)
    with mock.patch.object(sorted_rows, "CORE", None):
        arrows = encode_batch(SortedRows(rows.table()).part(0, rows.num_rows), STAMP, **how)
    assert writer(arrows).startswith("parquet-cpp-arrow")
    return ours, arrows


def writer(encoded):
    return pq.read_metadata(pa.BufferReader(encoded.data)).created_by


def as_bits(table):
    """A table whose floats are compared by their bits, as NaN is no equal of itself."""
    data = table["data"].combine_chunks()
    columns = [
        one.view({pa.float32(): pa.int32(), pa.float64(): pa.int64()}.get(one.type, one.type)) for one in data.flatten()
    ]
    return table.drop_columns(["data"]).to_pydict(), [one.to_pylist() for one in columns], data.is_valid()


def statistics(column):
    found = column.statistics
    if found is None:
        return None
    bounds = (repr(found.min_raw), repr(found.max_raw)) if found.has_min_max else None
    return found.null_count, bounds, found.num_values


@settings(max_examples=by_depth(gate=75, nightly=150))
@given(some_rows(), st.sampled_from([8, 64, 2**17]), st.sampled_from([500, 2**20]))
def test_files_hold_what_arrows_do(rows, rows_a_page, page_bytes):
    ours, arrows = by_us_and_by_arrow(rows, rows_a_page=rows_a_page, page_bytes=page_bytes)
    has_values = rows.table()["data"].null_count < rows.num_rows
    assert writer(ours).startswith("sparklog version" if has_values else "parquet-cpp-arrow")
    found, expected = (open_parquet(pa.BufferReader(one.data)) for one in (ours, arrows))
    assert found.schema.equals(expected.schema)
    records = found.read()
    records.validate(full=True)
    assert records.schema == expected.read().schema
    if has_values:
        assert as_bits(records) == as_bits(expected.read())
    assert repr(ours.value_stats) == repr(arrows.value_stats)
    for facts in ("record_count", "min_timestamp_ms", "max_timestamp_ms", "stamp"):
        assert getattr(ours, facts) == getattr(arrows, facts)


@settings(max_examples=by_depth(gate=50, nightly=100))
@given(some_rows(), st.sampled_from([64, 2**17]))
def test_the_footer_tells_what_arrows_does(rows, rows_a_page):
    ours, arrows = by_us_and_by_arrow(rows, rows_a_page=rows_a_page)
    found, expected = (pq.read_metadata(pa.BufferReader(one.data)) for one in (ours, arrows))
    assert (found.num_rows, found.num_row_groups) == (expected.num_rows, 1)
    group, other = found.row_group(0), expected.row_group(0)
    assert group.total_byte_size == sum(group.column(at).total_compressed_size for at in range(group.num_columns))
    end = 4
    for at in range(group.num_columns):
        column, same = group.column(at), other.column(at)
        assert column.path_in_schema == same.path_in_schema
        assert column.num_values == same.num_values
        assert statistics(column) == statistics(same)
        starts = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
        assert starts == end
        end += column.total_compressed_size
    assert int.from_bytes(ours.data[-8:-4], "little") == len(ours.data) - 8 - end


def values_of(**columns):
    return pa.StructArray.from_arrays([pa.array(one) for one in columns.values()], [*columns])


def encode(table, **how):
    return encode_batch(SortedRows(table).part(0, table.num_rows), STAMP, **how)


def is_ours(encoded):
    return writer(encoded).startswith("sparklog version")


NUMBERS = values_of(n=list(range(200)))


@pytest.mark.parametrize(
    ("table", "how"),
    [
        (prepared(NUMBERS), {"compression": "zstd"}),
        (prepared(NUMBERS).append_column("headers", pa.nulls(200, HEADERS)), {}),
        (prepared(values_of(inner=[{"x": 1}] * 200)), {}),
        (prepared(values_of(items=[[1]] * 200)), {}),
        (prepared(values_of(price=[decimal.Decimal("1.50")] * 200)), {}),
        (prepared(pa.array([None] * 200, pa.struct([("n", pa.int64())]))), {}),
        (prepared(NUMBERS).set_column(4, "schema_id", pa.array([1, 2] * 100, pa.int32())), {}),
        (prepared(NUMBERS).set_column(4, "schema_id", pa.array([1, None] * 100, pa.int32())), {}),
        (prepared(values_of(day=pa.array([1] * 200, pa.time64("us")))), {}),
    ],
    ids=["compressed", "headers", "struct", "list", "decimal", "no value", "two schemas", "no schema", "rare type"],
)
def test_other_values_are_left_to_arrow(table, how):
    encoded = encode(table, **how)
    assert not is_ours(encoded)
    assert decode_file("f", encoded.data)["offset_delta"].to_pylist() == list(range(200))


@pytest.mark.parametrize(("texts", "count", "is_one_of_ours"), [(8, 200, True), (9, 200, False), (9, 4_096, True)])
def test_many_columns_of_texts_with_few_rows_are_left_to_arrow(texts, count, is_one_of_ours):
    columns = {f"text{at}": ["a"] * count for at in range(texts)}
    assert is_ours(encode(prepared(values_of(**columns)))) is is_one_of_ours


def test_sequences_that_wrap_are_left_to_arrow():
    table = prepared(NUMBERS)
    encoded = encode_batch(SortedRows(table).part(0, 200), ProducerStamp(7, 1, SEQUENCE_MODULUS - 100))
    assert not is_ours(encoded)


@pytest.mark.parametrize("time", [-1, None])
def test_times_that_may_not_be_are_refused_as_ever(time):
    with pytest.raises(InvalidArgumentError, match="timestamps"):
        encode(prepared(NUMBERS, times=[time] * 200))


def test_without_the_core_arrow_writes_the_same_records():
    ours = encode(prepared(NUMBERS))
    with mock.patch.object(sorted_rows, "CORE", None), mock.patch.object(typed_records, "CORE", None):
        arrows = encode(prepared(NUMBERS))
    assert is_ours(ours)
    assert not is_ours(arrows)
    assert decode_file("f", ours.data) == decode_file("f", arrows.data)


def test_a_footer_carries_the_statistics_that_its_commit_would_have():
    leaves = (("n",),)
    for is_carried in (False, True):
        encoded = encode(prepared(NUMBERS), leaves=leaves, carries_stats=is_carried)
        metadata = pq.read_metadata(pa.BufferReader(encoded.data)).metadata
        found = carried_stats(metadata, [(("n",), pa.int64())], 200)
        assert found == (encoded.value_stats if is_carried else {})
        assert encoded.value_stats["maxValues"] == {"data": {"n": 199}}


def test_texts_that_repeat_have_a_dictionary_and_others_have_none():
    table = prepared(values_of(few=[f"c{at % 30}" for at in range(2_000)], all=[f"c{at}" for at in range(2_000)]))
    for encoded in (encode(table), encode_arrows(table)):
        group = pq.read_metadata(pa.BufferReader(encoded.data)).row_group(0)
        columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
        assert columns["data.few"].has_dictionary_page
        assert not columns["data.all"].has_dictionary_page
        assert columns["data.few"].total_compressed_size < 2_000


def encode_arrows(table):
    with mock.patch.object(sorted_rows, "CORE", None):
        return encode(table)


def test_a_dictionary_has_only_the_texts_of_its_file():
    table = prepared(values_of(name=[f"{'a' if at < 1_000 else 'b'}{at % 10}" for at in range(2_000)]))
    rows = SortedRows(table, np.arange(2_000))
    for start, letter in ((0, "a"), (1_000, "b")):
        data = encode_batch(rows.part(start, 1_000), STAMP).data
        file = open_parquet(pa.BufferReader(data), read_dictionary=["data.name"])
        assert pq.read_metadata(pa.BufferReader(data)).row_group(0).column(4).statistics.min == f"{letter}0"
        assert sorted({*file.read()["data"].combine_chunks().field(0).to_pylist()}) == [
            f"{letter}{at}" for at in range(10)
        ]


def test_texts_that_repeat_in_each_file_alone_have_a_dictionary_too():
    """As keys do, which each lie in one partition of many."""
    customers = np.random.default_rng(7).integers(0, 4_000, 16_000)
    order = np.argsort(customers % 16, kind="stable")
    rows = SortedRows(prepared(values_of(customer=[f"customer-{at}" for at in customers])), order)
    data = encode_batch(rows.part(0, 900), STAMP).data
    column = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(4)
    assert (column.path_in_schema, column.has_dictionary_page) == ("data.customer", True)


def test_more_different_texts_than_a_dictionary_may_have_are_written_plainly():
    texts = [*["same"] * 600, *(f"text {at}" for at in range(300))]
    with mock.patch.object(typed_columns, "_MOST_DIFFERENT", 300):
        encoded = encode(prepared(values_of(name=texts)))
    assert is_ours(encoded)
    column = pq.read_metadata(pa.BufferReader(encoded.data)).row_group(0).column(4)
    assert (column.path_in_schema, column.has_dictionary_page) == ("data.name", False)
    assert decode_file("f", encoded.data)["data"].combine_chunks().field(0).to_pylist() == texts


@pytest.mark.parametrize("width", range(1, 16))
def test_places_of_every_width_are_packed(width):
    numbers = np.random.default_rng(width).integers(0, 1 << width, 100)
    packed = int.from_bytes(typed_columns._packed(numbers, width), "little")
    assert [packed >> (width * at) & ((1 << width) - 1) for at in range(104)] == [*numbers.tolist(), *[0] * 4]


@pytest.mark.parametrize("length", [1, 3_000])
def test_files_are_about_as_large_as_arrows(length):
    random = np.random.default_rng(5)
    columns = {
        "number": random.integers(0, 2**40, length),
        "price": random.random(length),
        "flag": random.random(length) < 0.5,
        "customer": [f"customer-{at}" for at in random.integers(0, 100, length)],
        "country": sorted(f"country-{at}" for at in random.integers(0, 5, length)),
        "same": ["x"] * length,
    }
    table = prepared(values_of(**columns))
    assert len(encode(table).data) <= len(encode_arrows(table).data) * 1.01


def test_other_readers_of_parquet_read_the_files_and_skip_by_their_statistics(tmp_path):
    """Each value of each column is looked for, by DuckDB's own reader and by Polars', which skip by bounds."""
    random = np.random.default_rng(11)
    kinds = dict(zip("abcdefghijk", TYPES, strict=True))
    columns = [column(kind, 3_000, random, 0.2, 40) for kind in kinds.values()]
    mask = pa.array(random.random(3_000) < 0.1)
    table = prepared(pa.StructArray.from_arrays(columns, fields=[pa.field(*one) for one in kinds.items()], mask=mask))
    path = tmp_path / "file.parquet"
    with mock.patch.object(typed_columns, "_ROWS_A_PAGE", 512):
        encoded = encode(table)
    assert is_ours(encoded)
    path.write_bytes(encoded.data)
    with duckdb.connect() as connection:
        connection.register("arrows", decode_file("f", encoded.data))
        for name in kinds:
            ours, expected = (
                connection.execute(
                    f"SELECT data.{name} AS v, count(*), min(offset_delta) FROM {source} GROUP BY v ORDER BY v"
                ).fetchall()
                for source in (f"'{path}'", "arrows")
            )
            assert repr(ours) == repr(expected)
            for value, count, _ in ours:
                if value is not None:
                    asked = f"SELECT count(*) FROM '{path}' WHERE data.{name} = ?"
                    assert connection.execute(asked, [value]).fetchall() == [(count,)]
    by_polars = pl.read_parquet(path).to_arrow()["data"].to_pylist()
    assert repr(by_polars) == repr(decode_file("f", encoded.data)["data"].to_pylist())
