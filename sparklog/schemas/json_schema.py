"""Schemas of JSON Schema."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from sparklog.schemas.canonical import MOST_FIELDS, Declaration, SchemaError, ValueSchema, canonical_schema

__all__ = ["is_json_schema", "schema_of_json_schema"]

_SIMPLE = {"boolean": pa.bool_(), "integer": pa.int64(), "number": pa.float64(), "string": pa.string()}
_FORMATS = {"date-time": pa.timestamp("us", "UTC"), "date": pa.date32()}
_NAMES_OF_VALUES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_MEMBERS = frozenset({"properties", "additionalProperties", "items"})
_TYPE_WORDS = _MEMBERS | {"$ref", "type", "enum", "const", "allOf", "anyOf", "oneOf"}
"""Words that say what a value is; others narrow it, or describe it."""
_INDEX = re.compile("0|[1-9][0-9]{0,5}")
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
    for word in ("anyOf", "oneOf", "allOf"):
        if word in found and not (word == "allOf" and _says_its_type(found)):
            return _type_of(_only_part(found, word, path), path, root, references, reading)
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


def _only_part(found: Mapping[str, Any], word: str, path: str) -> Any:
    """The part of a combination that says what the type is: a schema may be wrapped in one to be nullable, or to have
    words beside a reference."""
    if word == "allOf":  # parts without a type narrow another one
        kinds = [each for each in found[word] if _is_typed(each)]
        expected = "one, beside those without a type"
    else:
        kinds = [each for each in found[word] if not _is_null(each)]
        expected = "one, or one and null"
        names = {_name_of_values(each) for each in kinds}
        if len(names) == 1 and None not in names:  # a value each, with a title
            return {"type": names.pop()}
    if len(kinds) != 1:
        raise SchemaError(f"field {path}: {word} of {len(kinds)} types; expected {expected}")
    return kinds[0]


def _says_its_type(found: Mapping[str, Any]) -> bool:
    """Does a schema say what it is without its ``allOf``? That narrows it then."""
    is_object = found.get("type") in (None, "object", ["object", "null"], ["null", "object"])
    return not is_object or not _MEMBERS.isdisjoint(found) or not any(map(_is_typed, found["allOf"] or ()))


def _is_typed(found: Any) -> bool:
    return not isinstance(found, Mapping) or not _TYPE_WORDS.isdisjoint(found)


def _is_null(found: Any) -> bool:
    """Does a schema allow null alone?"""
    if not isinstance(found, Mapping):
        return False
    values = _values(found)
    return found.get("type") in ("null", ["null"]) or (values is not None and all(each is None for each in values))


def _values(found: Mapping[str, Any]) -> list[Any] | None:
    """The values that ``const`` or ``enum`` lists; None: there is neither."""
    if "const" in found:
        return [found["const"]]
    return found["enum"] if isinstance(found.get("enum"), list) and found["enum"] else None


def _name_of_values(found: Any) -> str | None:
    """The type of all that ``const`` or ``enum`` lists, but for null; None: there is no such type."""
    values = _values(found) if isinstance(found, Mapping) else None
    names = {_NAMES_OF_VALUES.get(type(each)) for each in values or () if each is not None}
    if names == {"integer", "number"}:
        return "number"
    return names.pop() if len(names) == 1 else None


def _name_of(found: Mapping[str, Any], path: str) -> str:
    if _is_null(found):
        raise SchemaError(f"field {path}: null alone; expected a type, or one type and null")
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
    if kind is None and "items" in found:
        return "array"
    return str(_name_of_values(found) if kind is None else kind)


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
    """The part of the schema that a JSON pointer in a URI's fragment leads to. Source: RFC 6901, section 6."""
    found: Any = root
    pointer = unquote(name[1:])
    if name[:1] != "#" or pointer[:1] not in ("", "/"):
        raise _leads_nowhere(name, path)
    for escaped in pointer.split("/")[1:]:
        part = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and _INDEX.fullmatch(part) and int(part) < len(found):
            found = found[int(part)]
        elif isinstance(found, Mapping) and part in found:
            found = found[part]
        else:
            raise _leads_nowhere(name, path)
    return found


def _leads_nowhere(name: str, path: str) -> SchemaError:
    return SchemaError(f"field {path}: the reference {name!r} leads nowhere; expected one within the schema")
