"""A schema of values, in the types that a Delta table has without table features."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from sparklog.errors import InvalidConfigurationError

__all__ = [
    "Declaration",
    "SchemaError",
    "SchemaSource",
    "ValueSchema",
    "canonical_schema",
    "canonical_type",
    "delta_type",
    "field_paths",
    "type_name",
]

TIMESTAMP = pa.timestamp("us", tz="UTC")
_MOST_DEPTH = 32
MOST_FIELDS = 10_000
_MOST_NAME_CHARACTERS = 255
_MOST_SOURCE_CHARACTERS = 1 << 20
_MOST_REGISTRY_ID = 2**31 - 1
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=.`]")
"""In the name of a field. Source: Delta refuses all but the last two in column names; a dot and a backtick would make
names of nested fields ambiguous."""
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")

_SIMPLE: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": TIMESTAMP,
    }
)
"""Delta's name of each type. Source: Delta protocol, "Schema Serialization Format"."""
_NAMES = {kind: name for name, kind in _SIMPLE.items()}
_UNSIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


class SchemaError(InvalidConfigurationError):
    """A schema can't be that of a topic's values; names the field, its type and what is supported."""


@dataclass(frozen=True, slots=True)
class SchemaSource:
    """The origin of a schema, where bytes of a format can be read by that alone."""

    language: str
    """``avro`` or ``protobuf``."""
    text: str
    """Avro: the schema in JSON. Protobuf: :func:`sparklog.schemas.protobuf_schema.source_of_message`'s."""

    def __post_init__(self) -> None:
        if len(self.text) > _MOST_SOURCE_CHARACTERS:
            raise SchemaError(
                f"a schema in {self.language} of {len(self.text)} characters; at most {_MOST_SOURCE_CHARACTERS}"
            )


@dataclass(frozen=True, slots=True)
class Declaration:
    """A word of a schema's source about a field, beside its type, that no column of a table can keep."""

    path: str
    """The name of the field, with dots, as in the errors about it: ``place.city``, ``lines.element.sku``."""
    default: str | None = None
    """A default that isn't null, as a text for people; None: there is none."""
    aliases: tuple[str, ...] = ()
    """Former names of the field, without what it lies in."""


@dataclass(frozen=True)
class ValueSchema:
    """The fields of a topic's values, in order. Every field may be null, at any depth."""

    arrow: pa.Schema
    """In canonical types: see :func:`canonical_type`."""
    source: SchemaSource | None = None
    """The Avro record or Protobuf message that it was made of; None: it was made of something else."""
    registry_id: int | None = None
    """The id that a registry of Confluent's knows it by, which is in the frame of its bytes; None: frames have the
    schema's id in its topic."""
    declarations: tuple[Declaration, ...] = dataclasses.field(default=(), compare=False)
    """The defaults that aren't null, and the aliases, that the source has; a topic doesn't keep them."""

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone, without what is kept of them for this process."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}

    def with_registry_id(self, registry_id: int) -> ValueSchema:
        """The schema, with the id that a registry knows it by, 0 to 2^31 - 1. Raises ``SchemaError``."""
        if not 0 <= registry_id <= _MOST_REGISTRY_ID:
            raise SchemaError(f"a registry's id of {registry_id}; expected 0 to {_MOST_REGISTRY_ID}")
        return replace(self, registry_id=registry_id)

    def field_types(self) -> list[tuple[str, str]]:
        """The path and the type of each field, the fields of structs behind theirs."""
        return list(_field_types(self.arrow, ""))

    @cached_property
    def struct_type(self) -> pa.StructType:
        """The type of a value."""
        return pa.struct(list(self.arrow))

    def to_json(self) -> str:
        """The schema as Spark and Delta write one; the same text for equal schemas."""
        return json.dumps(_fields_json(self.arrow), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ValueSchema:
        """The schema of :meth:`to_json`'s text, or of Spark's ``StructType.json()``. Raises ``SchemaError``."""
        try:
            found = json.loads(text)
            schema = canonical_schema(_type_of_json(found))
            return replace(schema, declarations=tuple(_declarations(found)))
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, SchemaError):
                raise
            raise SchemaError(f"no schema in JSON as Spark writes it: {error}") from error

    def leaves(self) -> tuple[str, ...]:
        """The names of the fields that hold no others, nested ones with dots; those in lists and maps are left out."""
        return tuple(_leaves(self.arrow, ""))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.to_json(), self.source, self.registry_id))


