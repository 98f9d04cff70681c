"""Schemas of Protobuf messages."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from sparklog.errors import InvalidConfigurationError
from sparklog.schemas.canonical import MOST_FIELDS, SchemaError, SchemaSource, ValueSchema, canonical_schema
from sparklog.schemas.strict import HIGH, LOW, NUMBERED, ONE_OF, SYMBOLS

__all__ = [
    "ENUM",
    "GROUP",
    "MESSAGE",
    "TIMESTAMP_MESSAGE",
    "WELL_KNOWN",
    "descriptor_of",
    "is_map",
    "is_message",
    "is_repeated",
    "is_required",
    "is_wrapper",
    "message_class",
    "message_of_source",
    "schema_of_descriptor_set",
    "schema_of_message",
    "source_of_message",
    "strict_type_of_source",
]

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
_UINT64: Mapping[bytes, str] = {LOW: "0", HIGH: str(2**64 - 1)}
_UINT32: Mapping[bytes, str] = {LOW: "0", HIGH: str(2**32 - 1)}
_DEMANDS: Mapping[int, Any] = {4: _UINT64, 6: _UINT64, 7: _UINT32, 13: _UINT32}
GROUP, MESSAGE, ENUM = 10, 11, 14
TIMESTAMP_MESSAGE = "google.protobuf.Timestamp"
_NEEDS_PROTOBUF = "value.format=protobuf needs protobuf: pip install 'sparklog[protobuf]'"
WELL_KNOWN: Mapping[str, pa.DataType] = MappingProxyType(
    {
        TIMESTAMP_MESSAGE: pa.timestamp("us", "UTC"),
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
    """The schema of a Protobuf message, with the message's descriptor as its source: uint32 is a long, uint64 a
    decimal(20, 0), an enumeration a text, ``Timestamp`` a time, ``repeated`` a list, a wrapper the type that it wraps.

    Raises ``SchemaError``: a message that holds itself, or has no field.
    """
    descriptor = getattr(source, "DESCRIPTOR", source)
    found = canonical_schema(_strict_type(descriptor))
    return replace(found, source=SchemaSource("protobuf", source_of_message(descriptor)))


def source_of_message(descriptor: Any) -> str:
    """A message as JSON: its full name, and the files that define it, in base64 of a ``FileDescriptorSet``."""
    from google.protobuf import descriptor_pb2

    files: dict[str, Any] = {}

    def add(file: Any) -> None:
        if file.name not in files:
            for dependency in file.dependencies:
                add(dependency)
            files[file.name] = descriptor_pb2.FileDescriptorProto.FromString(file.serialized_pb)

    add(descriptor.file)
    for file in files.values():
        file.ClearField("source_code_info")
    data = descriptor_pb2.FileDescriptorSet(file=list(files.values())).SerializeToString(deterministic=True)
    return json.dumps({"message": descriptor.full_name, "files": base64.b64encode(data).decode()})


def schema_of_descriptor_set(data: bytes, message: str = "") -> ValueSchema:
    """The schema of a message in a ``FileDescriptorSet``, as ``protoc --descriptor_set_out --include_imports`` writes
    one.

    Args:
        message: its full name; empty: the only one at the top of the last file.
    Raises:
        SchemaError: no such set, or no such message.
    """
    try:
        from google.protobuf import descriptor_pb2
        from google.protobuf import message as messages
    except ImportError:
        raise SchemaError(_NEEDS_PROTOBUF) from None
    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(data)
    except messages.DecodeError as error:
        raise SchemaError(f"no FileDescriptorSet, as protoc --descriptor_set_out writes: {error}") from error
    if not message:
        names = [each.name for each in found.file[-1].message_type] if found.file else []
        if len(names) != 1:
            raise SchemaError(
                f"a FileDescriptorSet with the messages {', '.join(names) or 'none'} in its last file; expected one, "
                "or the full name of one behind # after the file's name"
            )
        message = ".".join(part for part in (found.file[-1].package, names[0]) if part)
    return schema_of_message(_message_type(message, found))


@lru_cache(maxsize=64)
def message_of_source(text: str) -> Any:
    """The descriptor of :func:`source_of_message`'s text. Raises ``SchemaError``."""
    try:
        from google.protobuf import descriptor_pb2, message
    except ImportError:
        raise InvalidConfigurationError(_NEEDS_PROTOBUF) from None
    try:
        found = json.loads(text)
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(found["files"], validate=True))
        return _message_type(str(found["message"]), files)
    except (ValueError, KeyError, TypeError, message.DecodeError) as error:
        raise SchemaError(f"a Protobuf message that can't be read: {type(error).__name__} {error}") from error


