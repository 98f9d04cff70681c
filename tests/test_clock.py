"""The machine's clocks: ticks go on while the machine is suspended, which rule L1 of the protocol needs."""

from __future__ import annotations

import importlib.util
import math
import sys
import time
from collections.abc import Callable
from types import ModuleType

import pytest

from sparklog import clock
from sparklog.clock import SystemClock
from sparklog.testing import ManualClock

HOUR_NS = 3_600_000_000_000


def stands_at(clocks: dict[int, int], real: Callable[[int], float], per_tick_ns: int) -> Callable[[int], float]:
    """``clock_gettime`` or ``clock_gettime_ns``, but some clocks stand at times of our own, in nanoseconds."""

    def read(clock_id: int) -> float:
        return clocks[clock_id] // per_tick_ns if clock_id in clocks else real(clock_id)

    return read


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no clock of its own for that")
def test_ticks_count_the_time_that_the_machine_was_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """✗ Linux stops its monotonic clock meanwhile: a sleeper goes on trusting what it learned before."""
    clocks = {time.CLOCK_BOOTTIME: 5_000_000_000, time.CLOCK_MONOTONIC: 3_000_000_000}
    monkeypatch.setattr(time, "clock_gettime", stands_at(clocks, time.clock_gettime, 1_000_000_000))
    monkeypatch.setattr(time, "clock_gettime_ns", stands_at(clocks, time.clock_gettime_ns, 1))
    ticks = SystemClock()
    assert ticks.ticks_ms() == 5_000
    clocks[time.CLOCK_BOOTTIME] += HOUR_NS  # asleep: the monotonic clock stands still
    assert ticks.ticks_ms() == 3_605_000
    clocks[time.CLOCK_BOOTTIME] += 1_000_000
    clocks[time.CLOCK_MONOTONIC] += 1_000_000
    assert ticks.ticks_ms() == 3_605_001


def another_copy(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as it would be imported now, beside the one that everybody has."""
    spec = importlib.util.spec_from_file_location(f"{module.__name__}_again", str(module.__file__))
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, copy)  # dataclasses look their module up
    spec.loader.exec_module(copy)
    return copy


def test_without_such_a_clock_ticks_are_those_of_the_monotonic_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    ticks = another_copy(clock, monkeypatch).SystemClock()
    monkeypatch.setattr(time, "monotonic_ns", lambda: 7_000_000)
    assert ticks.ticks_ms() == 7


def test_ticks_do_not_follow_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sets the time of day changes nobody's trust."""
    ticks = SystemClock()
    before = ticks.ticks_ms()
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 24 * HOUR_NS)
    monkeypatch.setattr(time, "time", lambda: real() / 1e9 + 24 * 3_600)
    assert 0 <= ticks.ticks_ms() - before < 24 * 3_600_000


def test_on_macos_ticks_are_of_the_clock_that_counts_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """✗ ``time.monotonic`` reads another one, which stands still while the machine sleeps (CPython issue 86273)."""
    monkeypatch.setattr(clock, "_TICKS_CLOCK", clock.ticks_clock("darwin"))
    monkeypatch.setattr(time, "monotonic_ns", lambda: 1_000_000)
    clocks = {time.CLOCK_MONOTONIC: 3_000_000_000}
    monkeypatch.setattr(time, "clock_gettime_ns", stands_at(clocks, time.clock_gettime_ns, 1))
    ticks = SystemClock()
    assert ticks.ticks_ms() == 3_000
    clocks[time.CLOCK_MONOTONIC] += HOUR_NS
    assert ticks.ticks_ms() == 3_603_000


def test_each_system_has_its_clock_that_counts_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 7, raising=False)
    assert clock.ticks_clock("linux") == 7
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    assert clock.ticks_clock("win32") is None
    assert clock.ticks_clock("darwin") == time.CLOCK_MONOTONIC


def test_a_deadline_has_passed_from_its_moment_on() -> None:
    manual = ManualClock()
    deadline = manual.deadline_in(100)
    seen = []
    for _ in range(3):
        seen.append((deadline.left_ms, deadline.has_passed))
        manual.advance(60)
    assert seen == [(100, False), (40, False), (0, True)]
    exact = manual.deadline_in(60)
    manual.advance(60)
    assert (exact.left_ms, exact.has_passed) == (0, True)


def test_a_deadline_that_never_comes_leaves_time_for_ever() -> None:
    never = ManualClock().deadline_in(None)
    assert (never.left_ms, never.has_passed) == (math.inf, False)
