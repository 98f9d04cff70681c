"""Bounds of values as statistics in the log have them: no value of a file is outside of them."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings

from sparklog.log.data.value_bounds import value_bounds
from sparklog.log.data.value_columns import DATA, indexed_leaves, leaves_of
from sparklog.log.data.value_stats import value_stats
from sparklog.schemas import python_rows_to_struct, value_schema
from tests.schemas.test_values import schemas_and_rows

UTC = datetime.timezone.utc
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
        [],
        None,
        "text",
    ],
)
def test_what_cannot_be_read_tells_nothing(low):
    assert bounds(low, low) == {}
    assert bounds(low, {"id": 3}) == {("id",): (None, 3)}


@pytest.mark.parametrize("stats", ["", "{", "[]", "null", {}, {"minValues": 7}])
def test_statistics_that_are_none_tell_nothing(stats):
    assert list(value_bounds(stats, list(leaves_of(KIND)))) == []


@settings(max_examples=200, deadline=None)
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
