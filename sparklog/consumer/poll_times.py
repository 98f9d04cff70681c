"""The times of an application's polls, for the metrics of consumers and share consumers."""

from __future__ import annotations

from sparklog.clock import Clock
from sparklog.metrics import Sensor

__all__ = ["PollTimes", "seconds_since"]


class PollTimes:
    """Recorded as a poll begins and ends. May be read from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._between = Sensor(clock)
        self._idle = Sensor(clock)
        self._began_ticks_ms: float | None = None
        self._ended_ticks_ms = 0.0

    def poll_begins(self) -> None:
        """Note that the application polls."""
        now = self._clock.ticks_ms()
        if self._began_ticks_ms is not None:
            between = now - self._began_ticks_ms
            self._between.record(between, now_ms=now)
            if between > 0:
                self._idle.record((self._ended_ticks_ms - self._began_ticks_ms) / between, now_ms=now)
        self._began_ticks_ms = now

    def poll_ends(self) -> None:
        """Note that a poll returns to the application, or raises."""
        self._ended_ticks_ms = self._clock.ticks_ms()

    def values(self) -> dict[str, float]:
        """All values, under Kafka's names; NaN for a mean or a maximum of nothing."""
        return {
            "poll-idle-ratio-avg": self._idle.mean(),
            "time-between-poll-avg": self._between.mean(),
            "time-between-poll-max": self._between.maximum(),
            "last-poll-seconds-ago": seconds_since(self._clock, self._began_ticks_ms),
        }


def seconds_since(clock: Clock, ticks_ms: float | None) -> float:
    """Seconds since a time; -1 where there is none, as in Kafka."""
    return -1.0 if ticks_ms is None else (clock.ticks_ms() - ticks_ms) // 1_000
