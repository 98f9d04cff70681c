"""Compaction jobs as processes: two at once, one killed while it rewrites, beside producers, transactions and a foreign
writer. Judged by deltalake, which knows nothing of sparklog."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sparklog.admin import Admin, NewTopic
from sparklog.compaction import Step, maintain
from sparklog.log import open_cluster
from sparklog.model import TopicPartition
from sparklog.producer import Producer
from tests import spark_session

pytestmark = [pytest.mark.spark, pytest.mark.deep, pytest.mark.timeout(3_600)]

REPOSITORY = Path(__file__).parents[2]
FILES, KEYS = 16, 1_000
ENDS_WITHIN_S = 1_500
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, "segment.bytes": 1_048_576}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A topic whose files have to be rewritten: in each of them half of the keys come again in the next one."""
    root = tmp_path / "cluster"
    Admin(open_cluster(root)).create_topics([NewTopic("t", 1, configs=COMPACTED)])
    with Producer(cluster=str(root)) as producer:
        for file in range(FILES):
            for number in range(KEYS):
                producer.send("t", value(file, number), key=f"k{file * KEYS // 2 + number}".encode())
            producer.flush()
    return root


def value(file: int, number: int) -> bytes:
    return f"{file}.{number}.{secrets.token_hex(500)}".encode()


def old_values() -> dict[str, str]:
    """Of each key of the fixture the beginning of its last value."""
    places = [(file, number) for file in range(FILES) for number in range(KEYS)]
    return {f"k{file * KEYS // 2 + number}": f"{file}.{number}." for file, number in places}


def a_job(folder: Path, root: Path, name: str) -> subprocess.Popen[str]:
    """``compact`` on a Spark of its own, all of it by executors; its output is in ``folder``."""
    folder.mkdir(parents=True)
    settings = {**spark_session.settings(folder), "spark.driver.memory": "512m", "spark.master": "local[2]"}
    del settings["spark.jars.ivy"]
    submit = " ".join(f"--conf '{key}={given}'" for key, given in settings.items())
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_SUBMIT_ARGS": f"{submit} pyspark-shell",
    }
    command = [sys.executable, "-m", "sparklog.jobs.compact", "--cluster", str(root), "--topics", "t"]
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        return subprocess.Popen(
            [*command, "--small-bytes", "0", "--json"],
            stdout=out, stderr=err, text=True, env=environment, start_new_session=True,
        )  # fmt: skip


def report(folder: Path, job: subprocess.Popen[str]) -> dict[str, Any]:
    """What a job that has ended says it did."""
    code = job.wait(ENDS_WITHIN_S)
    assert code == 0, (folder / "stderr").read_text()[-3_000:]
    found: dict[str, Any] = json.loads((folder / "stdout").read_text().splitlines()[-1])
    return found


def rewrites(root: Path, since: int) -> int:
    """The commits behind a version that removed files and added others."""
    log = root / "topics" / "t" / "_delta_log"
    entries = [path for path in log.glob("[0-9]*.json") if path.stem.isdigit() and int(path.stem) > since]
    texts = [path.read_text() for path in entries]
    return sum('"remove"' in text and '"add"' in text for text in texts)


