"""Values in Avro by a writer's own schema: fields that aren't unions, names, logical types, malicious bytes."""

from __future__ import annotations

import datetime
import io
import random
from typing import Any

import pyarrow as pa
import pytest

from sparklog.schemas import (
    SchemaError,
    UnwritableError,
    check,
    check_format,
    decode,
    encode,
    python_rows_to_struct,
    struct_to_python,
    unmet_demands,
    value_schema,
)

fastavro = pytest.importorskip("fastavro")

INNER = {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "int"}]}
RECORD: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "com.shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}},
        {"name": "hash", "type": ["null", {"type": "fixed", "name": "H", "size": 2}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "key", "type": ["null", {"type": "string", "logicalType": "uuid"}]},
        {"name": "of_day", "type": ["null", {"type": "long", "logicalType": "time-micros"}]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "inner", "type": ["null", INNER]},
        {"name": "again", "type": ["null", "com.shop.Inner"]},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "pairs", "type": {"type": "array", "items": {"type": "record", "name": "Pair", "fields": [
            {"name": "key", "type": "string"}, {"name": "value", "type": "int"}]}}},
    ],
}  # fmt: skip
SCHEMA = value_schema(RECORD)
NOON = datetime.datetime(2026, 1, 2, 12, 0, 0, 123_000, tzinfo=datetime.UTC)
ROW: dict[str, Any] = {
    "id": 0, "total": -0.0, "note": "a\0", "color": "GREEN", "hash": b"ab", "at": NOON, "key": "k", "of_day": 5,
    "tags": [], "inner": {"n": 1}, "again": None, "counts": {"x": 2**63 - 1}, "pairs": [{"key": "a", "value": 1}],
}  # fmt: skip


def written(row, record=None):
    """The bytes that a client writes who knows nothing of sparklog."""
    target = io.BytesIO()
    at = int(row["at"].timestamp() * 1000)
    plain = {**(record or RECORD), "fields": [*(record or RECORD)["fields"]]}
    plain["fields"][5] = {"name": "at", "type": "long"}
    plain["fields"][6] = {"name": "key", "type": ["null", "string"]}
    plain["fields"][7] = {"name": "of_day", "type": ["null", "long"]}
    fastavro.schemaless_writer(target, fastavro.parse_schema(plain), {**row, "at": at})
    return target.getvalue()


def test_bytes_are_read_and_written_by_the_writers_own_schema():
    column, errors = decode("avro", SCHEMA, pa.array([written(ROW), None], pa.binary()))
    assert errors == {}
    [row, none] = struct_to_python(column)
    assert none is None
    assert row == ROW
    assert str(row["total"]) == "-0.0"
    assert encode("avro", SCHEMA, column).to_pylist() == [written(ROW), None]


def test_names_are_those_of_their_namespaces():
    def record(name, namespace, kind):
        return {"type": "record", "name": name, "namespace": namespace, "fields": [{"name": "x", "type": kind}]}

    fields = [
        {"name": "one", "type": record("Place", "a", "int")},
        {"name": "two", "type": record("Place", "b", "string")},
        {"name": "three", "type": "b.Place"},
        {"name": "four", "type": ["null", "a.Place"]},
    ]
    schema = value_schema({"type": "record", "name": "Top", "fields": fields})
    assert [str(field.type) for field in schema.arrow] == [
        "struct<x: int32>",
        "struct<x: string>",
        "struct<x: string>",
        "struct<x: int32>",
    ]
    check_format("avro", schema)


def test_an_inner_namespace_ends_with_its_record():
    inner = {"type": "record", "name": "x.Inner", "fields": [{"name": "n", "type": {
        "type": "enum", "name": "E", "symbols": ["A"]}}]}  # fmt: skip
    fields = [{"name": "one", "type": inner}, {"name": "two", "type": "x.E"}]
    check_format("avro", value_schema({"type": "record", "name": "Top", "fields": fields}))
    with pytest.raises(SchemaError, match="'E' isn't known"):
        value_schema({"type": "record", "name": "Top", "fields": [*fields[:1], {"name": "two", "type": "E"}]})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": None}, "field id: null"),
        ({"color": "BLUE"}, "field color: got BLUE, expected one of RED, GREEN"),
        ({"hash": b"abc"}, "field hash: got b'abc', expected 2 bytes"),
        ({"at": NOON.replace(microsecond=1)}, "expected whole milliseconds"),
        ({"tags": ["a", None]}, "field tags.element: null"),
        ({"inner": {"n": None}}, "field inner.n: null"),
        ({"counts": {"x": None}}, "field counts.value: null"),
    ],
)
def test_what_the_avro_schema_does_not_allow_is_told(change, reason):
    column, errors = python_rows_to_struct(SCHEMA, [ROW, {**ROW, **change}, None, ROW])
    assert errors == {}
    for rows in (column, pa.concat_arrays([column, column]).slice(4)):
        found = unmet_demands(SCHEMA, rows)
        assert [*found] == [1]
        assert reason in found[1]


def test_what_cannot_be_written_is_told_by_its_place():
    column, _ = python_rows_to_struct(SCHEMA, [ROW, {}])
    with pytest.raises(UnwritableError) as caught:
        encode("avro", SCHEMA, column)
    assert caught.value.place == 1


def test_a_new_field_must_allow_null():
    old = value_schema({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})

    def wider(kind):
        fields = [{"name": "a", "type": "int"}, {"name": "b", "type": kind, "default": None}]
        return value_schema({"type": "record", "name": "R", "fields": fields})

    assert check(wider(["null", "int"]), [old]).compatible
    verdict = check(wider("int"), [old])
    assert verdict.reasons == (
        "field b: it can't be null, but values of schema 1 may lack it; make it a union with null, which is optional "
        "in Protobuf",
    )
    nullable = value_schema({"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "int"]}]})
    assert check(nullable, [old]).compatible
    assert not check(old, [nullable]).compatible
    assert nullable != old
    assert nullable.arrow == old.arrow


def test_a_list_of_things_without_bytes_is_no_schema():
    items = {"type": "fixed", "name": "F", "size": 0}
    with pytest.raises(SchemaError, match="fixed of 0 bytes"):
        value_schema(
            {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": items}}]}
        )


HUGE = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # 2^63 - 1 as a zigzag varint


@pytest.mark.parametrize(
    "kind", ["string", "bytes", {"type": "array", "items": "string"}, {"type": "map", "values": "int"}]
)
@pytest.mark.parametrize(
    "length", [HUGE, b"\xff" * 9 + b"\x01", b"\x80" * 20, b"\xfe\xff\xff\xff\x0f", b"\x01", b"\x04"]
)
def test_bytes_that_claim_a_huge_length_are_refused(kind, length):
    schema = value_schema({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]})
    column, errors = decode("avro", schema, pa.array([length, length + b"\x00" * 3], pa.binary()))
    assert 0 in errors
    assert column.null_count >= 1


def test_any_bytes_are_a_value_or_an_error():
    random.seed(7)
    good = written(ROW)
    raws = [good[:at] for at in range(len(good))]
    for _ in range(3_000):
        changed = bytearray(good)
        for _ in range(random.randint(1, 4)):
            changed[random.randrange(len(changed))] = random.choice(
                [0, 1, 0x7F, 0x80, 0xFE, 0xFF, random.randrange(256)]
            )
        raws.append(bytes(changed))
    column, errors = decode("avro", SCHEMA, pa.array(raws, pa.binary()))
    assert len(column) == len(raws)
    assert {at for at, row in enumerate(struct_to_python(column)) if row is None} == {*errors}
    assert all(at in errors for at in range(len(good)))
