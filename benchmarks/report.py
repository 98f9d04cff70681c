"""What a run of the benchmarks printed, as JSON; and how busy the machine was with other work."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from io import TextIOBase
from pathlib import Path
from typing import Any

from benchmarks.processes import tree_cpu_seconds

__all__ = ["Report", "Section", "Target", "add_table", "add_target", "taken_by"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A figure that is wanted, and what a run has reached."""

    name: str
    wanted: float
    reached: float
    """Not a number where it couldn't be measured."""
    is_at_most: bool = False
    """Is less better?"""

    @property
    def is_met(self) -> bool:
        return self.reached <= self.wanted if self.is_at_most else self.reached >= self.wanted

    def row(self) -> list[str]:
        """What is printed of it."""
        wanted = f"{'≤' if self.is_at_most else '≥'} {self.wanted:g}"
        if self.reached != self.reached:
            return [self.name, wanted, "not measured", ""]
        return [self.name, wanted, f"{self.reached:.2f}", "met" if self.is_met else "not met"]


@dataclass(slots=True)
class Section:
    """One benchmark of a run."""

    name: str
    lines: list[str] = field(default_factory=list)
    """All that it printed, tables too."""
    tables: list[dict[str, Any]] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    seconds: float = 0.0
    cpu_s: float | None = None
    """CPU seconds of this run in it, a broker's and Spark's among them; None where the system doesn't say."""
    others_cores: float | None = None
    """Cores that other processes took meanwhile, on average; None where the system doesn't say."""

    def times(self) -> list[str]:
        """Its row in the table of times."""
        cpu = "not measured" if self.cpu_s is None else f"{self.cpu_s:.0f}"
        others = "not measured" if self.others_cores is None else f"{self.others_cores:.2f}"
        return [self.name, f"{self.seconds:.0f}", cpu, others]

    def taken(self) -> str:
        """Its time, and what other processes took meanwhile."""
        others = "" if self.others_cores is None else f"; other processes took {self.others_cores:.2f} cores"
        return f"{self.seconds:.0f} s{others}"

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "seconds": round(self.seconds, 1),
            "cpu_s": self.cpu_s,
            "others_cores": self.others_cores,
            "lines": self.lines,
            "tables": self.tables,
            "targets": [
                {"name": one.name, "wanted": one.row()[1], "reached": one.row()[2], "is_met": one.is_met}
                for one in self.targets
            ],
        }


class Report:
    """The sections of a run."""

    def __init__(self, environment: dict[str, Any]) -> None:
        self.environment = environment
        self.sections: list[Section] = []
        self.whole = Section("all, with what they share and its end")

    @contextmanager
    def section(self, name: str) -> Iterator[Section]:
        """Collect what the block prints, which is printed all the same."""
        section = Section(name)
        self.sections.append(section)
        _open.append(section)
        try:
            with redirect_stdout(_Tee(section.lines)), taken_by(section):
                yield section
        finally:
            _open.remove(section)

    def as_json(self) -> dict[str, Any]:
        return {
            "environment": self.environment,
            "seconds": round(self.whole.seconds, 1),
            "cpu_s": self.whole.cpu_s,
            "others_cores": self.whole.others_cores,
            "benchmarks": [section.as_json() for section in self.sections],
        }


@contextmanager
def taken_by(section: Section) -> Iterator[None]:
    """Fill in what the block takes."""
    began, busy, own = time.perf_counter(), _busy_s(), _own_s()
    try:
        yield
    finally:
        section.seconds = time.perf_counter() - began
        if busy is not None:
            own_s = _own_s() - own
            others_s = (_busy_s() or busy) - busy - own_s
            section.cpu_s = round(own_s, 1)
            section.others_cores = round(max(0.0, others_s) / section.seconds, 2)


def add_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Add a table, as it is printed, to the section that is open, if one is."""
    for section in _open[-1:]:
        section.tables.append({"columns": list(heading), "rows": [list(row) for row in rows]})


def add_target(name: str, wanted: float, reached: float, *, is_at_most: bool = False) -> None:
    """Add a target, and what was reached, to the section that is open, if one is."""
    for section in _open[-1:]:
        section.targets.append(Target(name=name, wanted=wanted, reached=reached, is_at_most=is_at_most))


_open: list[Section] = []


class _Tee(TextIOBase):
    """Standard output, whose lines are kept too."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._out = sys.stdout
        self._rest = ""

    def write(self, text: str) -> int:
        *whole, self._rest = (self._rest + text).split("\n")
        self._lines += whole
        return self._out.write(text)

    def flush(self) -> None:
        self._out.flush()

    def fileno(self) -> int:
        return self._out.fileno()


def _busy_s() -> float | None:
    """CPU seconds that the machine has spent on anything since it started; None where Linux isn't there to say."""
    try:
        first = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    except OSError:
        return None
    user, nice, system, _, _, interrupts, soft = (int(ticks) for ticks in first[:7])
    return float(user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    """CPU seconds of this process and of all that it has begun: a broker and Spark run on when a benchmark ends."""
    return tree_cpu_seconds(os.getpid())
