"""Maintenance on Spark: executors do the work of ``sparklog.compaction``, the driver commits, and everybody goes on."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sparklog.spark as ss
from sparklog.admin import Admin, NewTopic
from sparklog.clock import SystemClock
from sparklog.compaction import OptimizePolicy, Outcome, Step
from sparklog.compaction.compact import CompactReport, compact_topic
from sparklog.compaction.last_runs import read_runs
from sparklog.compaction.maintenance import MaintenanceOptions, maintain_topic
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.run_context import MaintenanceRun
from sparklog.consumer import Consumer
from sparklog.delta.log import DeltaLog
from sparklog.errors import InvalidArgumentError, RetriableError, UnknownTopicOrPartitionError
from sparklog.log import Cluster, open_cluster
from sparklog.log.data.object_paths import object_path
from sparklog.log.state import load_state
from sparklog.log.topic import create_topic, delete_topic
from sparklog.model import TopicPartition
from sparklog.spark.maintenance import prefetch
from sparklog.spark.maintenance.clean_by_shuffle import SparkClean
from sparklog.spark.maintenance.maintenance_job import main
from sparklog.spark.maintenance.prefetch import run_jobs_ahead
from sparklog.spark.maintenance.rewrite_on_executors import SparkRewrite
from sparklog.spark.session.spark_job import FAILED
from sparklog.sql import query
from sparklog.storage import LocalStore
from sparklog.streaming.cluster_ref import cluster_ref_of
from sparklog.testing import Fault, FaultKind, FaultyStore, SimulatedCrash
from tests.compaction.support import Key, append_at, append_each, append_pairs, live, pairs_of, stored
from tests.spark.spark_support import a_cluster, put, seen
from tests.support import DAY_MS, T0_MS, a_writer, contents, foreign_commit

pytestmark = pytest.mark.spark

POLICY = OptimizePolicy(min_files=2, max_files=4, growth=1.5)
File = Sequence[tuple[Key, str | None]]


def is_idle(spark: Any) -> bool:
    """Does nothing run, and is nothing kept?"""
    is_working = spark.sparkContext.statusTracker().getActiveJobsIds()
    return not is_working and spark._jsparkSession.sharedState().cacheManager().isEmpty()


def jobs_of(spark: Any) -> set[int]:
    """Those that belong to no group."""
    return set(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def tasks_of(spark: Any, jobs: set[int]) -> int:
    """How many tasks these jobs have run."""
    tracker = spark.sparkContext.statusTracker()
    stages = {stage for job in jobs for stage in tracker.getJobInfo(job).stageIds}
    return sum(info.numCompletedTasks for info in map(tracker.getStageInfo, stages) if info is not None)


def table_of(cluster: Cluster, topic: str = "t") -> str:
    return f"{cluster.store.uri.removeprefix('file://')}/topics/{topic}"


def everything(cluster: Cluster) -> dict[int, list[dict[str, Any]]]:
    return {partition: stored(cluster.topic_log("t"), partition) for partition in (0, 1)}


def test_tasks_merge_small_files_beside_producers_and_streams_see_nothing_new(spark: Any, tmp_path: Path) -> None:
    cluster = a_cluster(tmp_path / "cluster")
    for number in range(13):
        put(cluster, (0, f"{number:x}"), (1, f"{number:x}y"))
    before = everything(cluster)

    def stream() -> int:
        """How many rows came since the last call."""
        frame = spark.readStream.format("delta").load(table_of(cluster))
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        running = writer.trigger(availableNow=True).start()
        running.awaitTermination()
        return sum(each["numInputRows"] for each in running.recentProgress)

    assert stream() == 39
    follower = Consumer(cluster=cluster, auto_offset_reset="earliest")
    follower.assign([TopicPartition("t", 0)])
    first = follower.poll(timeout_ms=60_000, max_records=3)
    planned = ss.optimize(spark, tmp_path / "cluster", "t", policy=POLICY, small_bytes=0, dry_run=True)
    told: list[tuple[str, Step]] = []

    def tell(topic: str, step: Step) -> None:
        told.append((topic, step))
        put(cluster, (0, "z"))

    report = ss.optimize(spark, tmp_path / "cluster", policy=POLICY, small_bytes=0, tell=tell)
    [topic] = report.topics
    assert topic.optimize is not None
    assert [one.outcome for one in topic.optimize.ranges] == [Outcome.DONE] * 6
    assert planned.topics[0].optimize is not None
    assert len(planned.topics[0].optimize.ranges) == 6
    assert told == [("t", Step.OPTIMIZE)]
    assert (topic.retention, topic.vacuum, report.failures) == (None, None, [])
    put(cluster, (1, "z"))
    after = everything(cluster)
    assert {number: rows[:-1] for number, rows in after.items()} == before
    assert [len(live(cluster.topic_log("t"), number)) for number in (0, 1)] == [5, 5]
    assert stream() == 2  # what came since, and nothing again
    followed = [record.offset for records in first.values() for record in records]
    while len(followed) < 14:
        followed += [record.offset for records in follower.poll(timeout_ms=5_000).values() for record in records]
    assert followed == list(range(14))
    follower.close()
    again = ss.optimize(spark, tmp_path / "cluster", policy=POLICY, small_bytes=0, dry_run=True).topics[0].optimize
    assert again is not None
    assert sum(one.files_before for one in again.ranges) < 10
    assert is_idle(spark)


def histories(seed: int) -> list[list[File]]:
    """Files of two rounds: keys that come again, tombstones, records without a key, empty keys and values."""
    source = random.Random(seed)

    def record() -> tuple[Key, str | None]:
        key = source.choice([None, "", *map(str, range(source.choice([3, 40])))])
        return key, source.choice([None, "", str(source.random())])

    return [[[record() for _ in range(source.randint(1, 30))] for _ in range(source.randint(2, 9))] for _ in range(2)]


def test_compaction_by_a_shuffle_leaves_what_compaction_in_memory_leaves(spark: Any, tmp_path: Path) -> None:
    """Groups of about two files, in waves; the second round is dirty on top of what is clean, and drops tombstones.
    Many histories are played without Spark, in ``tests/compaction/test_clean_shuffled.py``."""
    cluster = open_cluster(tmp_path)
    place = cluster_ref_of(tmp_path)
    on_spark = SparkClean(spark, place, small_bytes=0)
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0}
    for topic in ("memory", "spark"):
        create_topic(cluster.topic_log(topic), topic, configs=configs)
    for number, files in enumerate(histories(1)):
        found = {}
        for topic in ("memory", "spark"):
            log = cluster.topic_log(topic)
            writer = a_writer(log, topic=topic)
            for pairs in [*files, [("newest", str(number))]]:
                append_pairs(writer, pairs)
            arguments = {"now_ms": T0_MS + number * 3 * DAY_MS, "target_bytes": 4_000}
            if topic == "spark":
                arguments["clean"] = on_spark  # type: ignore[assignment]
            report: CompactReport = compact_topic(log, topic, **arguments)  # type: ignore[arg-type]
            found[topic] = [
                (one.outcome, one.reason, one.first_dirty_offset, one.counts, one.files_before, one.files_after)
                for one in report.partitions
            ]
        assert found["memory"][0][0] is Outcome.DONE
        assert found["memory"] == found["spark"]
        assert pairs_of(cluster.topic_log("spark")) == pairs_of(cluster.topic_log("memory"))
    assert is_idle(spark)


def a_keyed_topic(root: Path, *files: File) -> Cluster:
    cluster = a_cluster(root, configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01})
    for pairs in files:
        append_pairs(a_writer(cluster.topic_log("t")), pairs)
    return cluster


def killed_after(root: Path, creates: int) -> tuple[DeltaLog, FaultyStore]:
    """A topic's log for a driver that dies before its next commit after so many."""
    store = FaultyStore(LocalStore(root), Fault(kind=FaultKind.CRASH_BEFORE, ops=("create",), skip=creates))
    return DeltaLog(store=store, table="topics/t", clock=SystemClock()), store


