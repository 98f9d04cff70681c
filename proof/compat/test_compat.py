"""How `make compat` reads what suites say, and compares it with the lists."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from proof.compat.__main__ import SUITES, main
from proof.compat.certificates import made_certificates
from proof.compat.clients import said
from proof.compat.franz_go import outcomes_in
from proof.compat.librdkafka import AS_USER, BY_TLS, broker_tests, failure_in
from proof.compat.outcomes import Expectations, Outcome, differences, load_expectations, summary
from proof.compat.processes import NotShownError, Program, output_of
from proof.compat.scenarios import PROGRAMS, Scenarios
from sparklog.gateway.server import tls_context

SOURCE = """
struct test tests[] = {
    {.name = "<MAIN>", .flags = TEST_F_LOCAL},
    _TEST(0000_unittests,
          TEST_F_LOCAL,
          _THRES(.ucpu = 100.0)),
    _TEST(0001_multiobj, 0),
    _TEST(0045_subscribe_update_topic_remove,
          0,
          TEST_BRKVER(0, 9, 0, 0),
          .scenario = "noautocreate"),
    _TEST(0103_transactions, 0, .scenario = "default,ak23"),
    _TEST(8000_idle, TEST_F_MANUAL),
    {NULL}};
"""
LOG = """\x1b[0m\x1b[31m### Test "0092_mixed (part:7)" failed at 0092-mixed.c:92:main_0092() at Wed: ###
Test assertion failed: "!err": no
"""
GO = """=== RUN   TestOne
--- PASS: TestOne (0.12s)
--- FAIL: TestTwo (3.00s)
    --- PASS: TestTwo/range (1.00s)
    --- FAIL: TestTwo/sticky (2.00s)
--- SKIP: TestThree (0.00s)
FAIL
"""


def test_the_tests_of_librdkafka_that_ask_a_broker_are_found_with_their_scenario():
    assert broker_tests(SOURCE) == {
        "0001_multiobj": "default",
        "0045_subscribe_update_topic_remove": "noautocreate",
        "0103_transactions": "default",
    }


def test_a_failure_of_librdkafkas_runner_is_one_line():
    assert failure_in(LOG) == '0092_mixed (part:7), 0092-mixed.c:92: Test assertion failed: "!err": no'
    assert failure_in("all is well") == ""


def test_the_outcomes_of_a_go_test_are_read_with_the_parts_that_failed():
    assert outcomes_in(GO) == [
        Outcome("TestOne", "passed", 0.12),
        Outcome("TestTwo", "failed", 3.0, "in TestTwo/sticky"),
        Outcome("TestTwo/range", "passed", 1.0),
        Outcome("TestTwo/sticky", "failed", 2.0),
        Outcome("TestThree", "skipped", 0.0),
    ]


LISTS = Expectations({"d": "why"}, {"b": "why"}, {"c": "why"}, {"a": ("x", "y")})


@pytest.mark.parametrize(
    ("test", "state", "is_told"),
    [
        ("a", "passed", False),
        ("a", "failed", True),
        ("a", "skipped", True),
        ("b", "failed", False),
        ("b", "passed", True),
        ("c", "skipped", False),
        ("c", "passed", False),
        ("c", "failed", True),
    ],
)
def test_what_differs_from_the_lists_is_told(test, state, is_told):
    assert bool(differences([Outcome(test, state)], LISTS, "abcd")) is is_told


def test_a_name_in_the_lists_that_no_test_has_is_told():
    assert differences([], LISTS, "abc") == ["d is in the list, and no test of the suite"]


def test_parts_stand_for_their_test():
    assert LISTS.in_parts(["a", "b"]) == ["a/x", "a/y", "b"]
    assert summary([Outcome("b", "failed")], 1) == "0 passed, 1 failed, 0 skipped, 1 left out"


@pytest.mark.parametrize("suite", SUITES, ids=lambda one: one.name)
def test_the_lists_have_a_reason_for_each_test(suite):
    load_expectations(suite.lists)


SCENARIOS = [suite for suite in SUITES if issubclass(suite, Scenarios)]
SOURCES = {"java-2.8": "java/Client.java", "kafkajs": "kafkajs/kafkajs.js", "sarama": "sarama/main.go"}
SOURCES |= {"kafka-go": "kafka_go/main.go", "platformatic": "platformatic/platformatic.mjs"}


@pytest.mark.parametrize("suite", SCENARIOS, ids=lambda one: one.name)
def test_each_test_in_a_list_is_a_method_of_its_suite(suite):
    shows = load_expectations(suite.lists).shows
    assert shows
    assert all(callable(getattr(suite, test.replace("-", "_"))) for test in shows)


@pytest.mark.parametrize("name", SOURCES)
def test_the_tests_of_a_program_are_those_in_its_list(name):
    source = (PROGRAMS / SOURCES[name]).read_text()
    assert re.findall(r"\btest\([\"']([a-z0-9-]+)", source) == list(load_expectations(name).shows)


def test_each_suite_that_runs_a_program_has_a_list_of_what_it_shows():
    shown = {suite.name for suite in SUITES if load_expectations(suite.lists).shows}
    assert shown == {suite.name for suite in SCENARIOS} | SOURCES.keys()


def test_what_a_program_says_are_its_outcomes():
    output = "ok read\nsome noise\nFAIL seek: Error: offset 7: expected 8\nok other\n"
    assert said(output, ["read", "seek", "groups"], "it ended with 1") == [
        Outcome("read", "passed"),
        Outcome("seek", "failed", detail="Error: offset 7: expected 8"),
        Outcome("groups", "failed", detail="it ended with 1"),
    ]


def test_a_program_is_killed_with_its_children_at_the_end_of_its_time(tmp_path):
    began = time.monotonic()
    output, failure = output_of(["sh", "-c", "echo begun; sleep 60 & wait"], tmp_path, tmp_path / "log", 0.5)
    assert (output, failure) == ("begun\n", "it didn't end within 0 s")
    assert time.monotonic() - began < 30


def test_a_program_that_ends_early_is_waited_for_no_longer(tmp_path):
    with Program(["sh", "-c", "echo ready; exit 3"], tmp_path, tmp_path / "app.log") as program:
        program.wait_for("ready", 30)
        with pytest.raises(NotShownError, match="app ended before it said 'running'"):
            program.wait_for("running", 30)


@pytest.mark.parametrize(("suite", "tool"), [("java-2.8", "mvn"), ("kafkajs", "npm"), ("sarama", "go")])
def test_a_missing_tool_is_named_and_the_command_ends_with_2(suite, tool, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("SPARKLOG_COMPAT_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--suite", suite]) == 2
    assert f"{suite} was NOT run: there is no {tool} on the PATH, which" in capsys.readouterr().out


def test_the_command_says_what_the_suites_show(capsys):
    assert main(["--list"]) == 0
    said = capsys.readouterr().out
    assert "streams-3.9:\n  clean-close: after a clean close" in said
    assert "librdkafka: tests of others\n" in said


@pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by openssl")
def test_certificates_are_there_in_all_forms_and_the_gateway_takes_its_own(tmp_path):
    made = made_certificates(tmp_path / "certificates")
    options = dict(zip(made.gateway_options[::2], made.gateway_options[1::2], strict=True))
    tls_context(options["--tls-cert"], options["--tls-key"], options["--tls-client-ca"])
    files = [file for name, file in made.environment.items() if name != "SSL_password"]
    assert len(files) == 8
    assert all(Path(file).stat().st_size for file in files)
    lists = load_expectations("librdkafka")
    assert BY_TLS.isdisjoint([*lists.left_out, *lists.known_failures, *lists.skipped])


def test_tests_that_need_a_user_are_in_the_list_and_are_run():
    lists = load_expectations("librdkafka")
    parts = {f"{test}/{part}" for test, found in lists.parts.items() for part in found}
    assert parts | set(lists.skipped) >= AS_USER
    assert AS_USER.isdisjoint(lists.left_out)
