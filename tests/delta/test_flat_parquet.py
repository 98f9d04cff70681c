"""Files of plain columns are read without Arrow as Arrow reads them, or not at all."""

from __future__ import annotations

import io
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.delta.flat_parquet import NotFlatError, _hybrid, _plain, _unsnap, read_flat

COLUMNS = {"text": "string", "small": "integer", "large": "long", "time": "timestamp"}
TYPES = {"text": pa.string(), "small": pa.int32(), "large": pa.int64(), "time": pa.timestamp("us", "UTC")}
BOUNDS = {"small": 2**31, "large": 2**63, "time": 2**61}

Rows = Mapping[str, Sequence[Any]]


def written(rows: Rows, **options: Any) -> bytes:
    arrays = [pa.array(values, TYPES[name]) for name, values in rows.items()]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, names=[*rows]), sink, **options)
    return sink.getvalue()


@st.composite
def some_rows(draw: st.DrawFn) -> Rows:
    """Rows, few or many, with values that repeat or don't, and with nulls."""
    count = draw(st.sampled_from([0, 1, 7, 8, 9, 40, 600]))
    distinct = draw(st.sampled_from([1, 2, 3, 17, 5_000]))
    nulls = draw(st.sampled_from([0.0, 0.1, 1.0]))
    chance = random.Random(draw(st.integers(0, 2**32)))
    pool: dict[str, list[Any]] = {
        "text": [draw(st.text(max_size=30)) * chance.choice([1, 9]) + str(one) for one in range(min(distinct, 20))],
        **{name: [chance.randrange(-bound, bound) for _ in range(distinct)] for name, bound in BOUNDS.items()},
    }
    return {
        name: [None if chance.random() < nulls else chance.choice(values) for _ in range(count)]
        for name, values in pool.items()
    }


@given(
    some_rows(),
    st.sampled_from(["none", "snappy"]),
    st.booleans(),
    st.sampled_from([1, 50, 10_000]),
    st.sampled_from([64, 1_024 * 1_024]),
)
def test_a_file_is_read_as_arrow_reads_it(
    rows: Rows, compression: str, use_dictionary: bool, row_group_size: int, data_page_size: int
) -> None:
    data = written(
        rows,
        compression=compression,
        use_dictionary=use_dictionary,
        row_group_size=row_group_size,
        data_page_size=data_page_size,
        write_batch_size=64,
    )
    assert read_flat(data, COLUMNS) == rows


def test_columns_that_are_never_null_are_read() -> None:
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in TYPES.items()])
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    table = pa.Table.from_pylist([{"text": "a", "small": -1, "large": 2, "time": moment}] * 3, schema)
    sink = io.BytesIO()
    pq.write_table(table, sink)
    found = read_flat(sink.getvalue(), COLUMNS)
    assert found["time"] == [1_577_836_800_000_000] * 3
    assert (found["text"], found["small"], found["large"]) == (["a"] * 3, [-1] * 3, [2] * 3)


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zstd"},
        {"compression": "gzip"},
        {"data_page_version": "2.0"},
        {"use_dictionary": False, "column_encoding": {"large": "DELTA_BINARY_PACKED"}},
        {"use_dictionary": False, "column_encoding": {"small": "BYTE_STREAM_SPLIT"}},
    ],
)
def test_what_is_written_in_another_way_is_refused(options: Mapping[str, Any]) -> None:
    rows = {"text": ["a"] * 9, "small": [*range(9)], "large": [*range(9)], "time": [*range(9)]}
    with pytest.raises(NotFlatError):
        read_flat(written(rows, **options), COLUMNS)


@pytest.mark.parametrize(
    "columns",
    [
        {**COLUMNS, "more": "long"},
        {name: kind for name, kind in COLUMNS.items() if name != "time"},
        {**COLUMNS, "text": "long"},
        {**COLUMNS, "small": "long"},
        {**COLUMNS, "large": "timestamp"},
        {**COLUMNS, "time": "long"},
    ],
)
def test_a_file_of_other_columns_is_refused(columns: Mapping[str, str]) -> None:
    rows: Rows = {"text": ["a"], "small": [1], "large": [1], "time": [1]}
    with pytest.raises(NotFlatError):
        read_flat(written(rows), columns)


def test_nested_columns_are_refused() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array([["a"]])}), sink)
    with pytest.raises(NotFlatError):
        read_flat(sink.getvalue(), {"text": "string"})


@pytest.mark.parametrize(
    ("page", "width", "count"),
    [
        (b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x01", 1, 9),  # a run of 2**62
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x01\x01", 1, 9),  # as many groups
    ],
)
def test_a_run_that_claims_too_much_takes_no_memory(page: bytes, width: int, count: int) -> None:
    assert _hybrid(page, 0, len(page), width, count) == [1, *([1] * 8 if page[0] == 0xFE else [0] * 7 + [1])]


@pytest.mark.parametrize("footer", [b"\x1c" * 5_000, b"\x16\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00", b"\x80" * 99])
def test_a_footer_of_nonsense_is_refused(footer: bytes) -> None:
    with pytest.raises(NotFlatError):
        read_flat(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1", COLUMNS)


@pytest.mark.parametrize("page", [b"", b"\x01\0\0", b"\x01\0\0\0", b"\xff\xff\xff\xffa"])
def test_texts_that_are_cut_are_refused(page: bytes) -> None:
    with pytest.raises(NotFlatError):
        _plain(page, 0, 6, 1)


@given(st.binary(max_size=300))
def test_bytes_that_are_no_snappy_are_refused_or_read(data: bytes) -> None:
    try:
        found = _unsnap(data)
    except (NotFlatError, IndexError):
        return
    assert pa.decompress(data, decompressed_size=len(found), codec="snappy").to_pybytes() == found


@given(st.data())
def test_a_garbled_file_is_refused_or_read_but_raises_nothing_else(data: st.DataObject) -> None:
    rows: Rows = {"text": ["a", None, "bb"] * 9, "small": [*range(27)], "large": [None] * 27, "time": [5] * 27}
    whole = written(rows, compression=data.draw(st.sampled_from(["none", "snappy"])))
    garbled = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        garbled[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.sampled_from([len(whole), len(whole) - 1, len(whole) // 2, 11, 3, 0]))
    try:
        found = read_flat(bytes(garbled[:end]), COLUMNS)
    except NotFlatError:
        return
    assert {len(values) for values in found.values()} <= {27}
