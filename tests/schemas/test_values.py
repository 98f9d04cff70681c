"""Values of schemas: the check of one, columns and back, other formats, and how a schema may change."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import math
import re
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparklog.errors import InvalidArgumentError, InvalidConfigurationError, InvalidRecordError, InvalidTypeError
from sparklog.schemas import (
    FORMATS,
    MODES,
    check,
    check_record,
    conform,
    decode,
    encode,
    python_rows_to_struct,
    struct_to_python,
    union,
    value_schema,
)
from tests.depth import by_depth

UTC = datetime.UTC
UTC_TIMES = pa.timestamp("us", "UTC")
NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=UTC)
SCHEMA = value_schema(
    "id BIGINT, small TINYINT, total DOUBLE, price DECIMAL(5,2), name STRING, raw BINARY, at TIMESTAMP, day DATE, "
    "flag BOOLEAN, place STRUCT<city: STRING>, tags ARRAY<STRING>, m MAP<STRING, INT>, ratio FLOAT"
)
EAST, WEST = (datetime.timezone(datetime.timedelta(hours=hours)) for hours in (14, -14))
FULL = {
    "id": 7,
    "small": -128,
    "total": 12.5,
    "price": decimal.Decimal("-999.99"),
    "name": "é\0",
    "raw": b"\xff",
    "at": NOON,
    "day": datetime.date(1970, 1, 1),
    "flag": True,
    "place": {"city": None},
    "tags": ["a", None],
    "m": {"k": 1, "n": None},
    "ratio": -math.inf,
}


# Schemas and values of them, at random

_LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.string(), st.text(max_size=8)),
    (pa.binary(), st.binary(max_size=8)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    (pa.decimal128(9, 3), st.decimals(-999_999, 999_999, places=3)),
]
_KEYS = [_LEAVES[at] for at in (3, 6)]


def _nested(kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def struct(parts: list[Any]) -> Any:
        fields = [(f"f{number}", kind) for number, (kind, _) in enumerate(parts)]
        values = {f"f{number}": st.none() | value for number, (_, value) in enumerate(parts)}
        return pa.struct(fields), st.fixed_dictionaries(values)

    def lists(part: Any) -> Any:
        return pa.list_(part[0]), st.lists(st.none() | part[1], max_size=3)

    def maps(key: Any, part: Any) -> Any:
        return pa.map_(key[0], part[0]), st.dictionaries(key[1], st.none() | part[1], max_size=3)

    return (
        st.lists(kinds, min_size=1, max_size=3).map(struct)
        | kinds.map(lists)
        | st.builds(maps, st.sampled_from(_KEYS), kinds)
    )


_KINDS = st.recursive(st.sampled_from(_LEAVES), _nested, max_leaves=6)


@st.composite
def schemas_and_rows(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    parts = draw(st.lists(_KINDS, min_size=1, max_size=4))
    schema = value_schema(pa.schema([(f"c{number}", kind) for number, (kind, _) in enumerate(parts)]))
    fields = {f"c{number}": st.none() | value for number, (_, value) in enumerate(parts)}
    return schema, draw(st.lists(st.none() | st.fixed_dictionaries(fields), max_size=4))


def same(one: Any, other: Any) -> bool:
    """Equal, with NaN equal to itself and 0.0 not to -0.0."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    return type(one) is type(other) and bool(one == other)


BYTES_BY_NUMBER = value_schema(pa.schema([("c", pa.map_(pa.int64(), pa.binary()))]))


@settings(max_examples=by_depth(gate=30, nightly=150), deadline=None)
@example((BYTES_BY_NUMBER, [{"c": {0: b"", 1: None}}]))
@given(schemas_and_rows())
def test_any_values_of_any_schema_come_back_from_columns_and_every_format(found):
    schema, rows = found
    for row in rows:
        check_record(schema, row)
    column, errors = python_rows_to_struct(schema, rows)
    assert errors == {}
    assert column.type == schema.struct_type
    assert same(struct_to_python(column), rows)
    for value_format in FORMATS:
        if value_format.startswith("protobuf"):  # needs the schema of a message: test_protobuf.py
            continue
        again, errors = decode(value_format, schema, encode(value_format, schema, column, schema_id=7))
        assert errors == {}
        assert same(struct_to_python(again), rows), value_format


