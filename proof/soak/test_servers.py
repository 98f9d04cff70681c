"""Samples of processes, and how those end that aren't as they should be."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from proof.soak.servers import Process, sample

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc")


def process(tmp_path: Path, code: str) -> Process:
    return Process("one", [sys.executable, "-S", "-c", code], tmp_path / "one.txt")


def test_a_running_process_is_sampled():
    held = [os.dup(1) for _ in range(30)]
    found = sample(os.getpid(), 1.5)
    for descriptor in held:
        os.close(descriptor)
    assert found.at_s == 1.5
    assert found.rss_kib > 10_000
    assert found.threads >= 1
    assert found.descriptors >= sample(os.getpid(), 2.0).descriptors + 20


def test_a_process_that_has_ended_is_told(tmp_path: Path):
    one = process(tmp_path, "")
    while Path("/proc", str(one.pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    with pytest.raises(OSError, match=rf"process {one.pid} has ended, and nobody has waited"):
        sample(one.pid, 0.0)
    assert one.end() == [f"one: ended before its time, see {tmp_path / 'one.txt'}"]


def test_another_exit_code_than_0_and_no_end_are_told(tmp_path: Path):
    path = tmp_path / "one.txt"
    assert process(tmp_path, "").wait(60) == []
    assert process(tmp_path, "raise SystemExit(3)").wait(60) == [f"one: ended with exit code 3, expected 0, see {path}"]
    assert process(tmp_path, "import time; time.sleep(600)").wait(0.1) == [f"one: didn't end within 0 s, see {path}"]