class Writers:
    """A producer, one with transactions, and a foreign writer, each with keys of its own, as fast as they can."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.last: dict[str, str] = {}
        """By key the value that was acknowledged last."""
        self.aborted: set[str] = set()
        self.errors: list[BaseException] = []
        self._is_over = threading.Event()
        works: Sequence[Callable[[], None]] = (self._produce, self._transact, self._write)
        self._threads = [threading.Thread(target=self._guarded, args=(work,)) for work in works]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(300)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.errors.append(error)

    def _turns(self) -> Iterator[int]:
        turn = 0
        while not self._is_over.wait(0.2):
            yield turn
            turn += 1

    def _produce(self) -> None:
        with Producer(cluster=str(self.root)) as producer:
            for turn in self._turns():
                key, text = f"p{turn % 7}", f"p.{turn}"
                producer.send("t", text.encode(), key=key.encode()).get(120)
                self.last[key] = text

    def _transact(self) -> None:
        with Producer(cluster=str(self.root), transactional_id="beside") as producer:
            producer.init_transactions()
            for turn in self._turns():
                producer.begin_transaction()
                key, text = f"x{turn % 5}", f"x.{turn}"
                producer.send("t", text.encode(), key=key.encode())
                if turn % 3 == 2:
                    producer.abort_transaction()
                    self.aborted.add(text)
                else:
                    producer.commit_transaction()
                    self.last[key] = text

    def _write(self) -> None:
        for turn in self._turns():
            if turn % 5 == 0:
                key, text = f"f{turn}", f"f.{turn}"
                rows = {"key": pa.array([key.encode()]), "value": pa.array([text.encode()])}
                table = pa.table({**rows, "partition": pa.array([0], pa.int32())})
                write_deltalake(str(self.root / "topics" / "t"), table, mode="append", schema_mode="merge")
                self.last[key] = text


@contextmanager
def writers(root: Path) -> Iterator[Writers]:
    found = Writers(root)
    try:
        yield found
    finally:
        found.end()


def judged(root: Path) -> dict[str, str]:
    """By key the value at the greatest offset, as deltalake reads the table; no offset is there twice."""
    maintain(open_cluster(root), ["t"], steps=[Step.SEQUENCE])
    table = DeltaTable(str(root / "topics" / "t")).to_pyarrow_table()
    table = table.filter(pa.compute.is_valid(table["base_offset"]))
    rows = table.select(["base_offset", "offset_delta", "key", "value"]).to_pylist()
    rows.sort(key=lambda row: row["base_offset"] + row["offset_delta"])
    offsets = [row["base_offset"] + row["offset_delta"] for row in rows]
    assert len(set(offsets)) == len(offsets)
    assert max(offsets) < Admin(open_cluster(root)).end_offsets([TopicPartition("t", 0)])[TopicPartition("t", 0)]
    return {row["key"].decode(): row["value"].decode() for row in rows}


def check(root: Path, beside: Writers) -> None:
    """Nothing is lost or doubled: each key has its last value, and no aborted one."""
    found = judged(root)
    assert beside.errors == []
    old = old_values()
    assert found.keys() == old.keys() | beside.last.keys()
    assert [key for key, begin in old.items() if not found[key].startswith(begin)] == []
    assert {key: found[key] for key in beside.last} == beside.last
    assert beside.aborted.isdisjoint(found.values())


def until(condition: Callable[[], bool], what: str, *jobs: subprocess.Popen[str]) -> None:
    ends = time.monotonic() + ENDS_WITHIN_S
    while not condition():
        assert time.monotonic() < ends, what
        assert all(job.poll() is None for job in jobs), what
        time.sleep(0.05)


def test_two_compactions_at_once_beside_writers_and_one_killed_while_it_rewrites(root: Path, tmp_path: Path) -> None:
    before = DeltaTable(str(root / "topics" / "t")).version()
    with writers(root) as beside:
        killed = a_job(tmp_path / "killed", root, "killed")
        try:
            until(lambda: rewrites(root, before) > 0, "no file was rewritten", killed)
        finally:
            os.killpg(killed.pid, signal.SIGKILL)  # driver, JVM and workers
            killed.wait(60)
        two = {name: a_job(tmp_path / name, root, name) for name in ("one", "other")}
        try:
            done = [report(tmp_path / name, job) for name, job in two.items()]
        finally:
            for job in two.values():
                if job.poll() is None:
                    os.killpg(job.pid, signal.SIGKILL)
    assert [one["errors"] for one in done] == [{}, {}]
    check(root, beside)
    compacted = DeltaTable(str(root / "topics" / "t")).to_pyarrow_table(columns=["key"])
    assert len([key for key in compacted["key"].to_pylist() if key.startswith(b"k")]) == len(old_values())