# The check


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"id": "7"}, r"field id: got '7' \(str\), expected long"),
        ({"id": 2**63}, "field id: got 9223372036854775808 .*expected -9223372036854775808 to"),
        ({"id": True}, "field id: got True"),
        ({"id": 1.0}, "field id: got 1.0"),
        ({"small": 128}, r"field small: .*-128 to 127 \(byte\)"),
        ({"total": "1"}, "field total"),
        ({"total": 2**53 + 1}, "field total"),
        ({"price": decimal.Decimal("1.005")}, "field price: .*without rounding"),
        ({"price": decimal.Decimal(1000)}, "field price"),
        ({"price": decimal.Decimal("NaN")}, "field price"),
        ({"price": decimal.Decimal("1E+4")}, "field price"),
        ({"price": 1.5}, "field price"),
        ({"name": b"a"}, "field name"),
        ({"name": "\ud800"}, "field name"),
        ({"raw": "a"}, "field raw"),
        ({"at": datetime.datetime(2026, 1, 2)}, "field at: .*timestamp with a time zone"),
        ({"at": datetime.date(2026, 1, 2)}, "field at"),
        ({"at": datetime.datetime.min.replace(tzinfo=EAST)}, "field at: .*of the years 1 to 9999 in UTC"),
        ({"at": datetime.datetime.max.replace(tzinfo=WEST)}, "field at: .*of the years 1 to 9999 in UTC"),
        ({"ratio": 1e300}, "field ratio: got 1e\\+300"),
        ({"ratio": 2**24 + 1}, "field ratio"),
        ({"day": NOON}, "field day"),
        ({"flag": 1}, "field flag"),
        ({"place": "x"}, "field place"),
        ({"place": {"town": "x"}}, r"field place.town: the schema doesn't have it; it has city"),
        ({"tags": "ab"}, "field tags"),
        ({"tags": ["a", 1]}, r"field tags\[1\]: got 1"),
        ({"m": {"k": "v"}}, r"field m\['k' \(str\)\]"),
        ({"m": {None: 1}}, "field m: a key"),
        ({"m": [1]}, "field m"),
        ({"other": 1}, "field other: the schema doesn't have it; it has id, small"),
        ({"name": 1, "raw": "x" * 500}, "field name"),
    ],
    ids=str,
)
def test_a_value_that_is_none_of_the_schema_is_refused_with_field_type_and_value(row, reason):
    with pytest.raises(InvalidRecordError, match=reason):
        check_record(SCHEMA, row)
    column, errors = python_rows_to_struct(SCHEMA, [FULL, row, None])
    assert [*errors] == [1]
    assert same(struct_to_python(column), [FULL, None, None])


def test_an_object_of_no_class_of_its_own_is_no_value_either():
    with pytest.raises(InvalidRecordError, match="field id"):
        check_record(SCHEMA, {"id": object()})


@pytest.mark.parametrize("row", [{"raw": "x" * 10_000}, {"x" * 10_000: 1}, {"m": {"x" * 10_000: "v"}}], ids=range(3))
def test_what_is_shown_of_a_large_value_is_short(row):
    with pytest.raises(InvalidRecordError) as caught:
        check_record(SCHEMA, row)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", [5, "text", b"bytes", [1], dataclasses.dataclass])
def test_what_has_no_fields_is_no_value(value):
    with pytest.raises(InvalidTypeError, match="expected a dict, a dataclass or a pydantic model"):
        check_record(SCHEMA, value)


def test_an_integer_may_stand_for_a_float_and_fields_may_be_missing():
    check_record(SCHEMA, {"total": 12})
    column, errors = python_rows_to_struct(SCHEMA, [{"total": 12}, {}])
    assert errors == {}
    assert [row and row["total"] for row in struct_to_python(column)] == [12.0, None]


def test_dataclasses_and_models_are_values():
    @dataclasses.dataclass
    class Place:
        city: str

    @dataclasses.dataclass
    class Order:
        id: int
        place: Place

    check_record(SCHEMA, Order(1, Place("x")))
    column, errors = python_rows_to_struct(SCHEMA, [Order(1, Place("x"))])
    (row,) = struct_to_python(column)
    assert (errors, row and row["id"], row and row["place"]) == ({}, 1, {"city": "x"})


@dataclasses.dataclass
class City:
    city: str


