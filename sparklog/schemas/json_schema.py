"""Schemas of JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sparklog.schemas.canonical import MOST_FIELDS, Declaration, SchemaError, ValueSchema, canonical_schema

__all__ = ["is_json_schema", "schema_of_json_schema"]

_SIMPLE = {"boolean": pa.bool_(), "integer": pa.int64(), "number": pa.float64(), "string": pa.string()}
_FORMATS = {"date-time": pa.timestamp("us", "UTC"), "date": pa.date32()}
_MOST_DEPTH = 64
_MOST_PARTS = 4 * MOST_FIELDS
"""A field may be a reference to a list of a type."""


def is_json_schema(found: Any) -> bool:
    """Does a dict look like the JSON Schema of an object?"""
    return isinstance(found, Mapping) and ("properties" in found or "$ref" in found or "$schema" in found)


def schema_of_json_schema(found: Mapping[str, Any]) -> ValueSchema:
    """The schema of an object in JSON Schema: an integer is a long, a number a double, ``format`` date-time and date
    are times, ``additionalProperties`` with a type is a map; enumerations are texts.

    Raises ``SchemaError``: what has no counterpart (unions, references to itself, objects without properties).
    """
    reading = _Reading()
    kind = _type_of(found, "", found, (), reading)
    if not pa.types.is_struct(kind):
        raise SchemaError("a JSON Schema of no object; expected type object with properties")
    return replace(canonical_schema(kind), declarations=tuple(reading.declarations))


class _Reading:
    """The count of parts that were read of a schema so far, and what they declare beside their types."""

    def __init__(self) -> None:
        self.count = 0
        self.declarations: list[Declaration] = []


def _type_of(
    found: Any, path: str, root: Mapping[str, Any], references: tuple[str, ...], reading: _Reading
) -> pa.DataType:
    reading.count += 1
    if reading.count > _MOST_PARTS:  # references may repeat one another, and be a billion fields in a hundred lines
        raise SchemaError(f"a schema has {MOST_FIELDS} fields at most, with nested ones")
    if len(references) > _MOST_DEPTH or path.count(".") > _MOST_DEPTH:
        raise SchemaError(f"field {path}: nested deeper than {_MOST_DEPTH} levels")
    if not isinstance(found, Mapping):
        raise SchemaError(f"field {path}: expected a schema, got {str(found)[:40]!r}")
    if "$ref" in found:
        name = str(found["$ref"])
        if name in references:
            raise SchemaError(f"field {path}: {name} holds itself; recursive types can't be columns")
        return _type_of(_resolved(name, root, path), path, root, (*references, name), reading)
    for word in ("anyOf", "oneOf"):
        if word in found:
            kinds = [each for each in found[word] if not (isinstance(each, Mapping) and each.get("type") == "null")]
            if len(kinds) != 1:
                raise SchemaError(f"field {path}: {word} of {len(kinds)} types; expected one, or one and null")
            return _type_of(kinds[0], path, root, references, reading)
    kind = _name_of(found, path)
    if kind in _SIMPLE:
        return _FORMATS.get(str(found.get("format")), _SIMPLE[kind]) if kind == "string" else _SIMPLE[kind]
    if kind == "array":
        if "items" not in found:
            raise SchemaError(f"field {path}: an array without items")
        return pa.list_(_type_of(found["items"], f"{path}.element", root, references, reading))
    if kind == "object":
        return _object(found, path, root, references, reading)
    raise SchemaError(f"field {path}: the type {kind!r}; expected one of {', '.join(_SIMPLE)}, array, object")


def _name_of(found: Mapping[str, Any], path: str) -> str:
    kind = found.get("type")
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        if len(kinds) != 1:
            raise SchemaError(
                f"field {path}: a union of {', '.join(map(str, kinds))}; expected one type, or one type and null"
            )
        kind = kinds[0]
    if kind is None and "properties" in found:
        return "object"
    if kind is None and all(isinstance(each, str) for each in found.get("enum", [0])):
        return "string"
    return str(kind)


def _object(
    found: Mapping[str, Any], path: str, root: Mapping[str, Any], references: tuple[str, ...], reading: _Reading
) -> pa.DataType:
    properties = found.get("properties")
    if properties:
        prefix = f"{path}." if path else ""
        for name, each in properties.items():
            if isinstance(each, Mapping) and each.get("default") is not None:
                reading.declarations.append(Declaration(f"{prefix}{name}", json.dumps(each["default"])))
        return pa.struct(
            [(n, _type_of(each, f"{prefix}{n}", root, references, reading)) for n, each in properties.items()]
        )
    others = found.get("additionalProperties")
    if isinstance(others, Mapping) and others:
        return pa.map_(pa.string(), _type_of(others, f"{path}.value", root, references, reading))
    raise SchemaError(f"field {path}: an object without properties; expected some, or additionalProperties with a type")


def _resolved(name: str, root: Mapping[str, Any], path: str) -> Any:
    found: Any = root
    for part in [each for each in name[1:].split("/") if each] if name.startswith("#") else [None]:
        if not (isinstance(found, Mapping) and part in found):
            raise SchemaError(f"field {path}: the reference {name!r} leads nowhere; expected one within the schema")
        found = found[part]
    return found
