"""Schemas of Avro, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from sparklog.schemas.canonical import SchemaError, ValueSchema, canonical_schema

__all__ = ["avro_of_schema", "is_avro_schema", "schema_of_avro"]

_SIMPLE = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("string", "uuid"): pa.string(),
}
_TO_AVRO: Mapping[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
}
_MOST_DEPTH = 64


def is_avro_schema(found: Any) -> bool:
    """Is it an Avro record's schema?"""
    return isinstance(found, Mapping) and found.get("type") in ("record", "error") and "fields" in found


def schema_of_avro(found: Mapping[str, Any]) -> ValueSchema:
    """The schema of an Avro record: enumerations are texts, fixed is bytes, a union of null and a type is that type;
    logical types that have no column are the types beneath them.

    Raises ``SchemaError``: other unions, a record that holds itself.
    """
    return canonical_schema(_type_of(found, "", {}, ()))


def avro_of_schema(schema: ValueSchema, name: str = "Value") -> dict[str, Any]:
    """The Avro record of a schema, each field a union with null. Maps whose keys aren't texts are lists of pairs."""
    return {"type": "record", "name": name, "fields": _fields(schema.arrow, name)}


def _type_of(found: Any, path: str, named: dict[str, Any], within: tuple[str, ...]) -> pa.DataType:
    if len(within) > _MOST_DEPTH or path.count(".") > _MOST_DEPTH:
        raise SchemaError(f"field {path}: nested deeper than {_MOST_DEPTH} levels")
    if isinstance(found, list):
        kinds = [each for each in found if each != "null"]
        if len(kinds) != 1:
            raise SchemaError(f"field {path}: a union of {len(kinds)} types; expected one type, perhaps beside null")
        return _type_of(kinds[0], path, named, within)
    if isinstance(found, str):
        if found in _SIMPLE:
            return _SIMPLE[found]
        if found in within:
            raise SchemaError(f"field {path}: {found} holds itself; recursive types can't be columns")
        if found in named:
            return _type_of(named[found], path, named, within)
        raise SchemaError(
            f"field {path}: the type {found!r} isn't known; expected one of {', '.join(_SIMPLE)}, or a name"
        )
    if not isinstance(found, Mapping) or "type" not in found:
        raise SchemaError(f"field {path}: no Avro schema: {str(found)[:60]}")
    kind = found["type"]
    if kind in ("record", "enum", "fixed", "error"):
        named.setdefault(str(found.get("name")), found)
        if found.get("namespace"):
            named.setdefault(f"{found['namespace']}.{found.get('name')}", found)
    return _complex(found, kind, path, named, within)


def _complex(
    found: Mapping[str, Any], kind: Any, path: str, named: dict[str, Any], within: tuple[str, ...]
) -> pa.DataType:
    if found.get("logicalType") == "decimal":
        try:
            return pa.decimal128(int(found["precision"]), int(found.get("scale", 0)))
        except (ValueError, KeyError, pa.ArrowException) as error:
            raise SchemaError(f"field {path}: no decimal of up to 38 digits: {error}") from error
    if (kind, found.get("logicalType")) in _LOGICAL:
        return _LOGICAL[kind, found["logicalType"]]
    if kind in ("record", "error"):
        prefix, name = (f"{path}." if path else ""), str(found.get("name"))
        if name in within:
            raise SchemaError(f"field {path}: {name} holds itself; recursive types can't be columns")
        fields = [
            (f["name"], _type_of(f["type"], f"{prefix}{f['name']}", named, (*within, name))) for f in found["fields"]
        ]
        return pa.struct(fields)
    if kind == "enum":
        return pa.string()
    if kind == "fixed":
        return pa.binary()
    if kind == "array":
        return pa.list_(_type_of(found["items"], f"{path}.element", named, within))
    if kind == "map":
        return pa.map_(pa.string(), _type_of(found["values"], f"{path}.value", named, within))
    return _type_of(kind, path, named, within)


def _fields(fields: Any, name: str) -> list[dict[str, Any]]:
    return [
        {"name": field.name, "type": ["null", _avro_type(field.type, f"{name}_{field.name}")], "default": None}
        for field in fields
    ]


def _avro_type(kind: pa.DataType, name: str) -> Any:
    if kind in _TO_AVRO:
        return _TO_AVRO[kind]
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_struct(kind):
        return {"type": "record", "name": name, "fields": _fields(kind, name)}
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _avro_type(kind.value_type, f"{name}_element")]}
    value = ["null", _avro_type(kind.item_type, f"{name}_value")]
    if pa.types.is_string(kind.key_type):
        return {"type": "map", "values": value}
    key = {"name": "key", "type": _avro_type(kind.key_type, f"{name}_key")}
    pair = {"type": "record", "name": f"{name}_pair", "fields": [key, {"name": "value", "type": value}]}
    return {"type": "array", "items": pair}
