"""``kill -9`` of the driver of a streaming query at random moments: each micro-batch is in both topics, whole and once.

Thirty rounds are played without a JVM, by a process that does with the sink's own objects what Spark does for a
micro-batch, in Spark's order. One more is played with Spark itself. Each store call of a commit that a driver can
die at, and what else may happen there, is gone through in ``tests/txn/test_committing.py``.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from pathlib import Path

import pytest

from sparklog.log.cluster import Cluster, open_cluster
from tests.spark.sink.draining import (
    Driver,
    check,
    create_topics,
    drain_without_spark,
    make_checkpoint,
    write_inputs,
)
from tests.spark_session import need_java

PATIENCE_S = 240


def a_cluster(root: Path) -> Cluster:
    cluster = open_cluster(root)
    create_topics(cluster)
    return cluster


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="there is no kill -9")
def test_killed_thirty_times_between_any_two_steps_no_batch_is_lost_or_there_twice(tmp_path: Path) -> None:
    root, checkpoint = tmp_path / "cluster", tmp_path / "checkpoint"
    cluster = a_cluster(root)
    make_checkpoint(tmp_path)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.spark.sink.draining"])
    chance = random.Random(30)
    replayed = 0
    for _ in range(30):
        begun = len(list((checkpoint / "offsets").iterdir()))
        driver = context.Process(target=drain_without_spark, args=(str(root), "{}", str(tmp_path), None))
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
    drain_without_spark(str(root), "{}", str(tmp_path), last)
    check(cluster, last + 1)


@pytest.mark.deep  # in each run tests/integration/test_spark_stream.py kills a driver whose sink writes to two topics
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_spark_killed_at_a_random_moment_writes_each_batch_once(tmp_path: Path) -> None:
    need_java()
    root, files = tmp_path / "cluster", 40
    cluster = a_cluster(root)
    write_inputs(tmp_path, files)
    commits = tmp_path / "checkpoint" / "commits"

    def done() -> int:
        return len(list(commits.glob("[0-9]*"))) if commits.exists() else 0

    driver = Driver(str(root), tmp_path, 1)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while done() < 1 and driver.is_running and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(random.Random().uniform(0, 1.5))
        assert driver.is_running, driver.said
    finally:
        driver.kill()
    assert done() > 0, driver.said
    last = Driver(str(root), tmp_path, 50)
    try:
        assert last.wait(PATIENCE_S) == 0, last.said
    finally:
        last.kill()
    check(cluster, files)
