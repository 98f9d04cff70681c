"""Metrics of clients, under Kafka's names: over the last 30 to 60 seconds, and since the start."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from sparklog.clock import Clock

__all__ = ["Sensor"]

_WINDOW_MS = 30_000.0
_WINDOWS = 2
"""Kafka's ``metrics.sample.window.ms`` and ``metrics.num.samples``."""


@dataclass(slots=True)
class _Window:
    began_ticks_ms: float
    sum: float = 0.0
    count: int = 0
    greatest: float | None = None


class Sensor:
    """Values that were seen: how many, their sum, and over the recent windows their rate, mean and maximum.

    Recorded once per batch, not per record. For several threads.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._windows = [_Window(clock.ticks_ms())]
        self._total = 0.0
        self._count = 0

    def record(self, value: float, *, count: int = 1, greatest: float | None = None) -> None:
        """Add a value, or the sum of ``count`` values of which ``greatest`` was the greatest."""
        with self._lock:
            self._turn()
            window = self._windows[-1]
            window.sum += value
            window.count += count
            top = value if greatest is None else greatest
            window.greatest = top if window.greatest is None else max(window.greatest, top)
            self._total += value
            self._count += count

    @property
    def total(self) -> float:
        """Sum since the start."""
        return self._total

    @property
    def count(self) -> int:
        """The number of values since the start."""
        return self._count

    def rate(self) -> float:
        """Sum per second over the recent windows."""
        with self._lock:
            self._turn()
            return sum(window.sum for window in self._windows) / self._span_s()

    def count_rate(self) -> float:
        """Values per second over the recent windows."""
        with self._lock:
            self._turn()
            return sum(window.count for window in self._windows) / self._span_s()

    def mean(self) -> float:
        """The mean of the recent values; NaN without one, as Kafka's."""
        with self._lock:
            self._turn()
            count = sum(window.count for window in self._windows)
            return sum(window.sum for window in self._windows) / count if count else float("nan")

    def maximum(self) -> float:
        """The largest of the recent values; NaN without one, as Kafka's."""
        with self._lock:
            self._turn()
            return max((w.greatest for w in self._windows if w.greatest is not None), default=float("nan"))

    def _turn(self) -> None:
        now = self._clock.ticks_ms()
        if now - self._windows[-1].began_ticks_ms >= _WINDOW_MS:
            self._windows.append(_Window(now))
        oldest = now - _WINDOWS * _WINDOW_MS
        self._windows = [w for w in self._windows if w.began_ticks_ms > oldest] or [_Window(now)]

    def _span_s(self) -> float:
        """At least one whole window, so that the first moments don't show as a burst (Kafka ``Rate.windowSize``)."""
        return max(_WINDOW_MS, self._clock.ticks_ms() - self._windows[0].began_ticks_ms) / 1000
