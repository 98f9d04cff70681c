"""Values of any kind as text and as JSON: binary data, times, and numbers that JSON can't represent. Pure."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

__all__ = ["as_json", "as_text", "counted", "utf8_text", "with_text"]


def as_text(value: Any) -> str:
    """A value as people read it; bytes that aren't UTF-8 in hexadecimal digits after ``0x``."""
    if isinstance(value, bytes):
        text = utf8_text(value)
        return f"0x{value.hex()}" if text is None else text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return as_json(value)
    return _iso(value) if isinstance(value, datetime | date | time) else str(value)


def as_json(value: Any) -> str:
    """JSON in one line; bytes as :func:`with_text` has them."""
    return json.dumps(with_text(value), ensure_ascii=False, default=_plain, separators=(", ", ": "))


def with_text(value: Any) -> Any:
    """The value with bytes as text; those that aren't UTF-8 as base64, under a name that ends so."""
    if isinstance(value, Mapping):
        return dict(_entry(str(name), item) for name, item in value.items())
    if isinstance(value, list | tuple):
        return [with_text(item) for item in value]
    if isinstance(value, bytes):
        text = utf8_text(value)
        return base64.b64encode(value).decode() if text is None else text
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no word for it
    return value


def _entry(name: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, bytes) and utf8_text(value) is None:
        name += "_base64"
    return name, with_text(value)


def utf8_text(data: bytes) -> str | None:
    """The text that bytes are; None where they aren't UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _iso(value: datetime | date | time) -> str:
    text = value.isoformat()
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return _iso(value) if isinstance(value, datetime | date | time) else str(value)


def counted(number: int, noun: str, plural: str = "", *, by_thousands: bool = False) -> str:
    """A number of things, such as "1 file" and "2000 files".

    Args:
        plural: where that isn't the noun and an s.
        by_thousands: "2,000 files".
    """
    return f"{number:{',' if by_thousands else ''}} {noun if number == 1 else plural or f'{noun}s'}"
