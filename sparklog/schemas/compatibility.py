"""How a schema may follow others: the words of Confluent's registry, and what a table of Delta can do at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sparklog.config.topic import COMPATIBILITY_MODES
from sparklog.errors import InvalidArgumentError, InvalidConfigurationError
from sparklog.schemas.canonical import ValueSchema, type_name
from sparklog.schemas.demands import new_demands

__all__ = ["MODES", "Verdict", "check", "merged_type", "type_differences", "union"]

MODES = COMPATIBILITY_MODES
"""NONE isn't among them: a column of a table keeps its type for ever."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """May a schema follow the others, and if not, why?"""

    compatible: bool
    reasons: tuple[str, ...] = ()
    """A sentence for each field that hinders it."""

    def __str__(self) -> str:
        return "compatible" if self.compatible else "not compatible: " + "; ".join(self.reasons)


def check(new: ValueSchema, olds: Sequence[ValueSchema], mode: str = "BACKWARD") -> Verdict:
    """May ``new`` follow ``olds``, the oldest first?

    All fields may be null and have null as their default, so fields may be added, left out and put into another order
    in every mode; what is refused is a field that has, or ever had, another type, at any depth: no reader could read
    both, and no table can hold both. So all modes agree, and the transitive ones, too; they are told apart for users of
    Confluent's registry, who set them.

    A field that can't be null in an Avro record, or is ``required`` in Protobuf, is refused where it is new: records
    of before have none, and a default that isn't null would be one that no engine but ours knows of.

    Raises ``InvalidConfigurationError``: no such mode.
    """
    if mode not in MODES:
        hint = ": a column of a table keeps its type for ever" if mode == "NONE" else ""
        raise InvalidConfigurationError(f"value.compatibility={mode!r}{hint}; expected one of {', '.join(MODES)}")
    reasons: dict[str, str] = {}
    for number, old in enumerate(olds, 1):
        which = f"schema {number}"
        for reason in (*_differences(new.arrow, old.arrow, "", which), *_demands(new, old, which)):
            reasons.setdefault(reason.replace(which, "", 1), reason)  # the oldest schema stands for all
    return Verdict(not reasons, tuple(reasons.values()))


def union(schemas: Iterable[ValueSchema]) -> ValueSchema:
    """The fields of all schemas, at any depth: those of the oldest (the first) first, then what newer ones added.

    Raises ``InvalidArgumentError``: a field has two types; :func:`check` says so before.
    """
    first, *others = list(schemas)
    merged: pa.DataType = first.struct_type
    for schema in others:
        merged = merged_type(merged, schema.struct_type)
    return ValueSchema(pa.schema(list(merged)))


def merged_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type that has the fields of both, at any depth. Raises ``InvalidArgumentError``: they differ otherwise."""
    if one == other:
        return one
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = merged_type(fields.get(field.name, field.type), field.type)
        return pa.struct(list(fields.items()))
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(pa.field("element", merged_type(one.value_type, other.value_type)))
    if pa.types.is_map(one) and pa.types.is_map(other):
        value = pa.field("value", merged_type(one.item_type, other.item_type))
        return pa.map_(merged_type(one.key_type, other.key_type), value)
    raise InvalidArgumentError(f"values of type {one} and of type {other}: they can't be of one topic")


def type_differences(new: ValueSchema, old: ValueSchema, which: str) -> list[str]:
    """The fields, at any depth, to which a schema gives another type, or another case of their names, than an old one.

    Args:
        which: the name of the old one, for the sentences.
    """
    return list(_differences(new.arrow, old.arrow, "", which))


def _demands(new: ValueSchema, old: ValueSchema, which: str) -> Iterable[str]:
    for path in new_demands(new, old):
        yield (
            f"field {path}: it can't be null, but values of {which} may lack it; make it a union with null, which is "
            "optional in Protobuf"
        )


def _differences(new: Iterable[pa.Field], old: Iterable[pa.Field], prefix: str, which: str) -> Iterable[str]:
    before = {field.name.lower(): field for field in old}
    for field in new:
        known = before.get(field.name.lower())
        path = f"{prefix}{field.name}"
        if known is None:
            continue
        if known.name != field.name:
            yield f"field {path}: {which} calls it {known.name}; names that differ in case alone are one for Spark"
        yield from _type_differences(field.type, known.type, path, which)


def _type_differences(new: pa.DataType, old: pa.DataType, path: str, which: str) -> Iterable[str]:
    if new == old:
        return
    if pa.types.is_struct(new) and pa.types.is_struct(old):
        yield from _differences(new, old, f"{path}.", which)
    elif pa.types.is_list(new) and pa.types.is_list(old):
        yield from _type_differences(new.value_type, old.value_type, f"{path}.element", which)
    elif pa.types.is_map(new) and pa.types.is_map(old):
        yield from _type_differences(new.key_type, old.key_type, f"{path}.key", which)
        yield from _type_differences(new.item_type, old.item_type, f"{path}.value", which)
    else:
        yield (
            f"field {path}: {type_name(new)}, but {type_name(old)} in {which}; a column keeps its type for ever: give "
            "the field another name"
        )
