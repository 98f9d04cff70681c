"""Everything that may be given as a schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from sparklog.schemas.avro_schema import is_avro_schema, schema_of_avro
from sparklog.schemas.canonical import SchemaError, ValueSchema, canonical_schema
from sparklog.schemas.ddl import schema_of_ddl
from sparklog.schemas.json_schema import is_json_schema, schema_of_json_schema
from sparklog.schemas.protobuf_schema import is_message, schema_of_descriptor_set, schema_of_message
from sparklog.schemas.python_types import has_fields, schema_of_class

__all__ = ["schema_of_file", "value_schema"]

_TEXT_FILES = (".avsc", ".json", ".sql", ".ddl")
_DESCRIPTOR_FILES = (".desc", ".pb", ".binpb")
_EXPECTED = (
    "an Arrow schema, a Spark StructType or its DDL, a dataclass, a pydantic model, a JSON Schema, an Avro record or a "
    "Protobuf message"
)


def value_schema(source: Any) -> ValueSchema:
    """The schema that ``source`` stands for.

    Args:
        source: a :class:`ValueSchema`; a ``pyarrow.Schema`` or struct; a Spark ``StructType``; a text: SQL's DDL
            (``id BIGINT, total DOUBLE``) or JSON of any kind below; a dataclass or a pydantic model's class; a dict:
            JSON Schema, an Avro record, or Spark's JSON of a ``StructType``; a Protobuf message's class or descriptor.
    Raises:
        SchemaError: it is none of these, or has a field that a topic can't hold; names it.
    """
    if isinstance(source, ValueSchema):
        return source
    if isinstance(source, pa.Schema | pa.StructType):
        return canonical_schema(source)
    if isinstance(source, str):
        return _of_text(source)
    if isinstance(source, Mapping):
        return _of_dict(source)
    if has_fields(source):
        return schema_of_class(source)
    if is_message(source):
        return schema_of_message(source)
    as_json = getattr(source, "json", None)  # of Spark's StructType, which need not be there
    if type(source).__name__ == "StructType" and as_json is not None:
        return ValueSchema.from_json(as_json())
    raise SchemaError(f"a schema of {type(source).__name__}; expected {_EXPECTED}")


def schema_of_file(path: str | Path) -> ValueSchema:
    """The schema in a file: ``.avsc`` (Avro), ``.json`` (JSON Schema, Avro or Spark's JSON), ``.sql`` or ``.ddl``;
    ``.desc``, ``.pb`` or ``.binpb``: what ``protoc --descriptor_set_out --include_imports`` writes, with the full name
    of a message behind ``#``, unless there is one alone.

    Raises ``SchemaError``, ``OSError``.
    """
    file, message = Path(path), ""
    if "#" in file.name and not file.is_file():
        name, _, message = file.name.rpartition("#")
        file = file.with_name(name)
    if file.suffix == ".proto":
        raise SchemaError(
            f"{file}: a .proto file must be compiled; give what protoc --include_imports --descriptor_set_out="
            f"{file.stem}.desc {file.name} writes, or the class of a message in Python"
        )
    if file.suffix not in (*_TEXT_FILES, *_DESCRIPTOR_FILES):
        raise SchemaError(
            f"{file}: expected a file that ends with .avsc, .json, .sql or .ddl, or Protobuf's descriptors in a .desc"
        )
    try:
        if file.suffix in _DESCRIPTOR_FILES:
            return schema_of_descriptor_set(file.read_bytes(), message)
        return _of_text(file.read_text(encoding="utf-8"))
    except (SchemaError, UnicodeDecodeError) as error:
        raise SchemaError(f"{file}: {error}") from error


def _of_text(text: str) -> ValueSchema:
    if not text.lstrip().startswith(("{", "[", '"')):
        return schema_of_ddl(text)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"a schema that looks like JSON and isn't: {error}") from error
    return _of_dict(found)


def _of_dict(found: Any) -> ValueSchema:
    try:
        if is_avro_schema(found):
            return schema_of_avro(found)
        if isinstance(found, Mapping) and found.get("type") == "struct":
            return ValueSchema.from_json(json.dumps(found))
        if is_json_schema(found):
            return schema_of_json_schema(found)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SchemaError(f"a schema that can't be read: {type(error).__name__} {error}") from error
    raise SchemaError(f"a schema in JSON that is neither JSON Schema, Avro nor Spark's; expected {_EXPECTED}")
