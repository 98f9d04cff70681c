"""franz-go's own suite: the tests of its package ``kgo``."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
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
_NAME, _PASSWORD = "compat", "pencil"


def outcomes_in(output: str) -> list[Outcome]:
    """The tests, without their parts, that a log of ``go test -v`` tells of; parts where they failed."""
    found = []
    for state, name, seconds in _ENDED.findall(output):
        if "/" not in name:
            parts = [part for one, part, _ in _ENDED.findall(output) if one == "FAIL" and part.startswith(f"{name}/")]
            detail = "" if state != "FAIL" else "in " + ", ".join(parts) if parts else "itself"
            found.append(Outcome(name, _STATES[state], float(seconds), detail))
    return found


class FranzGo:
    """The suite, built."""

    name = "franz-go"

    def __init__(self, folder: Path) -> None:
        """Fetch and build it. Raises ``SuiteUnavailableError``."""
        self._folder = folder
        self._sources = franz_go_sources()
        folder.mkdir(parents=True, exist_ok=True)
        self._binary = folder / "kgo.test"
        go = needed_tool("go", "franz-go's suite")
        command = [go, "test", "-c", "-o", str(self._binary), "."]
        called(command, "go test -c", folder=self._sources, timeout_s=_BUILD_S)
        listed = called([str(self._binary), "-test.list", "."], "the list of tests", folder=self._sources)
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
                    yield from self._run([one.test], environment, one.test)
                else:
                    yield one

    def _run(self, tests: Sequence[str], environment: dict[str, str], name: str) -> list[Outcome]:
        wanted = "^(" + "|".join(tests) + ")$"
        command = [str(self._binary), "-test.v", "-test.timeout", f"{_SUITE_S}s", "-test.run", wanted]
        log = self._folder / f"{name}.log"
        with log.open("wb") as output:
            subprocess.run(command, cwd=self._sources, env=environment, stdout=output, stderr=subprocess.STDOUT)
        found = {one.test: one for one in outcomes_in(log.read_text(errors="replace"))}
        return [found.get(one, Outcome(one, FAILED, 0.0, "it ended without saying how")) for one in tests]
