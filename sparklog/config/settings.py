"""The definition of a setting: its name, its default, its parser and the values that are allowed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from sparklog.errors import InvalidConfigurationError

__all__ = ["INT_MAX", "LONG_MAX", "Setting", "Value", "boolean", "one_of", "ratio", "to_text", "whole_number"]

Value = bool | int | float | str

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")  # not int's underscores


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: its name, its default, its parser and the values that are allowed."""

    name: str
    parse: Callable[[str], Value]
    """Converts text to a value. Raises ``ValueError``, whose message says what was expected."""
    default: Value
    provided_by_store: bool = False
    """True: the setting is accepted and recorded as in Kafka, and has no effect, since the object store itself provides
    what it requires."""

    def parse_value(self, given: object) -> Value:
        """Parse what a user gave, as text or as a Python value.

        Raises:
            InvalidConfigurationError: the type or the value isn't allowed; names the setting.
        """
        if not isinstance(given, bool | int | float | str):
            raise InvalidConfigurationError(
                f"{self.name}: got {given!r} of type {type(given).__name__}, expected text or number"
            )
        try:
            return self.parse(to_text(given).strip())
        except ValueError as error:
            raise InvalidConfigurationError(f"{self.name}={given!r}: {error}") from None


def to_text(value: Value) -> str:
    """Convert a value to text, as Kafka and Delta write it in properties."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of a whole number from ``low`` to ``high``, both inclusive. The parser raises ``ValueError``."""

    def parse(text: str) -> int:
        expected = f"expected a whole number from {low} to {high}"
        if not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
            raise ValueError(expected)
        return int(text)

    return parse


def ratio(text: str) -> float:
    """Parse a number from 0 to 1, both inclusive. Raises ``ValueError``."""
    expected = "expected a number from 0 to 1"
    try:
        number = float(text)
    except ValueError:
        raise ValueError(expected) from None
    if not 0 <= number <= 1:  # refuses NaN too
        raise ValueError(expected)
    return number


def boolean(text: str) -> bool:
    """Parse ``true`` or ``false``, in upper or lower case. Raises ``ValueError``."""
    if text.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.lower() == "true"


def one_of(*names: str) -> Callable[[str], str]:
    """Return a parser that accepts one of ``names``, as they are written. The parser raises ``ValueError``."""

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"expected one of {', '.join(names)}")
        return text

    return parse
