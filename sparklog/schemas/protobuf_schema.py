"""Schemas of Protobuf messages."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from sparklog.schemas.canonical import SchemaError, ValueSchema, canonical_schema

__all__ = ["is_message", "schema_of_message"]

_TYPES: Mapping[int, pa.DataType] = MappingProxyType(
    {
        1: pa.float64(),  # double
        2: pa.float32(),  # float
        3: pa.int64(),  # int64
        4: pa.decimal128(20, 0),  # uint64
        5: pa.int32(),  # int32
        6: pa.decimal128(20, 0),  # fixed64
        7: pa.int64(),  # fixed32
        8: pa.bool_(),
        9: pa.string(),
        12: pa.binary(),  # bytes
        13: pa.int64(),  # uint32
        14: pa.string(),  # enum
        15: pa.int32(),  # sfixed32
        16: pa.int64(),  # sfixed64
        17: pa.int32(),  # sint32
        18: pa.int64(),  # sint64
    }
)
"""By the number of ``FieldDescriptorProto.Type``. Source: Protobuf, descriptor.proto."""
_MESSAGE, _GROUP = 11, 10
_WELL_KNOWN: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "google.protobuf.Timestamp": pa.timestamp("us", "UTC"),
        "google.protobuf.DoubleValue": pa.float64(),
        "google.protobuf.FloatValue": pa.float32(),
        "google.protobuf.Int64Value": pa.int64(),
        "google.protobuf.UInt64Value": pa.decimal128(20, 0),
        "google.protobuf.Int32Value": pa.int32(),
        "google.protobuf.UInt32Value": pa.int64(),
        "google.protobuf.BoolValue": pa.bool_(),
        "google.protobuf.StringValue": pa.string(),
        "google.protobuf.BytesValue": pa.binary(),
    }
)


def is_message(source: Any) -> bool:
    """Is it a message's class, or a descriptor of a message?"""
    descriptor = getattr(source, "DESCRIPTOR", source)
    return hasattr(descriptor, "fields_by_name") and hasattr(descriptor, "full_name")


def schema_of_message(source: Any) -> ValueSchema:
    """The schema of a Protobuf message: uint32 is a long, uint64 a decimal(20, 0), an enumeration a text,
    ``Timestamp`` a time, ``repeated`` a list, a wrapper the type that it wraps.

    Raises ``SchemaError``: a message that holds itself, or has no field.
    """
    return canonical_schema(_struct_of(getattr(source, "DESCRIPTOR", source), "", ()))


def _struct_of(descriptor: Any, prefix: str, within: tuple[str, ...]) -> pa.StructType:
    if descriptor.full_name in within:
        raise SchemaError(
            f"field {prefix.removesuffix('.')}: {descriptor.full_name} holds itself; recursive types can't be columns"
        )
    within = (*within, descriptor.full_name)
    return pa.struct([(field.name, _field_type(field, f"{prefix}{field.name}", within)) for field in descriptor.fields])


def _field_type(field: Any, path: str, within: tuple[str, ...]) -> pa.DataType:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key, value = message.fields_by_name["key"], message.fields_by_name["value"]
        return pa.map_(_one_type(key, f"{path}.key", within), _one_type(value, f"{path}.value", within))
    kind = _one_type(field, path, within)
    return pa.list_(kind) if _is_repeated(field) else kind


def _is_repeated(field: Any) -> bool:
    found = getattr(field, "is_repeated", None)  # since protobuf 6.31, where label is deprecated
    return bool(field.label == field.LABEL_REPEATED if found is None else found)


def _one_type(field: Any, path: str, within: tuple[str, ...]) -> pa.DataType:
    if field.type in (_MESSAGE, _GROUP):
        known = _WELL_KNOWN.get(field.message_type.full_name)
        return _struct_of(field.message_type, f"{path}.", within) if known is None else known
    return _TYPES[field.type]