def test_a_driver_killed_between_commits_leaves_all_whole_for_the_next_run(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "JOBS_AHEAD", 1)
    cluster = a_keyed_topic(
        tmp_path, *([(f"k{number % 5}", f"{number} {turn}") for number in range(7)] for turn in range(8))
    )
    last = {key: value for _, key, value in pairs_of(cluster.topic_log("t"))}
    place = cluster_ref_of(tmp_path)

    def check() -> list[tuple[int, Key, str | None]]:
        found = pairs_of(cluster.topic_log("t"))
        assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
        assert {key: value for _, key, value in found} == last
        return found

    log, _ = killed_after(tmp_path, 1)
    with pytest.raises(SimulatedCrash):
        optimize_topic(log, "t", policy=POLICY, rewrite=SparkRewrite(spark, place, small_bytes=0))
    assert is_idle(spark)
    assert len(check()) == 56
    log, _ = killed_after(tmp_path, 1)
    with pytest.raises(SimulatedCrash):
        compact_topic(log, "t", now_ms=T0_MS, target_bytes=1, clean=SparkClean(spark, place, small_bytes=0))
    assert is_idle(spark)
    assert 12 < len(check()) < 56
    jobs = jobs_of(spark)
    groups = len(live(cluster.topic_log("t"))) - 1
    clean = SparkClean(spark, place, small_bytes=0)
    [done] = compact_topic(cluster.topic_log("t"), "t", now_ms=T0_MS, target_bytes=1, clean=clean).partitions
    assert done.outcome is Outcome.DONE
    assert len(check()) < 20
    # The keys are read and shuffled once: each wave of groups runs their tasks alone.
    shuffle = int(spark.conf.get("spark.sql.shuffle.partitions"))
    assert tasks_of(spark, jobs_of(spark) - jobs) <= 1 + shuffle + 1 + groups
    assert load_state(cluster.topic_log("t")).head.log_end_offsets[0] == 56


