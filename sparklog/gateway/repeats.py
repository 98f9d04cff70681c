"""Limits how often the log repeats entries with the same reason."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Repeats"]

_REPEATS_S = 1.0
"""Shortest time between two entries by the same reason."""


class Repeats:
    """Bounds what many clients cause by the same reason, such as a store that is away: an entry a second. Two threads
    that ask at the same time may both get the answer to write an entry."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """``now``: seconds of a clock that never goes back."""
        self._now = now
        self._last: dict[str, tuple[float, int]] = {}
        """By reason, when an entry was written, and how many weren't since."""

    def left_out(self, reason: str) -> str | None:
        """A text for an entry about those that were left out since the last one; None: it is to be left out, too."""
        now = self._now()
        written_s, count = self._last.get(reason, (float("-inf"), 0))
        if now - written_s < _REPEATS_S:
            self._last[reason] = written_s, count + 1
            return None
        self._last[reason] = now, 0
        return f" (and {count} others since the last such entry)" if count else ""