@pytest.mark.parametrize(
    ("row", "read"),
    [
        ({"place": City("x")}, {"city": "x"}),
        ({"place": MappingProxyType({"city": "x"})}, {"city": "x"}),
        ({"m": MappingProxyType({"k": 1})}, {"k": 1}),
        ({"m": [["k", 1], ("n", None)]}, {"k": 1, "n": None}),
        ({"tags": ("a",)}, ["a"]),
        ({"price": decimal.Decimal("1.1000")}, decimal.Decimal("1.10")),
        ({"price": decimal.Decimal("0E+5")}, decimal.Decimal(0)),
        ({"price": decimal.Decimal("1E+2")}, decimal.Decimal(100)),
        ({"ratio": math.nan}, math.nan),
    ],
    ids=str,
)
def test_what_the_check_takes_becomes_a_column(row, read):
    check_record(SCHEMA, row)
    column, errors = python_rows_to_struct(SCHEMA, [FULL, row])
    assert errors == {}
    first, second = struct_to_python(column)
    assert same(first, FULL)
    assert second is not None
    assert same(second[next(iter(row))], read)


def test_a_zero_fits_into_decimals_without_digits_before_the_point():
    schema = value_schema("a DECIMAL(2,2)")
    check_record(schema, {"a": decimal.Decimal(0)})
    column, errors = python_rows_to_struct(schema, [{"a": decimal.Decimal(0)}])
    assert (errors, column.to_pylist()) == ({}, [{"a": decimal.Decimal("0.00")}])


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=3)
    | st.binary(max_size=3)
    | st.decimals()
    | st.dates()
    | st.datetimes(timezones=st.none() | st.sampled_from([UTC, EAST, WEST])),
    lambda each: st.lists(each, max_size=2) | st.dictionaries(st.sampled_from(["city", "k", 1]), each, max_size=2),
    max_leaves=4,
)


@settings(max_examples=by_depth(gate=50, nightly=300), deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from([*SCHEMA.arrow.names]), ANYTHING, max_size=2), max_size=3))
def test_the_check_and_the_column_agree_on_any_objects(rows):
    refused = set()
    for place, row in enumerate(rows):
        try:
            check_record(SCHEMA, row)
        except InvalidRecordError:
            refused.add(place)
    column, errors = python_rows_to_struct(SCHEMA, rows)
    assert errors.keys() == refused
    column.validate(full=True)
    struct_to_python(column)
    taken = [None if place in refused else row for place, row in enumerate(rows)]
    assert python_rows_to_struct(SCHEMA, taken, checked=True)[1] == {}


def test_many_that_are_wrong_among_many_are_found_each():
    rows = [{"id": number if number % 10 else "x"} for number in range(2_000)]
    column, errors = python_rows_to_struct(SCHEMA, rows)
    assert [*errors] == list(range(0, 2_000, 10))
    assert column.null_count == 200


def test_rows_that_were_checked_and_changed_since_are_found_all_the_same():
    column, errors = python_rows_to_struct(SCHEMA, [{"id": 1}, {"id": "x"}, {"id": 3}], checked=True)
    assert [*errors] == [1]
    assert [row and row["id"] for row in struct_to_python(column)] == [1, None, 3]


def test_slices_of_columns_are_read_as_their_rows():
    schema = value_schema("id BIGINT, tags ARRAY<INT>, m MAP<STRING, INT>, p STRUCT<a: INT>, at TIMESTAMP")
    rows: list[Any] = [
        {"id": n, "tags": [n], "m": {"k": n}, "p": {"a": n}, "at": NOON} if n % 3 else None for n in range(20)
    ]
    column, _ = python_rows_to_struct(schema, rows)
    assert same(struct_to_python(column[5:13]), rows[5:13])


def test_lists_and_maps_that_are_null_may_have_elements_that_nobody_reads():
    offsets, mask = pa.array([0, 1, 2, 3], pa.int32()), pa.array([False, True, False])
    maps = pa.MapArray.from_arrays(offsets, pa.array(["a", "b", "c"]), pa.array([1, 2, 3]), mask=mask)
    lists = pa.ListArray.from_arrays(offsets, pa.array([1, 2, 3]), mask=mask)
    rows = [{"m": {"a": 1}, "l": [1]}, {"m": None, "l": None}, {"m": {"c": 3}, "l": [3]}]
    column = pa.StructArray.from_arrays([maps, lists], names=["m", "l"])
    assert struct_to_python(column) == rows
    assert struct_to_python(column[1:]) == rows[1:]


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.date32()], ids=str)
def test_a_time_that_python_cannot_hold_is_named_and_its_column_can_be_read(kind):
    column = pa.StructArray.from_arrays([pa.array([10**9 if kind.bit_width == 32 else 10**18], kind)], names=["at"])
    with pytest.raises(InvalidRecordError, match=r"field at: .*years 1 to 9999"):
        struct_to_python(column)


