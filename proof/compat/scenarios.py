"""Suites of our own: each test is a method that plays something and says what it doesn't show."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException

from proof.compat.gateways import running_gateway
from proof.compat.outcomes import FAILED, PASSED, Expectations, Outcome, load_expectations
from proof.compat.processes import NotShownError
from proof.compat.sources import called, needed_tool

__all__ = ["PROGRAMS", "Scenarios", "java_command", "serving"]

PROGRAMS = Path(__file__).parent / "programs"
"""The sources of the suites' programs."""


class Scenarios:
    """A suite whose tests are its methods: of the test ``a-b`` the method ``a_b``, which may say what it measured."""

    name: str
    lists: str
    """The name of its list, which says what each test shows."""

    def __init__(self, folder: Path) -> None:
        """Fetch and build what it needs. Raises ``SuiteUnavailableError``."""
        self.folder = folder
        self.tests = dict(load_expectations(self.lists).shows)

    def run(self, tests: Sequence[str], _expectations: Expectations) -> Iterator[Outcome]:
        """Run tests, and tell of each."""
        for test in tests:
            began = time.monotonic()
            try:
                measured = getattr(self, test.replace("-", "_"))()
                outcome = Outcome(test, PASSED, time.monotonic() - began, measured or "")
            except (NotShownError, KafkaException) as error:
                outcome = Outcome(test, FAILED, time.monotonic() - began, str(error))
            yield outcome


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Run a gateway as long as the block lasts, or take the broker that ``BROKER`` names, to compare with.

    Yields ``bootstrap_servers``."""
    broker = os.environ.get("BROKER")
    if broker:
        yield broker
    else:
        with running_gateway(folder) as servers:
            yield servers


def java_command(source: Path, jars: Path, folder: Path, *, memory_mb: int = 256) -> list[str]:
    """Compile a program of one file. The command that runs it, without its arguments.

    Raises ``SuiteUnavailableError``."""
    java, javac = (needed_tool(one, f"the program {source.name}") for one in ("java", "javac"))
    classes = folder / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    called([javac, "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), str(source)], f"javac {source.name}")
    options = ["-XX:TieredStopAtLevel=1", f"-Xmx{memory_mb}m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    return [java, *options, "-cp", f"{classes}:{jars}/*", source.stem]
