"""``kill -9`` of the driver of a streaming query at random moments: each micro-batch is in both topics, whole and once.

Thirty rounds are played without a JVM, by a process that does with the sink's own objects what Spark does for a
micro-batch, in Spark's order. One more is played with Spark itself. Each store call of a commit that a driver can
die at, and what else may happen there, is gone through in ``tests/txn/test_committing.py``.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.admin import Admin, NewTopic
from sparklog.log.cluster import Cluster, open_cluster
from sparklog.log.follow import TopicFollower
from sparklog.spark.sink.sink_commit import QueryRun, commit_batch
from sparklog.spark.sink.sink_options import SinkOptions
from sparklog.spark.sink.sink_writing import TaskWriter
from sparklog.spark.sink.small_tasks import TaskOutput, packed, write_rows
from sparklog.streaming.cluster_ref import ClusterRef
from sparklog.txn.committing import UploadCommitter
from tests.spark_session import need_java

ROWS = 20
"""Of a micro-batch, in each of its two topics."""
PATIENCE_S = 240


def values(cluster: Cluster, topic: str) -> list[tuple[int, int]]:
    """(batch, row) of all records; offsets are dense."""
    follower = TopicFollower(cluster.topic_log(topic), topic)
    found: list[tuple[int, int]] = []
    for partition in range(follower.head.partition_count):
        table = follower.read(partition, 0, max_records=1_000_000)
        assert table["offset"].to_pylist() == list(range(table.num_rows))
        for value in table["value"].to_pylist():
            batch, _, row = value.decode().partition(":")
            found.append((int(batch), int(row)))
    return sorted(found)


def check(cluster: Cluster, count: int) -> None:
    expected = [(batch, row) for batch in range(count) for row in range(ROWS)]
    assert values(cluster, "t") == expected
    assert values(cluster, "u") == expected


def a_cluster(root: Path) -> Cluster:
    cluster = open_cluster(root)
    Admin(cluster).create_topics([NewTopic("t", 3), NewTopic("u", 1)])
    return cluster


# --- without a JVM


def drive(root: str, checkpoint: str, last: int | None) -> None:
    """Run micro-batches as Spark does, for ever or up to ``last``: the batch's number into ``offsets``, its rows
    written by two tasks, its commit, its number into ``commits``. Begin where ``commits`` ends."""
    cluster = ClusterRef(root).open()
    offsets, commits = Path(checkpoint, "offsets"), Path(checkpoint, "commits")
    run = QueryRun(query_id="q", run_id=uuid.uuid4().hex)
    committer = UploadCommitter(cluster, "spark-q", holder=run.run_id)
    options = SinkOptions(uri=root)
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
                outputs.append(TaskOutput(files=TaskWriter(cluster, options, {}).write([batch])))
        commit_batch(committer, run, number, write_rows(cluster, options, {}, outputs), topic=None)
        (commits / str(number)).touch()
        number += 1


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="there is no kill -9")
def test_killed_thirty_times_between_any_two_steps_no_batch_is_lost_or_there_twice(tmp_path: Path) -> None:
    root, checkpoint = tmp_path / "cluster", tmp_path / "checkpoint"
    cluster = a_cluster(root)
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.spark.sink.test_sink_kill"])
    chance = random.Random(30)
    replayed = 0
    for _ in range(30):
        begun = len(list((checkpoint / "offsets").iterdir()))
        driver = context.Process(target=drive, args=(str(root), str(checkpoint), None))
        driver.start()
        deadline = time.monotonic() + PATIENCE_S
        while len(list((checkpoint / "offsets").iterdir())) <= begun and time.monotonic() < deadline:
            assert driver.is_alive(), f"the driver ended by itself, with {driver.exitcode}"
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.15))
        assert driver.is_alive(), f"the driver ended by itself, with {driver.exitcode}"
        driver.kill()
        driver.join()
        replayed += len(list((checkpoint / "offsets").iterdir())) > len(list((checkpoint / "commits").iterdir()))
    assert replayed > 10, "hardly any was killed within a batch"
    last = len(list((checkpoint / "commits").iterdir())) + 2
    drive(str(root), str(checkpoint), last)
    check(cluster, last + 1)


# --- with Spark


def stream(root: str, folder: str, files_per_trigger: int) -> None:
    """A program: lines ``batch:row`` of text files, each to both topics; drains what is there."""
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
    query = writer.trigger(availableNow=True).start(root)
    query.awaitTermination()


@pytest.mark.deep  # in each run tests/integration/test_spark_stream.py kills a driver whose sink writes to two topics
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_spark_killed_at_a_random_moment_writes_each_batch_once(tmp_path: Path) -> None:
    need_java()
    root, files = tmp_path / "cluster", 40
    cluster = a_cluster(root)
    (tmp_path / "input").mkdir()
    for number in range(files):
        lines = "".join(f"{number}:{row}\n" for row in range(ROWS))
        (tmp_path / "input" / f"{number:04d}.txt").write_text(lines)
    commits = tmp_path / "checkpoint" / "commits"

    def done() -> int:
        return len(list(commits.glob("[0-9]*"))) if commits.exists() else 0

    def start(files_per_trigger: int) -> subprocess.Popen[bytes]:
        code = (
            "from tests.spark.sink.test_sink_kill import stream; "
            f"stream({str(root)!r}, {str(tmp_path)!r}, {files_per_trigger})"
        )
        environment = {**os.environ, "PYTHONPATH": os.getcwd(), "SPARK_LOCAL_IP": "127.0.0.1"}
        with (tmp_path / "output").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-c", code], env=environment, stdout=output, stderr=output, start_new_session=True
            )

    driver = start(1)
    deadline = time.monotonic() + PATIENCE_S
    while done() < 1 and driver.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(random.Random().uniform(0, 1.5))
    assert driver.poll() is None, (tmp_path / "output").read_text()[-3_000:]
    os.killpg(driver.pid, signal.SIGKILL)  # Spark's JVM with it; Python workers may live for a moment longer
    driver.wait()
    assert done() > 0, (tmp_path / "output").read_text()[-3_000:]
    last = start(50)
    try:
        assert last.wait(PATIENCE_S) == 0, (tmp_path / "output").read_text()[-3_000:]
    finally:
        if last.poll() is None:
            os.killpg(last.pid, signal.SIGKILL)
            last.wait()
    check(cluster, files)