def test_files_that_are_gone_or_garbled_are_told_and_nothing_is_lost(spark: Any, tmp_path: Path) -> None:
    cluster = a_keyed_topic(tmp_path, [("a", "1")], [("a", "2")], [("b", "1")], [("b", "2")], [("c", "1")])
    log = cluster.topic_log("t")
    broken = live(log)[1]
    LocalStore(tmp_path).put(object_path(log.table, broken.path), b"no parquet")
    report = ss.run_compaction(spark, tmp_path, small_bytes=0)
    assert [broken.path in line for line in report.failures] == [True]
    merged = ss.optimize(spark, tmp_path, small_bytes=0, policy=OptimizePolicy(min_files=2, max_files=2, growth=1.1))
    [topic] = merged.topics
    assert topic.optimize is not None
    assert [one.outcome for one in topic.optimize.ranges] == [Outcome.FAILED, Outcome.DONE]
    LocalStore(tmp_path).delete([object_path(log.table, broken.path)])
    [topic] = ss.run_compaction(spark, tmp_path, small_bytes=0).topics
    assert topic.compact is not None
    [lost] = topic.compact.partitions  # the log still names it: nobody has replaced it
    assert lost.outcome is Outcome.FAILED
    assert broken.path in lost.error
    assert is_idle(spark)
    assert len(live(log)) == 4


