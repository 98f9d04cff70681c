"""The error codes in an answer, in all fields for error codes that its message has. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.pieces import Pieces
from sparklog.gateway.wire import Message, message
from sparklog.gateway.wire.fields import Field

__all__ = ["error_name", "errors_in"]

_Walk = Callable[[Mapping[str, Any], list[int]], None]


def errors_in(response: Message, answer: Mapping[str, Any]) -> list[int]:
    """The codes of an answer that aren't ``NONE``, in any order; of partitions each its own."""
    codes: list[int] = []
    _walk_of(response.name)(answer, codes)
    return codes


def error_name(code: int) -> str:
    """Kafka's name of a code."""
    try:
        return ErrorCode(code).name
    except ValueError:  # none of those that the gateway knows
        return str(code)


@cache
def _walk_of(name: str) -> _Walk:
    return _walk(message(name).fields) or (lambda _answer, _found: None)


def _walk(fields: tuple[Field, ...]) -> _Walk | None:
    """A call that collects the codes of a struct; None: it has none."""
    own = tuple(field.name for field in fields if field.kind == "int16" and field.name.endswith("error_code"))
    inner = tuple(
        (field.name, walk)
        for field in fields
        if field.kind.startswith("[]") and (walk := _walk(field.fields)) is not None
    )
    if not own and not inner:
        return None

    def collect(value: Mapping[str, Any], codes: list[int]) -> None:
        for name in own:
            code = value.get(name)
            if code:
                codes.append(code)
        for name, walk in inner:
            elements = value.get(name) or ()
            if isinstance(elements, Pieces):  # which are made once, to be encoded
                codes.extend(elements.error_codes)
                continue
            for element in elements:
                walk(element, codes)

    return collect
