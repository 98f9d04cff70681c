"""Time, as an argument: code that reads a clock or waits is given a clock."""

from __future__ import annotations

import math
import sys
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

__all__ = ["Clock", "Deadline", "SystemClock"]


def ticks_clock(platform: str) -> int | None:
    """The system's clock that goes on while the machine is suspended, as protocol rule L1, trust, needs it; None:
    ``time.monotonic`` does.

    Linux stops CLOCK_MONOTONIC meanwhile, and has CLOCK_BOOTTIME. macOS lets CLOCK_MONOTONIC go on, but
    ``time.monotonic`` reads another one that doesn't (CPython issue 86273). Windows' goes on.

    Args:
        platform: as ``sys.platform``.
    """
    return getattr(time, "CLOCK_MONOTONIC" if platform == "darwin" else "CLOCK_BOOTTIME", None)


_TICKS_CLOCK = ticks_clock(sys.platform)


class Clock(ABC):
    """Wall time for what is written down, ticks for how long something took, and a way to wait."""

    @abstractmethod
    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC. May jump; never used to decide who holds what."""

    def now_ns(self) -> int:
        """:meth:`now_ms` in nanoseconds, for whoever asks a million times a second."""
        return self.now_ms() * 1_000_000

    @abstractmethod
    def ticks_ms(self) -> float:
        """Milliseconds since an arbitrary moment; never goes back and counts the time a machine was suspended."""

    @abstractmethod
    def sleep_ms(self, duration_ms: float) -> None:
        """Wait at least ``duration_ms`` milliseconds."""

    def deadline_in(self, timeout_ms: float | None) -> Deadline:
        """The moment that is ``timeout_ms`` milliseconds from now; None: a moment that never comes."""
        return Deadline(self, math.inf if timeout_ms is None else self.ticks_ms() + timeout_ms)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment by which a call has to end, on the ticks of one clock."""

    clock: Clock
    ticks_ms: float
    """The moment, as :meth:`Clock.ticks_ms` counts; infinity: there is no such moment."""

    @property
    def left_ms(self) -> float:
        """Milliseconds until then: 0 once it has passed, infinity where it never comes."""
        return max(0.0, self.ticks_ms - self.clock.ticks_ms())

    @property
    def has_passed(self) -> bool:
        """Is it that moment, or later?"""
        return self.clock.ticks_ms() >= self.ticks_ms


class SystemClock(Clock):
    """The machine's own clocks. Any two are equal: what one says can be compared with what another says."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SystemClock)

    def __hash__(self) -> int:
        return hash(SystemClock)

    now_ns = staticmethod(time.time_ns)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def ticks_ms(self) -> float:
        if _TICKS_CLOCK is None:
            return time.monotonic_ns() / 1_000_000
        return time.clock_gettime_ns(_TICKS_CLOCK) / 1_000_000

    def sleep_ms(self, duration_ms: float) -> None:
        time.sleep(max(0.0, duration_ms) / 1_000)
