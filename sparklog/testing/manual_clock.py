"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading

from sparklog.clock import Clock

__all__ = ["ManualClock"]


class ManualClock(Clock):
    """Time moves by :meth:`advance` and by sleeping, which returns at once. May be shared by threads.

    Args:
        start_ms: the wall time, milliseconds since 1970-01-01 UTC; ticks begin at 0.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._lock = threading.Lock()
        self._wall_ms = float(start_ms)
        self._ticks_ms = 0.0

    def now_ms(self) -> int:
        with self._lock:
            return int(self._wall_ms)

    def ticks_ms(self) -> float:
        with self._lock:
            return self._ticks_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.advance(max(0.0, duration_ms))

    def advance(self, duration_ms: float) -> None:
        """Let ``duration_ms`` (not negative) pass, on the wall and in ticks."""
        if duration_ms < 0:
            raise ValueError(f"time can't go back: duration_ms={duration_ms}; see shift_wall")
        with self._lock:
            self._wall_ms += duration_ms
            self._ticks_ms += duration_ms

    def shift_wall(self, by_ms: float) -> None:
        """Set the wall clock forward, or back if negative, as an administrator would; ticks don't notice."""
        with self._lock:
            self._wall_ms += by_ms
