"""Scenarios as text: steps, and below each what a client sees. Parsed, written back, nothing played.

A file holds scenarios, one after the other::

    # A remark of the file or of what follows.

    a title at the left margin
        create t partitions=2
        send p t key=a value=1
            => t-1 @0
        poll c 1
            kafka => …
            sparklog => …
            because a row of docs/semantics.md

``=>`` is what both show; where they differ, each has its own, and ``because`` names the row of docs/semantics.md that
explains it: words that stand there. A step of which both show nothing has no line. Through a gateway Kafka's client
shows what sparklog shows; where it doesn't, there is a ``gateway => …``. A value is split as a shell does.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

__all__ = ["FOLDER", "GATEWAY", "KAFKA", "SPARKLOG", "Scenario", "Step", "load", "parse", "written"]

FOLDER = Path(__file__).parent / "scenarios"
KAFKA, SPARKLOG, GATEWAY = "kafka", "sparklog", "gateway"
_OPTION = re.compile(r"(?P<name>[A-Za-z0-9_.*-]+)=(?P<value>.*)", re.DOTALL)
_SEEN = re.compile(rf"(?:(?P<system>{KAFKA}|{SPARKLOG}|{GATEWAY}) )?=>(?: (?P<line>.*))?")
_REPEATED = re.compile(r"(?P<letter>.)\*(?P<count>\d+)")


@dataclass(frozen=True, slots=True)
class Step:
    """One line that is played, and what it shows."""

    text: str
    kafka: tuple[str, ...] = ()
    """Lines that a real Kafka shows."""
    sparklog: tuple[str, ...] = ()
    gateway: tuple[str, ...] | None = None
    """Lines that Kafka's client shows through a gateway; None: those of sparklog."""
    because: str = ""
    """Words of docs/semantics.md; empty where both show the same."""

    @property
    def through_gateway(self) -> tuple[str, ...]:
        """Lines that Kafka's client shows through a gateway."""
        return self.sparklog if self.gateway is None else self.gateway

    @property
    def differs(self) -> bool:
        """Is there something to explain: does sparklog show other lines than Kafka, or the gateway other ones again?"""
        return self.kafka != self.sparklog or self.through_gateway not in (self.kafka, self.sparklog)

    @property
    def verb(self) -> str:
        return shlex.split(self.text)[0]

    @property
    def arguments(self) -> list[str]:
        """The words without a name."""
        return [_expanded(word) for word in shlex.split(self.text)[1:] if not _OPTION.fullmatch(word)]

    @property
    def options(self) -> dict[str, str]:
        """The words of the form name=value."""
        found = filter(None, map(_OPTION.fullmatch, shlex.split(self.text)[1:]))
        return {option["name"]: _expanded(option["value"]) for option in found}


@dataclass(frozen=True, slots=True)
class Scenario:
    """Steps that are played one after the other, on topics and groups of their own."""

    title: str
    steps: tuple[Step, ...]
    remarks: tuple[str, ...] = ()
    """The comment lines before it."""


@cache
def load() -> tuple[tuple[Path, Scenario], ...]:
    """All scenarios, each with its file."""
    return tuple((path, one) for path in sorted(FOLDER.glob("*.txt")) for one in parse(path.read_text(), path.name))


def parse(text: str, name: str = "text") -> list[Scenario]:
    """Read a file. Raises ``ValueError`` that names the line."""
    scenarios: list[Scenario] = []
    remarks: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            if remarks:
                remarks.append("")
        elif line.startswith("#"):
            remarks.append(line)
        elif not line.startswith(" "):
            scenarios.append(Scenario(line, (), tuple(remarks)))
            remarks = []
        elif not scenarios:
            raise ValueError(f"{name}, line {number}: a step before any title")
        else:
            last = scenarios[-1]
            try:
                steps = _with_line(last.steps, line.strip())
            except ValueError as error:
                raise ValueError(f"{name}, line {number}: {error}") from None
            scenarios[-1] = Scenario(last.title, steps, last.remarks)
    return scenarios


def _with_line(steps: tuple[Step, ...], line: str) -> tuple[Step, ...]:
    seen = _SEEN.fullmatch(line)
    is_reason = line.startswith("because ")
    if seen is None and not is_reason:
        shlex.split(line)
        return (*steps, Step(line))
    if not steps:
        raise ValueError("what is seen stands before any step")
    *before, step = steps
    if seen is None:
        return (*before, replace(step, because=line.removeprefix("because ")))
    lines = (seen["line"],) if seen["line"] else ()
    if seen["system"] == GATEWAY:
        return (*before, replace(step, gateway=(step.gateway or ()) + lines))
    kafka = step.kafka if seen["system"] == SPARKLOG else step.kafka + lines
    sparklog = step.sparklog if seen["system"] == KAFKA else step.sparklog + lines
    return (*before, replace(step, kafka=kafka, sparklog=sparklog))


def written(scenarios: list[Scenario]) -> str:
    """The file that :func:`parse` reads as these scenarios."""
    lines: list[str] = []
    for scenario in scenarios:
        lines += ["", *scenario.remarks] if lines else list(scenario.remarks)
        lines.append(scenario.title)
        for step in scenario.steps:
            lines.append(f"    {step.text}")
            if step.kafka == step.sparklog:
                lines += [f"        => {line}" for line in step.kafka]
            else:
                lines += [f"        kafka => {line}".rstrip() for line in step.kafka or ("",)]
                lines += [f"        sparklog => {line}".rstrip() for line in step.sparklog or ("",)]
            if step.gateway is not None:
                lines += [f"        gateway => {line}".rstrip() for line in step.gateway or ("",)]
            if step.because:
                lines.append(f"        because {step.because}")
    return "\n".join(lines) + "\n"


def _expanded(word: str) -> str:
    """``x*5`` stands for ``xxxxx``."""
    repeated = _REPEATED.fullmatch(word)
    return repeated["letter"] * int(repeated["count"]) if repeated else word
