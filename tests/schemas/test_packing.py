"""Dicts as the compiled core packs them: the same columns as the check and Arrow make, and nothing that they refuse."""

from __future__ import annotations

import copy
import datetime
import decimal
import pickle
import threading
import zoneinfo
from collections import OrderedDict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog._native import CORE
from sparklog.errors import InvalidRecordError
from sparklog.log.data.value_sizes import value_sizes
from sparklog.producer.accumulator import native_columns
from sparklog.schemas import check_record, packer_of, python_rows_to_struct, struct_to_python, value_schema
from tests.depth import by_depth
from tests.schemas.test_values import ANYTHING, FULL, SCHEMA, UTC, same, schemas_and_rows

pytestmark = pytest.mark.skipif(CORE is None, reason="the native core isn't compiled")

OVERHEAD = 100


class ABatch:
    def __init__(self, records: Any) -> None:
        self.records = records


def gathered(schema: Any, rows: list[Any], **limits: int) -> tuple[list[bool], Any, Any]:
    """Whether each row was taken; the batch's records, and its gatherer."""
    core: Any = CORE
    gatherer = core.Gatherer(core.FutureBase, lambda: 0, threading.Lock(), OVERHEAD)
    gatherer.max_record_bytes = limits.get("record", 2**30)
    gatherer.packer = packer_of(schema)
    records = core.Accumulator()
    records.room_bytes = limits.get("room", 2**30)
    gatherer.open = ABatch(records)
    return [gatherer.add_plain(b"k", row) is not None for row in rows], records, gatherer


def column_of(records: Any) -> Any:
    """The packed values, checked."""
    column = native_columns(records)[4]
    if column is not None:
        column.validate(full=True)
    return column


def packed(schema: Any, row: Any) -> Any:
    """The row as it comes back; None: it wasn't taken."""
    [is_taken], records, _ = gathered(schema, [row])
    return struct_to_python(column_of(records))[0] if is_taken else None


@settings(max_examples=by_depth(gate=50, nightly=300), deadline=None)
@given(schemas_and_rows())
def test_any_values_of_any_schema_are_packed_and_come_back(found):
    schema, rows = found
    taken, records, _ = gathered(schema, rows)
    assert all(taken)
    column = column_of(records)
    if column is None:
        assert not any(rows)
        return
    assert column.type == schema.struct_type
    assert same(struct_to_python(column), rows)


@settings(max_examples=by_depth(gate=75, nightly=500), deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from([*SCHEMA.arrow.names, "other", 7]), ANYTHING, max_size=3), max_size=4))
def test_nothing_is_packed_that_the_check_refuses_and_columns_are_those_of_arrow(rows):
    taken, records, _ = gathered(SCHEMA, rows)
    kept = [row for row, is_taken in zip(rows, taken, strict=True) if is_taken]
    for row in kept:
        check_record(SCHEMA, row)
    column = column_of(records)
    if kept:
        expected, errors = python_rows_to_struct(SCHEMA, kept)
        assert errors == {}
        assert same(struct_to_python(column), struct_to_python(expected))
    else:
        assert column is None


@given(st.dates() | st.datetimes(timezones=st.sampled_from([UTC, zoneinfo.ZoneInfo("UTC")])))
def test_any_day_and_time_is_that_of_the_calendar(value):
    name = "at" if isinstance(value, datetime.datetime) else "day"
    assert packed(SCHEMA, {name: value})[name] == value


def test_fields_come_in_any_order_and_some_are_missing():
    names = [*FULL]
    for start in range(len(names)):
        row = {name: FULL[name] for name in (*names[start:], *names[:start])}
        assert packed(SCHEMA, row) == FULL
    assert packed(SCHEMA, {"".join(["n", "ame"]): "x"})["name"] == "x"  # a name that isn't the same object
    assert set(packed(SCHEMA, {}).values()) == {None}


@pytest.mark.parametrize(
    "row",
    [
        {"other": 1},
        {**FULL, "other": None},
        {"id": 2**63},
        {"id": True},
        {"id": 1.0},
        {"small": 128},
        {"small": -129},
        {"flag": 1},
        {"total": 2**53 + 1},
        {"total": "1"},
        {"ratio": 2**24 + 1},
        {"ratio": 2.0**128},
        {"name": b"x"},
        {"name": "\ud800"},
        {"raw": "x"},
        {"raw": bytearray(b"x")},
        {"at": datetime.datetime(2026, 1, 1)},
        {"at": datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))},
        {"at": datetime.date(2026, 1, 1)},
        {"day": datetime.datetime(2026, 1, 1, tzinfo=UTC)},
        {"price": decimal.Decimal("1.001")},
        {"price": decimal.Decimal("1000")},
        {"price": decimal.Decimal("NaN")},
        {"price": decimal.Decimal("1e999999")},
        {"price": 1000},
        {"price": 1.0},
        {"price": b"0123456789abcdef"},
        {"place": {"town": "x"}},
        {"place": ["x"]},
        {"place": OrderedDict(city="x")},
        {"tags": {"a"}},
        {"tags": [1]},
        {"m": {None: 1}},
        {"m": [("k", 1)]},
        OrderedDict(id=1),
    ],
)
def test_what_is_not_plain_is_left_to_the_check(row):
    assert packed(SCHEMA, row) is None


