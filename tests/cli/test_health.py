"""``sparklog health`` tells by its exit code whether the cluster is fit for use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparklog.errors import StoreUnavailableError
from sparklog.log import cluster as cluster_module
from tests.cli.support import a_cluster, done, run


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
