"""The masks of a console: decides, for what is shown and for what is compared, what is never seen. Pure.

Whoever may not see a field may not compare with it either: a search of the field above it, of the whole value, or of
the key would give it back letter by letter. So a condition gets what these functions return, and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparklog.console.wire_formats import NamedSchema, frame_id, within_frame
from sparklog.errors import InvalidRecordError

__all__ = ["HIDDEN", "NO_MASKS", "Masks", "Unmasked"]

HIDDEN = "•••"
_MOST_BYTES = 2**20
"""A longer key, value or header is hidden whole: reading it would take many times its size in memory."""
_MOST_DEPTH = 60
"""The levels that are seen; a deeper one is hidden. A level is an object, a list, or JSON within a string."""


@dataclass(frozen=True, slots=True)
class Unmasked:
    """Bytes as they may be seen: their fields, without those that are masked."""

    format: str
    """``json``, ``avro`` or ``protobuf``."""
    value: Any
    """An object or a list, as JSON has them."""
    by_schema: bool = False
    """Was it read by a schema that was named?"""
    is_framed: bool = False
    """Do the bytes begin as Confluent's framing does?"""

    @property
    def text(self) -> str:
        """The value as JSON."""
        return json.dumps(self.value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Masks:
    """Names of what is never shown. False where there are none: then nothing is hidden, and nothing asks."""

    names: frozenset[str] = frozenset()
    """Fields at any depth, headers, or ``key``; in lower case."""
    plain: frozenset[str] = frozenset()
    """Headers, or ``key``, whose bytes have no fields, in lower case: they are seen though they aren't JSON."""

    def __bool__(self) -> bool:
        return bool(self.names)

    def hides(self, name: str) -> bool:
        """Is what has this name never shown? Of a name with dots each part counts, as of a path."""
        lowered = name.lower()
        return lowered in self.names or any(part in self.names for part in lowered.split("."))

    def of_value(self, value: Any) -> Any:
        """A value of JSON, or of a typed topic, without what is masked."""
        return self._seen(value, _MOST_DEPTH)

    def of_bytes(self, name: str, data: bytes, *, schema: NamedSchema | None = None) -> Unmasked | bytes | None:
        """The part that may be seen of a key, a value or the value of a header; None: nothing.

        Bytes have fields if they are an object or a list of JSON, or fit a schema that was named. Nobody knows what
        any others hold: only where their name is among :attr:`plain` they are returned as they are.

        Args:
            name: of the header, or ``key``; empty for a value.
        """
        if self.hides(name) or len(data) > _MOST_BYTES:
            return None
        if schema is not None:
            try:
                decoded = schema.value_of(data)
            except InvalidRecordError:  # a time that Python can't hold, perhaps in a masked field
                return None
            if decoded is not None:
                is_framed = frame_id(data) is not None
                return Unmasked(schema.format, self.of_value(decoded), by_schema=True, is_framed=is_framed)
        found = _parsed(data)
        if isinstance(found, dict | list):
            return Unmasked("json", self.of_value(found))
        found = None if frame_id(data) is None else _parsed(within_frame(data))
        if isinstance(found, dict | list):
            return Unmasked("json", self.of_value(found), is_framed=True)
        return data if name.lower() in self.plain else None

    def _seen(self, value: Any, left: int) -> Any:
        if isinstance(value, str):
            return self._text(value, left)
        if isinstance(value, bytes):
            return self._bytes(value, left)
        if not isinstance(value, Mapping | list | tuple):
            return value
        if left <= 0:
            return HIDDEN
        if isinstance(value, Mapping):
            return {self._name(str(name), left): self._member(str(name), one, left) for name, one in value.items()}
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and self.hides(value[0]):
            return [value[0], HIDDEN]  # an entry of a map, as Arrow has it
        return [self._seen(one, left - 1) for one in value]

    def _member(self, name: str, value: Any, left: int) -> Any:
        return HIDDEN if self.hides(name) else self._seen(value, left - 1)

    def _name(self, name: str, left: int) -> str:
        """The name of a member, which may be JSON, too."""
        return self._text(name, left) if "{" in name else name

    def _text(self, text: str, left: int) -> str:
        """A text within a value. It may be JSON itself; where it only looks as if it had fields it is hidden whole."""
        start = text.lstrip("\ufeff \t\r\n")[:1]
        if start not in ('"', "[", "{") and "{" not in text and not self._names_a_mask(text):
            return text
        found = _parsed(text)
        if left <= 0 or not isinstance(found, dict | list | str):
            return HIDDEN
        return json.dumps(self._seen(found, left - 1), ensure_ascii=False)

    def _bytes(self, data: bytes, left: int) -> str | bytes:
        """Bytes within a value: a text in UTF-8, or nobody knows what they hold."""
        try:
            return self._text(data.decode(), left)
        except UnicodeDecodeError:
            return HIDDEN

    def _names_a_mask(self, text: str) -> bool:
        """Does the name of a mask stand in a text, as in ``ssn=1`` and ``<ssn>1</ssn>``?"""
        lowered = text.lower()
        names = (re.escape(name) for name in self.names if name in lowered)
        return any(re.search(rf"(?<![^\W\d_]){name}(?![^\W\d_])", lowered) for name in names)


NO_MASKS = Masks()


def _parsed(data: bytes | str) -> Any:
    """The value of JSON; None where it isn't any."""
    try:
        return json.loads(data, parse_int=_whole)
    except (ValueError, RecursionError):
        return None


def _whole(digits: str) -> Any:
    """A number; one of so many digits that Python refuses them is hidden, and what stands around it isn't."""
    try:
        return int(digits)
    except ValueError:
        return HIDDEN