@pytest.mark.parametrize(
    ("row", "read"),
    [
        ({"total": 3}, {"total": 3.0}),
        ({"ratio": 0.1}, {"ratio": 0.10000000149011612}),
        ({"ratio": -(2**24)}, {"ratio": -(2.0**24)}),
        ({"price": 999}, {"price": decimal.Decimal("999.00")}),
        ({"price": decimal.Decimal("-1.5")}, {"price": decimal.Decimal("-1.50")}),
        ({"tags": ("a", None, "é" * 5_000)}, {"tags": ["a", None, "é" * 5_000]}),
        ({"id": -(2**63)}, {"id": -(2**63)}),
    ],
)
def test_what_stands_for_a_value_becomes_one(row, read):
    assert {name: value for name, value in packed(SCHEMA, row).items() if value is not None} == read


def test_a_record_that_is_not_packed_leaves_no_trace_between_those_that_are():
    rows: list[Any] = [
        {"id": 1, "name": "a"},
        {"id": 2, "name": 7},
        None,
        {"id": 3, "tags": ["x", 4]},
        {"id": 5, "tags": ["y"]},
    ]
    taken, records, gatherer = gathered(SCHEMA, rows)
    assert taken == [True, False, True, False, True]
    assert gatherer.add_plain(b"k", b"bytes") is not None
    found: list[Any] = struct_to_python(column_of(records))
    assert [row and (row["id"], row["name"], row["tags"]) for row in found] == [
        (1, "a", None),
        None,
        (5, None, ["y"]),
        None,
    ]


def test_bytes_tombstones_and_packed_values_share_a_batch():
    taken, records, gatherer = gathered(SCHEMA, [None])
    assert gatherer.add_plain(b"k", b"bytes") is not None
    assert all(gatherer.add_plain(b"k", {"id": number}) is not None for number in range(100))
    assert gatherer.add_plain(None, None) is not None
    assert taken == [True]
    columns: Any = native_columns(records)
    _, keys, values, details, column = columns
    column.validate(full=True)
    assert keys.to_pylist() == [b"k"] * 102 + [None]
    assert values.to_pylist() == [None, b"bytes"] + [None] * 101
    assert details == {}
    rows: list[Any] = struct_to_python(column)
    assert rows[:2] == [None, None]
    assert rows[-1] is None
    assert [row["id"] for row in rows[2:-1]] == list(range(100))


def test_the_size_of_a_value_is_bounded_as_that_of_a_column():
    [size] = (value_sizes(python_rows_to_struct(SCHEMA, [FULL])[0]) + len(b"k")).tolist()
    assert gathered(SCHEMA, [FULL], record=size)[0] == [True]
    assert gathered(SCHEMA, [FULL], record=size - 1)[0] == [False]
    taken, records, _ = gathered(SCHEMA, [{"name": "x" * 50}] * 3, room=2 * (OVERHEAD + 80))
    assert taken == [True, True, False]
    assert records.size_bytes <= records.room_bytes


def test_a_batch_has_packed_values_of_one_schema():
    other = value_schema("id BIGINT, more INT")
    taken, records, gatherer = gathered(SCHEMA, [{"id": 1}])
    assert taken == [True]
    gatherer.packer = packer_of(other)
    assert gatherer.add_plain(b"k", {"id": 2}) is None
    gatherer.packer = packer_of(SCHEMA)
    assert gatherer.add_plain(b"k", {"id": 2}) is not None
    assert column_of(records).field("id").to_pylist() == [1, 2]


def test_a_batch_that_was_taken_or_dropped_takes_no_more():
    taken, records, gatherer = gathered(SCHEMA, [{"id": 1}])
    assert taken == [True]
    records.drop()
    assert gatherer.add_plain(b"k", {"id": 2}) is None
    assert column_of(records) is None


def test_threads_that_send_at_once_pack_whole_values():
    """The packer's memory is shared, and a decimal is prepared by Python code, where threads take turns."""
    threads, count = 4, 2_000
    _, records, gatherer = gathered(SCHEMA, [])
    start = threading.Barrier(threads)

    def work(thread: int) -> None:
        start.wait()
        for number in range(count):
            row = {"id": number, "name": f"{thread}" * (number % 50), "price": decimal.Decimal(thread), "small": thread}
            assert gatherer.add_plain(None, row) is not None

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    rows: list[Any] = struct_to_python(column_of(records))
    assert len(rows) == threads * count
    for thread in range(threads):
        own = [row for row in rows if row["small"] == thread]
        assert [row["id"] for row in own] == list(range(count))
        assert [row["name"] for row in own] == [f"{thread}" * (number % 50) for number in range(count)]
        assert {row["price"] for row in own} == {decimal.Decimal(thread)}


