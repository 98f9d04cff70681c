"""How a schema may follow others: the words of Confluent's registry, and what a table of Delta can do at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sparklog.config.topic import COMPATIBILITY_MODES
from sparklog.errors import InvalidArgumentError, InvalidConfigurationError
from sparklog.schemas.canonical import ValueSchema, field_paths, type_name
from sparklog.schemas.demands import new_demands, unmet_readers

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
    both, and no table can hold both.

    A field that can't be null in an Avro record, or is ``required`` in Protobuf, is refused where it is new: records
    of before have none. So is a new field with a default that isn't null, which no engine would know of: records of
    before would be read as null. And so is one that is the alias of another: a column can't be renamed.

    ``FORWARD`` and ``FULL`` refuse besides what keeps a reader of the newest schema of before, or with ``_TRANSITIVE``
    of all of them, from reading new values: a field that it demands, and that they may lack. Otherwise all modes agree.

    Raises ``InvalidConfigurationError``: no such mode.
    """
    if mode not in MODES:
        hint = ": a column of a table keeps its type for ever" if mode == "NONE" else ""
        raise InvalidConfigurationError(f"value.compatibility={mode!r}{hint}; expected one of {', '.join(MODES)}")
    reasons: dict[str, str] = {}
    for number, old in enumerate(olds, 1):
        which = f"schema {number}"
        found = [*_differences(new.arrow, old.arrow, "", which), *_demands(new, old, which)]
        if mode.startswith(("FORWARD", "FULL")) and (number == len(olds) or mode.endswith("_TRANSITIVE")):
            demanded = "demand it, but values of this schema may lack it"
            found += [f"field {path}: readers of {which} {demanded} ({mode})" for path in unmet_readers(old, new)]
        for reason in found:
            reasons.setdefault(reason.replace(which, "", 1), reason)  # the oldest schema stands for all
    for reason in _unmet_declarations(new, olds):
        reasons.setdefault(reason, reason)
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


def _unmet_declarations(new: ValueSchema, olds: Sequence[ValueSchema]) -> Iterable[str]:
    """The defaults and aliases of fields that the schemas of before don't have: what no table can do."""
    if not olds or not new.declarations:
        return
    known = {path.lower() for old in olds for path in field_paths(old.struct_type)}
    for each in new.declarations:
        within = each.path[: each.path.rfind(".") + 1]
        if each.path.lower() in known or (within and within[:-1].lower() not in known):
            continue  # of what is new as a whole, values of before have nothing
        if each.default is not None:
            yield (
                f"field {each.path}: new, with the default {each.default}, but values of before are read as null; "
                "leave the default out, or make it null"
            )
        for alias in each.aliases:
            if f"{within}{alias}".lower() in known:
                yield (
                    f"field {each.path}: an alias of {within}{alias}, but a column keeps its name for ever; go on with "
                    f"{alias}, or leave the alias out"
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
