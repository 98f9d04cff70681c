"""Schemas of Avro, both ways."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sparklog.schemas.canonical import (
    MOST_FIELDS,
    Declaration,
    SchemaError,
    SchemaSource,
    ValueSchema,
    canonical_schema,
)
from sparklog.schemas.strict import MULTIPLE, OTHERWISE, SIZE, SYMBOLS

__all__ = [
    "NAMED",
    "avro_of_schema",
    "full_name",
    "is_avro_schema",
    "readable_avro",
    "schema_of_avro",
    "strict_type_of_avro",
]

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
NAMED = ("record", "error", "enum", "fixed")
"""Types that have a name of their own."""
_MOST_DEPTH = 64
_MOST_FIXED_BYTES = 1 << 20
_MOST_PARTS = 4 * MOST_FIELDS
"""A field may be a union of an array of a type."""


def is_avro_schema(found: Any) -> bool:
    """Is it an Avro record's schema?"""
    return isinstance(found, Mapping) and found.get("type") in ("record", "error") and "fields" in found


def schema_of_avro(found: Mapping[str, Any]) -> ValueSchema:
    """The schema of an Avro record, with the record as its source: enumerations are texts, fixed is bytes, a union of
    null and a type is that type; logical types that have no column are the types beneath them.

    Raises ``SchemaError``: other unions, a record that holds itself.
    """
    source = SchemaSource("avro", json.dumps(found, separators=(",", ":"), ensure_ascii=False))
    kind, declarations = _read(found)
    return replace(canonical_schema(kind), source=source, declarations=declarations)


def strict_type_of_avro(found: Mapping[str, Any]) -> pa.StructType:
    """The type of an Avro record's values with what it demands of them (:mod:`sparklog.schemas.strict`).

    Raises ``SchemaError``."""
    return _read(found)[0]


def _read(found: Mapping[str, Any]) -> tuple[pa.StructType, tuple[Declaration, ...]]:
    names = _Names()
    kind = _field_of(found, "value", "", names).type
    if not pa.types.is_struct(kind):
        raise SchemaError(f"an Avro schema of {kind}; expected a record")
    return kind, tuple(names.declarations)


def readable_avro(found: Any) -> Any:
    """An Avro schema without the logical types that have no column: values of these are read and written as the types
    beneath them, and libraries differ in what they know of them."""
    if isinstance(found, list):
        return [readable_avro(each) for each in found]
    if not isinstance(found, Mapping):
        return found
    changed = {name: each for name, each in found.items() if name != "default"}
    if "logicalType" in changed and not _is_logical(changed):
        del changed["logicalType"]
    for name in ("type", "items", "values"):
        if name in changed:
            changed[name] = readable_avro(changed[name])
    if isinstance(changed.get("fields"), list):
        changed["fields"] = [readable_avro(each) for each in changed["fields"]]
    return changed


def avro_of_schema(schema: ValueSchema, name: str = "Value") -> dict[str, Any]:
    """The Avro record of a schema, each field a union with null. Maps whose keys aren't texts are lists of pairs."""
    return {"type": "record", "name": name, "fields": _fields(schema.arrow, name)}


def full_name(name: str, namespace: str) -> str:
    """The full name of a type that is called so within a namespace."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


class _Names:
    """The named types of a schema so far, by full name, and those that are being read. Source: Avro 1.12, "Names"."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[pa.Field, int, list[Declaration]]] = {}
        """With the number of parts of each, and what is declared of them, with the names of fields as within it: those
        it names count as often as they are there."""
        self.declarations: list[Declaration] = []
        self.within: tuple[str, ...] = ()
        self.namespace = ""
        self.count = 0

    def add(self, count: int) -> None:
        self.count += count
        if self.count > _MOST_PARTS:  # records may name one another, and be a billion fields in a hundred lines
            raise SchemaError(f"a schema has {MOST_FIELDS} fields at most, with nested ones")


