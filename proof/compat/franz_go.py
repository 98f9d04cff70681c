"""franz-go's own suite: the tests of its package ``kgo``."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from proof.compat.gateways import gateway_user, running_gateway
from proof.compat.outcomes import FAILED, PASSED, SKIPPED, Expectations, Outcome
from proof.compat.sources import called, franz_go_sources, needed_tool

__all__ = ["FranzGo", "outcomes_in"]

_BUILD_S = 900
_SUITE_S = 900
_RECORDS = 20_000
"""Of the tests that carry records through chains of groups. The suite's own default is 500,000."""
_ENDED = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+) \(([0-9.]+)s\)", re.MULTILINE)
_STATES = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED}
_ITSELF = "/itself"
"""Stands for a test whose parts are tests of their own."""
_NAME, _PASSWORD = "compat", "pencil"


def outcomes_in(output: str) -> list[Outcome]:
    """The tests, and their parts, that a log of ``go test -v`` tells of; of a test the parts that failed."""
    ended = _ENDED.findall(output)
    failed = [name for state, name, _ in ended if state == "FAIL"]
    found = []
    for state, name, seconds in ended:
        parts = ", ".join(one for one in failed if one.startswith(f"{name}/"))
        detail = f"in {parts}" if parts else ""
        found.append(Outcome(name, _STATES[state], float(seconds), detail))
    return found


class FranzGo:
    """The suite, built."""

    name = lists = "franz-go"

    def __init__(self, folder: Path) -> None:
        """Fetch and build it. Raises ``SuiteUnavailableError``."""
        self._folder = folder
        self._sources = franz_go_sources()
        folder.mkdir(parents=True, exist_ok=True)
        self._binary = folder / "kgo.test"
        go = needed_tool("go", "franz-go's suite")
        command = [go, "test", "-c", "-o", str(self._binary), "."]
        called(command, "go test -c", folder=self._sources, timeout_s=_BUILD_S)
        listed = called([str(self._binary), "-test.list", "^Test"], "the list of tests", folder=self._sources)
        self.tests = dict.fromkeys(listed.split(), "")

    def run(self, tests: Sequence[str], expectations: Expectations) -> Iterator[Outcome]:
        """Run tests, and tell of each: those that failed a second time, one by one."""
        with ExitStack() as stack:
            options = ["--auto-create-topics"]
            open_to_all = stack.enter_context(running_gateway(self._folder / "open", *options))
            users = self._folder / "users"
            users.write_text(gateway_user(_NAME, _PASSWORD))
            with_users = stack.enter_context(
                running_gateway(self._folder / "users-only", "--users", str(users), *options)
            )
            environment = {
                **os.environ,
                "KGO_SEEDS": open_to_all,
                "KGO_TEST_RF": "1",
                "KGO_TEST_RECORDS": str(_RECORDS),
                "KGO_TEST_MAX_TOPIC_PARTS": "7",
                "KGO_LOG_LEVEL": "none",
                "KGO_TEST_SCRAM": f"{_NAME}:{_PASSWORD}:256",
                "KGO_TEST_SCRAM_SEEDS": with_users,
            }
            outcomes = self._run(tests, environment, "all")
            for one in outcomes:
                if one.state != expectations.expected(one.test):
                    yield from self._run([one.test], environment, one.test.replace("/", "-"))
                else:
                    yield one

    def _run(self, tests: Sequence[str], environment: dict[str, str], name: str) -> list[Outcome]:
        wanted = "^(" + "|".join(dict.fromkeys(one.partition("/")[0] for one in tests)) + ")$"
        command = [str(self._binary), "-test.v", "-test.timeout", f"{_SUITE_S}s", "-test.run", wanted]
        log = self._folder / f"{name}.log"
        with log.open("wb") as output:
            subprocess.run(command, cwd=self._sources, env=environment, stdout=output, stderr=subprocess.STDOUT)
        found = {one.test: one for one in outcomes_in(log.read_text(errors="replace"))}
        missing = Outcome("", FAILED, 0.0, "it ended without saying how")
        return [replace(found.get(one.removesuffix(_ITSELF), missing), test=one) for one in tests]
