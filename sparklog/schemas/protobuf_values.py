"""Values in Protobuf: many messages at once to columns. Dicts to messages: :mod:`sparklog.schemas.protobuf_writing`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter, methodcaller
from typing import Any

import numpy as np
import pyarrow as pa

from sparklog.schemas.canonical import ValueSchema
from sparklog.schemas.protobuf_schema import (
    ENUM,
    GROUP,
    MESSAGE,
    TIMESTAMP_MESSAGE,
    descriptor_of,
    is_map,
    is_repeated,
    is_wrapper,
    message_class,
)
from sparklog.schemas.protobuf_writing import varint
from sparklog.schemas.undecodable import UndecodableError, shown

__all__ = ["message_indexes", "protobuf_to_struct", "without_indexes"]

_SECONDS_OF_YEARS = (-62_135_596_800, 253_402_300_799)
"""The years 1 to 9999. Source: Protobuf, timestamp.proto."""
_TIMESTAMP = pa.timestamp("us", "UTC")
_VALUE_ERRORS = (TypeError, ValueError, OverflowError)


def protobuf_to_struct(
    schema: ValueSchema, values: pa.Array, passed_over: list[int] | None = None
) -> tuple[pa.StructArray, dict[int, str]]:
    """Messages as values of a schema, and what is wrong with some, by place; those are null, as those that are null.

    A field without presence (proto3's plain ones) is its default where a message lacks it, any other null. Fields that
    the schema's message doesn't have are passed over. An enumeration's number without a name is its digits.

    Args:
        values: binary.
        passed_over: is given the places of messages with such fields, or such numbers.
    Raises:
        InvalidConfigurationError: the schema wasn't made of a Protobuf message.
    """
    descriptor = descriptor_of(schema)
    parse = message_class(descriptor).FromString
    has_enums = passed_over is not None and _has_enums(descriptor)
    errors: dict[int, str] = {}
    places: list[int] = []
    messages: list[Any] = []
    for place, raw in enumerate(values.to_pylist()):
        if raw is None:
            continue
        try:
            message = parse(raw)
        except _decode_error() as error:
            errors[place] = f"no Protobuf of {descriptor.full_name}: {error}: {shown(raw)}"
            continue
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())
            errors[place] = f"no Protobuf of {descriptor.full_name}: {missing} is required: {shown(raw)}"
            continue
        if passed_over is not None and (_drops_fields(message) or (has_enums and _has_unnamed(message))):
            passed_over.append(place)
        places.append(place)
        messages.append(message)
    found, wrong = _structs(schema, descriptor, messages)
    errors |= {places[at]: reason for at, reason in wrong.items()}
    return _spread(found, places, len(values)), errors


def _drops_fields(message: Any) -> bool:
    """Take the fields out of a message that its descriptor doesn't have, at any depth. Were there any?"""
    before = message.ByteSize()
    message.DiscardUnknownFields()
    return bool(message.ByteSize() != before)


@lru_cache(maxsize=256)
def _has_enums(descriptor: Any) -> bool:
    """Has a message a field that is an enumeration, at any depth?"""
    seen, left = set[str](), [descriptor]
    while left:
        message = left.pop()
        if message.full_name in seen:
            continue
        seen.add(message.full_name)
        for field in message.fields:
            if field.type == ENUM:
                return True
            if field.message_type is not None:
                left.append(field.message_type)
    return False


def _has_unnamed(message: Any) -> bool:
    """Has an enumeration a number, at any depth, that its descriptor has no name for?"""
    for field, value in message.ListFields():
        kind = field.message_type.fields_by_name["value"] if is_map(field) else field
        values = value.values() if is_map(field) else value if is_repeated(field) else [value]
        if kind.type == ENUM and not all(number in kind.enum_type.values_by_number for number in values):
            return True
        if kind.message_type is not None and any(map(_has_unnamed, values)):
            return True
    return False


def _spread(found: pa.StructArray, places: Sequence[int], count: int) -> pa.StructArray:
    """Values at their places among so many; null at the others."""
    if len(found) == count:
        return found
    if not len(found):
        return pa.nulls(count, found.type)
    at, is_there = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    at[places], is_there[places] = np.arange(len(found)), True
    return found.take(pa.array(at, mask=~is_there))


class _WrongValuesError(ValueError):
    """Some of many values can't be those of a column."""

    def __init__(self, places: Any, reason: str) -> None:
        super().__init__(reason)
        self.places = places


def _structs(schema: ValueSchema, descriptor: Any, messages: Sequence[Any]) -> tuple[pa.StructArray, dict[int, str]]:
    """All at once; where that fails, all but those that are known to be wrong, or else each half, down to those that
    fail alone."""
    if not messages:
        return pa.nulls(0, schema.struct_type), {}
    try:
        return _struct(descriptor, schema.struct_type, messages), {}
    except _WrongValuesError as error:
        is_wrong = np.zeros(len(messages), np.bool_)
        is_wrong[error.places] = True
        errors = dict.fromkeys(np.flatnonzero(is_wrong).tolist(), f"no value of {descriptor.full_name}: {error}")
        places: list[int] = np.flatnonzero(~is_wrong).tolist()
        found, wrong = _structs(schema, descriptor, [messages[at] for at in places])
        return _spread(found, places, len(messages)), errors | {places[at]: each for at, each in wrong.items()}
    except (*_VALUE_ERRORS, pa.ArrowException) as error:
        if len(messages) == 1:
            reason = f"no value of {descriptor.full_name}: {error}"
            return pa.nulls(1, schema.struct_type), {0: reason}
    middle = len(messages) // 2
    first, wrong = _structs(schema, descriptor, messages[:middle])
    second, others = _structs(schema, descriptor, messages[middle:])
    return pa.concat_arrays([first, second]), wrong | {middle + at: reason for at, reason in others.items()}


def _struct(descriptor: Any, kind: pa.StructType, messages: Sequence[Any], mask: Any = None) -> pa.StructArray:
    """The fields of messages as columns; null where the mask is true."""
    columns = [_field(descriptor.fields_by_name[field.name], field.type, messages) for field in kind]
    nulls = None if mask is None or not mask.any() else pa.array(mask)
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=nulls)


