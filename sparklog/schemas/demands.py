"""Demands of a schema's source on values: see :mod:`sparklog.schemas.strict`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache

import pyarrow as pa

from sparklog.schemas.avro_schema import schema_of_avro, strict_type_of_avro
from sparklog.schemas.canonical import SchemaError, ValueSchema, field_paths
from sparklog.schemas.protobuf_schema import strict_type_of_source
from sparklog.schemas.strict import demands_anything, stricter_fields, violations

__all__ = ["new_demands", "unmet_demands", "unmet_readers"]


@lru_cache(maxsize=64)
def _strict_type(schema: ValueSchema) -> pa.StructType:
    """The strict type of a schema's source; the type of its values where it has none. Raises ``SchemaError``."""
    source = schema.source
    if source is None:
        return schema.struct_type
    if source.language == "avro":
        return strict_type_of_avro(json.loads(source.text))
    if source.language == "protobuf":
        return strict_type_of_source(source.text)
    raise SchemaError(f"a schema's source in {source.language!r}; expected avro or protobuf")


def unmet_demands(schema: ValueSchema, values: pa.StructArray) -> dict[int, str]:
    """The values that the schema's source doesn't allow, by place, with the reason; none where it has no source.

    Args:
        values: of the schema's type.
    """
    kind = _strict_type(schema)
    return violations(values, kind) if demands_anything(kind) else {}


def new_demands(new: ValueSchema, old: ValueSchema) -> Iterable[str]:
    """The fields that ``new`` demands and values of ``old`` may lack."""
    return () if new.source is None else stricter_fields(_strict_type(new), _strict_type(old))


def unmet_readers(old: ValueSchema, new: ValueSchema) -> Iterable[str]:
    """The fields that readers by ``old`` demand and values of ``new`` may lack. Readers of Avro have a default where a
    schema says so, but for a field that is there and null."""
    has_default = set()
    if old.source is not None and old.source.language == "avro":
        declarations = schema_of_avro(json.loads(old.source.text)).declarations
        has_default = {each.path for each in declarations if each.default is not None}
    there = {path.lower() for path in field_paths(new.struct_type)}
    return (path for path in new_demands(old, new) if path not in has_default or path.lower() in there)