def canonical_schema(fields: pa.Schema | pa.StructType) -> ValueSchema:
    """A schema with its types as :func:`canonical_type` has them. Raises ``SchemaError``."""
    struct = fields if isinstance(fields, pa.DataType) else pa.struct(list(fields))
    if not pa.types.is_struct(struct) or struct.num_fields == 0:
        raise SchemaError("a schema needs one field at least")
    count = [0]
    return ValueSchema(pa.schema(_canonical_fields(struct, "", 1, count)))


def canonical_type(
    kind: pa.DataType, path: str = "value", depth: int = 1, count: list[int] | None = None
) -> pa.DataType:
    """The type in which a table holds values of a type: unsigned integers one size larger (64 bits as decimal(20, 0)),
    times of any unit in microseconds and UTC, one kind of texts, bytes, lists and dates; all fields may be null.

    Raises ``SchemaError``: Delta has no such type, or it is nested too deeply.
    """
    count = [0] if count is None else count
    if depth > _MOST_DEPTH:
        raise SchemaError(f"field {path}: nested deeper than {_MOST_DEPTH} levels")
    if kind in _NAMES:
        return kind
    if kind in _UNSIGNED:
        return _UNSIGNED[kind]
    if pa.types.is_dictionary(kind):
        return canonical_type(kind.value_type, path, depth, count)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return TIMESTAMP
    if pa.types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_struct(kind) and kind.num_fields:
        return pa.struct(_canonical_fields(kind, f"{path}.", depth + 1, count))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", canonical_type(kind.value_type, f"{path}.element", depth + 1, count)))
    if pa.types.is_map(kind):
        if pa.types.is_nested(kind.key_type):  # no dict could have them as keys
            raise SchemaError(f"field {path}: a map with keys of {kind.key_type}; expected a simple type")
        return pa.map_(
            canonical_type(kind.key_type, f"{path}.key", depth + 1, count),
            pa.field("value", canonical_type(kind.item_type, f"{path}.value", depth + 1, count)),
        )
    raise SchemaError(f"field {path}: a topic can't hold {kind}{_hint(kind)}")


def _field_types(fields: pa.Schema | pa.StructType, prefix: str) -> Iterator[tuple[str, str]]:
    for field in fields:
        is_struct = pa.types.is_struct(field.type)
        yield f"{prefix}{field.name}", "struct" if is_struct else type_name(field.type)
        if is_struct:
            yield from _field_types(field.type, f"{prefix}{field.name}.")


