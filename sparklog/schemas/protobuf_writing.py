"""Dicts to Protobuf's messages."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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

__all__ = ["protobuf_writer", "varint"]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_DIGITS = re.compile("-?[0-9]{1,10}")
_MOST_SHOWN = 80
_LENGTH = 2
"""The wire type of what has its length in front. Source: Protobuf, "Encoding"."""

_Fill = Callable[[Any, Any], None]
_Convert = Callable[[Any], Any]


def protobuf_writer(schema: ValueSchema, others: Sequence[ValueSchema] = ()) -> Callable[[Any], bytes]:
    """A dict of a schema to a message's bytes; a field that is null is left out. The function raises ``ValueError`` or
    ``TypeError`` for what the message can't hold.

    Args:
        others: schemas that values may be of, the oldest first: their enumerations' numbers are written for names that
            the schema's own don't have.
    """
    descriptor = descriptor_of(schema)
    known = [descriptor_of(each) for each in others if each.source is not None and each.source.language == "protobuf"]
    new, fill = message_class(descriptor), _filler(descriptor, known)

    def write(row: Any) -> bytes:
        message = new()
        fill(message, row)
        if not message.IsInitialized():
            raise ValueError(f"{', '.join(message.FindInitializationErrors())} is required")
        return bytes(message.SerializeToString(deterministic=True))

    return write


def _filler(descriptor: Any, others: Sequence[Any]) -> _Fill:
    setters = {field.name: _setter(field, _of_name(others, field.name)) for field in descriptor.fields}

    def fill(message: Any, row: Any) -> None:
        for name, value in row.items():
            if value is not None:
                setters[name](message, value)

    return fill


def _of_name(others: Sequence[Any], name: str) -> list[Any]:
    """The fields of a name."""
    return [each.fields_by_name[name] for each in others if name in each.fields_by_name]


def _setter(field: Any, others: Sequence[Any]) -> _Fill:
    name = field.name
    if is_map(field):
        values = [_of_name([each.message_type], "value")[0] for each in others if is_map(each)]
        return _map_setter(field, values)
    if field.type in (MESSAGE, GROUP):
        return _part_setter(field, others)
    if field.type == ENUM:
        return _enum_setter(field, others)
    convert = _converter(field)
    if is_repeated(field):
        return lambda message, found: getattr(message, name).extend(map(convert, found))
    return lambda message, value: setattr(message, name, convert(value))


def _enum_setter(field: Any, others: Sequence[Any]) -> _Fill:
    name, numbers = field.name, _numbers(field, others)

    def set_one(message: Any, value: Any) -> None:
        number = _number(numbers, value)
        if number in field.enum_type.values_by_number:
            setattr(message, name, number)
        else:
            message.MergeFromString(_tag(field.number) + varint(number))

    def set_many(message: Any, values: Any) -> None:
        for value in values:
            number = _number(numbers, value)
            if number in field.enum_type.values_by_number:
                getattr(message, name).append(number)
            else:
                message.MergeFromString(_tag(field.number) + varint(number))

    return set_many if is_repeated(field) else set_one


def _numbers(field: Any, others: Sequence[Any]) -> dict[str, int]:
    """The numbers of an enumeration's names, its own before those of others, of which a newer one before an older."""
    fields = [each for each in (*others, field) if each.type == ENUM]
    return {value.name: value.number for each in fields for value in each.enum_type.values}


def _number(numbers: Mapping[str, int], value: Any) -> int:
    """The number of a name; of a number that has none, which is its digits, that number."""
    if value in numbers:
        return numbers[value]
    if _DIGITS.fullmatch(value) and -(2**31) <= int(value) < 2**31:
        return int(value)
    raise ValueError(f"got {value[:_MOST_SHOWN]!r}, expected a number, or one of {', '.join(numbers)[:_MOST_SHOWN]}")


def _tag(number: int, wire_type: int = 0) -> bytes:
    return varint(number << 3 | wire_type)


def varint(number: int) -> bytes:
    """A number as Protobuf writes one; a negative one in 64 bits."""
    number, found = number & (1 << 64) - 1, bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _part_setter(field: Any, others: Sequence[Any]) -> _Fill:
    name, fill = field.name, _message_filler(field.message_type, others)

    def set_one(message: Any, value: Any) -> None:
        part = getattr(message, name)
        part.SetInParent()
        fill(part, value)

    def set_many(message: Any, values: Any) -> None:
        parts = getattr(message, name)
        for value in values:
            fill(parts.add(), value)

    return set_many if is_repeated(field) else set_one


def _map_setter(field: Any, others: Sequence[Any]) -> _Fill:
    name, value = field.name, field.message_type.fields_by_name["value"]
    if value.type in (MESSAGE, GROUP):
        fill = _message_filler(value.message_type, others)

        def fill_map(message: Any, found: Any) -> None:
            target = getattr(message, name)
            for key, each in found.items():
                fill(target[_plain(key)], each)

        return fill_map
    if value.type == ENUM:
        return _map_of_enum_setter(field, _numbers(value, others))
    convert = _converter(value)
    return lambda message, found: getattr(message, name).update({_plain(key): convert(v) for key, v in found.items()})


def _map_of_enum_setter(field: Any, numbers: Mapping[str, int]) -> _Fill:
    value, new = field.message_type.fields_by_name["value"], message_class(field.message_type)

    def set_map(message: Any, found: Any) -> None:
        for key, each in found.items():
            number = _number(numbers, each)
            if number in value.enum_type.values_by_number:
                getattr(message, field.name)[_plain(key)] = number
                continue
            entry = new(key=_plain(key)).SerializeToString() + _tag(value.number) + varint(number)
            message.MergeFromString(_tag(field.number, _LENGTH) + varint(len(entry)) + entry)

    return set_map


def _plain(value: Any) -> Any:
    """A decimal is how a table holds integers of 64 bits without a sign."""
    return value if isinstance(value, str | bool) else int(value)


def _message_filler(descriptor: Any, others: Sequence[Any]) -> _Fill:
    if descriptor.full_name == TIMESTAMP_MESSAGE:
        return _fill_moment
    if not is_wrapper(descriptor):
        return _filler(descriptor, [each.message_type for each in others if each.message_type is not None])
    convert = _converter(descriptor.fields_by_name["value"])
    return lambda message, value: setattr(message, "value", convert(value))


def _fill_moment(message: Any, value: datetime.datetime) -> None:
    microseconds = (value - _EPOCH) // _MICROSECOND
    message.seconds, rest = divmod(microseconds, 1_000_000)
    message.nanos = rest * 1_000


def _converter(field: Any) -> _Convert:
    if field.cpp_type in (field.CPPTYPE_UINT64, field.CPPTYPE_UINT32):
        return int
    return lambda value: value
