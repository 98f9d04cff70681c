"""``sparklog top`` shows lag and rates, once or again and again."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sparklog.cli.top import _Screen
from sparklog.observe import ClusterFigures, ClusterWatch
from sparklog.observe.watching import Watching
from tests.cli.support import a_cluster, done, failure
from tests.observe.support import watched


@pytest.fixture
def cluster() -> str:
    found: str = a_cluster()
    done("topics", "create", "orders", cluster=found)
    done("produce", "orders", cluster=found, input="a\nb\nc\n")
    done("consume", "orders", "--group", "billing", "--max-messages", "2", "--from-beginning", cluster=found)
    return found


def test_once_shows_groups_and_topics(cluster: str) -> None:
    lines = done("top", "--once", "--interval", "0.1", cluster=cluster).splitlines()
    assert "1 topic  1 group  0 overdue transactions  0 unreadable" in lines[0]
    assert [line.split() for line in lines[2:4]] == [
        ["group", "topic", "members", "lag", "lag", "s", "read/s"],
        ["billing", "orders", "0", "1", lines[3].split()[4], "0.0"],
    ]
    row = dict(zip(("topic", "partitions", "records"), lines[6].split(), strict=False))
    assert row == {"topic": "orders", "partitions": "1", "records": "3"}


def test_once_looks_twice_however_long_showing_takes(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """✗ It looked on while it showed what it had found, and its end waited for that."""
    looks: list[ClusterWatch] = []
    look, show = ClusterWatch.look, _Screen.show

    def counted(self: ClusterWatch) -> ClusterFigures:
        looks.append(self)
        return look(self)

    def slowly(self: _Screen, *args: Any, **options: Any) -> None:
        time.sleep(0.5)
        show(self, *args, **options)

    monkeypatch.setattr(ClusterWatch, "look", counted)
    monkeypatch.setattr(_Screen, "show", slowly)
    assert "1 topic" in done("top", "--once", "--interval", "0.1", cluster=cluster)
    assert len(looks) == 2


def test_json_is_an_object_a_look(cluster: str) -> None:
    found = json.loads(done("top", "--once", "--json", "--interval", "0.1", cluster=cluster))
    assert found["up"] is True
    assert [(one["group_id"], one["lag"]) for one in found["groups"]] == [("billing", 1)]
    assert [(one["name"], one["record_count"]) for one in found["topics"]] == [("orders", 3)]


def test_what_the_first_look_tells_first_is_a_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sparklog.observe.cluster_watch._FEW_TOPICS", 1)
    monkeypatch.setattr("sparklog.observe.cluster_watch.topics_to_load_first", lambda part: [])
    here = watched()
    here.append(here.topic("a"), "x", "y")
    with monkeypatch.context() as older:
        older.setattr("sparklog.log.commit.totals_after", lambda *_: None)
        here.append(here.topic("b"), "x")
    screen = _Screen(is_live=False)
    Watching(
        lambda: ClusterWatch(here.cluster),
        interval_ms=1_000,
        on_part=lambda status: screen.show(None, status, as_json_line=False),
        tells_parts=True,
    ).look()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("the first look is under way")
    [first, second] = [line.split()[:4] for line in lines[-2:]]
    assert first[:3] == ["a", "1", "2"]
    assert first[3] != "…"
    assert second == ["b", "1", "~1", "…"]  # by its offsets


def test_totals_of_before_the_newest_commit_are_marked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = watched()
    writer = here.topic("orders")
    here.append(writer, "a")
    watching = Watching(lambda: ClusterWatch(here.cluster), interval_ms=1_000)
    watching.look()
    monkeypatch.setattr("sparklog.log.commit.totals_after", lambda *_: None)
    for value in "bcdefg":  # more than two commits between looks: the newest alone is read
        here.append(writer, value)
    watching.look()
    _Screen(is_live=False).show(None, watching.status(), as_json_line=False)
    name, _, records, size, _, files = capsys.readouterr().out.splitlines()[-1].split()[:6]
    assert (name, records, size[0], files) == ("orders", "~1", "~", "~1")


def test_what_cannot_be_read_at_all_is_an_error() -> None:
    assert "no sparklog cluster" in failure("top", "--once", cluster=a_cluster())


@pytest.mark.slow
def test_pages_follow_each_other_until_ctrl_c(tmp_path: Path) -> None:
    done("topics", "create", "orders", cluster=str(tmp_path))
    command = [sys.executable, "-m", "sparklog", "-c", str(tmp_path), "top", "--interval", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        headlines = 0
        while headlines < 3:
            headlines += "1 topic" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(60) == 0


@pytest.mark.slow
def test_on_a_terminal_pages_replace_each_other(tmp_path: Path) -> None:
    done("topics", "create", "orders", cluster=str(tmp_path))
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sparklog", "-c", str(tmp_path), "top", "--interval", "0.1"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=environment) as process:
        os.close(theirs)
        seen = b""
        while seen.count(b"last commit") < 2:
            seen += os.read(ours, 65_536)
        assert b"\x1b[?1049h" in seen  # the alternate screen
        process.send_signal(signal.SIGINT)
        while b"\x1b[?1049l" not in seen:
            seen += os.read(ours, 65_536)
        assert process.wait(60) == 0
    os.close(ours)
