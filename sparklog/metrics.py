"""Metrics of clients, under Kafka's names: over the last 30 to 60 seconds, and since the start."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sparklog.clock import Clock

__all__ = ["ClientMetrics", "MetricGroup", "Sensor", "by_group"]

_WINDOW_MS = 30_000.0
_WINDOWS = 2
"""Kafka's ``metrics.sample.window.ms`` and ``metrics.num.samples``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricGroup:
    """Metrics of one thing: a client, or one of its topics or partitions."""

    name: str
    """Kafka's name of the group, such as ``producer-topic-metrics``."""
    values: Mapping[str, float]
    """By Kafka's names. Those that end with ``-total`` only grow."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """``topic``, and ``partition``; none for the client itself."""

    @property
    def key(self) -> str:
        """The group as ``metrics()`` names it: with the topic behind a dot, and the partition behind a hyphen."""
        labels = "-".join(self.labels.values())
        return f"{self.name}.{labels}" if labels else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMetrics:
    """A client as a collector of metrics sees it."""

    kind: str
    """``producer`` or ``consumer``."""
    client_id: str | None
    """None where its settings have none."""
    is_closed: bool
    """Also in a process that was forked off."""
    groups: Sequence[MetricGroup] = ()
    """Empty before a client for asyncio was started."""


def by_group(groups: Iterable[MetricGroup]) -> dict[str, dict[str, float]]:
    """Group to name to value, as ``metrics()`` returns them. Groups of one key (topic ``t-0``; partition 0 of ``t``)
    become one: they have no names in common."""
    found: dict[str, dict[str, float]] = {}
    for group in groups:
        found.setdefault(group.key, {}).update(group.values)
    return found


@dataclass(slots=True)
class _Window:
    began_ticks_ms: float
    sum: float = 0.0
    count: int = 0
    greatest: float | None = None
    least: float | None = None


class Sensor:
    """Values that were seen: how many, their sum, and over the recent windows their rate, mean and maximum.

    Recorded once per batch, not per record. For several threads.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._windows = [_Window(clock.ticks_ms())]
        self._newest = self._windows[-1]
        self._turn_ticks_ms = self._next_turn_ticks_ms()
        self._total = 0.0
        self._count = 0

    def record(
        self, value: float, *, count: int = 1, greatest: float | None = None, now_ms: float | None = None
    ) -> None:
        """Add a value, or the sum of ``count`` values of which ``greatest`` was the greatest.

        Args:
            now_ms: the clock's ticks, where whoever records several values at once has read them.
        """
        top = value if greatest is None else greatest
        if now_ms is None:
            now_ms = self._clock.ticks_ms()
        with self._lock:
            if now_ms >= self._turn_ticks_ms:
                self._turn(now_ms)
            window = self._newest
            window.sum += value
            window.count += count
            if window.greatest is None or top > window.greatest:
                window.greatest = top
            if window.least is None or value < window.least:
                window.least = value
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
            self._turn(self._clock.ticks_ms())
            return sum(window.sum for window in self._windows) / self._span_s()

    def count_rate(self) -> float:
        """Values per second over the recent windows."""
        with self._lock:
            self._turn(self._clock.ticks_ms())
            return sum(window.count for window in self._windows) / self._span_s()

    def mean(self) -> float:
        """The mean of the recent values; NaN without one, as Kafka's."""
        with self._lock:
            self._turn(self._clock.ticks_ms())
            count = sum(window.count for window in self._windows)
            return sum(window.sum for window in self._windows) / count if count else float("nan")

    def maximum(self) -> float:
        """The largest of the recent values; NaN without one, as Kafka's."""
        with self._lock:
            self._turn(self._clock.ticks_ms())
            return max((w.greatest for w in self._windows if w.greatest is not None), default=float("nan"))

    def minimum(self) -> float:
        """The smallest of the recent values that were recorded one by one; NaN without one, as Kafka's."""
        with self._lock:
            self._turn(self._clock.ticks_ms())
            return min((w.least for w in self._windows if w.least is not None), default=float("nan"))

    def _turn(self, now: float) -> None:
        if now < self._turn_ticks_ms:
            return
        if now - self._windows[-1].began_ticks_ms >= _WINDOW_MS:
            self._windows.append(_Window(now))
        oldest = now - _WINDOWS * _WINDOW_MS
        self._windows = [w for w in self._windows if w.began_ticks_ms > oldest] or [_Window(now)]
        self._newest = self._windows[-1]
        self._turn_ticks_ms = self._next_turn_ticks_ms()

    def _next_turn_ticks_ms(self) -> float:
        """When the newest window ends, or the oldest one counts no more."""
        newest, oldest = self._windows[-1].began_ticks_ms, self._windows[0].began_ticks_ms
        return min(newest + _WINDOW_MS, oldest + _WINDOWS * _WINDOW_MS)

    def _span_s(self) -> float:
        """At least one whole window, so that the first moments don't show as a burst (Kafka ``Rate.windowSize``)."""
        return max(_WINDOW_MS, self._clock.ticks_ms() - self._windows[0].began_ticks_ms) / 1000