# Formats


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[1]",
        b"7",
        b'{"id": NaN}',
        b'{"id": "x"}',
        b'{"id": 1e400}',
        b'{"other": 1}',
        b"\xff",
        b'{"at": "yesterday"}',
        b'{"raw": "?"}',
        b"[" * 100_000,
        b'{"price": "x"}',
        b'{"price": 1.005}',
        b'{"id": 1e999999999}',  # as an integer it would have a billion digits
        b'{"price": 1e999999999}',
        b'{"total": 1e400}',
        b'{"ratio": 1e300}',
        b'{"total": ' + b"1" * 5_000 + b"}",
        b'{"at": "0001-01-01T00:00:00+14:00"}',
    ],
    ids=lambda text: repr(text[:20]),
)
def test_json_that_is_no_value_is_told_by_its_place(text):
    column, errors = decode("json", SCHEMA, pa.array([b'{"id":1}', text, None, b"{}"], pa.binary()))
    assert [*errors] == [1]
    assert [row if row is None else row["id"] for row in struct_to_python(column)] == [1, None, None, None]
    assert column.null_count == 2


EXACT = [  # an integer in JSON as others write one: a text, and what it is
    ("9007199254740993.0", 9007199254740993),
    ("9.007199254740993e15", 9007199254740993),
    ("1.152921504606846977E18", 1152921504606846977),
    ("-9.223372036854775807E18", -(2**63) + 1),
    ("-9223372036854775808.000", -(2**63)),
    ("9007199254740993.00000000000000000000001", None),
    ("9.223372036854775808E18", None),
    ("5.0", 5),
    ("50e-1", 5),
    ("1.5", None),
    ("-0.0", 0),
    ("1e999999999", None),
    ("1e999999999999999999999", None),
    ("1e-999999999999999999999", None),
]


@pytest.mark.parametrize("more", [[], [("price", pa.decimal128(30, 10))]])
@pytest.mark.parametrize(("text", "number"), EXACT)
def test_an_integer_in_float_notation_is_exact_or_refused(text, number, more):
    fields = [
        ("n", pa.int64()),
        ("l", pa.list_(pa.int64())),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("f", pa.float64()),
    ]
    schema = value_schema(pa.schema([*fields, *more]))
    plain = value_schema(pa.schema([fields[0], *more]))
    for each, form in ((plain, '{"n":%s}'), (schema, '{"n":%s}'), (schema, '{"l":[1,%s]}'), (schema, '{"m":{"k":%s}}')):
        raws = pa.array([b'{"n":1}'] * 200 + [(form % text).encode()])
        for part in (raws, raws.slice(200)):
            column, errors = decode("json", each, part)
            row = column.to_pylist()[-1]
            if number is None:
                assert row is None
                assert [*errors] == [len(part) - 1]
            else:
                assert errors == {}
                assert number in (row["n"], *(row.get("l") or ()), *dict(row.get("m") or ()).values())


@pytest.mark.parametrize("more", [[], [("n", pa.int64())], [("price", pa.decimal128(30, 10))]])
def test_floats_are_the_same_beside_integers_and_decimals(more):
    texts = ["0.1", "1e-999999999999999999999", "4.9e-324", "1.7976931348623157e308", "9007199254740993.0", "-0.0"]
    schema = value_schema(pa.schema([("f", pa.float64()), ("m", pa.map_(pa.string(), pa.float64())), *more]))
    raws = [b'{"f":%s,"m":{"k":%s}}' % (text.encode(), text.encode()) for text in texts]
    column, errors = decode("json", schema, pa.array(raws))
    assert errors == {}
    for text, row in zip(texts, column.to_pylist(), strict=True):
        assert repr(row["f"]) == repr(row["m"][0][1]) == repr(float(text))
    assert decode("json", schema, pa.array([b'{"f":1e999999999999999999999}']))[1].keys() == {0}


def test_large_floats_that_json_has_as_integers_are_read():  # JavaScript writes them so
    column, errors = decode(
        "json", SCHEMA, pa.array([b'{"total":100000000000000000000,"ratio":16777217}'], pa.binary())
    )
    assert errors == {}
    assert [(row["total"], row["ratio"]) for row in struct_to_python(column) if row] == [(1e20, 2.0**24)]


