"""Bytes that can't be decoded among many that can: these stay in the bulk path, which reads them by columns."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparklog.schemas import (
    ValueSchema,
    decode,
    encode,
    formats,
    python_rows_to_struct,
    struct_to_python,
    value_schema,
)
from sparklog.schemas.json_columns import reads_as_columns
from sparklog.schemas.json_pattern import look_readable
from sparklog.schemas.json_values import json_reader
from tests.depth import by_depth
from tests.schemas.test_values import FLAT, PIECES, same, schemas_and_rows

SCHEMA = value_schema(
    "id BIGINT, small TINYINT, total DOUBLE, ratio FLOAT, price DECIMAL(5,2), name STRING, flag BOOLEAN, "
    "at TIMESTAMP, day DATE, tags ARRAY<STRING>, place STRUCT<city: STRING, zip: INT>"
)
GOOD = {
    "id": -(2**63) + 1,
    "small": 127,
    "total": 1.7e-300,
    "ratio": 0.1,
    "price": "-999.99",
    "name": 'é "\\\x00 €\U0001f600',
    "flag": True,
    "at": "2024-02-29T23:59:59.123456+05:30",
    "day": "2026-12-31",
    "tags": ["a", None, ""],
    "place": {"city": None, "zip": 2**31 - 1},
}
COUNT = 2_000


def values_of(good: Any, bad: bytes, *, ascii_only: bool = True) -> list[bytes]:
    """Many values, one of ten of which is bad."""
    text = json.dumps(good, ensure_ascii=ascii_only).encode()
    return [bad if at % 10 == 3 else text for at in range(COUNT)]


@pytest.fixture
def read_alone(monkeypatch):
    """Collects the values that are read one by one."""
    found = []
    one_by_one = formats._one_by_one

    def noting(schema, read, values):
        found.extend(values.to_pylist())
        return one_by_one(schema, read, values)

    monkeypatch.setattr(formats, "_one_by_one", noting)
    return found


@pytest.mark.parametrize(
    "bad",
    [
        b"garbage",
        b"",
        b'{"id":1',
        b'{"id":1,}',
        b'{"id":1}}',
        b'{"id":"x"}',
        b'{"id":true}',
        b'{"id":1.5}',
        b'{"id":9223372036854775808}',
        b'{"id":01}',
        b'{"small":128}',
        b'{"total":NaN}',
        b'{"total":1e400}',
        b'{"ratio":1e300}',
        b'{"price":1000}',
        b'{"price":"1.005"}',
        b'{"name":7}',
        b'{"name":"\xff"}',
        b'{"name":"\\ud800"}',
        b'{"name":"a\nb"}',
        b'{"flag":1}',
        b'{"at":"2026-01-02T03:04:05"}',
        b'{"at":"2026-02-30T03:04:05Z"}',
        b'{"day":"2026-02-29"}',
        b'{"tags":"a"}',
        b'{"tags":["a",1]}',
        b'{"place":{"zip":2147483648}}',
        b'{"place":{"town":"x"}}',
        b'{"other":1}',
        b'{"ID":1}',
        b"[" * 100_000,
    ],
    ids=lambda bad: repr(bad[:40]),
)
@pytest.mark.parametrize("ascii_only", [True, False], ids=["escaped", "utf-8"])
def test_a_tenth_that_is_no_value_costs_the_others_nothing(read_alone, bad, ascii_only):
    found, errors = decode("json", SCHEMA, pa.array(values_of(GOOD, bad, ascii_only=ascii_only), pa.binary()))
    assert read_alone == [bad] * (COUNT // 10)
    assert [*errors] == [*range(3, COUNT, 10)]
    rows = found.to_pylist()
    assert [at for at, row in enumerate(rows) if row is None] == [*errors]
    assert (rows[0]["id"], rows[0]["name"], rows[0]["place"]) == (GOOD["id"], GOOD["name"], GOOD["place"])


def test_what_is_read_in_python_alone_costs_the_others_nothing(read_alone):
    given = values_of(GOOD, b'{"id":5.0,"at":"2026-01-02T03:04:05z"}')
    found, errors = decode("json", SCHEMA, pa.array(given, pa.binary()))
    assert (errors, len(read_alone)) == ({}, COUNT // 10)
    assert [row["id"] for row in found.to_pylist()[:5]] == [GOOD["id"]] * 3 + [5, GOOD["id"]]


def test_a_field_that_is_there_twice_costs_those_around_it_alone(read_alone):  # the last counts, as in Python
    given = values_of(GOOD, b"{}")
    given[1_000] = b'{"id":1,"id":2}'
    found, errors = decode("json", SCHEMA, pa.array([one for one in given if one != b"{}"], pa.binary()))
    assert (errors, len(read_alone)) == ({}, formats._ROWS_AROUND)
    assert found.to_pylist().count({**dict.fromkeys(GOOD), "id": 2}) == 1


def test_of_a_very_wide_schema_texts_without_braces_are_read_alone(read_alone):
    schema = value_schema(pa.schema([(f"field_{at}", pa.timestamp("us", "UTC")) for at in range(2_000)]))
    assert look_readable(schema, pa.array([b"{}"])) is None
    found, errors = decode("json", schema, pa.array(values_of({"field_7": None}, b"garbage"), pa.binary()))
    assert read_alone == [b"garbage"] * (COUNT // 10)
    assert (len(errors), found.null_count) == (COUNT // 10, COUNT // 10)


# Whatever is read at once is read as one by one would


def one_by_one(schema: ValueSchema, values: list[bytes]) -> tuple[pa.StructArray, dict[int, str]]:
    return formats._one_by_one(schema, json_reader(schema), pa.array(values, pa.binary()))


def read_as_alone(schema: ValueSchema, values: list[bytes]) -> None:
    expected, reasons = one_by_one(schema, values)
    found, errors = decode("json", schema, pa.array(values, pa.binary()))
    found.validate(full=True)
    assert errors == reasons
    assert found.type == expected.type
    assert same(struct_to_python(found), struct_to_python(expected))


CHANGES = st.lists(
    st.tuples(
        st.integers(0, 200),
        st.integers(0, 3),
        st.sampled_from([b"", b" ", b"\n", b"\0", b"\xff", b"\xc3\xa9", b"\\", b'"', b"\\ud83d", b"\\n", b"\x1f"])
        | st.sampled_from([b"{", b"}", b"[", b"]", b",", b":", b"null", b"true", b"NaN", b"-", b"+", b".", b"e", b"Z"])
        | st.integers(-1, 99).map(lambda number: str(number).encode()),
    ),
    max_size=2,
)


def changed(value: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    for place, length, new in changes:
        at = place % (len(value) + 1)
        value = value[:at] + new + value[at + length :]
    return value


@settings(max_examples=by_depth(gate=50, nightly=300), deadline=None)
@given(schemas_and_rows(), st.lists(CHANGES, min_size=4, max_size=4))
def test_any_json_of_any_schema_with_any_mistakes_is_read_as_one_by_one(found, changes):
    schema, rows = found
    column, _ = python_rows_to_struct(schema, rows)
    values = [one for one in encode("json", schema, column).to_pylist() if one is not None]
    read_as_alone(schema, [b"{}", *map(changed, values, changes), *values])


@settings(max_examples=by_depth(gate=50, nightly=300), deadline=None)
@example([(b'{"a":1{"b":2}', []), (b'{"l":[1[2]}', []), (b'{,"a":1}', [])])  # which the expression takes
@given(st.lists(st.tuples(st.sampled_from([one for one in PIECES if one is not None]), CHANGES), max_size=6))
def test_any_piece_of_json_with_any_mistakes_is_read_as_one_by_one(given):
    read_as_alone(FLAT, [changed(value, changes) for value, changes in given])


@settings(max_examples=by_depth(gate=40, nightly=200), deadline=None)
@given(schemas_and_rows())
def test_json_as_it_is_written_looks_readable(found):
    schema, rows = found
    if not reads_as_columns(schema.struct_type):
        return
    column, _ = python_rows_to_struct(schema, [row for row in rows if row is not None])
    values = encode("json", schema, column)
    looks = look_readable(schema, values)
    assert looks is not None
    for value, is_readable in zip(values.to_pylist(), looks.to_pylist(), strict=True):
        assert is_readable or _is_rare(value), value


def _is_rare(value: bytes) -> bool:
    """Has it what isn't readable at once, or might not be: a float that JSON has no number for, an early year, a large
    exponent?"""
    return any(part in value for part in (b"NaN", b"Infinity", b'"0', b"-02-29", b"E", b"e+"))
