"""Codecs of composed types: strings, bytes, arrays, structs and their tagged fields.

A message is a dict of its fields by their names in snake case. What a version doesn't have is absent when it was read,
and passed over when it is written; what is missing then is its default.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparklog.gateway.wire.primitives import FIXED, Codec, Frame, Input, Read, WireError, Write
from sparklog.gateway.wire.primitives import read_unsigned as _read_unsigned
from sparklog.gateway.wire.primitives import text as _text
from sparklog.gateway.wire.primitives import write_unsigned as _write_unsigned

__all__ = ["Field", "Versions", "WireError", "struct_codec"]

_INT16, _INT32 = FIXED["int16"], FIXED["int32"]


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends inclusive; empty where ``last < first``."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str | None) -> Versions:
        """``0-3``, ``2+``, ``4`` or ``none``."""
        if text is None or text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), 32_767)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message as Kafka defines it."""

    name: str
    kind: str
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    flexible: Versions | None
    """Where other than the message's."""
    default: Any
    fields: tuple[Field, ...]
    """Fields of a struct, or of an array's elements."""

    @classmethod
    def parse(cls, definition: Mapping[str, Any], structs: Mapping[str, Any]) -> Field:
        """A field of ``definitions.json``; ``structs``: those of the message that fields name, by name."""
        kind = definition["type"]
        inner = definition.get("fields") or structs.get(kind.removeprefix("[]"), {}).get("fields", ())
        fields = tuple(cls.parse(field, structs) for field in inner)
        flexible = definition.get("flexibleVersions")
        return cls(
            name=re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", definition["name"]).lower(),
            kind=kind,
            versions=Versions.parse(definition.get("versions")),
            nullable=Versions.parse(definition.get("nullableVersions")),
            tagged=Versions.parse(definition.get("taggedVersions")),
            tag=definition.get("tag", -1),
            flexible=None if flexible is None else Versions.parse(flexible),
            default=_default(kind, definition.get("default")),
            fields=fields,
        )


_NULL = object()


def _default(kind: str, value: Any) -> Any:
    if value == "null":
        return _NULL
    if kind.startswith("[]"):
        return []
    if kind.startswith(("int", "uint")):
        return int(str(value or 0), 0)
    if kind == "float64":
        return float(value or 0)
    if kind == "bool":
        return str(value).lower() == "true"
    if kind == "uuid":
        return uuid.UUID(int=0)
    if kind in ("bytes", "records"):
        return b""
    return (value or "") if kind == "string" else None


def _default_of(field: Field, version: int) -> Any:
    if field.default is _NULL:
        return None
    if field.fields and not field.kind.startswith("[]"):
        return {inner.name: _default_of(inner, version) for inner in field.fields if version in inner.versions}
    return field.default


_MOST_STRING_BYTES = 32_767
"""Bound of a string that is read; others have no greater ones, by their length's type. A compact one of megabytes
would take many times as much wherever it is quoted. Source: Kafka ``MessageDataGenerator``, "had invalid length"."""


def _sized(kind: str, *, compact: bool, nullable: bool) -> Codec:
    """Strings and bytes: their length, then they themselves. ``records`` are bytes that may be null, and that may be
    given in pieces, as a list."""
    length = _INT16 if kind == "string" else _INT32
    nullable = nullable or kind == "records"

    def read(data: Input) -> Any:
        size = _read_unsigned(data) - 1 if compact else length.read(data)
        if size < 0:
            if nullable and size == -1:
                return None
            raise WireError(f"{kind} of length {size} at byte {data.at}")
        if kind == "string" and size > _MOST_STRING_BYTES:
            raise WireError(f"a string of {size} bytes at byte {data.at}: expected at most {_MOST_STRING_BYTES}")
        taken = data.take(size)
        return _text(taken) if kind == "string" else taken if kind == "records" else bytes(taken)

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise WireError(f"null for {kind}, which may not be null here")
            out += b"\0" if compact else b"\xff" * length.least_bytes
            return
        encoded = value.encode() if kind == "string" else value
        pieces = encoded if isinstance(encoded, list) else [encoded]
        size = sum(map(len, pieces))
        if compact:
            _write_unsigned(out, size + 1)
        else:
            length.write(out, size)
        for piece in pieces:
            if isinstance(out, Frame):
                out.add_piece(piece)
            else:
                out += piece

    return Codec(read, write, 1 if compact else length.least_bytes)


