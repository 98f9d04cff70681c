"""A streaming query into the topics ``t`` and ``u``, in processes of its own, which a test kills.

With Spark, which reads text files, or without a JVM: a process does with the sink's own objects what Spark does for a
micro-batch, in Spark's order.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from sparklog.admin import Admin, NewTopic
from sparklog.log.cluster import Cluster
from sparklog.log.follow import TopicFollower
from sparklog.spark.sink.sink_commit import QueryRun, commit_batch
from sparklog.spark.sink.sink_options import SinkOptions
from sparklog.spark.sink.sink_writing import TaskWriter
from sparklog.spark.sink.small_tasks import TaskOutput, packed, write_rows
from sparklog.streaming.cluster_ref import ClusterRef
from sparklog.txn.committing import UploadCommitter
from sparklog.txn.entries import QueryBatch
from tests.spark_session import SUBMIT_ARGS, WITH_IMPORTS

__all__ = [
    "Driver",
    "check",
    "create_topics",
    "drain",
    "drain_without_spark",
    "make_checkpoint",
    "write_inputs",
]

ROWS = 20
"""Of an input file, each of which goes to both topics."""
_KILL_S = 30.0


def create_topics(cluster: Cluster) -> None:
    """The two topics that :func:`drain` writes to."""
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic("t", 3), NewTopic("u", 1)])


def write_inputs(folder: Path, count: int, *, padded: int = 0) -> None:
    """Write ``count`` files of lines ``batch:row`` to ``input`` in a folder.

    Args:
        padded: so many bytes more in each line of every second file, whose tasks upload their rows then.
    """
    inputs = folder / "input"
    inputs.mkdir()
    for number in range(count):
        more = ":" + "x" * padded if padded and number % 2 else ""
        lines = "".join(f"{number}:{row}{more}\n" for row in range(ROWS))
        (inputs / f"{number:04d}.txt").write_text(lines)


def check(cluster: Cluster, count: int) -> None:
    """Raise unless both topics have each line of ``count`` files once."""
    expected = Counter((batch, row) for batch in range(count) for row in range(ROWS))
    for topic in "tu":
        found = Counter(values(cluster, topic))
        lost, more = sorted(expected - found), sorted(found - expected)
        assert not lost, f"topic {topic} hasn't {len(lost)} rows, such as row {lost[0][1]} of batch {lost[0][0]}"
        assert not more, f"topic {topic} has {len(more)} rows twice, such as row {more[0][1]} of batch {more[0][0]}"


def values(cluster: Cluster, topic: str) -> list[tuple[int, int]]:
    """(batch, row) of all records; offsets are dense."""
    follower = TopicFollower(cluster.topic_log(topic), topic)
    found: list[tuple[int, int]] = []
    for partition in range(follower.head.partition_count):
        table = follower.read(partition, 0, max_records=1_000_000)
        assert table["offset"].to_pylist() == list(range(table.num_rows))
        for value in table["value"].to_pylist():
            batch, row = value.decode().split(":")[:2]
            found.append((int(batch), int(row)))
    return sorted(found)


def drain(root: str, storage_options: str, folder: str, files_per_trigger: int) -> None:
    """A program: each line of the text files to both topics, until none is left.

    Args:
        storage_options: as JSON.
    """
    from pyspark.sql import SparkSession

    from sparklog.spark import register_source

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.ui.enabled": "false", "spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register_source(spark)
    lines = spark.readStream.option("maxFilesPerTrigger", files_per_trigger).text(f"{folder}/input")
    frame = lines.selectExpr("explode(array('t', 'u')) AS topic", "value AS key", "value")
    writer = frame.writeStream.format("sparklog").option("checkpointLocation", f"{folder}/checkpoint")
    query = writer.option("storageOptions", storage_options).trigger(availableNow=True).start(root)
    query.awaitTermination()


def make_checkpoint(folder: Path) -> None:
    """Make that of :func:`drain_without_spark`, before it runs for the first time."""
    for name in ("offsets", "commits"):
        (folder / "checkpoint" / name).mkdir(parents=True)


def drain_without_spark(root: str, storage_options: str, folder: str, last: int | None) -> None:
    """Run micro-batches as Spark does, for ever or up to ``last``: the batch's number into ``offsets``, its rows
    written by two tasks, its commit, its number into ``commits``. Begin where ``commits`` ends.

    Args:
        storage_options: as JSON.
    """
    options = json.loads(storage_options)
    cluster = ClusterRef(root, options).open()
    offsets, commits = Path(folder, "checkpoint", "offsets"), Path(folder, "checkpoint", "commits")
    run = QueryRun(query_id="q", run_id=uuid.uuid4().hex)
    committer = UploadCommitter(cluster, "spark-q", holder=run.run_id)
    sink = SinkOptions(uri=root, storage_options=options)
    number = max((int(path.name) for path in commits.iterdir()), default=-1) + 1
    while last is None or number <= last:
        (offsets / str(number)).touch()
        outputs: list[TaskOutput] = []
        for task in range(2):
            rows = range(task, ROWS, 2)
            batch = pa.record_batch(
                {
                    "topic": [topic for topic in "tu" for _ in rows],
                    "key": [str(row) for _ in "tu" for row in rows],
                    "value": [f"{number}:{row}" for _ in "tu" for row in rows],
                }
            )
            if task == number % 2:  # few rows go to the driver, and it writes them
                outputs.append(TaskOutput(rows=packed([batch])))
            else:
                outputs.append(TaskOutput(files=TaskWriter(cluster, sink, {}).write([batch])))
        commit_batch(committer, run, number, write_rows(cluster, sink, {}, outputs), topic=None)
        (commits / str(number)).touch()
        number += 1


class Driver:
    """A run of :func:`drain`, or of :func:`drain_without_spark`: with Spark a driver, its JVM and their Python workers.
    They are a session of processes of their own."""

    def __init__(
        self,
        root: str,
        folder: Path,
        amount: int,
        storage_options: Mapping[str, Any] | None = None,
        *,
        has_spark: bool = True,
        forgets: bool = False,
    ) -> None:
        """
        Args:
            amount: with Spark the files of a micro-batch at most, else the number of the last micro-batch.
            forgets: with the fault of :func:`forget_batches`; without Spark alone.
        """
        arguments = (root, json.dumps(dict(storage_options or {})), str(folder), amount)
        name = "drain" if has_spark else "drain_without_spark"
        code = f"from tests.spark.sink import draining; draining.{name}(*{arguments!r})"
        if forgets:
            code = f"from tests.spark.sink import draining; draining.forget_batches(); draining.{name}(*{arguments!r})"
        cheaper = {"PYSPARK_SUBMIT_ARGS": SUBMIT_ARGS, "PYTHONPATH": WITH_IMPORTS}
        environment = {**os.environ, **cheaper, "SPARK_LOCAL_IP": "127.0.0.1"}
        self._output = folder / "output"
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code], env=environment, stdout=output, stderr=output, start_new_session=True
            )

    @property
    def said(self) -> str:
        """The end of what all drivers in this folder have printed."""
        return self._output.read_text()[-3_000:]

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self, timeout_s: float) -> int:
        """Its exit code. Raises ``subprocess.TimeoutExpired``."""
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL to all of its processes: Spark's daemons of Python have process groups of their own, and of these one
        commits. Returns when none is left. Raises ``TimeoutError``."""
        deadline = time.monotonic() + _KILL_S
        while left := _processes_of(self._process.pid):
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes {left} of a driver are still there {_KILL_S:.0f} s after SIGKILL")
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self._process.poll()
            time.sleep(0.02)
        self._process.wait()


def forget_batches() -> None:
    """Plant a fault in this process: the sink doesn't find that a micro-batch is committed already."""
    commit = UploadCommitter.commit

    def commit_as_new(self: UploadCommitter, topics: Any, *, batch: QueryBatch, **more: Any) -> bool:
        return commit(self, topics, batch=replace(batch, query_id=f"{batch.query_id}-{uuid.uuid4().hex}"), **more)

    mock.patch.object(UploadCommitter, "commit", commit_as_new).start()


def _processes_of(session: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            state, _parent, _group, of_session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(of_session) == session and state != "Z":
                found.append(int(stat.parent.name))
    return found
