"""Commands that run for long log to standard error, as text or as JSON, and never what records hold."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click
import pytest
from click.testing import CliRunner, Result

from sparklog.cli.logs import JsonFormatter, TextFormatter, announce, logged
from sparklog.logs import about
from tests.cli.support import done

SECRET = "s3cr3t"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def entry(text: str, *values: object, error: BaseException | None = None, **names: object) -> logging.LogRecord:
    told = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("sparklog.test", logging.WARNING, "", 0, text, values, told)
    record.created = 1_767_225_600.25
    record.__dict__.update(about(**names) if names else {})
    return record


def raised(text: str) -> ValueError:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def test_a_line_has_time_level_logger_and_message() -> None:
    expected = "2026-01-01T00:00:00.250Z WARNING sparklog.test: topic 't' is lost"
    assert TextFormatter().format(entry("topic %r is lost", "t", topic="t")) == expected


def test_no_name_looks_like_another_entry_or_commands_a_terminal() -> None:
    forged = "g\n2026-01-01T00:00:00.250Z INFO sparklog.test: all is well\x1b[2J\u2028\x85"
    text = TextFormatter().format(entry("group %s", forged, error=raised(forged)))
    first, *others = text.splitlines()
    assert first.endswith(r"group g\n2026-01-01T00:00:00.250Z INFO sparklog.test: all is well\x1b[2J\u2028\x85")
    assert others
    assert all(line.startswith("    ") for line in others)
    assert "\x1b" not in text


def test_json_is_one_object_in_a_line_with_what_the_entry_is_about() -> None:
    text = JsonFormatter().format(
        entry("%r\n", "x", error=raised("mine"), topic="t", user="ann", level="mine", at=Path("/"))
    )
    assert "\n" not in text
    found = json.loads(text)
    assert "ValueError: mine" in found.pop("traceback")
    assert found == {
        "time": "2026-01-01T00:00:00.250Z",
        "level": "WARNING",
        "logger": "sparklog.test",
        "message": "'x'\n",
        "topic": "t",
        "user": "ann",
        "at": "/",
    }


def run(*options: str) -> Result:
    """Run a command that logs, and announces where it is."""

    @click.command()
    @logged
    @click.argument("where", default="here")
    def command(where: str) -> None:
        for name in ("sparklog.a", "other"):
            for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
                logging.getLogger(name).log(level, "%s", logging.getLevelName(level), extra=about(topic="t"))
        announce(f"open {where}")

    return CliRunner().invoke(command, options, catch_exceptions=False)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["a INFO", "a WARNING", "a ERROR"]),
        (("--log-level", "debug"), ["a DEBUG", "a INFO", "a WARNING", "a ERROR"]),
        (("--log-level", "ERROR"), ["a ERROR"]),
    ],
)
def test_the_level_is_sparklogs_and_of_libraries_only_warnings_are_shown(
    options: tuple[str, ...], expected: list[str]
) -> None:
    root = list(logging.getLogger().handlers)
    result = run(*options)
    *lines, last = result.stderr.splitlines()
    assert result.stdout == ""
    assert last == "open here"
    entries = [
        found.groups() for found in (re.fullmatch(TIME + r" (\w+) ([\w.]+): (\w+)", line) for line in lines) if found
    ]
    assert len(entries) == len(lines)
    assert [f"{name.removeprefix('sparklog.')} {text}" for _, name, text in entries if name != "other"] == expected
    assert [text for _, name, text in entries if name == "other"] == ["WARNING", "ERROR"]
    assert logging.getLogger().handlers == root  # the process of whoever calls a command is as before
    assert logging.getLogger("sparklog").level == logging.NOTSET


def test_in_json_every_line_is_an_object_also_what_is_announced() -> None:
    found = [json.loads(line) for line in run("--log-format", "json").stderr.splitlines()]
    assert [(one["logger"], one["message"]) for one in found][-1] == ("sparklog.cli", "open here")
    assert {one.get("topic") for one in found[:-1]} == {"t"}
    assert "error" in run("--log-format", "xml").stderr.lower()


@contextmanager
def running(cluster: Path, *command: str) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """A process, and the next line of its standard error."""
    arguments = [sys.executable, "-m", "sparklog", "-c", str(cluster), *command]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield process, process.stderr.readline
        finally:
            process.kill()


@pytest.mark.slow
def test_who_changed_what_in_the_console_is_on_standard_error(tmp_path: Path) -> None:
    done("topics", "create", "orders", cluster=str(tmp_path))
    writing = ("--allow-writes", "--trust-header", "X-User", "--log-format", "json")
    with running(tmp_path, "ui", "--listen", "127.0.0.1:0", *writing) as (process, next_line):
        opened = json.loads(next_line())
        assert opened["level"] == "INFO"
        connection = HTTPConnection(opened["message"].removeprefix("open http://").rstrip("/"), timeout=60)
        connection.request("GET", "/topics/orders", headers={"X-User": "ann"})
        token = connection.getresponse().read().decode().partition('name="csrf" value="')[2].partition('"')[0]
        for path, fields in (
            ("produce", {"value": SECRET, "key": SECRET, "headers": f"{SECRET}={SECRET}"}),
            ("settings", {"name": "retention.ms", "value": "5000"}),
        ):
            body = urlencode({"csrf": token, **fields})
            headers = {"X-User": "ann", "Content-Type": "application/x-www-form-urlencoded"}
            connection.request("POST", f"/topics/orders/{path}", body, headers)
            response = connection.getresponse()
            response.read()
            assert response.status == 200
        connection.close()
        process.terminate()
        rest = process.stderr.read() if process.stderr else ""
        assert process.wait(60) == 0
    entries = [json.loads(line) for line in rest.splitlines()]
    produced, changed = (one for one in entries if one["logger"] == "sparklog.console")
    assert (produced["level"], produced["user"], produced["topic"], produced["partition"]) == (
        "INFO",
        "ann",
        "orders",
        0,
    )
    assert produced["message"].startswith("'ann' produced a record to topic 'orders', partition 0, offset 0")
    assert changed["message"] == "'ann' set retention.ms of topic 'orders'"
    assert SECRET not in rest


@pytest.mark.slow
def test_what_the_exporter_cannot_read_is_on_standard_error(tmp_path: Path) -> None:
    done("topics", "create", "orders", cluster=str(tmp_path))
    [first] = (tmp_path / "topics" / "orders" / "_delta_log").glob("*0.json")
    first.write_bytes(b"{")
    with running(tmp_path, "exporter", "--listen", "127.0.0.1:0") as (process, next_line):
        lines = {next_line(), next_line()}  # the first look runs beside the server
        process.terminate()
        assert process.wait(60) == 0
    assert any(line.startswith("listening at http://127.0.0.1:") for line in lines)
    warned = re.compile(TIME + r" WARNING sparklog\.observe: topic 'orders' can't be read: .*\n")
    assert any(warned.fullmatch(line) for line in lines)