def _field_of(found: Any, name: str, path: str, names: _Names) -> pa.Field:
    """A field of an Avro type; nullable where that is a union with null."""
    names.add(1)
    if path.count(".") > _MOST_DEPTH:
        raise SchemaError(f"field {path[:80]}: nested deeper than {_MOST_DEPTH} levels")
    if isinstance(found, list):
        kinds = [each for each in found if each != "null"]
        if len(kinds) != 1:
            raise SchemaError(f"field {path}: a union of {len(kinds)} types; expected one type, or one type and null")
        return _field_of(kinds[0], name, path, names).with_nullable(len(kinds) < len(found))
    if isinstance(found, str):
        if found in _SIMPLE:
            return pa.field(name, _SIMPLE[found], nullable=False)
        full = full_name(found, names.namespace)
        if full in names.within:
            raise SchemaError(f"field {path}: {found} holds itself; recursive types can't be columns")
        if full not in names.known:
            raise SchemaError(
                f"field {path}: the type {found!r} isn't known; expected one of {', '.join(_SIMPLE)}, or a name"
            )
        known, count, declared = names.known[full]
        names.add(count)
        names.declarations += [replace(each, path=f"{path}{each.path}") for each in declared]
        return known.with_name(name)
    if not isinstance(found, Mapping) or "type" not in found:
        raise SchemaError(f"field {path}: no Avro schema: {str(found)[:60]}")
    if found["type"] not in NAMED:
        return _unnamed_field(found, name, path, names)
    given = str(found["name"])
    namespace = given.rpartition(".")[0] if "." in given else str(found.get("namespace", names.namespace))
    full = full_name(given, namespace)
    if full in names.known or full in names.within:
        raise SchemaError(f"field {path}: the name {full} is defined twice")
    before, count, start = (names.within, names.namespace), names.count, len(names.declarations)
    names.within, names.namespace = (*names.within, full), namespace
    field = _named_field(found, name, path, names)
    names.within, names.namespace = before
    inner = [replace(each, path=each.path[len(path) :]) for each in names.declarations[start:]]
    names.known[full] = field, names.count - count, inner
    return field


def _named_field(found: Mapping[str, Any], name: str, path: str, names: _Names) -> pa.Field:
    kind = found["type"]
    if kind == "enum":
        metadata = {SYMBOLS: "\n".join(found["symbols"])}
        if found.get("default") in found["symbols"]:
            metadata[OTHERWISE] = str(found["default"])
        return pa.field(name, pa.string(), nullable=False, metadata=metadata)
    if kind == "fixed":
        size = found["size"]
        if type(size) is not int or not 1 <= size <= _MOST_FIXED_BYTES:  # of 0: a list of a billion in no bytes
            raise SchemaError(f"field {path}: fixed of {size!r} bytes; expected 1 to {_MOST_FIXED_BYTES}")
        if found.get("logicalType") == "decimal":
            return _decimal_field(found, name, path)
        return pa.field(name, pa.binary(), nullable=False, metadata={SIZE: str(size)})
    prefix = f"{path}." if path else ""
    if len(names.within) > _MOST_DEPTH:
        raise SchemaError(f"field {path[:80]}: nested deeper than {_MOST_DEPTH} levels")
    for each in found["fields"]:
        default, aliases = each.get("default"), tuple(map(str, each.get("aliases") or ()))
        if default is not None or aliases:
            text = None if default is None else json.dumps(default)
            names.declarations.append(Declaration(f"{prefix}{each['name']}", text, aliases))
    fields = [_field_of(each["type"], each["name"], f"{prefix}{each['name']}", names) for each in found["fields"]]
    return pa.field(name, pa.struct(fields), nullable=False)


def _unnamed_field(found: Mapping[str, Any], name: str, path: str, names: _Names) -> pa.Field:
    kind, logical = found["type"], found.get("logicalType")
    if kind == "bytes" and logical == "decimal":
        return _decimal_field(found, name, path)
    if isinstance(kind, str) and (kind, str(logical)) in _LOGICAL:
        metadata = {MULTIPLE: "1000"} if logical == "timestamp-millis" else None
        return pa.field(name, _LOGICAL[kind, str(logical)], nullable=False, metadata=metadata)
    if kind == "array":
        return pa.field(name, pa.list_(_field_of(found["items"], "element", f"{path}.element", names)), nullable=False)
    if kind == "map":
        value = _field_of(found["values"], "value", f"{path}.value", names)
        return pa.field(name, pa.map_(pa.string(), value), nullable=False)
    return _field_of(kind, name, path, names)


def _decimal_field(found: Mapping[str, Any], name: str, path: str) -> pa.Field:
    try:
        kind = pa.decimal128(int(found["precision"]), int(found.get("scale", 0)))
    except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise SchemaError(f"field {path}: no decimal of up to 38 digits: {error}") from error
    return pa.field(name, kind, nullable=False)


def _is_logical(found: Mapping[str, Any]) -> bool:
    kind, logical = found.get("type"), found["logicalType"]
    if not isinstance(kind, str):
        return False
    return (kind, logical) in _LOGICAL or (logical == "decimal" and kind in ("bytes", "fixed"))


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
