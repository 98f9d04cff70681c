"""JSON Schema as pydantic, OpenAPI's generators and people write it: spellings of nullable, and references."""

from __future__ import annotations

from typing import Any

import pytest

from sparklog.schemas import SchemaError, value_schema

PLACE = {"type": "object", "properties": {"city": {"type": "string"}}}
DEFS: dict[str, Any] = {
    "Place": PLACE,
    "a/b": {"type": "integer"},
    "a~b": {"type": "boolean"},
    "a~1b": {"type": "number"},
    "a b": {"type": "string"},
    "50%": {"type": "string", "format": "date"},
    "": {"type": "integer"},
    "many": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
}


def kind_of(field: Any) -> str:
    return str(value_schema({"type": "object", "properties": {"x": field}, "$defs": DEFS}).arrow.field("x").type)


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ({"allOf": [{"$ref": "#/$defs/Place"}]}, "struct<city: string>"),
        ({"allOf": [{"$ref": "#/$defs/Place"}], "description": "d", "nullable": True}, "struct<city: string>"),
        ({"type": "object", "allOf": [{"$ref": "#/$defs/Place"}]}, "struct<city: string>"),
        ({"allOf": [{"$ref": "#/$defs/Place"}, {"description": "d"}]}, "struct<city: string>"),
        ({"anyOf": [{"allOf": [{"$ref": "#/$defs/Place"}]}, {"type": "null"}]}, "struct<city: string>"),
        ({"allOf": [{"allOf": [{"type": "integer"}]}]}, "int64"),
        ({"type": "integer", "allOf": [{"minimum": 0}, {"type": "number"}, {"type": "integer"}]}, "int64"),
        ({**PLACE, "allOf": [{"required": ["city"]}]}, "struct<city: string>"),
        ({"type": "array", "items": {"allOf": [{"$ref": "#/$defs/Place"}]}}, "list<element: struct<city: string>>"),
    ],
)
def test_all_of_one_schema_is_that_schema(field, kind):
    assert kind_of(field) == kind


@pytest.mark.parametrize(
    ("pointer", "kind"),
    [
        ("#/$defs/a~1b", "int64"),
        ("#/$defs/a~0b", "bool"),
        ("#/$defs/a~01b", "double"),
        ("#/$defs/a%20b", "string"),
        ("#/$defs/a b", "string"),
        ("#/%24defs/a~1b", "int64"),
        ("#/$defs/a%7E1b", "int64"),
        ("#/$defs/50%25", "date32[day]"),
        ("#/$defs/", "int64"),
        ("#/$defs/many/anyOf/1", "int64"),
    ],
)
def test_pointers_are_read_as_their_standard_says(pointer, kind):
    assert kind_of({"$ref": pointer}) == kind


@pytest.mark.parametrize(
    "pointer",
    ["#/$defs/none", "#Place", "#/$defs/a~2b", "#/$defs/many/anyOf/2", "#/$defs/many/anyOf/01", "other#/x", ""],
)
def test_pointers_that_lead_nowhere_are_refused(pointer):
    with pytest.raises(SchemaError, match=r"field x: the reference .* leads nowhere"):
        kind_of({"$ref": pointer})


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ({"anyOf": [{"type": "integer"}, {"const": None}]}, "int64"),
        ({"oneOf": [{"enum": [None]}, {"type": "string", "format": "date-time"}]}, "timestamp[us, tz=UTC]"),
        ({"anyOf": [{"$ref": "#/$defs/Place"}, {"type": ["null"]}]}, "struct<city: string>"),
        ({"anyOf": [{"type": "integer"}, {"type": "null", "const": None}]}, "int64"),
        ({"enum": ["a", None]}, "string"),
        ({"type": ["string", "null"], "enum": ["a", None]}, "string"),
        ({"enum": [1, 2, None]}, "int64"),
        ({"enum": [1, 2.5]}, "double"),
        ({"const": True}, "bool"),
        ({"const": "a"}, "string"),
        ({"oneOf": [{"const": "a", "title": "A"}, {"const": "b"}, {"const": None}]}, "string"),
    ],
)
def test_null_among_constants_and_enumerations_makes_a_type_nullable(field, kind):
    assert kind_of(field) == kind


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ({"const": None}, "field x: null alone"),
        ({"enum": [None]}, "field x: null alone"),
        ({"type": "null"}, "field x: null alone"),
        ({"anyOf": [{"const": None}]}, "field x: anyOf of 0 types"),
        ({"oneOf": [{"const": "a"}, {"const": 1}]}, "field x: oneOf of 2 types"),
        ({"allOf": [{"$ref": "#/$defs/Place"}, {"type": "object", "properties": {}}]}, "field x: allOf of 2 types"),
        ({"enum": ["a", 1]}, "field x: the type 'None'"),
        ({"allOf": []}, "field x: the type 'None'"),
    ],
)
def test_what_has_no_one_type_is_refused_with_the_field(field, reason):
    with pytest.raises(SchemaError, match=reason):
        kind_of(field)
