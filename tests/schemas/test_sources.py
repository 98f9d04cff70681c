"""What may be given as a schema, and what it becomes."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
from typing import Annotated, Any, Literal

import pyarrow as pa
import pytest

from sparklog.config.topic import TOPIC_SETTINGS
from sparklog.schemas import FORMATS, SchemaError, ValueSchema, check_record, schema_of_file, value_schema
from sparklog.schemas.canonical import type_name
from tests.schemas.messages import a_file, message_of

UTC = pa.timestamp("us", "UTC")


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Place:
    city: str
    zip: int | None


@dataclasses.dataclass
class Order:
    id: int
    total: float
    at: datetime.datetime
    price: Annotated[decimal.Decimal, pa.decimal128(10, 2)]
    place: Place | None
    tags: list[str]
    counts: dict[str, int]
    color: Color
    kind: Literal["a", "b"]


@dataclasses.dataclass
class Node:
    child: Node | None


ORDER = {
    "id": "long",
    "total": "double",
    "at": "timestamp",
    "price": "decimal(10,2)",
    "place": "struct<city: string, zip: long>",
    "tags": "array<string>",
    "counts": "map<string, long>",
    "color": "string",
    "kind": "string",
}


def types(schema: ValueSchema) -> dict[str, str]:
    return {field.name: type_name(field.type) for field in schema.arrow}


def test_types_that_delta_lacks_become_the_next_that_it_has():
    given = {
        "a": pa.uint8(),
        "b": pa.uint64(),
        "c": pa.float16(),
        "d": pa.large_string(),
        "e": pa.binary(4),
        "f": pa.timestamp("ns", "Europe/Berlin"),
        "g": pa.dictionary(pa.int8(), pa.string()),
        "h": pa.large_list(pa.uint32()),
        "i": pa.date64(),
        "j": pa.map_(pa.string(), pa.decimal256(38, 3)),
    }
    assert types(value_schema(pa.schema(given.items()))) == {
        "a": "short",
        "b": "decimal(20,0)",
        "c": "float",
        "d": "string",
        "e": "binary",
        "f": "timestamp",
        "g": "string",
        "h": "array<long>",
        "i": "date",
        "j": "map<string, decimal(38,3)>",
    }


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (pa.timestamp("us"), "field a: .*without a time zone"),
        (pa.time64("us"), "field a: .*time of day"),
        (pa.decimal256(39, 1), "field a: .*38 digits"),
        (pa.null(), "field a: a topic can't hold null"),
        (pa.struct([]), "field a: .*no field"),
        (pa.struct([("b", pa.list_(pa.duration("s")))]), "field a.b.element: "),
        (pa.map_(pa.list_(pa.string()), pa.int32()), "field a: a map with keys of list"),
    ],
    ids=str,
)
def test_a_type_that_cannot_be_held_is_named_with_its_field(kind, reason):
    with pytest.raises(SchemaError, match=reason):
        value_schema(pa.schema([("a", kind)]))


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a,b", "x" * 256])
def test_names_that_delta_refuses_are_refused(name):
    with pytest.raises(SchemaError, match="expected a name"):
        value_schema(pa.schema([(name, pa.int64())]))


def test_names_that_differ_in_case_alone_are_refused():
    with pytest.raises(SchemaError, match="fields id and ID: "):
        value_schema(pa.schema([("id", pa.int64()), ("ID", pa.int64())]))


def test_a_schema_of_2000_fields_is_one_and_one_that_is_too_deep_or_large_is_not():
    wide = value_schema(pa.schema([(f"f{number}", pa.int64()) for number in range(2_000)]))
    assert len(ValueSchema.from_json(wide.to_json()).arrow) == 2_000
    with pytest.raises(SchemaError, match="fields at most"):
        value_schema(pa.schema([(f"f{number}", pa.int64()) for number in range(10_001)]))
    kind: pa.DataType = pa.int64()
    for _ in range(40):
        kind = pa.struct([("a", kind)])
    with pytest.raises(SchemaError, match="deeper than 32 levels"):
        value_schema(pa.schema([("a", kind)]))
    with pytest.raises(SchemaError, match="one field at least"):
        value_schema(pa.schema([]))


@pytest.mark.parametrize(
    "text",
    [
        "id BIGINT, total DOUBLE, place STRUCT<city: STRING, zip: INT>, tags ARRAY<STRING>, "
        "m MAP<STRING, DECIMAL(5,2)>",
        "id long not null, `total` double comment 'it''s', place struct<city string, zip int>, tags array<string>,"
        " m map<string, numeric(5, 2)>",
    ],
)
def test_sql_says_what_a_schema_is(text):
    text = text.replace("''", "")
    assert types(value_schema(text)) == {
        "id": "long",
        "total": "double",
        "place": "struct<city: string, zip: integer>",
        "tags": "array<string>",
        "m": "map<string, decimal(5,2)>",
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("id", "got the end.*expected a type|expected one of"),
        ("id BIGINT total DOUBLE", "got 'total'"),
        ("id NUMBER(5)", "got 'NUMBER'"),
        ("a ARRAY<INT", "expected >"),
        ("a STRUCT<b: INT", "expected a comma or >"),
        ("a DECIMAL(50, 2)", "DECIMAL"),
        ("a INT; DROP TABLE b", "can't be read"),
        ("a TIMESTAMP_NTZ", "without a time zone"),
        ("a " + "ARRAY<" * 100, "nested deeper"),
    ],
)
def test_sql_that_cannot_be_read_is_refused_where(text, reason):
    with pytest.raises(SchemaError, match=reason):
        value_schema(text)


def test_a_dataclass_is_a_schema():
    assert types(value_schema(Order)) == ORDER


def test_a_pydantic_model_is_a_schema():
    pydantic = pytest.importorskip("pydantic")

    at = (datetime.datetime | None, None)
    model = pydantic.create_model("Model", id=(int, ...), tags=(list[str], ...), at=at)
    assert types(value_schema(model)) == {"id": "long", "tags": "array<string>", "at": "timestamp"}


def test_classes_that_hold_themselves_or_what_no_column_can_are_refused():
    with pytest.raises(SchemaError, match=r"field child: Node holds itself"):
        value_schema(Node)
    for hint, reason in ((int | str, "a union of 2 types"), (decimal.Decimal, "needs its digits"), (Any, "can't be")):
        made = dataclasses.make_dataclass("Made", [("a", hint)])
        with pytest.raises(SchemaError, match=f"field a: .*{reason}"):
            value_schema(made)


def test_json_schema_says_what_a_schema_is():
    source = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"place": {"type": "object", "properties": {"city": {"type": "string"}}}},
        "properties": {
            "id": {"type": "integer"},
            "total": {"type": ["number", "null"]},
            "at": {"type": "string", "format": "date-time"},
            "day": {"type": "string", "format": "date"},
            "place": {"$ref": "#/$defs/place"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "m": {"type": "object", "additionalProperties": {"type": "integer"}},
            "color": {"enum": ["red", "blue"]},
            "maybe": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        },
        "required": ["id"],
    }
    assert types(value_schema(source)) == {
        "id": "long",
        "total": "double",
        "at": "timestamp",
        "day": "date",
        "place": "struct<city: string>",
        "tags": "array<string>",
        "m": "map<string, long>",
        "color": "string",
        "maybe": "boolean",
    }
    assert value_schema(json.dumps(source)) == value_schema(source)


AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "n", "type": ["null", "int"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED"]}},
        {"name": "other", "type": "Color"},
        {"name": "hash", "type": {"type": "fixed", "name": "MD5", "size": 16}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "m", "type": {"type": "map", "values": "float"}},
        {"name": "place", "type": {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}},
    ],
}


def test_an_avro_record_is_a_schema():
    assert types(value_schema(AVRO)) == {
        "id": "long",
        "n": "integer",
        "at": "timestamp",
        "price": "decimal(10,2)",
        "color": "string",
        "other": "string",
        "hash": "binary",
        "tags": "array<string>",
        "m": "map<string, float>",
        "place": "struct<city: string>",
    }


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({**AVRO, "fields": [{"name": "a", "type": ["int", "string"]}]}, "field a: a union of 2 types"),
        ({**AVRO, "fields": [{"name": "a", "type": ["null", "Order"]}]}, "field a: Order holds itself"),
        ({**AVRO, "fields": [{"name": "a", "type": "Missing"}]}, "'Missing' isn't known"),
        ({**AVRO, "fields": [{"type": "int"}]}, "can't be read: KeyError"),
        ({"properties": {"a": {"type": ["integer", "string"]}}}, "field a: a union of integer, string"),
        ({"properties": {"a": {"$ref": "#"}}}, "field a.a: # holds itself"),
        ({"properties": {"a": {"$ref": "https://x"}}}, "leads nowhere"),
        ({"properties": {"a": {"type": "object"}}}, "an object without properties"),
        ({"properties": {"a": {"type": "array"}}}, "an array without items"),
        ({"properties": {"a": {"type": "float"}}}, "the type 'float'"),
        ({"type": "struct", "fields": [{"name": "a", "type": "interval"}]}, "the type 'interval'"),
        ({"a": 1}, "neither JSON Schema, Avro nor Spark's"),
        ("{", "isn't"),
        ("[" * 100_000, "isn't"),
        (7, "a schema of int"),
    ],
    ids=lambda given: str(given)[:40],
)
def test_sources_that_are_no_schema_are_refused_with_the_reason(source, reason):
    with pytest.raises(SchemaError, match=reason):
        value_schema(source)


def test_a_protobuf_message_is_a_schema():
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2, struct_pb2, timestamp_pb2

    assert types(value_schema(timestamp_pb2.Timestamp)) == {"seconds": "long", "nanos": "integer"}
    assert types(value_schema(descriptor_pb2.UninterpretedOption.NamePart)) == {
        "name_part": "string",
        "is_extension": "boolean",
    }
    with pytest.raises(SchemaError, match="holds itself"):
        value_schema(struct_pb2.Struct)


def test_the_json_of_a_schema_is_that_of_spark_and_is_read_back():
    schema = value_schema(Order)
    found = json.loads(schema.to_json())
    assert found["fields"][0] == {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    assert ValueSchema.from_json(schema.to_json()) == schema
    assert hash(ValueSchema.from_json(schema.to_json())) == hash(schema)
    assert value_schema(schema.to_json()) == schema
    assert schema.leaves() == ("id", "total", "at", "price", "place.city", "place.zip", "color", "kind")


def test_a_struct_type_of_spark_is_a_schema():
    class StructType:
        def json(self) -> str:
            return value_schema("id BIGINT").to_json()

    assert types(value_schema(StructType())) == {"id": "long"}


def test_files_hold_schemas(tmp_path):
    (tmp_path / "a.avsc").write_text(json.dumps(AVRO))
    (tmp_path / "a.sql").write_text("id BIGINT")
    (tmp_path / "bad.json").write_text("{")
    assert schema_of_file(tmp_path / "a.avsc") == value_schema(AVRO)
    assert types(schema_of_file(tmp_path / "a.sql")) == {"id": "long"}
    for name, reason in (("bad.json", "bad.json: "), ("a.proto", "must be compiled"), ("a.txt", "ends with")):
        with pytest.raises(SchemaError, match=reason):
            schema_of_file(tmp_path / name)


def test_the_formats_are_those_that_a_topic_may_have():
    for name in FORMATS:
        assert TOPIC_SETTINGS["value.format"].parse(name) == name


def test_a_small_schema_cannot_become_a_huge_one():
    """Each of 30 types has two fields of the next: a billion fields in all."""
    pytest.importorskip("google.protobuf")
    kind: Any = "int"
    for number in range(30):
        first = {"name": "a", "type": kind}
        other = kind["name"] if isinstance(kind, dict) else kind
        kind = {"type": "record", "name": f"R{number}", "fields": [first, {"name": "b", "type": other}]}
    parts: dict[str, Any] = {"D0": {"type": "integer"}}
    for number in range(30):
        inner = {"$ref": f"#/$defs/D{number}"}
        parts[f"D{number + 1}"] = {"type": "object", "properties": {"a": inner, "b": inner}}
    for source in (kind, {"type": "object", "properties": {"a": {"$ref": "#/$defs/D30"}}, "$defs": parts}, laughing()):
        with pytest.raises(SchemaError, match="10000 fields at most"):
            value_schema(source)


def laughing():
    files = a_file("laugh")
    for number in range(30):
        message = files.message_type.add(name=f"M{number}")
        for at, name in enumerate("ab", 1):
            if number:
                message.field.add(name=name, number=at, type=11, label=1, type_name=f".M{number - 1}")
            else:
                message.field.add(name=name, number=at, type=5, label=1)
    return message_of(files, "M29")


class Level(enum.IntEnum):
    LOW = 1


class Size(enum.Enum):
    SMALL = 1


class Mixed(enum.Enum):
    A = 1
    B = "b"


class Flag(enum.Enum):
    ON = True


def test_an_enumeration_of_integers_is_a_long():
    numbered: tuple[type[enum.Enum], ...] = (Level, Size)
    for kind in numbered:
        made = dataclasses.make_dataclass("Made", [("level", kind)])
        assert types(value_schema(made)) == {"level": "long"}
        check_record(value_schema(made), made(next(iter(kind))))
    refused: tuple[type[enum.Enum], ...] = (Mixed, Flag)
    for kind in refused:
        with pytest.raises(SchemaError, match=r"field level: .* can't be a column"):
            value_schema(dataclasses.make_dataclass("Made", [("level", kind)]))
