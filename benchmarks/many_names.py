"""A cluster of very many topics, transactional ids and groups: CPU and memory of the commands that look at all of it.

The names are made by links to the files of a few, so that they take seconds and no room; a topic's id is in its files,
so links of one topic have the same id, which nothing here minds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.extent import Extent
from benchmarks.harness import print_table, progress

__all__ = ["names"]

_COMMANDS: Sequence[tuple[str, ...]] = (
    ("check",),
    ("exporter", "--once"),
    ("exporter", "--once", "--most-series", "1000"),
    ("top", "--once", "--interval", "0.1"),
    ("maintain", "--dry-run"),
    ("maintain",),
    ("maintain",),
)
_LONGEST_S = 3_600.0


class _Run(NamedTuple):
    cpu_s: float
    peak_mib: float
    exit_code: int
    series: int
    """Lines of the output that are neither empty nor comments."""


def names(extent: Extent) -> None:
    """Measure each command, one after the other, in a process of its own."""
    topics, ids, groups = extent.of((100, 1_000, 10), (1_000, 10_000, 100), (10_000, 100_000, 1_000))
    with tempfile.TemporaryDirectory(dir=_in_memory()) as folder:
        root = Path(folder) / "cluster"
        began = time.monotonic()
        _make(root, topics=topics, ids=ids, groups=groups)
        progress(f"{topics} topics, {ids} transactional ids, {groups} groups in {time.monotonic() - began:.0f} s")
        rows = []
        for command in _COMMANDS:
            run = _run(root, command)
            shown = str(run.series) if command[0] == "exporter" else ""
            row = [" ".join(command), f"{run.cpu_s:.1f}", f"{run.peak_mib:.0f}", shown, str(run.exit_code)]
            progress(", ".join(row))
            rows.append(row)
    print(f"\n{topics:,} topics, {ids:,} transactional ids and {groups:,} groups on a folder")
    print_table(["command", "CPU s", "peak MiB", "series", "exit code"], rows)


def _in_memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _make(root: Path, *, topics: int, ids: int, groups: int) -> None:
    from sparklog import Admin, NewTopic, OffsetAndMetadata, Producer, TopicPartition

    with Admin(str(root)) as admin:
        admin.create_topics([NewTopic("topic", num_partitions=1)])
        with Producer(str(root)) as producer:
            producer.send("topic", b"value").get(60)
        admin.alter_group_offsets("group", {TopicPartition("topic", 0): OffsetAndMetadata(1)})
    with Producer(str(root), transactional_id="id") as producer:
        producer.init_transactions()
    for kind, name, count in (("topics", "topic", topics), ("transactions", "id", ids), ("groups", "group", groups)):
        for number in range(1, count):
            _link(root / kind / name, root / kind / f"{name}-{number:06d}")


def _link(from_: Path, to: Path) -> None:
    for folder, _, files in os.walk(from_):
        target = to / Path(folder).relative_to(from_)
        target.mkdir(parents=True)
        for file in files:
            os.link(Path(folder) / file, target / file)


def _run(root: Path, command: Sequence[str]) -> _Run:
    """Run a command of sparklog, and learn what it took."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-c", _MEASURED, str(root), *command], stdout=output, stderr=subprocess.PIPE, text=True
        )
        try:
            _, told = process.communicate(timeout=_LONGEST_S)
        except BaseException:
            process.kill()
            process.wait()
            raise
        cpu_s, peak_kib, code = told.splitlines()[-1].split()
        output.seek(0)
        series = sum(1 for line in output if line.strip() and not line.startswith(b"#"))
    return _Run(float(cpu_s), int(peak_kib) / 1024, int(code), series)


_MEASURED = """
import resource, subprocess, sys
root, *command = sys.argv[1:]
done = subprocess.run([sys.executable, "-m", "sparklog", "-c", root, *command], stderr=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss, done.returncode, file=sys.stderr)
"""
"""Runs a command as its only child, whose peak is then that of its children."""
