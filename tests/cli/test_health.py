"""``sparklog health`` tells by its exit code whether the cluster is fit for use."""

from __future__ import annotations

import json
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
