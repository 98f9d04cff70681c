"""The time of each part of a run: how long its tests took, and how much CPU they and their processes used."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["CPU_S", "PART", "SUMMARY", "Stopwatch", "add_up", "part_of"]

CPU_S, PART = "CPU seconds", "part"
"""Properties of the report of a test's teardown, see pytest's ``user_properties``."""
SUMMARY = 2
"""So many lines of :func:`add_up` are its head and its sum."""
_PROC = Path("/proc")


class Stopwatch:
    """The CPU time from now on of this process and its children.

    Args:
        has_children: children that live on are looked for, which takes some milliseconds; else they count once they
            have ended and were waited for. Not seen is what outlives the parent that started it, such as the JVM of a
            Python program that a test runs.
    """

    def __init__(self, *, has_children: bool) -> None:
        self._read = _of_family if has_children and _PROC.joinpath("self", "stat").exists() else _of_process
        self._began_s = self._read()

    def cpu_s(self) -> float:
        return max(0.0, self._read() - self._began_s)


def part_of(nodeid: str, markers: Collection[str]) -> str:
    """The part that a test with these markers belongs to."""
    file, _, _ = nodeid.partition("::")
    folder, _, rest = file.partition("/")
    if file.endswith("test_demo.py"):
        return "demo"
    if folder == "proof" and "kafka" not in markers:
        return rest.partition("/")[0]
    return next((marker for marker in ("kafka", "spark", "s3", "slow") if marker in markers), "quick")


def add_up(reports: Iterable[Any]) -> list[str]:
    """A table: a line for each part, the one with the most CPU first, and one for all."""
    of_tests = [report for report in reports if isinstance(report, pytest.TestReport)]
    told: dict[str, dict[str, Any]] = {
        report.nodeid: dict(report.user_properties) for report in of_tests if report.when == "teardown"
    }
    tests, took_s, cpu_s = Counter[str](), defaultdict[str, float](float), defaultdict[str, float](float)
    for properties in told.values():
        tests[properties[PART]] += 1
        cpu_s[properties[PART]] += properties[CPU_S]
    for report in of_tests:
        if report.nodeid in told:  # else its process died
            took_s[told[report.nodeid][PART]] += report.duration
    parts = sorted(tests, key=lambda part: -cpu_s[part])
    rows = [(part, tests[part], took_s[part], cpu_s[part]) for part in parts]
    rows.append(("all", sum(tests.values()), sum(took_s.values()), sum(cpu_s.values())))
    return [
        f"{'part':12}{'tests':>7}{'seconds':>10}{'CPU seconds':>14}",
        *(f"{part:12}{count:7,}{seconds:10,.0f}{cpu:14,.0f}" for part, count, seconds, cpu in rows),
    ]


def _of_process() -> float:
    """The seconds of this process, and of its children that were waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _of_family() -> float:
    """Also those of descendants that are alive. Linux tells it in ``/proc``."""
    children, ticks = defaultdict[int, list[int]](list), {}
    for process, parent, spent in _processes():
        children[parent].append(process)
        ticks[process] = spent
    total, left = 0, [os.getpid()]
    while left:
        process = left.pop()
        total += ticks.get(process, 0)
        left += children[process]
    return total / os.sysconf("SC_CLK_TCK")


def _processes() -> Iterator[tuple[int, int, int]]:
    """Each process, its parent, and the ticks of it and of its children that were waited for."""
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            yield int(folder.name), int(fields[1]), sum(map(int, fields[11:15]))
