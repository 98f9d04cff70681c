"""Values of untyped topics that are no text: Confluent's framing, a schema that was named, Protobuf by numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparklog.schemas import ValueSchema, decode, frame_ids, struct_to_python
from sparklog.texts import utf8_text

__all__ = ["NamedSchema", "frame_id", "protobuf_fields", "within_frame"]

_FRAME_BYTES = 5
_MOST_DEPTH = 20
_MOST_FIELDS = 10_000
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class NamedSchema:
    """The schema of an untyped topic's values, as whoever started the console named it."""

    schema: ValueSchema

    @property
    def format(self) -> str:
        """``avro``, ``protobuf`` or ``json``, by what the schema was made of."""
        return "json" if self.schema.source is None else self.schema.source.language

    def value_of(self, data: bytes) -> dict[str, Any] | None:
        """The value of bytes, within Confluent's framing or without; None where they aren't of the schema.

        What begins as a frame does is read as one first: a value without a frame may begin so, too, but seldom reads as
        a value of the schema behind its first five bytes.
        """
        ways = [f"{self.format}-confluent", self.format] if frame_id(data) is not None else [self.format]
        for way in ways:
            found, errors = decode(way, self.schema, pa.array([data], pa.binary()))
            if not errors:
                return struct_to_python(found)[0]
        return None


def frame_id(data: bytes) -> int | None:
    """The id of a schema in Confluent's framing; None where bytes don't begin as a frame does."""
    return frame_ids(pa.array([data[:_FRAME_BYTES]], pa.binary()))[0]


def within_frame(data: bytes) -> bytes:
    """The bytes behind the id of a frame."""
    return data[_FRAME_BYTES:]


def protobuf_fields(data: bytes) -> dict[str, Any] | None:
    """A Protobuf message without its schema: fields by their numbers; a list where one comes again.

    What has bytes within is shown as a message if it reads as one, else as text, else in hexadecimal digits: without a
    schema nobody can know. Numbers of fixed width are unsigned integers. None where bytes are no message. Source:
    Protobuf, "Encoding".
    """
    for one in _messages(data):
        found = _fields(one, _MOST_DEPTH)
        if found:
            return found
    return None


def _messages(data: bytes) -> Iterator[bytes]:
    """The bytes that may be the message: all, or what is behind a frame and its indexes."""
    yield data
    if frame_id(data) is None:
        return
    count, at = _varint(data, _FRAME_BYTES)
    if at < 0:
        return
    for _ in range(min(count >> 1, _MOST_DEPTH)):  # zigzag; a single 0 stands for the first message
        _, at = _varint(data, at)
        if at < 0:
            return
    yield data[at:]


def _fields(data: bytes, depth: int) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    at, count = 0, 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        count += 1
        if at < 0 or not 1 <= number < 1 << 29 or count > _MOST_FIELDS:
            return None
        value: Any
        if kind == _VARINT:
            value, at = _varint(data, at)
        elif kind == _BYTES:
            size, at = _varint(data, at)
            part = data[at : at + size] if at >= 0 else b""
            at = at + size if at >= 0 and at + size <= len(data) else -1
            value = _part(part, depth)
        elif kind in (_FIXED_32, _FIXED_64):
            size = 4 if kind == _FIXED_32 else 8
            value = int.from_bytes(data[at : at + size], "little")
            at = at + size if at + size <= len(data) else -1
        else:
            return None
        if at < 0:
            return None
        _add(found, str(number), value)
    return found


def _add(found: dict[str, Any], name: str, value: Any) -> None:
    """Add a field; what comes again becomes a list. A value itself is never one."""
    known = found.get(name)
    if isinstance(known, list):
        known.append(value)
    else:
        found[name] = value if name not in found else [known, value]


def _part(part: bytes, depth: int) -> Any:
    text = utf8_text(part)
    if text is not None and text.isprintable():
        return text
    nested = _fields(part, depth - 1) if depth > 0 else None
    return nested or (part.hex(" ") if text is None else text)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends; -1 where there is none: it is cut, or longer than ten bytes."""
    number = 0
    for place in range(10):
        if not 0 <= at + place < len(data):
            break
        byte = data[at + place]
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, at + place + 1
    return 0, -1
