"""Checkpoints that another process reads say what they say here, and a process that fails is no failure."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from sparklog.delta import checkpoint_child
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.checkpoint_child import CheckpointChild, serve
from sparklog.delta.checkpoint_content import CheckpointContent
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import checkpoint_path
from sparklog.delta.snapshot import load_snapshot
from sparklog.errors import CorruptLogError
from sparklog.log.state import load_state
from tests.support import a_topic, a_writer, append


@pytest.fixture
def log() -> DeltaLog:
    """A topic with a checkpoint of two files, and one file behind it."""
    log = a_topic(num_partitions=2)
    writer = a_writer(log)
    append(writer, "a")
    append(writer, "b", partition=1)
    write_checkpoint(log)
    append(writer, "c")
    return log


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[CheckpointChild]:
    """One for a process that has no Arrow."""
    monkeypatch.setattr(checkpoint_child, "is_arrow_loaded", lambda: False)
    child = CheckpointChild()
    yield child
    child.close()


def parts_of(log: DeltaLog) -> dict[str, bytes]:
    path = checkpoint_path(log.table, 2)
    return {path: log.store.read(path)}


def served(parts: Mapping[str, bytes]) -> dict[str, Any]:
    """The answer, without a process."""
    request = json.dumps([[path, len(data)] for path, data in parts.items()]).encode() + b"\n"
    answers = io.BytesIO()
    serve(io.BytesIO(request + b"".join(parts.values())), answers)
    found: dict[str, Any] = json.loads(answers.getvalue())
    return found


def test_a_topic_is_loaded_as_it_is_where_arrow_reads_in_this_process(log: DeltaLog) -> None:
    def read(parts: Mapping[str, bytes]) -> CheckpointContent:
        return CheckpointContent(**served(parts))

    here, there = load_state(log, statistics=True), load_state(replace(log, read_checkpoint=read), statistics=True)
    assert (there.head, there.transactions, there.checkpoint_version) == (here.head, here.transactions, 2)
    assert there.require_whole().index.by_path == here.require_whole().index.by_path
    assert len(there.require_whole().index) == 3
    assert there.require_whole().metadata == here.require_whole().metadata
    assert there.require_whole().statistics == here.require_whole().statistics


@pytest.mark.slow
def test_another_process_reads_until_it_is_closed_and_then_the_next_one(log: DeltaLog, child: CheckpointChild) -> None:
    logged = replace(log, read_checkpoint=child)
    for _ in range(2):
        for _ in range(2):
            snapshot = load_snapshot(logged)
            assert snapshot is not None
            assert snapshot.files is None
            assert snapshot.file_rows is not None
            assert len(snapshot.file_rows) == 2
        with pytest.raises(CorruptLogError, match=r"corrupt checkpoint t/part\.parquet"):
            child({"t/part.parquet": b"no Parquet"})
        process = child._process
        assert process is not None
        assert process.poll() is None
        child.close()
        assert process.poll() is not None
    child.close()


@pytest.mark.parametrize(
    "program",
    ["", "raise SystemExit(3)", "import sys; print(sys.stdin.buffer.readline())", "import time; time.sleep(60)"],
    ids=["ends", "fails", "answers nonsense", "hangs"],
)
@pytest.mark.slow
def test_a_process_that_fails_is_replaced_by_this_one(
    log: DeltaLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, program: str
) -> None:
    monkeypatch.setattr(checkpoint_child, "_PROGRAM", program)
    monkeypatch.setattr(checkpoint_child, "is_arrow_loaded", lambda: False)
    child = CheckpointChild(timeout_s=0.5 if "sleep" in program else 60.0)
    with caplog.at_level(logging.WARNING):
        content = child(parts_of(log))
    assert content.file_rows is None
    assert len(content.metadata) == 1
    assert "another one failed" in caplog.text
    assert child._process is None


def test_a_process_that_cannot_be_started_is_replaced_by_this_one(
    log: DeltaLog, monkeypatch: pytest.MonkeyPatch, child: CheckpointChild
) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert child(parts_of(log)).file_rows is None


@pytest.mark.parametrize("executable", ["", None])
def test_an_embedded_python_reads_itself(
    log: DeltaLog, monkeypatch: pytest.MonkeyPatch, child: CheckpointChild, executable: str | None
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    assert child(parts_of(log)).file_rows is None


def test_an_interrupt_ends_the_process(log: DeltaLog, monkeypatch: pytest.MonkeyPatch, child: CheckpointChild) -> None:
    def interrupt(parts: Mapping[str, bytes]) -> dict[str, Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(child, "_ask", interrupt)
    child._start()
    process = child._process
    with pytest.raises(KeyboardInterrupt):
        child(parts_of(log))
    assert process is not None
    assert process.poll() is not None
    assert not child._lock.locked()


def test_with_arrow_at_hand_no_process_is_started(log: DeltaLog) -> None:
    assert "pyarrow" in sys.modules
    child = CheckpointChild()
    assert child(parts_of(log)).file_rows is None
    assert child._process is None
