"""Statistics of values in a file's footer: an owner's come back, and of what anybody writes only what is sound."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.log.data.carried_stats import STATS_KEY, carried_stats, footer_entry
from sparklog.log.data.value_columns import leaves_of
from sparklog.log.data.value_stats import value_stats

VALUES = pa.struct(
    [
        ("id", pa.int64()),
        ("total", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("place", pa.struct([("town", pa.string())])),
    ]
)
LEAVES = list(leaves_of(VALUES))


def read(stats: Any, record_count: int = 10) -> dict[str, Any]:
    text = stats if isinstance(stats, bytes) else json.dumps(stats).encode()
    return carried_stats({STATS_KEY: text}, LEAVES, record_count)


def of_id(low: Any, high: Any, nulls: Any = 0) -> dict[str, Any]:
    sides = {"minValues": low, "maxValues": high, "nullCount": nulls}
    return {side: {"data": {"id": value}} for side, value in sides.items()}


def rows() -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.fixed_dictionaries(
        {
            "id": st.none() | st.integers(-(2**63), 2**63 - 1),
            "total": st.none() | st.floats(),
            "price": st.none() | st.decimals(-1000, 1000, places=2),
            "at": st.none() | st.datetimes().map(lambda time: time.replace(tzinfo=__import__("datetime").timezone.utc)),
            "day": st.none() | st.dates(),
            "place": st.none() | st.fixed_dictionaries({"town": st.none() | st.text(max_size=40)}),
        }
    )
    return st.lists(row, min_size=1, max_size=5)


@given(rows())
def test_an_owners_statistics_come_back_as_they_are(values: list[dict[str, Any]]) -> None:
    stats = value_stats(pa.array(values, VALUES), [leaf for leaf, _ in LEAVES])
    assert carried_stats(footer_entry(stats), LEAVES, len(values)) == stats


@pytest.mark.parametrize(
    "given_stats",
    [
        b"",
        b"no JSON",
        b"\xff",
        b"[" * 60_000,
        b"[]",
        b"null",
        b'{"minValues": 1, "maxValues": [], "nullCount": "x"}',
        json.dumps(of_id(1, 2)).encode() + b" " * 70_000,
        b'{"nullCount": {"data": {"id": NaN}}}',
        b'{"nullCount": {"data": {"id": ' + b"1" * 5_000 + b"}}}",
        {"nullCount": {"data": {"other": 1}}, "numRecords": 7},
        of_id(1, 2, nulls=11),
        of_id(1, 2, nulls=-1),
        of_id(1, 2, nulls=True),
        of_id(1, 2, nulls=None),
    ],
    ids=range(15),
)
def test_what_isnt_sound_tells_nothing(given_stats: Any) -> None:
    assert read(given_stats) == {}


@pytest.mark.parametrize(
    ("low", "high"),
    [(2, 1), ("1", "2"), (None, 1), (1, None), (True, True), (0, 2**63), ({}, {}), ([1], [2]), (0.5, 1.5)],
)
def test_bounds_that_arent_sound_are_left_out(low: Any, high: Any) -> None:
    assert read(of_id(low, high)) == {"nullCount": {"data": {"id": 0}}}


def test_bounds_of_other_leaves_and_kinds_are_left_out() -> None:
    low = {"total": 1, "at": "yesterday", "day": "2026-02-31", "place": {"town": "x" * 65}, "price": 0.001}
    high = {"total": "INF", "at": "9999-12-31T23:59:59.999Z", "day": "9", "place": {"town": "y" * 65}, "price": 1}
    nulls = {"total": 0, "at": 0, "day": 0, "place": {"town": 0, "zip": 0}, "price": 0}
    text = json.dumps({"minValues": {"data": low}, "maxValues": {"data": high}, "nullCount": {"data": nulls}})
    found = read(text.replace('"INF"', "1e999").encode())
    del nulls["place"]["zip"]  # type: ignore[attr-defined]
    assert found == {"nullCount": {"data": nulls}}


def test_a_file_of_nulls_has_no_bounds() -> None:
    assert read(of_id(1, 2, nulls=10)) == {"nullCount": {"data": {"id": 10}}}


def test_statistics_that_are_too_many_arent_carried() -> None:
    assert footer_entry(of_id("x" * 70_000, 1)) == {}