def _field(field: Any, kind: pa.DataType, messages: Sequence[Any]) -> pa.Array:
    values = list(map(attrgetter(field.name), messages))
    if is_map(field):
        offsets = np.concatenate([[0], np.cumsum([len(each) for each in values])]).astype(np.int32)
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        keys = _values(key, kind.key_type, [each for one in values for each in one], None)
        items = _elements(value, kind.item_type, [one[each] for one in values for each in one], offsets)
        return pa.MapArray.from_arrays(pa.array(offsets), keys, items, type=kind)
    if is_repeated(field):
        offsets = np.concatenate([[0], np.cumsum([len(each) for each in values])]).astype(np.int32)
        elements = _elements(field, kind.value_type, [each for one in values for each in one], offsets)
        return pa.ListArray.from_arrays(pa.array(offsets), elements, type=kind)
    if not field.has_presence:
        return _values(field, kind, values, None)
    is_there = np.fromiter(map(methodcaller("HasField", field.name), messages), np.bool_, len(messages))
    return _values(field, kind, values, ~is_there)


def _elements(field: Any, kind: pa.DataType, values: list[Any], offsets: Any) -> pa.Array:
    """The elements of all lists or maps, which begin at these offsets."""
    try:
        return _values(field, kind, values, None)
    except _WrongValuesError as error:
        raise _WrongValuesError(np.searchsorted(offsets, error.places, side="right") - 1, str(error)) from error


def _values(field: Any, kind: pa.DataType, values: list[Any], mask: Any) -> pa.Array:
    """One value for each place; null where the mask is true."""
    if field.type in (MESSAGE, GROUP):
        message = field.message_type
        if message.full_name == TIMESTAMP_MESSAGE:
            return _moments(field, values, mask)
        if not is_wrapper(message):
            return _struct(message, kind, values, mask)
        values = list(map(attrgetter("value"), values))
    elif field.type == ENUM:
        names = {each.number: each.name for each in reversed(field.enum_type.values)}
        values = [names.get(each) or str(each) for each in values]
    return pa.array(values, kind, mask=mask)


def _moments(field: Any, values: list[Any], mask: Any) -> pa.Array:
    seconds, nanos = (
        np.fromiter(map(attrgetter(name), values), np.int64, len(values)) for name in ("seconds", "nanos")
    )
    low, high = _SECONDS_OF_YEARS
    is_wrong = (seconds < low) | (seconds > high) | (nanos < 0) | (nanos >= 1_000_000_000)
    if is_wrong.any():
        reason = f"field {field.name}: a time before year 1 or after year 9999, or nanos beyond a second"
        raise _WrongValuesError(np.flatnonzero(is_wrong), reason)
    return pa.array(seconds * 1_000_000 + nanos // 1_000, mask=mask).view(_TIMESTAMP)


def message_indexes(schema: ValueSchema) -> bytes:
    """The bytes behind the id in Confluent's framing: where the message is in its file. Source: Confluent, "Wire
    format": the number of indexes and each of them as zigzag varints, and a single 0 for the first message."""
    path: list[int] = []
    at = descriptor_of(schema)
    while at is not None:
        parent = at.containing_type
        siblings = parent.nested_types if parent is not None else list(at.file.message_types_by_name.values())
        path.insert(0, [each.full_name for each in siblings].index(at.full_name))
        at = parent
    return b"\0" if path == [0] else b"".join(varint(each << 1) for each in (len(path), *path))


def without_indexes(raw: bytes, expected: bytes) -> bytes:
    """A message without the indexes before it. Raises ``UndecodableError``: they aren't those that are expected."""
    first = b"\2\0"  # the same as a single 0, in full
    for indexes in (expected, first if expected == b"\0" else expected):
        if raw.startswith(indexes):
            return raw[len(indexes) :]
    raise UndecodableError(f"Confluent's framing of another message: got {shown(raw[:16])}, expected {expected!r}")


def _decode_error() -> Any:
    from google.protobuf import message

    return (message.DecodeError, UnicodeDecodeError)