# Every way of reading JSON gives the same: all at once, without what is no object, and one by one

FLAT = value_schema(
    "a BIGINT, b DOUBLE, c FLOAT, d STRING, e BOOLEAN, f TIMESTAMP, g DATE, h DECIMAL(5,2), i TINYINT, "
    "p STRUCT<a: BIGINT, f: ARRAY<TIMESTAMP>>, l ARRAY<STRUCT<a: BIGINT, c: FLOAT>>"
)
PIECES = [
    b"{}",
    b'{"a":1,"b":0.1,"c":0.1,"d":"x","e":true,"f":"2026-01-02T03:04:05.1Z","g":"2026-01-02","h":"1.25","i":-128}',
    b'{"a":9223372036854775807,"b":-0.0,"c":3.4028234e38,"d":"\\u0000\\u00e9 \xc3\xa9","f":"2026-01-02 03:04+01:00"}',
    b' {"a": 5.0, "b": 1, "c": 16777217,\n "h": 1.2500, "d": null}\n',
    b'{"p":{"a":1,"f":["2026-01-02T03:04:05Z",null]},"l":[{"a":2,"c":0.1},null,{}]}',
    b'{"p":null,"l":[]}',
    b'{"p":{}}',
    b'{"b":12345678901234567890123,"d":"{}\\"}{"}',
    b'{"a":1,"a":2}',
    b'{"a":1}{"a":2}',
    b'{"a":1}\n{"a":2}',
    b'{"p":',
    b'{"a":3}}',
    b'{"l":[{}',
    b'{"d":"}',
    b'"}',
    b"",
    b" ",
    b"{",
    b"null",
    b"7",
    b"[{}]",
    b"\xff",
    b'{"d":"\xff"}',
    b'{"d":"\\ud800"}',
    b'{"d":"a\nb"}',
    b'{"b":NaN}',
    b'{"c":1e300}',
    b'{"b":1e400}',
    b'{"a":9223372036854775808}',
    b'{"i":128}',
    b'{"a":"1"}',
    b'{"a":true}',
    b'{"d":1}',
    b'{"e":1}',
    b'{"z":1}',
    b'{"A":1}',
    b'{"p":{"z":1}}',
    b'{"h":1.255}',
    b'{"f":"2026-01-02T03:04:05"}',
    b'{"f":"0001-01-01T00:00:00+14:00"}',
    b'{"f":"0000-01-01T00:00:00Z"}',
    b'{"g":"2026-02-30"}',
    b'{"a":1}\0',
    b'{"a":1,}',
    b'{"l":' + b"[" * 5_000,
    None,
]


def _alone(raws: list[bytes | None]) -> tuple[list[Any], set[int]]:
    """By a schema that also has a map: of it Arrow reads nothing at once."""
    schema = value_schema(pa.schema([*FLAT.arrow, ("zz", pa.map_(pa.string(), pa.int64()))]))
    rows: list[Any] = []
    for raw in raws:
        rows += struct_to_python(decode("json", schema, pa.array([raw], pa.binary()))[0])
    wrong = {place for place, row in enumerate(rows) if row is None and raws[place] is not None}
    return [row and {name: row[name] for name in FLAT.arrow.names} for row in rows], wrong


@settings(max_examples=by_depth(gate=40, nightly=200), deadline=None)
@given(st.lists(st.sampled_from(PIECES[:8]) | st.sampled_from(PIECES), max_size=8))
def test_json_is_read_at_once_as_it_is_one_by_one(raws):
    column, errors = decode("json", FLAT, pa.array(raws, pa.binary()))
    rows, wrong = _alone(raws)
    assert errors.keys() == wrong
    assert column.type == FLAT.struct_type
    column.validate(full=True)
    assert same(struct_to_python(column), rows)


def test_each_piece_of_json_is_read_among_many_as_alone():
    for raw in PIECES:
        raws = [PIECES[1]] * 300 + [raw] + [PIECES[5]] * 3
        column, errors = decode("json", FLAT, pa.array(raws, pa.binary()))
        rows, wrong = _alone([raw])
        assert [*errors] == ([300] if wrong else []), raw
        assert same(struct_to_python(column)[300], rows[0]), raw
        assert column.null_count == (rows[0] is None)


