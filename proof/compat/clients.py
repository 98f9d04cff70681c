"""Clients of other makers: a program by each makes its tests in their order, and says how each ended."""

from __future__ import annotations

import os
import re
import shutil
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

from proof.compat.outcomes import FAILED, PASSED, Expectations, Outcome, load_expectations
from proof.compat.processes import output_of
from proof.compat.scenarios import PROGRAMS, java_command, serving
from proof.compat.sources import called, maven_jars, needed_tool, node_modules
from proof.compat.versions import JAVA_CLIENT_JARS, KAFKA_GO, KAFKAJS, PLATFORMATIC, SARAMA

__all__ = ["JavaClient", "KafkaGo", "Kafkajs", "Platformatic", "Sarama", "said"]

_BUILD_S = 600
_PROGRAM_S = 1_200
_SAID = re.compile(r"^(?:ok (\S+)|FAIL (\S+?): (.*))$", re.MULTILINE)


def said(output: str, tests: Sequence[str], failure: str) -> list[Outcome]:
    """How each test ended, by what a program has said: ``ok TEST`` or ``FAIL TEST: WHY``.

    Args:
        failure: why the program itself didn't end well; empty: it did.
    """
    found = {}
    for passed, failed, why in _SAID.findall(output):
        found[passed or failed] = Outcome(passed or failed, FAILED if failed else PASSED, detail=why)
    return [found.get(one, Outcome(one, FAILED, detail=failure or "the program said nothing of it")) for one in tests]


class _Client:
    """A suite whose program is given ``bootstrap_servers`` and a prefix of names."""

    name: str
    lists: str

    def __init__(self, folder: Path) -> None:
        """Fetch and build it. Raises ``SuiteUnavailableError``."""
        self._folder = folder
        self.tests = dict(load_expectations(self.lists).shows)
        self._command = self._built(folder)

    def run(self, tests: Sequence[str], _expectations: Expectations) -> Iterator[Outcome]:
        """Run the whole program, and tell of some tests."""
        began = time.monotonic()
        with serving(self._folder / "gateway") as servers:
            prefix = f"compat-{os.getpid()}"
            log = self._folder / "program.log"
            output, failure = output_of([*self._command, servers, prefix], self._folder, log, _PROGRAM_S)
        print(f"the program of {self.name} took {time.monotonic() - began:.1f} s", flush=True)
        yield from said(output, tests, failure)

    @abstractmethod
    def _built(self, folder: Path) -> list[str]:
        """The command of the program, which is built in a folder. Raises ``SuiteUnavailableError``."""


class JavaClient(_Client):
    """Kafka's own Java client of 2022."""

    name = lists = "java-2.8"

    def _built(self, folder: Path) -> list[str]:
        return java_command(PROGRAMS / "java" / "Client.java", maven_jars(self.name, JAVA_CLIENT_JARS), folder)


def _built_go(source: str, module: str, folder: Path) -> list[str]:
    go = needed_tool("go", f"the program {source}")
    place = folder / "program"
    shutil.copytree(PROGRAMS / source, place)
    for what, timeout_s in (
        (["mod", "init", f"sparklog.compat/{source}"], _BUILD_S),
        (["get", module], _BUILD_S),
        (["build", "-o", "program", "."], _BUILD_S),
    ):
        called([go, *what], f"go {what[0]} of {source}", folder=place, timeout_s=timeout_s)
    return [str(place / "program")]


class Sarama(_Client):
    """IBM's client for Go."""

    name = lists = "sarama"

    def _built(self, folder: Path) -> list[str]:
        return _built_go("sarama", SARAMA, folder)


class KafkaGo(_Client):
    """Segment's client for Go."""

    name = lists = "kafka-go"

    def _built(self, folder: Path) -> list[str]:
        return _built_go("kafka_go", KAFKA_GO, folder)


def _built_node(source: Path, modules: Path, folder: Path) -> list[str]:
    node = needed_tool("node", f"the program {source.name}")
    place = folder / "program"
    place.mkdir()
    (place / "node_modules").symlink_to(modules)
    return [node, str(shutil.copy(source, place))]


class Kafkajs(_Client):
    """A client for Node.js."""

    name = lists = "kafkajs"

    def _built(self, folder: Path) -> list[str]:
        return _built_node(PROGRAMS / "kafkajs" / "kafkajs.js", node_modules(self.name, KAFKAJS), folder)


class Platformatic(_Client):
    """Platformatic's client for Node.js, ``@platformatic/kafka``."""

    name = lists = "platformatic"

    def _built(self, folder: Path) -> list[str]:
        return _built_node(
            PROGRAMS / "platformatic" / "platformatic.mjs", node_modules(self.name, PLATFORMATIC), folder
        )
