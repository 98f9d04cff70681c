"""Bounds of values as statistics in the log have them: no value of a file is outside of them."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.log.data.value_bounds import bound_columns, value_bounds
from sparklog.log.data.value_columns import DATA, indexed_leaves, leaves_of
from sparklog.log.data.value_stats import value_stats
from sparklog.schemas import python_rows_to_struct, value_schema
from tests.depth import by_depth
from tests.schemas.test_values import schemas_and_rows

UTC = datetime.UTC
KIND = value_schema(
    "id INT, total DOUBLE, price DECIMAL(9,2), note STRING, at TIMESTAMP, day DATE, place STRUCT<zip: BIGINT>"
).struct_type


def bounds(lows: Any, highs: Any) -> dict[tuple[str, ...], tuple[Any, Any]]:
    stats = json.dumps({"minValues": {DATA: lows}, "maxValues": {DATA: highs}})
    found = value_bounds(stats, list(leaves_of(KIND)))
    return {leaf: (_plain(low), _plain(high)) for leaf, low, high in found}


def _plain(bound: Any) -> Any:
    return None if bound is None else bound.as_py()


def test_each_type_is_read():
    low = {
        "id": -1,
        "total": 1,
        "price": 1.25,
        "note": "a",
        "at": "2026-01-02T03:04:05.006Z",
        "day": "2026-01-02",
        "place": {"zip": 7},
    }
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 6_000, tzinfo=UTC)
    day = datetime.date(2026, 1, 2)
    assert bounds(low, low) == {
        ("id",): (-1, -1),
        ("total",): (1.0, 1.0),
        ("price",): (Decimal("1.25"), Decimal("1.25")),
        ("note",): ("a", "a"),
        ("at",): (at, at + datetime.timedelta(milliseconds=1)),
        ("day",): (day, day),
        ("place", "zip"): (7, 7),
    }


@pytest.mark.parametrize(
    "low",
    [
        {"id": "7", "total": "NaN", "note": 7, "at": 7, "day": 7, "place": 7},
        {"id": True, "total": None, "price": "1", "at": "noon", "day": "2026-13-01", "place": {"zip": 1.5}},
        {"id": 2**40, "price": 1e300},
        {"total": math.nan},
        [],
        None,
        "text",
    ],
)
def test_what_cannot_be_read_tells_nothing(low):
    assert bounds(low, low) == {}
    assert bounds(low, {"id": 3}) == {("id",): (None, 3)}


@pytest.mark.parametrize("stats", ["", "{", "[]", "null", "[" * 100_000, {}, {"minValues": 7}])
def test_statistics_that_are_none_tell_nothing(stats):
    assert list(value_bounds(stats, list(leaves_of(KIND)))) == []


@settings(max_examples=by_depth(gate=40, nightly=200), deadline=None)
@given(schemas_and_rows())
def test_every_value_is_within_the_bounds_of_its_file(found):
    schema, rows = found
    column, _ = python_rows_to_struct(schema, rows)
    leaves = list(leaves_of(schema.struct_type))
    stats = json.dumps({**value_stats(column, indexed_leaves(schema.struct_type, ""))})
    for leaf, low, high in value_bounds(stats, leaves):
        values = pc.struct_field(column, list(leaf)).drop_null()
        if low is not None:
            assert pc.all(pc.greater_equal(values, low)).as_py() in (True, None)
        if high is not None:
            assert pc.all(pc.less_equal(values, high)).as_py() in (True, None)


ANY_BOUND = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(["a", "", "2026-01-02", "2026-01-02T03:04:05.006Z", "0001-01-01T00:00:00Z", "2026-01-02 03:04"])
    | st.sampled_from(["2026-01-02T03:04:05.1234567+01:00", "\ud800", [], {}, {"zip": 7}])
)
SIDES = st.dictionaries(st.sampled_from([field.name for field in KIND]), ANY_BOUND, max_size=4)


@settings(max_examples=by_depth(gate=50, nightly=300), deadline=None)
@given(st.lists(st.tuples(SIDES, SIDES, st.booleans()), max_size=6))
def test_the_bounds_of_many_files_are_those_of_each(files):
    stats: list[Any] = []
    for lows, highs, is_text in files:
        one = {"minValues": {DATA: lows}, "maxValues": {DATA: highs}}
        stats.append(json.dumps(one) if is_text else one)
    leaves = list(leaves_of(KIND))
    columns = bound_columns(stats, leaves)
    for place, one in enumerate(stats):
        expected = {leaf: (_plain(low), _plain(high)) for leaf, low, high in value_bounds(one, leaves)}
        found = {
            leaf: (low[place].as_py(), high[place].as_py())
            for (leaf, _), (low, high) in zip(leaves, columns, strict=True)
        }
        assert {leaf: each for leaf, each in found.items() if each != (None, None)} == expected
    assert [(low.type, high.type) for low, high in columns] == [(kind, kind) for _, kind in leaves]


def test_texts_that_arrow_cannot_read_are_read_one_by_one():
    garbled = '{"minValues": {"data": {"id": 8, "note": "\ud800"}}}'
    texts = [json.dumps({"minValues": {DATA: {"id": 7}}}), garbled, "", "{"]
    for some in (texts, texts[:2], [texts[0], texts[2]]):
        ((low, high),) = bound_columns(some, [(("id",), pa.int64())])
        expected = {texts[0]: 7, texts[1]: 8}
        assert low.to_pylist() == [expected.get(text) for text in some]
        assert high.null_count == len(some)


def test_an_integer_of_many_digits_bounds_a_float():
    stats = {"minValues": {DATA: {"total": 2**60 + 1}}}
    leaves = [(("total",), pa.float64())]
    for one in (stats, json.dumps(stats)):
        assert [low for _, low, _ in value_bounds(one, leaves)] == [pa.scalar(2.0**60)]
        assert bound_columns([one], leaves)[0][0].to_pylist() == [2.0**60]
