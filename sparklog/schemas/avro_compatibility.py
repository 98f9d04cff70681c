"""Avro records of one topic, compared by what Avro's own schema resolution asks beside the types of columns, and by the
layout of their bytes. Source: Avro 1.12, "Schema Resolution", "Aliases"."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from sparklog.schemas.avro_schema import NAMED, avro_of_schema, full_name, readable_avro
from sparklog.schemas.canonical import ValueSchema

__all__ = ["other_layout", "unresolved"]

_BY_COLUMN = frozenset({"string", "enum", "bytes", "fixed"})
"""Kinds of which two have one type of column. Others differ in their columns, which are compared elsewhere."""
_SHOWN = {"enum": "an enumeration", "string": "a string", "fixed": "fixed", "bytes": "bytes"}


@dataclass(frozen=True, slots=True)
class _Type:
    """An Avro type with its names resolved, without what bytes don't depend on."""

    kind: str
    logical: str = ""
    """The logical type that changes how a value is read, with its parameters."""
    parts: tuple[tuple[str, _Type], ...] = ()
    """The fields of a record, the element, the value, or the branches of a union, with names where they have some."""
    symbols: tuple[str, ...] = ()
    size: int = 0
    name: str = field(default="", compare=False)
    aliases: frozenset[str] = field(default=frozenset(), compare=False)


def unresolved(reader: ValueSchema, writer: ValueSchema, reader_name: str, writer_name: str) -> Iterator[str]:
    """The reasons for which Avro's resolution refuses two records whose columns agree: a string and an enumeration,
    bytes and fixed, and named types whose names differ.

    Args:
        reader_name: for the sentences, as ``writer_name``.
    """
    if _is_avro(reader) and _is_avro(writer):
        yield from _unresolved(_type_of(reader), _type_of(writer), "", (reader_name, writer_name))


def other_layout(new: ValueSchema, old: ValueSchema, which: str) -> Iterator[str]:
    """Why bytes of Avro without a frame, which don't tell by which of two schemas they were written, might be read by
    the other one as other values. One may have more fields behind all others: such bytes are too short, or too long,
    and so are refused."""
    for (name, kind), (other_name, other) in zip(_type_of(new).parts, _type_of(old).parts, strict=False):
        if name != other_name or not _is_prefix(kind, other):
            shown = name if name == other_name else f"{name}, which is {other_name} there"
            yield (
                f"bytes of avro don't tell their schema, and those of {which} would be read as other values from field "
                f"{shown} on; keep fields, nulls and symbols in their order, add new ones at the end, or let the topic "
                "have value.format=avro-confluent"
            )
            return


def _is_avro(schema: ValueSchema) -> bool:
    return schema.source is not None and schema.source.language == "avro"


@lru_cache(maxsize=64)
def _type_of(schema: ValueSchema) -> _Type:
    is_avro = schema.source is not None and schema.source.language == "avro"
    text = schema.source.text if schema.source is not None and is_avro else ""
    found = readable_avro(json.loads(text)) if is_avro else avro_of_schema(schema)
    return _read(found, "", {})


def _read(found: Any, namespace: str, names: dict[str, _Type]) -> _Type:
    """A type of a schema that is known to be one."""
    if isinstance(found, list):
        return _Type("union", parts=tuple(("", _read(each, namespace, names)) for each in found))
    if isinstance(found, str):
        return names.get(full_name(found, namespace)) or _Type(found)
    kind = found["type"]
    if not isinstance(kind, str) or kind not in (*NAMED, "array", "map"):
        inner, logical = _read(kind, namespace, names), _logical(found)
        return replace(inner, logical=logical) if logical else inner
    if kind in ("array", "map"):
        return _Type(kind, parts=(("", _read(found["items" if kind == "array" else "values"], namespace, names)),))
    return _named(found, kind, namespace, names)


def _named(found: Mapping[str, Any], kind: str, namespace: str, names: dict[str, _Type]) -> _Type:
    given = str(found["name"])
    full = given if "." in given else full_name(given, str(found.get("namespace", namespace)))
    inner = full.rpartition(".")[0]
    parts: tuple[tuple[str, _Type], ...] = ()
    if kind not in ("enum", "fixed"):
        parts = tuple((str(each["name"]), _read(each["type"], inner, names)) for each in found["fields"])
    made = _Type(
        "record" if kind == "error" else kind,
        _logical(found),
        parts,
        tuple(map(str, found["symbols"])) if kind == "enum" else (),
        int(found["size"]) if kind == "fixed" else 0,
        full,
        frozenset(str(each).rpartition(".")[2] for each in found.get("aliases") or ()),
    )
    names[full] = made
    return made


def _logical(found: Mapping[str, Any]) -> str:
    return " ".join(str(found[word]) for word in ("logicalType", "precision", "scale") if word in found)


def _unresolved(reader: _Type, writer: _Type, path: str, names: tuple[str, str]) -> Iterator[str]:
    reader, writer = _without_null(reader), _without_null(writer)
    where = f"field {path}" if path else "the record"
    if reader.kind != writer.kind:
        if {reader.kind, writer.kind} <= _BY_COLUMN:
            shown = _SHOWN[reader.kind], _SHOWN[writer.kind]
            yield f"{where}: {shown[0]} in {names[0]}, {shown[1]} in {names[1]}; give the field another name"
        return
    if reader.name and not _is_named_alike(reader, writer):
        yield (
            f"{where}: its type is {reader.name} in {names[0]}, {writer.name} in {names[1]}, and Avro's readers take "
            "only types of one name for one; keep the name, or have the other one among the aliases of the type"
        )
    if reader.size != writer.size and reader.logical.startswith("decimal"):  # other sizes are compared as demands
        yield f"{where}: fixed of {reader.size} bytes in {names[0]}, of {writer.size} in {names[1]}; keep the size"
    if reader.kind == "record":
        known = dict(writer.parts)
        for name, kind in reader.parts:
            if name in known:
                yield from _unresolved(kind, known[name], f"{path}.{name}" if path else name, names)
    elif reader.kind in ("array", "map"):
        part = "element" if reader.kind == "array" else "value"
        yield from _unresolved(reader.parts[0][1], writer.parts[0][1], f"{path}.{part}", names)


def _is_named_alike(reader: _Type, writer: _Type) -> bool:
    short = writer.name.rpartition(".")[2]
    return reader.name.rpartition(".")[2] == short or short in reader.aliases


def _without_null(kind: _Type) -> _Type:
    if kind.kind != "union":
        return kind
    return next(each for _, each in kind.parts if each.kind != "null")


def _is_prefix(one: _Type, other: _Type) -> bool:
    """Do values of two types have the same bytes? An enumeration may have more symbols behind the other's."""
    if one.kind == other.kind == "enum":
        both = zip(one.symbols, other.symbols, strict=False)
        return all(symbol == known for symbol, known in both)
    return (one.kind, one.logical, one.size, len(one.parts)) == (
        other.kind,
        other.logical,
        other.size,
        len(other.parts),
    ) and all(
        name == other_name and _is_prefix(kind, known)
        for (name, kind), (other_name, known) in zip(one.parts, other.parts, strict=True)
    )
