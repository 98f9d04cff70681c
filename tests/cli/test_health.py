"""``sparklog health`` tells by its exit code whether the cluster is fit for use."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from sparklog.errors import StoreUnavailableError
from sparklog.log import cluster as cluster_module
from sparklog.storage import MemoryStore
from sparklog.testing import WrappedStore
from tests.cli.support import a_cluster, done, run

T = TypeVar("T")
PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"


def test_a_table_or_json_says_what_was_seen() -> None:
    cluster = a_cluster()
    done("topics", "create", "orders", cluster=cluster)
    lines = done("health", cluster=cluster).splitlines()
    assert lines[0].split() == ["check", "result", "ms", "seen"]
    assert [line.split()[:2] for line in lines[1:]] == [
        ["read", "ok"],
        ["create", "ok"],
        ["clock", "ok"],
        ["maintenance", "warning"],
    ]
    report = json.loads(done("health", "--json", "--read-only", cluster=cluster))
    assert report["healthy"] is True
    assert [one["result"] for one in report["checks"]] == ["ok", "skipped", "skipped", "warning"]


def test_exit_codes_say_whether_and_whether_it_may_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = a_cluster()
    done("topics", "create", "orders", cluster=cluster)
    assert run("health", cluster=cluster).exit_code == 0
    assert run("health", "--strict", cluster=cluster).exit_code == 1
    result = run("health", cluster=str(tmp_path / "nothing"))
    assert result.exit_code == 1
    assert "no sparklog cluster" in result.stdout

    def away(*_: object, **__: object) -> object:
        raise StoreUnavailableError("the store is away")

    monkeypatch.setattr(cluster_module, "open_cluster", away)
    result = run("health", "--json", cluster=cluster)
    assert result.exit_code == 75
    assert json.loads(result.stdout)["healthy"] is False


class Silent(WrappedStore):
    """Answers nothing until it is let go on, and then refuses."""

    def __init__(self, goes_on: threading.Event) -> None:
        super().__init__(MemoryStore())
        self._goes_on = goes_on

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        self._goes_on.wait(60)
        raise StoreUnavailableError("slow down")


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_store_that_is_away_is_told_within_the_time(monkeypatch: pytest.MonkeyPatch, is_silent: bool) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr("sparklog.storage.open_store", lambda *_: Silent(goes_on))
    if not is_silent:
        goes_on.set()
    reason = "" if is_silent else ": slow down"
    for timeout in ("0.05", "0.5", "5", "50"):  # within a short one a busy machine may not have heard the reason
        result = run("health", "--json", "--timeout", timeout, cluster=a_cluster())
        [check] = json.loads(result.stdout)["checks"]
        if check["seen"].endswith(reason):
            break
    goes_on.set()
    assert result.exit_code == 75
    assert (check["check"], check["result"]) == ("read", "failed")
    assert check["seen"] == f"not all was answered within {timeout} s{reason}"
    assert check["ms"] > 0


def a_slow_group(cluster: str) -> None:
    """Three records, of which the group ``billing`` has read one."""
    done("topics", "create", "orders", cluster=cluster)
    done("produce", "orders", cluster=cluster, input="a\nb\nc\n")
    read = ("-X", "heartbeat_interval_ms=50", "-X", "session_timeout_ms=60000", "-n", "1")
    done("consume", "orders", "--group", "billing", "--from-beginning", *read, cluster=cluster)


def test_groups_that_fall_behind_have_a_line_each() -> None:
    cluster = a_cluster()
    a_slow_group(cluster)
    assert done("health", "--max-lag", 2, cluster=cluster).splitlines()[-1].endswith("the most is 2 records of billing")
    result = run("health", "--max-lag", 1, "--max-lag-seconds", 3600, "--group", "b*", cluster=cluster)
    assert result.exit_code == 1
    [line] = [line for line in result.stdout.splitlines() if line.startswith("lag")]
    assert line.endswith("group billing: a lag of 2 records, expected 1 at most")
    report = json.loads(run("health", "--json", "--max-lag-seconds", 0, cluster=cluster).stdout)
    assert (report["healthy"], report["checks"][-1]["result"]) == (False, "failed")
    assert run("health", "--max-lag", 9, "--group", "shipping", cluster=cluster).exit_code == 1
    assert run("health", "--group", "billing", cluster=cluster).exit_code == 2
    assert run("health", "--max-lag", "-1", cluster=cluster).exit_code == 2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("jq") is None, reason="the script makes JSON by jq")
def test_the_script_for_cron_posts_what_fails(tmp_path: Path) -> None:
    [script] = re.findall(r"^```sh\n(#!/bin/sh\n.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    cluster = str(tmp_path / "data")
    commands = {
        "sparklog-check": script.replace("--max-lag-seconds 60", "--max-lag-seconds 86400"),  # a busy machine is slow
        "sparklog": f'#!/bin/sh\nexec {sys.executable} -m sparklog "$@"\n',
        "curl": f"#!/bin/sh\ncat > {tmp_path}/posted\n",
    }
    for name, text in commands.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def checked() -> tuple[int, str]:
        (tmp_path / "posted").write_text('{"text": ""}')
        environment = {
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "SPARKLOG_CLUSTER": cluster,
            "WEBHOOK": "https://example.org/hook",
            "PYTHONPATH": str(PAGE.parents[1]),
        }
        found = subprocess.run(
            [tmp_path / "sparklog-check"], env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        text = json.loads((tmp_path / "posted").read_text())["text"]
        assert found.stderr == text
        return found.returncode, text

    a_slow_group(cluster)
    done("produce", "orders", cluster=cluster, input="x\n" * 1_000)
    code, text = checked()
    named = [line for line in text.splitlines() if "exit code" in line]
    assert (code, named) == (1, ["topics: exit code 1", "lag: exit code 1"])
    assert "topics/payments" in text
    assert "group billing: a lag of 1,002 records, expected 1,000 at most" in text
    done("topics", "create", "payments", cluster=cluster)
    done("groups", "reset-offsets", "billing", "--to-latest", "--all-topics", "--execute", cluster=cluster)
    assert checked() == (0, "")