def type_name(kind: pa.DataType) -> str:
    """A type as SQL and people write it."""
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {type_name(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    return str(kind)


def field_paths(kind: pa.DataType, prefix: str = "") -> Iterator[str]:
    """The fields, elements, keys and values of a type at any depth, with dots, as errors name them."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield f"{prefix}{field.name}"
            yield from field_paths(field.type, f"{prefix}{field.name}.")
    elif pa.types.is_list(kind):
        yield f"{prefix}element"
        yield from field_paths(kind.value_type, f"{prefix}element.")
    elif pa.types.is_map(kind):
        yield from (f"{prefix}key", f"{prefix}value")
        yield from field_paths(kind.key_type, f"{prefix}key.")
        yield from field_paths(kind.item_type, f"{prefix}value.")


def _hint(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return ": a time without a time zone; expected one with, such as timestamp[us, tz=UTC]"
    if pa.types.is_time(kind):
        return ": a time of day; expected a long (microseconds) or a string"
    if pa.types.is_decimal(kind):
        return ": expected decimals of up to 38 digits, with a scale of 0 to the precision"
    if pa.types.is_struct(kind):
        return ": it has no field"
    return f"; expected one of {', '.join(_SIMPLE)}, decimal, struct, list and map"


def _canonical_fields(fields: Iterable[pa.Field], prefix: str, depth: int, count: list[int]) -> list[pa.Field]:
    found: list[pa.Field] = []
    taken: dict[str, str] = {}
    for field in fields:
        path = f"{prefix}{field.name}"
        count[0] += 1
        if count[0] > MOST_FIELDS:
            raise SchemaError(f"a schema has {MOST_FIELDS} fields at most, with nested ones")
        if not field.name or len(field.name) > _MOST_NAME_CHARACTERS or _FORBIDDEN.search(field.name):
            raise SchemaError(
                f"field {path!r}: expected a name of 1 to {_MOST_NAME_CHARACTERS} characters, none of them a space or "
                "one of , ; { } ( ) = . `"
            )
        other = taken.setdefault(field.name.lower(), field.name)
        if len(taken) <= len(found):
            raise SchemaError(f"fields {prefix}{other} and {path}: names that differ in case alone are one for Spark")
        found.append(pa.field(field.name, canonical_type(field.type, path, depth, count)))
    return found


def _leaves(fields: Iterable[pa.Field], prefix: str) -> Iterator[str]:
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, f"{prefix}{field.name}.")
        elif not pa.types.is_nested(field.type):
            yield f"{prefix}{field.name}"


def _fields_json(fields: Iterable[pa.Field]) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {"name": field.name, "type": delta_type(field.type), "nullable": True, "metadata": {}} for field in fields
        ],
    }


def delta_type(kind: pa.DataType) -> Any:
    """A canonical type as the JSON of Delta's schemas has it. Source: Delta protocol, "Schema Serialization Format"."""
    if pa.types.is_struct(kind):
        return _fields_json(kind)
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": delta_type(kind.value_type), "containsNull": True}
    if pa.types.is_map(kind):
        key, value = delta_type(kind.key_type), delta_type(kind.item_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    return type_name(kind)


def _declarations(found: Any, path: str = "") -> Iterator[Declaration]:
    """The defaults in the JSON of a Spark ``StructType``, after :func:`_type_of_json` could read it. Source: Spark's
    ``ResolveDefaultColumns``."""
    if not isinstance(found, Mapping):
        return
    if found["type"] == "struct":
        for each in found["fields"]:
            inner = f"{path}.{each['name']}" if path else str(each["name"])
            default = (each.get("metadata") or {}).get("CURRENT_DEFAULT", "NULL")
            if str(default).upper() != "NULL":
                yield Declaration(inner, str(default))
            yield from _declarations(each["type"], inner)
    elif found["type"] == "array":
        yield from _declarations(found["elementType"], f"{path}.element")
    else:
        yield from _declarations(found["keyType"], f"{path}.key")
        yield from _declarations(found["valueType"], f"{path}.value")


def _type_of_json(found: Any, depth: int = 0) -> pa.DataType:
    if depth > 2 * _MOST_DEPTH:
        raise SchemaError(f"nested deeper than {_MOST_DEPTH} levels")
    if isinstance(found, str):
        decimal = _DECIMAL.fullmatch(found)
        if decimal:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if found in _SIMPLE:
            return _SIMPLE[found]
        hint = ": a time without a time zone; use timestamp" if found == "timestamp_ntz" else ""
        raise SchemaError(f"a topic can't hold the type {found!r}{hint}")
    if found["type"] == "struct":
        return pa.struct([pa.field(each["name"], _type_of_json(each["type"], depth + 1)) for each in found["fields"]])
    if found["type"] == "array":
        return pa.list_(pa.field("element", _type_of_json(found["elementType"], depth + 1)))
    if found["type"] == "map":
        key = _type_of_json(found["keyType"], depth + 1)
        return pa.map_(key, pa.field("value", _type_of_json(found["valueType"], depth + 1)))
    raise SchemaError(f"a topic can't hold the type {found['type']!r}")
