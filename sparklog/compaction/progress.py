"""The progress of a step, in words: for people who wait for it."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Progress", "bytes_done", "ignore_progress"]

Progress = Callable[[str], object]
"""Called with how far a step came, as ``37 of 800 ranges, 4.7 of 100.0 GB``, after each commit or part of a pass."""

_UNITS = ("B", "kB", "MB", "GB", "TB")


def ignore_progress(_: str) -> None:
    """A :data:`Progress` that does nothing."""


def bytes_done(done: int, total: int) -> str:
    """So many bytes of so many, in the unit that suits the total."""
    at = 0
    while total >= 1000 ** (at + 1) and at + 1 < len(_UNITS):
        at += 1
    if at == 0:
        return f"{done} of {total} B"
    return f"{done / 1000**at:.1f} of {total / 1000**at:.1f} {_UNITS[at]}"
