"""Commands whose cluster's folder is gone while they run: one line that says so, and exit code 1."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sparklog import Admin, NewTopic, Producer, TopicPartition
from sparklog.errors import StoreReplacedError
from sparklog.log import cluster as cluster_module
from tests.cli.support import a_cluster, done, run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "c"
    Admin(str(root)).create_topics([NewTopic("orders", num_partitions=1)])
    with Producer(str(root)) as producer:
        producer.send("orders", b"first").get(timeout=20)
    return root


def started(root: Path, *command: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    arguments = [sys.executable, "-m", "sparklog", "--cluster", str(root), *command]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)


def check_told(process: subprocess.Popen[str], root: Path, text: str = "") -> None:
    try:
        _, told = process.communicate(text, timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1, told
    *_, last = told.strip().splitlines()
    assert last.startswith("sparklog: error: "), told
    assert str(root) in last, told
    assert "is gone" in last, told
    assert "Traceback" not in told
    assert not root.exists()


def test_produce_says_that_its_cluster_is_gone(root: Path) -> None:
    process = started(root, "produce", "orders")
    assert process.stdin is not None
    process.stdin.write("second\n")
    process.stdin.flush()
    where, until = TopicPartition("orders", 0), time.monotonic() + 60
    with Admin(str(root)) as admin:
        while admin.end_offsets([where])[where] < 2 and time.monotonic() < until:
            time.sleep(0.05)
    root.rename(root.parent / "away")
    check_told(process, root, "third\n")


def test_consume_of_a_group_says_that_its_cluster_is_gone(root: Path) -> None:
    process = started(root, "consume", "orders", "--from-beginning", "--group", "g")
    assert process.stdout is not None
    assert "first" in process.stdout.readline()
    root.rename(root.parent / "away")
    check_told(process, root)


def test_health_fails_where_another_cluster_is_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = a_cluster()
    done("topics", "create", "orders", cluster=cluster)

    def replaced(*_: object, **__: object) -> object:
        raise StoreReplacedError("another cluster is at this root now")

    monkeypatch.setattr(cluster_module, "open_cluster", replaced)
    result = run("health", "--json", cluster=cluster)
    assert result.exit_code == 1, "a repetition doesn't help"
    report = json.loads(result.stdout)
    assert [(one["result"], one["seen"]) for one in report["checks"]] == [
        ("failed", "another cluster is at this root now")
    ]
