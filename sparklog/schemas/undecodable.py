"""Bytes that are no value."""

from __future__ import annotations

__all__ = ["UndecodableError", "shown"]

_MOST_SHOWN = 80


class UndecodableError(ValueError):
    """Bytes that are no value; says why."""


def shown(raw: bytes) -> str:
    """Bytes in a message: the first 80."""
    return repr(raw if len(raw) <= _MOST_SHOWN else raw[:_MOST_SHOWN] + b"...")
