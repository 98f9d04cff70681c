"""The column ``headers``: JSON, whose numbers keep the digits that the database has."""

from __future__ import annotations

import json
from typing import Any

from sparklog.errors import InvalidTypeError

__all__ = ["parse_headers"]

_EXPECTED = "expected a list of [name, value] or an object, or SQL's NULL"


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


class _Object(list[tuple[str, Any]]):
    """An object's members, also those of the same name."""


def parse_headers(text: str) -> list[tuple[str, bytes | None]]:
    """The names and values.

    Raises:
        InvalidTypeError: it is no JSON, or no list of pairs; says what it is.
    """
    if not text:
        return []
    try:
        parsed = json.loads(
            text, parse_int=_Number, parse_float=_Number, parse_constant=_Number, object_pairs_hook=_Object
        )
    except (ValueError, RecursionError) as error:
        raise InvalidTypeError(f"headers are no JSON, {_EXPECTED}: {error}") from error
    if not isinstance(parsed, list):
        raise InvalidTypeError(f"headers are {text[:100]}, {_EXPECTED}")
    return [_header(each) for each in parsed]


def _header(pair: Any) -> tuple[str, bytes | None]:
    is_pair = isinstance(pair, list | tuple) and not isinstance(pair, _Object) and len(pair) == 2
    if not is_pair or not isinstance(pair[0], str) or isinstance(pair[0], _Number):
        raise InvalidTypeError(f"headers have {_json(pair)[:100]}, {_EXPECTED}")
    name, value = pair
    if value is None:
        return name, None
    return name, (str(value) if isinstance(value, str) else _json(value)).encode()


def _json(value: Any) -> str:
    """The text of a value that was read, with the digits of its numbers."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, _Object):
        return "{" + ", ".join(f"{json.dumps(name)}: {_json(each)}" for name, each in value) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_json, value)) + "]"
    return json.dumps(value)