def descriptor_of(schema: ValueSchema) -> Any:
    """The descriptor of the message that a schema was made of. Raises ``InvalidConfigurationError``: there is none."""
    if schema.source is None or schema.source.language != "protobuf":
        raise InvalidConfigurationError(
            "value.format=protobuf: the schema wasn't made of a Protobuf message; expected a message's class, its "
            "descriptor, or a file of protoc --descriptor_set_out"
        )
    return message_of_source(schema.source.text)


@lru_cache(maxsize=64)
def message_class(descriptor: Any) -> Any:
    """The class of a descriptor's messages."""
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(descriptor)


def _message_type(name: str, files: Any) -> Any:
    from google.protobuf import descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file)
        return pool.FindMessageTypeByName(name)
    except (TypeError, KeyError) as error:
        raise SchemaError(f"no message {name!r} in these files of Protobuf: {error}") from error


def strict_type_of_source(text: str) -> pa.StructType:
    """The type of a message's values with what it demands of them (:mod:`sparklog.schemas.strict`). Raises
    ``SchemaError``."""
    return _strict_type(message_of_source(text))


def is_repeated(field: Any) -> bool:
    """Has the field of a descriptor many values?"""
    found = getattr(field, "is_repeated", None)  # since protobuf 6.31, where label is deprecated
    return bool(field.label == field.LABEL_REPEATED if found is None else found)


def is_map(field: Any) -> bool:
    """Is the field of a descriptor a map?"""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def is_wrapper(descriptor: Any) -> bool:
    """Is a message one of ``google/protobuf/wrappers.proto``?"""
    return descriptor.full_name in WELL_KNOWN and descriptor.full_name != TIMESTAMP_MESSAGE


def _strict_type(descriptor: Any) -> pa.StructType:
    return _struct_of(descriptor, "", (), [0])


def _struct_of(descriptor: Any, prefix: str, within: tuple[str, ...], count: list[int]) -> pa.StructType:
    if descriptor.full_name in within:
        raise SchemaError(
            f"field {prefix.removesuffix('.')}: {descriptor.full_name} holds itself; recursive types can't be columns"
        )
    within = (*within, descriptor.full_name)
    count[0] += len(descriptor.fields)
    if count[0] > MOST_FIELDS:
        raise SchemaError(f"a schema has {MOST_FIELDS} fields at most, with nested ones")
    return pa.struct([_field_of(field, f"{prefix}{field.name}", within, count) for field in descriptor.fields])


def _field_of(field: Any, path: str, within: tuple[str, ...], count: list[int]) -> pa.Field:
    kind, metadata = _one_type(field, path, within, count)
    if is_map(field):
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        value_kind, value_metadata = _one_type(value, f"{path}.value", within, count)
        item = pa.field("value", value_kind, nullable=False, metadata=value_metadata)
        return pa.field(field.name, pa.map_(_one_type(key, f"{path}.key", within, count)[0], item))
    if is_repeated(field):
        return pa.field(field.name, pa.list_(pa.field("element", kind, nullable=False, metadata=metadata)))
    if field.containing_oneof is not None and len(field.containing_oneof.fields) > 1:
        metadata = {**(metadata or {}), ONE_OF: field.containing_oneof.name}
    return pa.field(field.name, kind, nullable=not is_required(field), metadata=metadata)


def is_required(field: Any) -> bool:
    """Must each message have a value of the field of a descriptor?"""
    found = getattr(field, "is_required", None)
    return bool(field.label == field.LABEL_REQUIRED if found is None else found)


def _one_type(
    field: Any, path: str, within: tuple[str, ...], count: list[int]
) -> tuple[pa.DataType, dict[bytes, str] | None]:
    """The type of one value of a field, and what is demanded of it."""
    if is_map(field):
        return pa.null(), None
    if field.type in (MESSAGE, GROUP):
        known = WELL_KNOWN.get(field.message_type.full_name)
        if known is None:
            return _struct_of(field.message_type, f"{path}.", within, count), None
        return known, _DEMANDS.get(field.message_type.fields[0].type) if is_wrapper(field.message_type) else None
    if field.type == ENUM:
        return pa.string(), {SYMBOLS: "\n".join(value.name for value in field.enum_type.values), NUMBERED: ""}
    return _TYPES[field.type], _DEMANDS.get(field.type)
