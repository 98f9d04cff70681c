"""How a schema may follow others: the words of Confluent's registry, and what a table of Delta can do at all."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sparklog.config.topic import COMPATIBILITY_MODES
from sparklog.errors import InvalidArgumentError, InvalidConfigurationError
from sparklog.schemas.avro_compatibility import other_layout, unresolved
from sparklog.schemas.canonical import Declaration, ValueSchema, field_paths, type_name
from sparklog.schemas.demands import declarations_of, gaps_of_older_reader, gaps_of_reader
from sparklog.schemas.protobuf_compatibility import contradictions, lost_members

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


def check(new: ValueSchema, olds: Sequence[ValueSchema], mode: str = "BACKWARD", *, value_format: str = "") -> Verdict:
    """May ``new`` follow ``olds``, the oldest first?

    All fields may be null and have null as their default, so fields may be added, left out and put into another order
    in every mode; what is refused is a field that has, or ever had, another type, at any depth: no reader could read
    both, and no table can hold both.

    Readers of bytes by the new schema must be able to have each value that any of those before it has. So what such a
    value may be, and the new schema's Avro record or Protobuf message can't hold, is refused: null or nothing for a
    field that demands a value, a symbol that an enumeration without a default lacks, bytes of another length. So is
    whatever gives bytes another meaning: see :mod:`sparklog.schemas.avro_compatibility` and
    :mod:`sparklog.schemas.protobuf_compatibility`. A new field with a default that isn't null is refused, which no
    engine would know of: records of before would be read as null. And so is one that is the alias of another: a column
    can't be renamed.

    ``FORWARD`` and ``FULL`` refuse besides what keeps a reader of the newest schema of before, or with ``_TRANSITIVE``
    of all of them, from reading new values, by the same rules. Otherwise all modes agree.

    What the newest of ``olds`` already does to those before it isn't held against ``new``, but for fields that readers
    demand: it was allowed once, and can't be undone.

    Args:
        value_format: of the topic. Bytes of ``avro``, which don't tell their schema, need the same order of fields.
    Raises:
        InvalidConfigurationError: no such mode.
    """
    if mode not in MODES:
        hint = ": a column of a table keeps its type for ever" if mode == "NONE" else ""
        raise InvalidConfigurationError(f"value.compatibility={mode!r}{hint}; expected one of {', '.join(MODES)}")
    found = _reasons(new, olds, mode, value_format)
    if found and len(olds) > 1:
        inherited = _reasons(olds[-1], olds[:-1], f"{mode.removesuffix('_TRANSITIVE')}_TRANSITIVE", value_format)
        found = [each for each in found if each.is_demand or each not in inherited]
    reasons: dict[str, str] = {}
    for each in found:
        reasons.setdefault(each.text.replace(each.which, "", 1), each.text)  # the oldest schema stands for all
    return Verdict(not reasons, tuple(reasons.values()))


@dataclass(frozen=True, slots=True)
class _Reason:
    text: str
    which: str = ""
    """The name of the older schema within the text."""
    is_demand: bool = False
    """A reader of before demands a field, which a later schema can have again."""


def _reasons(new: ValueSchema, olds: Sequence[ValueSchema], mode: str, value_format: str) -> list[_Reason]:
    found: list[_Reason] = []
    for number, old in enumerate(olds, 1):
        which = f"schema {number}"
        texts = [
            *_differences(new.arrow, old.arrow, "", which),
            *_gaps_of_new_readers(new, old, which),
            *_contradictions(new, old, which, value_format),
        ]
        found += [_Reason(text, which) for text in texts]
        if mode.startswith(("FORWARD", "FULL")) and (number == len(olds) or mode.endswith("_TRANSITIVE")):
            found += _gaps_of_old_readers(new, old, which, mode)
    return [*found, *map(_Reason, _unmet_declarations(new, olds))]


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


def _gaps_of_new_readers(new: ValueSchema, old: ValueSchema, which: str) -> Iterator[str]:
    for gap in gaps_of_reader(new, old):
        if gap.values:
            yield f"field {gap.path}: values of {which} may {gap.values}; {gap.remedy}"
        else:
            yield (
                f"field {gap.path}: it can't be null, but values of {which} may lack it; make it a union with null, "
                "which is optional in Protobuf"
            )


def _gaps_of_old_readers(new: ValueSchema, old: ValueSchema, which: str, mode: str) -> Iterator[_Reason]:
    for gap in gaps_of_older_reader(old, new):
        if gap.values:
            yield _Reason(
                f"field {gap.path}: values may {gap.values} in {which}, which its readers need ({mode})", which
            )
        else:
            demanded = "demand it, but values of this schema may lack it"
            yield _Reason(f"field {gap.path}: readers of {which} {demanded} ({mode})", which, is_demand=True)
    there = _lower_paths([new])
    for each in declarations_of(old):
        for alias in _taken_aliases(each, there):
            text = f"field {alias}: readers of {which} take it for {each.path}, whose alias it is ({mode})"
            yield _Reason(text, which)
    for path, member in lost_members(old, new):
        text = f"oneof {path}: readers of {which} take it for unset where values of this schema have {member}"
        yield _Reason(f"{text} ({mode})", which)
    for text in unresolved(old, new, which, "this schema"):
        yield _Reason(f"{text} ({mode})", which)


def _contradictions(new: ValueSchema, old: ValueSchema, which: str, value_format: str) -> Iterator[str]:
    """Whatever gives bytes of the one schema another meaning by the other, or none."""
    yield from unresolved(new, old, "this schema", which)
    for path, member in lost_members(new, old):
        yield f"oneof {path}: it would be unset where values of {which} have {member}; keep {member} in it"
    if value_format == "avro":
        yield from other_layout(new, old, which)
    yield from contradictions(new, old, which)


def _unmet_declarations(new: ValueSchema, olds: Sequence[ValueSchema]) -> Iterator[str]:
    """The defaults of fields that the schemas of before don't have, and the aliases of those that they have: what no
    table can do."""
    if not olds:
        return
    known = _lower_paths(olds)
    for each in declarations_of(new):
        within = each.path.rpartition(".")[0]
        is_new = each.path.lower() not in known and (not within or within.lower() in known)
        if each.default is not None and is_new:  # of what is new as a whole, values of before have nothing
            yield (
                f"field {each.path}: new, with the default {each.default}, but values of before are read as null; "
                "leave the default out, or make it null"
            )
        for alias in _taken_aliases(each, known):
            yield (
                f"field {each.path}: an alias of {alias}, but a column keeps its name for ever; go on with "
                f"{alias.rpartition('.')[2]}, or leave the alias out"
            )


def _taken_aliases(declared: Declaration, known: Container[str]) -> Iterator[str]:
    """The aliases of a field that are fields themselves, whose values a reader of Avro would take for its own."""
    prefix = declared.path[: declared.path.rfind(".") + 1]
    for alias in declared.aliases:
        if f"{prefix}{alias}".lower() in known and f"{prefix}{alias}" != declared.path:
            yield f"{prefix}{alias}"


def _lower_paths(schemas: Iterable[ValueSchema]) -> frozenset[str]:
    return frozenset(path.lower() for schema in schemas for path in field_paths(schema.struct_type))


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
