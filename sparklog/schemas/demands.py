"""Demands of a schema's source on values: see :mod:`sparklog.schemas.strict`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache

import pyarrow as pa

from sparklog.schemas.avro_schema import schema_of_avro, strict_type_of_avro
from sparklog.schemas.canonical import Declaration, SchemaError, ValueSchema, field_paths
from sparklog.schemas.narrowing import Gap, gaps
from sparklog.schemas.protobuf_schema import strict_type_of_source
from sparklog.schemas.strict import demands_anything, violations

__all__ = ["declarations_of", "gaps_of_older_reader", "gaps_of_reader", "unmet_demands"]


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


def declarations_of(schema: ValueSchema) -> tuple[Declaration, ...]:
    """The declarations of a schema's source beside its types, also where the schema is one that a topic keeps."""
    if schema.declarations or schema.source is None or schema.source.language != "avro":
        return schema.declarations
    return schema_of_avro(json.loads(schema.source.text)).declarations


def gaps_of_reader(reader: ValueSchema, writer: ValueSchema) -> Iterator[Gap]:
    """The values of ``writer`` that readers of bytes by ``reader`` can't have."""
    return iter(()) if reader.source is None else gaps(_strict_type(reader), _strict_type(writer))


def gaps_of_older_reader(reader: ValueSchema, writer: ValueSchema) -> Iterator[Gap]:
    """The same as :func:`gaps_of_reader`, for a reader of before: one of Avro has a default where its schema says so,
    but for a field that is there and null."""
    has_default = {each.path for each in declarations_of(reader) if each.default is not None}
    there = {path.lower() for path in field_paths(writer.struct_type)}
    for gap in gaps_of_reader(reader, writer):
        if gap.values or gap.path not in has_default or gap.path.lower() in there:
            yield gap