def _array(element: Codec, *, compact: bool, nullable: bool) -> Codec:
    read_element, write_element, least = element.read, element.write, max(1, element.least_bytes)

    def read(data: Input) -> Any:
        count = _read_unsigned(data) - 1 if compact else _INT32.read(data)
        if count < 0:
            if nullable and count == -1:
                return None
            raise WireError(f"an array of {count} elements at byte {data.at}")
        if count * least > data.left:  # before memory is taken for them
            raise WireError(f"an array of {count} elements at byte {data.at}: {data.left} bytes are left")
        data.announce(count)
        return [read_element(data) for _ in range(count)]

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise WireError("null for an array, which may not be null here")
            out += b"\0" if compact else b"\xff\xff\xff\xff"
            return
        if compact:
            _write_unsigned(out, len(value) + 1)
        else:
            _INT32.write(out, len(value))
        for each in value:
            write_element(out, each)

    return Codec(read, write, 1 if compact else 4)


def _nullable_struct(inner: Codec) -> Codec:
    """A struct behind a byte that is 1 where the struct follows, and -1 where it is null. Source: KIP-893."""

    def read(data: Input) -> Any:
        return None if FIXED["int8"].read(data) < 0 else inner.read(data)

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out += b"\xff"
        else:
            out += b"\x01"
            inner.write(out, value)

    return Codec(read, write, 1)


def _codec(field: Field, version: int, *, flexible: bool) -> Codec:
    if field.flexible is not None:
        flexible = version in field.flexible
    nullable = version in field.nullable
    kind = field.kind
    if kind.startswith("[]"):
        return _array(_element(field, kind[2:], version, flexible), compact=flexible, nullable=nullable)
    codec = _element(field, kind, version, flexible, nullable=nullable)
    return _nullable_struct(codec) if nullable and field.fields else codec


def _element(field: Field, kind: str, version: int, flexible: bool, *, nullable: bool = False) -> Codec:
    if kind in FIXED:
        return FIXED[kind]
    if kind in ("string", "bytes", "records"):
        return _sized(kind, compact=flexible, nullable=nullable)
    return struct_codec(field.fields, version, flexible=flexible)


def struct_codec(fields: tuple[Field, ...], version: int, *, flexible: bool) -> Codec:
    """The codec of a struct, or of a whole message, in one version: values are dicts."""
    present = [field for field in fields if version in field.versions]
    plain = [field for field in present if version not in field.tagged]
    tagged = sorted((field for field in present if version in field.tagged), key=lambda field: field.tag)
    codecs = [(field.name, _codec(field, version, flexible=flexible)) for field in plain]
    readers: list[tuple[str, Read]] = [(name, codec.read) for name, codec in codecs]
    defaults = [_default_of(field, version) for field in plain]
    writers: list[tuple[str, Write, Any]] = [
        (name, codec.write, default) for (name, codec), default in zip(codecs, defaults, strict=True)
    ]
    tags = _Tags(tagged, version) if flexible else None

    def read(data: Input) -> dict[str, Any]:
        value = {name: read_field(data) for name, read_field in readers}
        if tags is not None:
            tags.read(data, value)
        return value

    def write(out: bytearray, value: Mapping[str, Any]) -> None:
        for name, write_field, default in writers:
            try:
                write_field(out, value.get(name, default))
            except WireError as error:
                raise WireError(f"{name}: {error}") from error
        if tags is not None:
            tags.write(out, value)

    return Codec(read, write, sum(codec.least_bytes for _, codec in codecs) + flexible)


class _Tags:
    """The tagged fields behind a flexible struct: those that aren't their default, by tag. Source: KIP-482."""

    def __init__(self, fields: list[Field], version: int) -> None:
        self._fields = [
            (field.tag, field.name, _codec(field, version, flexible=True), _default_of(field, version))
            for field in fields
        ]
        self._by_tag = {tag: (name, codec.read) for tag, name, codec, _ in self._fields}

    def read(self, data: Input, value: dict[str, Any]) -> None:
        """Add the tagged fields to ``value``; those that this definition doesn't know are passed over."""
        for _, name, _, default in self._fields:
            value[name] = default
        before, count = -1, _read_unsigned(data)
        if count:
            data.announce(count)
        for _ in range(count):
            tag, size = _read_unsigned(data), _read_unsigned(data)
            if tag <= before:
                raise WireError(f"tag {tag} at byte {data.at} after tag {before}")
            before = tag
            part = data.part(size)
            if tag in self._by_tag:
                name, read = self._by_tag[tag]
                value[name] = read(part)
                if part.left:
                    raise WireError(f"tagged field {name}: {part.left} bytes too many")

    def write(self, out: bytearray, value: Mapping[str, Any]) -> None:
        """Write the tagged fields that aren't their default."""
        present = [
            (tag, codec, value[name])
            for tag, name, codec, default in self._fields
            if name in value and value[name] != default
        ]
        _write_unsigned(out, len(present))
        for tag, codec, content in present:
            part = bytearray()
            codec.write(part, content)
            _write_unsigned(out, tag)
            _write_unsigned(out, len(part))
            out += part