def test_json_as_others_write_it_is_read():
    raw = {
        "id": 2**63 - 1,
        "total": 1,
        "price": 1.25,
        "at": "2026-01-02T13:00:00+01:00",
        "small": 5.0,
        "day": "2026-01-02",
    }
    column, errors = decode("json", SCHEMA, pa.array([json.dumps(raw).encode()], pa.binary()))
    (row,) = struct_to_python(column)
    assert errors == {}
    assert row is not None
    assert (row["id"], row["total"], row["price"]) == (2**63 - 1, 1.0, decimal.Decimal("1.25"))
    assert (row["at"], row["small"], row["day"]) == (NOON, 5, datetime.date(2026, 1, 2))


@pytest.mark.parametrize("value_format", ["json-confluent", "avro", "avro-confluent"])
@pytest.mark.parametrize("raw", [b"", b"\0", b"\1\0\0\0\0\2", b"\0\0\0\0\1" + b"\xff" * 40, b"\xff" * 40])
def test_bytes_of_another_format_are_told_by_their_place(value_format, raw):
    _, errors = decode(value_format, SCHEMA, pa.array([raw], pa.binary()))
    assert [*errors] == [0]


def test_a_format_that_is_not_known_is_refused():
    with pytest.raises(InvalidConfigurationError, match="expected one of json, json-confluent, avro"):
        encode("xml", SCHEMA, pa.array([], SCHEMA.struct_type))


# Columns


def test_columns_are_put_into_the_schema_s_order_and_cast_where_nothing_is_lost():
    table = pa.table({"name": pa.array(["a"], pa.large_string()), "id": pa.array([1], pa.int32())})
    (row,) = struct_to_python(conform(table, SCHEMA))
    assert row is not None
    assert (row["id"], row["name"], row["total"]) == (1, "a", None)
    with pytest.raises(InvalidArgumentError, match="columns other: "):
        conform(pa.table({"other": [1]}), SCHEMA)
    with pytest.raises(InvalidArgumentError, match="column small: got int64, expected byte"):
        conform(pa.table({"small": [300]}), SCHEMA)


NESTED = value_schema("p STRUCT<a: BIGINT, b: STRING>, l ARRAY<STRUCT<a: BIGINT, b: STRING>>, m MAP<STRING, BIGINT>")


def test_nested_columns_are_put_into_the_schema_s_order_slices_and_nulls_too():
    rows = [
        {"p": {"b": "x", "a": n}, "l": [{"b": None, "a": n}, None], "m": [("k", n)]} if n % 3 else {} for n in range(9)
    ]
    read = [
        {"p": {"a": n, "b": "x"}, "l": [{"a": n, "b": None}, None], "m": {"k": n}} if n % 3 else dict.fromkeys("plm")
        for n in range(9)
    ]
    kind = pa.struct([("b", pa.large_string()), ("a", pa.int32())])
    columns = pa.schema([("m", pa.map_(pa.string(), pa.int16())), ("l", pa.large_list(kind)), ("p", kind)])
    table = pa.Table.from_pylist(rows, columns)
    assert struct_to_python(conform(table, NESTED)) == read
    assert struct_to_python(conform(table.slice(2, 5), NESTED)) == read[2:7]
    structs = pa.array([None, {"p": {"b": "x"}}], pa.struct([("p", kind)]))
    assert struct_to_python(conform(structs, NESTED)) == [None, {"p": {"a": None, "b": "x"}, "l": None, "m": None}]


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ({"name": pa.array([1])}, "column name: got int64, expected string"),
        ({"id": pa.array(["1"])}, "column id: got string, expected long"),
        ({"id": pa.array([True])}, "column id: got bool, expected long"),
        ({"flag": pa.array([2])}, "column flag: got int64, expected boolean"),
        ({"ratio": pa.array([1e300])}, "column ratio: .*too large"),
        (
            {"at": pa.array([0], pa.timestamp("us"))},
            r"column at: got timestamp\[us\], expected timestamp with a time zone",
        ),
        ({"at": pa.array([0])}, "column at"),
        ({"at": pa.array([10**18], UTC_TIMES)}, "column at: .*after year 9999"),
        ({"at": pa.array([5], pa.timestamp("ns", "UTC"))}, "column at: .*lose data"),
        ({"day": pa.array([-(10**6)], pa.date32())}, "column day: .*before year 1"),
        ({"day": pa.array([5], UTC_TIMES)}, "column day: got timestamp"),
        ({"name": pa.array([b"x"])}, "column name: got binary"),
        ({"price": pa.array([1.005])}, "column price: got double"),
        ({"place": pa.array([{"town": "x"}])}, "columns place.town: the schema doesn't have them; it has city"),
        ({"tags": pa.array([[1]])}, "column tags.element: got int64"),
    ],
    ids=lambda given: given if isinstance(given, str) else next(iter(given)),
)
def test_columns_of_another_meaning_and_values_that_would_change_are_refused(column, reason):
    with pytest.raises(InvalidArgumentError, match=reason):
        conform(pa.table(column), SCHEMA)