def test_many_topics_are_maintained_at_a_time_and_a_failing_one_hinders_no_other(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = open_cluster(tmp_path)
    now_ms = cluster.clock.now_ms()
    for topic in ("cut0", "cut1", "cut2", "odd", "gone", "small"):
        create_topic(cluster.topic_log(topic), topic)
        writer = a_writer(cluster.topic_log(topic), topic=topic)
        for age in (9, 8, 0) if topic.startswith(("cut", "odd")) else (0,):
            append_at(writer, now_ms - age * DAY_MS, f"{age} days")
    append_each(a_writer(cluster.topic_log("small"), topic="small"), *map(str, range(9)))
    metadata = load_state(cluster.topic_log("odd")).require_whole().metadata
    odd = {**metadata.configuration, "sparklog.retention.ms": "1 week"}
    foreign_commit(cluster.topic_log("odd"), replace(metadata, configuration=odd))
    delete_topic(cluster.topic_log("gone"), "gone")

    some = ss.run_retention(spark, str(tmp_path), ["cut0"], dry_run=True)  # one topic: no job of Spark
    assert [topic.retention and topic.retention.removed_files for topic in some.topics] == [2]
    told: list[tuple[str, Step]] = []
    report = ss.maintain(spark, tmp_path, tell=lambda topic, step: told.append((topic, step)))
    found = {topic.topic: topic for topic in report.topics}
    assert list(found) == ["cut0", "cut1", "cut2", "gone", "odd", "small"]
    for name in ("cut0", "cut1", "cut2"):
        retention = found[name].retention
        assert retention is not None
        assert (retention.removed_files, dict(retention.log_start_offsets)) == (2, {0: (0, 2)})
        assert contents(cluster.topic_log(name), topic=name) == {0: [(2, "0 days")]}
    assert {topic.vacuum is not None for topic in report.topics} == {True}
    assert (found["gone"].deleted, found["gone"].retention) == (True, None)
    assert {*found["odd"].errors} == {Step.RETENTION, Step.OPTIMIZE}
    assert all("1 week" in line for line in report.failures)
    assert len(report.failures) == 2
    assert found["small"].optimize is not None
    assert [one.outcome for one in found["small"].optimize.ranges] == [Outcome.DONE]
    assert report.may_succeed_later is False
    assert told == [("", step) for step in Step]  # no topic was too much for a task
    [run] = read_runs(cluster)
    assert (run.work.retention_files, run.failed_count, run.topics[0].topic) == (6, 1, "odd")
    assert main("retention", ["--cluster", str(tmp_path), "--json", "--full"]) == FAILED
    told_by_job = json.loads(capsys.readouterr().out)
    assert [topic["retention"] and topic["retention"]["removed_files"] for topic in told_by_job["topics"]] == [
        *[0, 0, 0],  # done above
        *[None, None],  # one is gone, the other fails
        0,
    ]
    vacuumed = ss.vacuum(spark, tmp_path, ["gone", "small"])
    assert [topic.vacuum is not None for topic in vacuumed.topics] == [True, True]
    with pytest.raises(UnknownTopicOrPartitionError, match="never"):
        ss.vacuum(spark, tmp_path, ["never"])
    with pytest.raises(InvalidArgumentError, match="no sparklog cluster"):
        ss.vacuum(spark, tmp_path / "elsewhere")


def test_where_spark_gives_up_it_is_a_failure_of_the_step_that_may_succeed_later(
    spark: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def jobs() -> Any:
        yield lambda: spark.sparkContext.parallelize([0], 1).map(lambda _: 1 // 0).collect()

    with pytest.raises(RetriableError, match="Spark gave up: ZeroDivisionError"):
        list(run_jobs_ahead(spark, jobs(), about="a test"))
    cluster = a_keyed_topic(tmp_path, [("a", "1")])

    def give_up(*_: object) -> Any:
        yield from run_jobs_ahead(spark, jobs(), about="a test")

    for pairs in ([("a", "2")], [("a", "3")]):
        append_pairs(a_writer(cluster.topic_log("t")), pairs)
    wanted = MaintenanceOptions(steps=[Step.OPTIMIZE], policy=OptimizePolicy(min_files=2, growth=1.1), rewrite=give_up)
    done = maintain_topic(MaintenanceRun(cluster, timeout_ms=60_000), "t", wanted)
    assert done is not None
    assert [type(error) for error in done.report.errors.values()] == [RetriableError]
    capfd.readouterr()  # Spark tells it at length
    assert is_idle(spark)


def test_results_come_in_order_and_closing_early_ends_what_is_at_work(spark: Any) -> None:
    def job(number: int) -> Any:
        return lambda: spark.sparkContext.parallelize([number], 1).map(lambda one: one * 2).collect()[0]

    assert list(run_jobs_ahead(spark, map(job, range(7)), about="a test")) == [0, 2, 4, 6, 8, 10, 12]

    def sleepy() -> Any:
        import time

        return spark.sparkContext.parallelize([0], 1).map(lambda _: time.sleep(3_600)).collect()

    results = run_jobs_ahead(spark, [job(1), sleepy, sleepy], about="a test")
    assert next(results) == 2
    results.close()
    assert is_idle(spark)


def test_records_of_a_person_are_erased_by_sql_and_all_other_offsets_stay(spark: Any, tmp_path: Path) -> None:
    cluster = open_cluster(tmp_path)
    Admin(cluster).create_topics([NewTopic("t", 2)])
    log = cluster.topic_log("t")
    writer = a_writer(log)
    people = [("ada", "1"), ("bob", "2"), ("ada", "3"), (None, "4"), ("eve", "5")]
    for partition in (0, 1):
        append_pairs(writer, people, partition=partition)
        append_pairs(writer, [("ada", "6")], partition=partition)
    append_pairs(writer, [("bob", "7")])
    before = everything(cluster)
    spark.sql(f"DELETE FROM delta.`{table_of(cluster)}` WHERE key = CAST('ada' AS BINARY)")
    expected = {number: [row for row in rows if row["key"] != b"ada"] for number, rows in before.items()}
    assert [row["offset"] for row in expected[0]] == [1, 3, 4, 6]

    def check(*, by_spark: bool = True) -> None:
        assert everything(cluster) == expected
        flat = [(number, row["offset"], row["value"].decode()) for number, rows in expected.items() for row in rows]
        with Consumer("t", cluster=cluster, auto_offset_reset="earliest") as consumer:
            polled: list[tuple[int, int, str]] = []
            while len(polled) < len(flat):
                for tp, records in consumer.poll(timeout_ms=60_000).items():
                    polled += [(tp.partition, record.offset, record.value.decode()) for record in records]
        assert sorted(polled) == flat
        with query(cluster, 'select "partition", "offset", decode(value) as v from t order by 1, 2') as result:
            assert [tuple(row.values()) for batch in result for row in batch.to_pylist()] == flat
        if by_spark:
            ss.register(spark, tmp_path)
            assert seen(spark.table("t")) == flat
        assert load_state(log).head.log_end_offsets == (7 + len(expected[0]) - 4, 6)

    check(by_spark=False)
    append_pairs(writer, [("ada", "8")])  # the next offset is what it would have been
    expected = {0: [*expected[0], stored(log)[-1]], 1: expected[1]}
    assert expected[0][-1]["offset"] == 7
    check(by_spark=False)
    ss.optimize(spark, tmp_path, "t", policy=OptimizePolicy(min_files=2, growth=1.1), small_bytes=0)
    assert len(live(log)) < 4
    check()
