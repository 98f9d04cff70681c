"""The numbers that an entry of ours states of its topic: which are none. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from operator import le
from typing import Any

from sparklog.log.shape import MAX_PARTITIONS

__all__ = ["check_offsets", "count_of"]

_INT64 = 2**63


def check_offsets(starts: tuple[Any, ...], ends: tuple[Any, ...]) -> None:
    """Raise unless these are log starts and ends of partitions, one at least: 0 ≤ start ≤ end < 2⁶³ for each."""
    if not 0 < len(starts) == len(ends) <= MAX_PARTITIONS:
        raise ValueError(f"log starts and ends of {len(starts)} and {len(ends)} partitions")
    if {*map(type, starts), *map(type, ends)} != {int}:
        raise TypeError(f"log starts and ends, which aren't whole numbers: {starts!r:.100} and {ends!r:.100}")
    if min(starts) < 0 or max(ends) >= _INT64 or not all(map(le, starts, ends)):
        raise ValueError(f"log starts and ends, which aren't offsets: {starts!r:.100} and {ends!r:.100}")


def count_of(info: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A whole number from 0 on."""
    value = info[name] if default is None else info.get(name, default)
    if type(value) is not int or not 0 <= value < _INT64:
        raise ValueError(f"{name}, which is {value!r:.100}")
    return value