def test_columns_of_the_same_name_are_refused():
    with pytest.raises(InvalidArgumentError, match="a name is there twice"):
        conform(pa.table([pa.array([1]), pa.array([2])], names=["id", "id"]), SCHEMA)


# Evolution


@pytest.mark.parametrize("mode", MODES)
def test_fields_may_be_added_left_out_and_reordered_at_any_depth(mode):
    old = value_schema(
        "id BIGINT, place STRUCT<city: STRING>, tags ARRAY<STRUCT<a: INT>>, m MAP<STRING, STRUCT<x: INT>>"
    )
    new = value_schema(
        "place STRUCT<zip: INT, city: STRING>, tags ARRAY<STRUCT<a: INT, b: INT>>, m MAP<STRING, STRUCT<y: INT>>, "
        "more DATE"
    )
    assert check(new, [old], mode).compatible
    assert [field.name for field in union([old, new]).arrow] == ["id", "place", "tags", "m", "more"]
    assert union([old, new]) == union([old, new, old])


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        ("id INT", r"field id: integer, but long in schema 1; .*give the field another name"),
        ("ID BIGINT", "field ID: schema 1 calls it id"),
        ("place STRUCT<city: INT>", "field place.city: integer, but string"),
        ("place STRING", "field place: string, but struct<city: string>"),
        ("tags ARRAY<INT>", "field tags.element: integer, but string"),
        ("m MAP<STRING, STRING>", "field m.value: string, but integer"),
    ],
)
def test_a_field_keeps_its_type_for_ever(new, reason):
    first = value_schema("id BIGINT, place STRUCT<city: STRING>, tags ARRAY<STRING>, m MAP<STRING, INT>")
    second = value_schema("other DATE")
    verdict = check(value_schema(new), [first, second, first, union([first, second])])
    assert not verdict.compatible
    assert len(verdict.reasons) == 1
    assert re.search(reason, str(verdict))


def test_modes_that_no_table_can_keep_are_refused():
    with pytest.raises(InvalidConfigurationError, match=r"NONE.*keeps its type for ever.*BACKWARD"):
        check(SCHEMA, [SCHEMA], "NONE")
    with pytest.raises(InvalidConfigurationError, match="expected one of BACKWARD"):
        check(SCHEMA, [SCHEMA], "SIDEWARD")


class Level(enum.IntEnum):
    HIGH = 3


class Whole(int):
    pass


@pytest.mark.parametrize("value", [Level.HIGH, Whole(3)])
def test_members_of_an_int_enumeration_are_integers(value):
    schema = value_schema("a BIGINT, b TINYINT, c DOUBLE, d DECIMAL(5,2), e FLOAT, l ARRAY<INT>, m MAP<INT, INT>")
    row = {"a": value, "b": value, "c": value, "d": value, "e": value, "l": [value], "m": {value: value}}
    check_record(schema, row)
    values, errors = python_rows_to_struct(schema, [row])
    assert errors == {}
    plain = {"a": 3, "b": 3, "c": 3.0, "d": decimal.Decimal(3), "e": 3.0, "l": [3], "m": {3: 3}}
    assert struct_to_python(values) == [plain]


@pytest.mark.parametrize("field", ["a BIGINT", "a TINYINT", "a DOUBLE", "a FLOAT", "a DECIMAL(5,2)"])
def test_a_bool_is_no_integer_and_a_large_member_doesnt_fit(field):
    schema = value_schema(field)
    with pytest.raises(InvalidRecordError, match=r"field a: got True \(bool\)"):
        check_record(schema, {"a": True})
    with pytest.raises(InvalidRecordError, match=r"^field a: "):
        check_record(schema, {"a": Whole(10**40)})
