"""Defaults, renames and the modes: what a new schema may say beside the types of its fields."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Any

import pyarrow as pa
import pytest

from sparklog import schemas
from sparklog.log.value_schemas import check_columns
from sparklog.schemas import ValueSchema, check, value_schema

OLD = value_schema("id BIGINT, lines ARRAY<STRUCT<sku STRING>>, places MAP<STRING, STRUCT<city STRING>>")


@dataclasses.dataclass
class Line:
    sku: str
    count: int = 1


@dataclasses.dataclass
class Order:
    id: int
    lines: list[Line]
    total: float | None = None
    currency: str = "EUR"
    tags: list[str] = dataclasses.field(default_factory=list)
    extra: Line | None = None  # new as a whole: what a count within it defaults to says nothing of values of before


def _avro(*fields: dict[str, Any]) -> ValueSchema:
    return value_schema({"type": "record", "name": "Order", "fields": list(fields)})


def _reasons(new: Any, olds: list[ValueSchema] | None = None, mode: str = "BACKWARD") -> list[str]:
    return [reason.partition(":")[0] for reason in check(value_schema(new), olds or [OLD], mode).reasons]


def test_a_new_field_of_a_class_with_a_default_is_refused_and_one_with_none_is_not():
    verdict = check(value_schema(Order), [OLD])
    assert sorted(reason.partition(":")[0] for reason in verdict.reasons) == [
        "field currency",
        "field lines.element.count",
        "field tags",
    ]
    assert "new, with the default 'EUR', but values of before are read as null" in str(verdict)


def test_the_defaults_of_a_first_schema_and_of_known_fields_are_allowed():
    assert check(value_schema(Order), []).compatible
    typed = value_schema(
        "id BIGINT, lines ARRAY<STRUCT<sku STRING, count BIGINT>>, currency STRING, tags ARRAY<STRING>"
    )
    assert check(value_schema(Order), [typed]).compatible


def test_a_pydantic_model_is_judged_by_its_defaults():
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model(
        "Model",
        id=(int, ...),
        x=(float, 2.0),
        y=(int | None, None),
        z=(list[int], pydantic.Field(default_factory=list)),
    )
    assert _reasons(model) == ["field x", "field z"]


def test_a_class_with_defaults_in_a_set_and_in_annotations_may_go_on():
    @dataclasses.dataclass(frozen=True)
    class Tag:
        name: str = "x"

    old = dataclasses.make_dataclass("Old", [("tags", frozenset[Tag]), ("many", Annotated[list[Tag] | None, "doc"])])
    new = dataclasses.make_dataclass(
        "New", [("tags", frozenset[Tag]), ("many", Annotated[list[Tag] | None, "doc"]), ("note", str | None, None)]
    )
    assert check(value_schema(new), [value_schema(old)]).compatible


def test_a_field_of_a_pydantic_dataclass_may_default_to_none():
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.dataclasses.dataclass(
        type(
            "Model",
            (),
            {"__annotations__": {"id": int, "x": int | None, "y": int}, "x": pydantic.Field(default=None), "y": 3},
        )
    )
    assert _reasons(model) == ["field y"]


def test_words_of_json_schema_that_make_no_field_declare_nothing():
    beside = {"properties": {"id": {"type": "integer"}}, "additionalProperties": {"$ref": "#"}}
    assert check(value_schema({"type": "object", **beside}), [OLD]).compatible
    odd = {"properties": {"id": {"type": "integer", "properties": {"b": True}}}}
    assert check(value_schema(odd), [OLD]).compatible


def test_json_schema_is_judged_by_its_defaults_also_behind_references():
    place = {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "string", "default": "0"}}}
    found = {
        "type": "object",
        "$defs": {"place": place},
        "properties": {
            "id": {"type": "integer", "default": 3},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "kind": {"type": "string", "default": "x"},
            "places": {"type": "object", "additionalProperties": {"$ref": "#/$defs/place"}},
        },
    }
    assert _reasons(found) == ["field kind", "field places.value.zip"]


def test_the_default_of_a_spark_column_is_one():
    columns = [
        {"name": name, "type": "long", "nullable": True, "metadata": {"CURRENT_DEFAULT": default}}
        for name, default in (("a", "5"), ("b", "NULL"), ("id", "7"))
    ]
    assert _reasons(json.dumps({"type": "struct", "fields": columns})) == ["field a"]


def test_avro_is_judged_by_its_defaults_and_aliases():
    line = {
        "type": "record",
        "name": "Line",
        "fields": [{"name": "code", "type": ["null", "string"], "aliases": ["sku"]}],
    }
    new = _avro(
        {"name": "ident", "type": ["null", "long"], "default": None, "aliases": ["id"]},
        {"name": "other", "type": ["null", "long"], "default": None, "aliases": ["never"]},
        {"name": "x", "type": ["int", "null"], "default": 5},
        {"name": "lines", "type": ["null", {"type": "array", "items": ["null", line]}]},
    )
    verdict = check(new, [value_schema("id BIGINT, lines ARRAY<STRUCT<sku STRING>>")])
    assert [reason.partition(":")[0] for reason in verdict.reasons] == [
        "field ident",
        "field x",
        "field lines.element.code",
    ]
    assert "field ident: an alias of id, but a column keeps its name for ever" in str(verdict)
    assert "field lines.element.code: an alias of lines.element.sku" in str(verdict)


def test_an_avro_record_that_is_used_twice_declares_its_defaults_in_both_fields():
    record = {
        "type": "record",
        "name": "Place",
        "fields": [{"name": "city", "type": ["null", "string"], "default": None}],
    }
    wider = {**record, "fields": [*record["fields"], {"name": "zip", "type": ["string", "null"], "default": "0"}]}
    old = _avro({"name": "home", "type": ["null", record]})
    new = _avro({"name": "work", "type": ["null", wider], "default": None}, {"name": "home", "type": ["null", "Place"]})
    assert [reason.partition(":")[0] for reason in check(new, [old]).reasons] == ["field home.zip"]


def test_readers_with_a_default_demand_nothing_of_values_that_lack_the_field():
    old = _avro({"name": "id", "type": "long"}, {"name": "n", "type": "int", "default": 0})
    assert check(_avro({"name": "id", "type": "long"}), [old], "FULL").compatible
    null = _avro({"name": "id", "type": "long"}, {"name": "n", "type": ["null", "int"]})
    assert "field n: readers of schema 1 demand it" in str(check(null, [old], "FORWARD"))


def test_a_topic_keeps_no_declarations_and_schemas_are_equal_without_them():
    schema = value_schema({"type": "object", "properties": {"a": {"type": "string", "default": "x"}}})
    assert schema.declarations
    again = ValueSchema.from_json(schema.to_json())
    assert again == schema
    assert hash(again) == hash(schema)
    assert again.declarations == ()


@pytest.mark.parametrize("mode", ["FORWARD", "FULL", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"])
def test_readers_of_before_may_demand_a_field_that_new_values_lack(mode):
    first = _avro({"name": "id", "type": "long"}, {"name": "x", "type": ["null", "int"]})
    second = _avro({"name": "id", "type": ["null", "long"]}, {"name": "x", "type": ["null", "int"]})
    without = _avro({"name": "x", "type": ["null", "int"]})
    assert "readers of schema 1 demand it" in str(check(without, [first], mode))
    assert check(without, [first], "BACKWARD").compatible
    assert check(without, [second], mode).compatible
    transitive = mode.endswith("_TRANSITIVE")
    assert check(without, [first, second], mode).compatible is not transitive
    assert check(first, [first], mode).compatible


def test_columns_are_compared_with_the_field_of_their_name_alone(monkeypatch):
    compared = []
    differences = schemas.type_differences

    def spy(new: ValueSchema, old: ValueSchema, which: str) -> list[str]:
        compared.append(len(new.arrow) * len(old.arrow))
        return differences(new, old, which)

    monkeypatch.setattr(schemas, "type_differences", spy)
    wide = value_schema(pa.schema([(f"f{number}", pa.int64()) for number in range(200)]))
    column = {"name": "data", "type": json.loads(wide.to_json())}
    check_columns(wide, json.dumps({"fields": [column]}))
    assert sum(compared) == 200
