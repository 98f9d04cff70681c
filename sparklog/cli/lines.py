"""Lines of input as records: text with a key separator, or JSON objects."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from sparklog.errors import InvalidArgumentError
from sparklog.model import Headers

__all__ = ["InputRecord", "JsonLines", "TextLines", "numbered_lines"]

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Longer ones are refused instead of being read into memory whole."""

_IGNORED = frozenset({"topic", "offset", "timestamp_type"})
_KNOWN = frozenset({"key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp"})


class InputRecord(NamedTuple):
    """A record to be sent."""

    key: bytes | None
    value: bytes | None
    headers: Headers | None
    partition: int | None
    timestamp_ms: int | None


def numbered_lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines of a stream from 1 on, without their ends (LF or CRLF)."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise InvalidArgumentError(f"line {number} is longer than {MAX_LINE_BYTES} bytes")
        if line.endswith(b"\n"):
            line = line[:-2] if line.endswith(b"\r\n") else line[:-1]
        yield number, line


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLines:
    """One record per line: its value, or key, separator and value."""

    key_separator: bytes | None = None
    """The first one in the line counts."""
    null_marker: bytes | None = None
    """A key or value that is exactly this is null."""
    key: bytes | None = None
    """The key of every record, where no separator is given."""
    headers: Headers | None = None
    partition: int | None = None

    def record(self, line: bytes) -> InputRecord:
        """The record of a line. Raises ``InvalidArgumentError``: there is no separator in it."""
        key, value = self.key, line
        if self.key_separator is not None:
            key, separator, value = line.partition(self.key_separator)
            if not separator:
                raise InvalidArgumentError(f"no key separator {os.fsdecode(self.key_separator)!r} in it")
        return InputRecord(
            None if key == self.null_marker else key,
            None if value == self.null_marker else value,
            self.headers,
            self.partition,
            None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLines:
    """One JSON object per line, as ``sparklog consume --json`` prints them.

    Fields, all optional: ``key`` and ``value`` (a text is taken as it is, null is null, anything else as compact JSON),
    ``key_base64`` and ``value_base64``, ``headers`` (an object, or a list of objects ``{"key", "value"}`` or pairs),
    ``partition``, ``timestamp`` (ms). Topic, offset and timestamp_type are passed over.
    """

    key: bytes | None = None
    """The key of records that have none."""
    headers: Headers | None = None
    """Added to those of the record."""
    partition: int | None = None
    """The partition of records that name none."""

    def record(self, line: bytes) -> InputRecord | None:
        """The record of a line; None for a blank one. Raises ``InvalidArgumentError``."""
        if not line.strip():
            return None
        try:
            given = json.loads(line)
        except ValueError as error:
            raise InvalidArgumentError(f"no JSON: {error}") from None
        except RecursionError:
            raise InvalidArgumentError("JSON that is nested too deeply") from None
        if not isinstance(given, dict):
            raise InvalidArgumentError(f"got a JSON {type(given).__name__}, expected an object")
        unknown = sorted(given.keys() - _KNOWN - _IGNORED)
        if unknown:
            raise InvalidArgumentError(f"unknown field {unknown[0]!r}, expected {', '.join(sorted(_KNOWN))}")
        has_key = "key" in given or "key_base64" in given
        headers = [*_headers(given.get("headers")), *(self.headers or ())]
        partition = _whole(given, "partition")
        return InputRecord(
            _data(given, "key") if has_key else self.key,
            _data(given, "value"),
            headers or None,
            self.partition if partition is None else partition,
            _whole(given, "timestamp"),
        )


def _data(given: dict[str, Any], name: str) -> bytes | None:
    encoded = given.get(f"{name}_base64")
    if encoded is None:
        return _bytes(given.get(name))
    if name in given:
        raise InvalidArgumentError(f"both {name} and {name}_base64")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{name}_base64: {error}") from None


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{error.object[error.start]!r} can't be written as UTF-8") from None


def _whole(given: dict[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise InvalidArgumentError(f"{name}: got {value!r}, expected a whole number")


def _headers(given: Any) -> Headers:
    if isinstance(given, dict):
        given = list(given.items())
    if given is None:
        return []
    if not isinstance(given, list):
        raise InvalidArgumentError(f"headers: got {given!r}, expected an object or a list")
    return list(_each_header(given))


def _each_header(given: Iterable[Any]) -> Iterator[tuple[str, bytes | None]]:
    for one in given:
        if isinstance(one, dict) and isinstance(one.get("key"), str) and one.keys() <= {"key", "value", "value_base64"}:
            yield one["key"], _data(one, "value")
        elif isinstance(one, list | tuple) and len(one) == 2 and isinstance(one[0], str):
            yield one[0], _bytes(one[1])
        else:
            raise InvalidArgumentError(f'headers: got {one!r}, expected {{"key": …, "value": …}} or a pair')
