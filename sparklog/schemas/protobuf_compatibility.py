"""Protobuf messages of one topic, compared by what their bytes mean: numbers, and how a value of a field is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sparklog.schemas.canonical import ValueSchema
from sparklog.schemas.protobuf_schema import ENUM, GROUP, MESSAGE, WELL_KNOWN, descriptor_of, is_map, is_required

__all__ = ["contradictions", "lost_members"]

_INT64, _UINT32 = 3, 13
_ALIKE = frozenset({_INT64, _UINT32})
"""Types of one column whose bytes are the same; which numbers they hold is compared elsewhere."""


def contradictions(new: ValueSchema, old: ValueSchema, which: str) -> Iterator[str]:
    """Whatever gives bytes of an older message another meaning in a new one, or the other way round. A field keeps its
    name and its number for ever, as does a value of an enumeration; what was reserved stays so.

    Args:
        which: the name of the old one, for the sentences.
    """
    if _is_message(new) and _is_message(old):
        yield from _of_message(descriptor_of(new), descriptor_of(old), "", which)


def lost_members(reader: ValueSchema, writer: ValueSchema) -> Iterator[tuple[str, str]]:
    """The oneofs of a reader that lack members which the writer has in them, as a path and a name: for the reader
    nothing is set where one of these is."""
    if _is_message(reader) and _is_message(writer):
        yield from _of_oneofs(descriptor_of(reader), descriptor_of(writer), "")


def _is_message(schema: ValueSchema) -> bool:
    return schema.source is not None and schema.source.language == "protobuf"


def _of_message(new: Any, old: Any, prefix: str, which: str) -> Iterator[str]:
    names, numbers = {each.name: each for each in old.fields}, {each.number: each for each in old.fields}
    reserved = _proto(old)
    for field in new.fields:
        path = f"field {prefix}{field.name}"
        by_name, by_number = names.get(field.name), numbers.get(field.number)
        if by_name is not None and by_name.number != field.number:
            yield f"{path}: number {field.number}, but {by_name.number} in {which}; a field keeps its number for ever"
        if by_number is not None and by_number.name != field.name:
            yield (
                f"{path}: number {field.number}, which is {by_number.name} in {which}; take a number that no schema "
                "had, as a field keeps its name for ever"
            )
        if any(each.start <= field.number < each.end for each in reserved.reserved_range):
            yield f"{path}: number {field.number}, which {which} reserves; take another one"
        if field.name in reserved.reserved_name:
            yield f"{path}: a name that {which} reserves; take another one"
        if by_name is not None and by_name.number == field.number:
            yield from _of_field(field, by_name, f"{prefix}{field.name}", which)
    kept = {field.name for field in new.fields}
    for field in old.fields:
        if is_required(field) and field.name not in kept:
            yield f"field {prefix}{field.name}: required in {which}, so that its readers refuse what lacks it; keep it"


def _of_field(new: Any, old: Any, path: str, which: str) -> Iterator[str]:
    if is_map(new) and is_map(old):
        keys = [each.message_type.fields_by_name["key"].type for each in (new, old)]
        if keys[0] != keys[1]:
            yield _other_bytes(f"{path}.key", which)
        values = [each.message_type.fields_by_name["value"] for each in (new, old)]
        yield from _of_field(values[0], values[1], f"{path}.value", which)
    elif {new.type, old.type} & {MESSAGE, GROUP}:
        is_one = new.type == old.type
        names = [each.message_type.full_name for each in (new, old) if each.message_type is not None]
        if not is_one or (any(name in WELL_KNOWN for name in names) and names[0] != names[1]):
            yield _other_bytes(path, which)
        elif names[0] not in WELL_KNOWN:
            yield from _of_message(new.message_type, old.message_type, f"{path}.", which)
    elif new.type != old.type and {new.type, old.type} != _ALIKE:
        yield _other_bytes(path, which)
    elif new.type == ENUM:
        yield from _of_enum(new.enum_type, old.enum_type, path, which)


def _other_bytes(path: str, which: str) -> str:
    return (
        f"field {path}: a type of Protobuf whose bytes mean something else than those of {which}; give the field "
        "another name and number"
    )


def _of_enum(new: Any, old: Any, path: str, which: str) -> Iterator[str]:
    named, numbered, reserved = _numbers(old), _names(old), _proto(old)
    names = _names(new)
    for value in new.values:
        where = f"field {path}: the value {value.name} of {new.name}"
        known = named.get(value.name)
        if known is not None and known != value.number:
            yield f"{where} is {value.number}, but {known} in {which}; a value keeps its number for ever"
        if any(each.start <= value.number <= each.end for each in reserved.reserved_range):
            yield f"{where}: number {value.number}, which {which} reserves; take another one"
        if value.name in reserved.reserved_name:
            yield f"{where}: a name that {which} reserves; take another one"
    for number, name in names.items():
        if numbered.get(number, name) != name:
            yield (
                f"field {path}: the value {number} of {new.name} is {name}, but {numbered[number]} in {which}; a value "
                "keeps its name for ever, and another one may follow it, with allow_alias"
            )


def _of_oneofs(reader: Any, writer: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for oneof in reader.oneofs:
        known = writer.oneofs_by_name.get(oneof.name)
        numbers = {field.number for field in oneof.fields}
        for field in () if known is None or _is_optional(known) or _is_optional(oneof) else known.fields:
            if field.number not in numbers:
                yield f"{prefix}{oneof.name}", field.name
    for field in reader.fields:
        other = writer.fields_by_name.get(field.name)
        if other is None or None in (field.message_type, other.message_type):
            continue
        if is_map(field) and is_map(other):
            values = [each.message_type.fields_by_name["value"].message_type for each in (field, other)]
            if None not in values:
                yield from _of_oneofs(values[0], values[1], f"{prefix}{field.name}.value.")
        elif field.message_type.full_name not in WELL_KNOWN:
            yield from _of_oneofs(field.message_type, other.message_type, f"{prefix}{field.name}.")


def _is_optional(oneof: Any) -> bool:
    """Is it what ``optional`` means in proto3? That isn't written as a oneof."""
    proto = _proto(oneof.containing_type)
    return len(oneof.fields) == 1 and bool(proto.field[oneof.fields[0].index].proto3_optional)


def _numbers(enum: Any) -> dict[str, int]:
    return {value.name: value.number for value in enum.values}


def _names(enum: Any) -> dict[int, str]:
    """The name by which each number is stored: the first, where it has several."""
    return {value.number: value.name for value in reversed(enum.values)}


def _proto(descriptor: Any) -> Any:
    from google.protobuf import descriptor_pb2

    is_message = hasattr(descriptor, "fields_by_name")
    found = descriptor_pb2.DescriptorProto() if is_message else descriptor_pb2.EnumDescriptorProto()
    descriptor.CopyToProto(found)
    return found