def test_a_schema_has_one_packer_and_pure_python_none(monkeypatch):
    schema = value_schema("id BIGINT")
    assert packer_of(schema) is packer_of(schema)
    monkeypatch.setattr("sparklog.schemas.packing.CORE", None)
    assert packer_of(schema) is None


def test_names_that_compare_by_python_code_are_left_to_the_check():
    class Name(str):
        def __eq__(self, other: object) -> bool:
            raise AssertionError("called")

        __hash__ = str.__hash__

    assert packed(SCHEMA, {Name("id"): 1}) is None


def test_deep_lists_are_packed_as_deep_as_the_schema_is():
    kind: pa.DataType = pa.int64()
    value: Any = 1
    for _ in range(30):
        kind, value = pa.list_(kind), [value]
    schema = value_schema(pa.schema([("a", kind)]))
    assert packed(schema, {"a": value}) == {"a": value}
    endless: list[Any] = []
    endless.append(endless)
    assert packed(schema, {"a": endless}) is None
    with pytest.raises(InvalidRecordError):
        check_record(schema, {"a": endless})


def test_a_schema_is_pickled_without_its_packer():
    schema = value_schema("id BIGINT")
    assert packer_of(schema) is not None
    check_record(schema, {"id": 1})
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert copy.deepcopy(schema) == schema


@pytest.mark.parametrize("opens_another", [False, True])
def test_a_batch_may_be_closed_while_a_record_with_details_is_prepared(opens_another):
    core: Any = CORE
    _, records, gatherer = gathered(value_schema("id BIGINT"), [])
    following = core.Accumulator()
    following.room_bytes = 2**30

    def prepare(value: Any) -> Any:  # as of decimals: Python code, so that the sender may take the batch meanwhile
        records.take()
        gatherer.open = ABatch(following) if opens_another else None
        return value

    gatherer.packer = core.Packer(pa.struct([("id", pa.int64())]), (("integer", 8, "id", ()),), prepare)
    details = (5, [("h", b"1")], 2, None, None)
    future = gatherer.add_detailed(b"k", {"id": 2}, details, 3, 50)
    assert (future is not None) == opens_another
    assert native_columns(following)[3] == ({0: details} if opens_another else {})


def test_a_record_with_details_is_added_whole_or_not_at_all():
    schema = value_schema("id BIGINT, note STRING")
    [_], records, gatherer = gathered(schema, [{"id": 1}])
    details = (5, [("h", b"1")], 2, None, None)
    before = records.size_bytes
    future = gatherer.add_detailed(b"k", {"id": 2, "note": "n"}, details, 3, 50)
    assert (future._batch.records, future._index) == (records, 1)
    packed_bytes = records.size_bytes - before - 50
    assert packed_bytes > 0
    assert gatherer.add_detailed(None, {"id": 3}, None, 0, 7)._index == 2
    for value in ({"id": "x"}, {"other": 1}, b"bytes", None, [1]):
        assert gatherer.add_detailed(b"k", value, details, 3, 50) is None
    gatherer.max_record_bytes = 10
    assert gatherer.add_detailed(b"k", {"id": 4, "note": "long"}, details, 3, 50) is None
    assert gatherer.add_detailed(b"k", {}, details, 11, 50) is None
    gatherer.max_record_bytes = 2**30
    records.room_bytes = records.size_bytes + 50 + packed_bytes - 1
    assert gatherer.add_detailed(b"k", {"id": 2, "note": "n"}, details, 3, 50) is None
    records.room_bytes += 1
    gatherer.packer = packer_of(value_schema("id BIGINT"))  # one schema fills a batch
    assert gatherer.add_detailed(b"k", {"id": 2}, details, 3, 0) is None
    gatherer.packer = None
    assert gatherer.add_detailed(b"k", {"id": 2}, details, 3, 0) is None
    times, keys, values, given, column = native_columns(records)
    assert given == {1: details}
    assert keys.to_pylist() == [b"k", b"k", None]
    assert values.null_count == len(times) == 3
    assert column is not None
    column.validate(full=True)
    assert struct_to_python(column) == [{"id": 1, "note": None}, {"id": 2, "note": "n"}, {"id": 3, "note": None}]
    gatherer.packer = packer_of(schema)
    assert gatherer.add_detailed(b"k", {"id": 2}, details, 3, 0) is None  # they were taken
    gatherer.open = None
    assert gatherer.add_detailed(b"k", {"id": 2}, details, 3, 0) is None
