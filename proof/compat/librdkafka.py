"""librdkafka's own suite: ``tests/test-runner``, one number of test at a time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from proof.compat.certificates import Certificates, made_certificates
from proof.compat.gateways import add_stored_user, running_gateway
from proof.compat.outcomes import FAILED, PASSED, SKIPPED, Expectations, Outcome
from proof.compat.sources import called, librdkafka_sources, needed_tool

__all__ = ["AS_USER", "BY_TLS", "Librdkafka", "broker_tests", "failure_in"]

_BUILD_S = 1_800
_TEST_S = 600
_DEFAULT, _NO_AUTO_CREATE = "default", "noautocreate"
AS_USER = {"0081_admin/do_test_UserScramCredentials", "0135_sasl_credentials/do_test:", "0142_reauthentication"}
"""Tests whose clients are users in the store."""
BY_TLS = {"0097_ssl_verify"}
"""Tests whose gateway and clients have certificates."""
_NAME, _PASSWORD = "compat", "pencil"
_SASL = f"""security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-256
sasl.username={_NAME}
sasl.password={_PASSWORD}
"""
_VERSION = "4.0.0"
"""The oldest Kafka whose protocol has what the gateway serves, and no more: message format v2 alone."""
_TEST = re.compile(r"_TEST\((\w+),\s*([A-Z0-9_|\s]+?)\s*[,)](.*?)(?=_TEST\(|\Z)", re.DOTALL)
_FAILURE = re.compile(r"### Test \"([^\"]+)\" failed at ([^ ]+?):\w+\(\).*?###\s*\n(.*)")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_WORD = re.compile(r"\w+")
_STATES = {"PASSED": PASSED, "SKIPPED": SKIPPED}


def broker_tests(source: str) -> dict[str, str]:
    """The tests of ``test.c`` that ask a broker, with the scenario of each: how topics are created."""
    table = source[source.index("struct test tests[] = {") :]
    found = {}
    for name, flags, rest in _TEST.findall(table[: table.index("{NULL}}")]):
        if "TEST_F_LOCAL" not in flags and "TEST_F_MANUAL" not in flags:
            found[name] = _NO_AUTO_CREATE if f'"{_NO_AUTO_CREATE}"' in rest else _DEFAULT
    return found


def failure_in(output: str) -> str:
    """The first failure that a log tells of, in one line; empty: none."""
    found = _FAILURE.search(_COLOURS.sub("", output))
    return "" if found is None else f"{found[1]}, {found[2]}: {found[3].strip()}"


class Librdkafka:
    """The suite, built."""

    name = lists = "librdkafka"

    def __init__(self, folder: Path) -> None:
        """Fetch and build it. Raises ``SuiteUnavailableError``."""
        for tool in ("make", "gcc", "g++", "openssl"):
            needed_tool(tool, "librdkafka's suite")
        self._folder = folder
        self._certificates: Certificates | None = None
        self._sources = librdkafka_sources()
        self.tests = broker_tests((self._sources / "tests" / "test.c").read_text())
        if not (self._sources / "tests" / "test-runner").is_file():
            self._build()

    def _build(self) -> None:
        print(f"Building librdkafka in {self._sources} (once, some minutes)", file=sys.stderr, flush=True)
        jobs = f"-j{os.cpu_count() or 1}"
        sh = needed_tool("bash", "librdkafka's build")
        called([sh, "./configure", "--disable-gssapi"], "librdkafka's configure", folder=self._sources)
        for folder, target in (("", "libs"), ("tests", "build")):
            called(["make", jobs, target], f"make {target}", folder=self._sources / folder, timeout_s=_BUILD_S)

    def run(self, tests: Sequence[str], expectations: Expectations) -> Iterator[Outcome]:
        """Run tests, and tell of each."""
        with ExitStack() as stack:
            servers: dict[str, str] = {}
            done = set()
            for name in tests:
                test, _, part = name.partition("/")
                number, scenario = name[:4], self.tests[test]
                if (number, scenario, part) in done:
                    continue
                done.add((number, scenario, part))
                where = scenario + ("-as-user" if name in AS_USER else "-by-tls" if name in BY_TLS else "")
                if where not in servers:
                    servers[where] = stack.enter_context(self._gateway(where, name))
                wanted = [name]
                if not part:  # of one number all tests run that have its scenario
                    wanted = [one for one in tests if one[:4] == number and self.tests.get(one) == scenario]
                found = self._run(number, scenario, servers[where], wanted)
                again = [one.test for one in found if one.state != expectations.expected(one.test)]
                if again:  # its time may have been too short on a busy machine
                    second = self._run(number, scenario, servers[where], again)
                    found = [one for one in found if one.test not in again] + second
                yield from found

    def _gateway(self, where: str, name: str) -> AbstractContextManager[str]:
        """A gateway for a test, and those like it."""
        is_default = self.tests[name.partition("/")[0]] == _DEFAULT
        options = ["--partitions", "4", *(["--auto-create-topics"] if is_default else [])]
        if name in AS_USER:
            add_stored_user(self._folder / where, _NAME, _PASSWORD)
            options += ["--users", "store"]
        if name in BY_TLS:
            self._certificates = made_certificates(self._folder / "certificates")
            options += self._certificates.gateway_options
        return running_gateway(self._folder / where, *options)

    def _run(self, number: str, scenario: str, servers: str, wanted: Sequence[str]) -> list[Outcome]:
        settings, report = self._folder / "test.conf", self._folder / f"{number}-{scenario}.json"
        certificates = self._certificates if wanted[0] in BY_TLS else None
        more = _SASL if wanted[0] in AS_USER else "" if certificates is None else certificates.client_settings
        settings.write_text(f"bootstrap.servers={servers}\ntest.timeout.multiplier=2\n{more}")
        report.unlink(missing_ok=True)
        environment = {
            **os.environ,
            **({} if certificates is None else certificates.environment),
            "LD_LIBRARY_PATH": f"{self._sources / 'src'}:{self._sources / 'src-cpp'}",
            "RDKAFKA_TEST_CONF": str(settings),
            "TEST_KAFKA_VERSION": _VERSION,
            "TEST_REPORT": str(report),
            "TESTS": number,
            "BROKERS": servers,
            "KAFKA_PATH": str(self._scripts()),
        }
        part = wanted[0].partition("/")[2]
        if part:
            environment["SUBTESTS"] = part
        tests = self._sources / "tests"  # the suite reads files by paths from there, and leaves some
        command = [str(tests / "test-runner"), "-p1", "-L", "-s", scenario]
        file_name = "-".join([number, scenario, *_WORD.findall(part)])
        log = self._folder / f"{file_name}.log"
        with log.open("wb") as output:
            try:
                subprocess.run(
                    command,
                    cwd=tests,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=_TEST_S,
                )
            except subprocess.TimeoutExpired:
                return [Outcome(name, FAILED, _TEST_S, f"it didn't end within {_TEST_S} s") for name in wanted]
        for stats in tests.glob("stats_*.json"):
            stats.unlink()
        text = log.read_text(errors="replace")
        told = json.loads(report.read_text())["tests"] if report.is_file() else {}
        return [_outcome(name, told, text) for name in wanted]

    def _scripts(self) -> Path:
        """A folder with what the suite calls of Kafka's own scripts."""
        folder = self._folder / "kafka" / "bin"
        if not folder.is_dir():
            folder.mkdir(parents=True)
            script = folder / "kafka-topics.sh"
            tool = Path(__file__).parent / "kafka_topics.py"
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tool}" "$@"\n')
            script.chmod(0o755)
        return folder.parent


def _outcome(name: str, told: Mapping[str, Mapping[str, object]], text: str) -> Outcome:
    one = told.get(name.partition("/")[0])
    if one is None:  # the runner aborts after a failure, without a report
        return Outcome(name, FAILED, 0.0, failure_in(text) or "it ended without saying how")
    state = _STATES.get(str(one["state"]), FAILED)
    seconds = float(str(one["duration"]))
    return Outcome(name, state, seconds, failure_in(text) if state == FAILED else "")
