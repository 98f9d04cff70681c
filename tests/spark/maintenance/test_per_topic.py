"""Many topics on Spark: a task for each, and what is too much for one is left to the driver, and told once."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sparklog.spark as ss
from sparklog.compaction import OptimizePolicy, Outcome, Step, TopicMaintenance, maintain
from sparklog.compaction.idle_notes import TopicNote
from sparklog.compaction.maintenance import MaintenanceOptions, MaintenanceReport, TopicOutcome, maintain_topic
from sparklog.compaction.report_format import report_rows
from sparklog.compaction.run_context import MaintenanceRun, RunFacts
from sparklog.errors import InvalidConfigurationError, RetriableError
from sparklog.log import Cluster, open_cluster
from sparklog.log.state import load_state
from sparklog.log.topic import create_topic, delete_topic
from sparklog.spark.maintenance import per_topic
from sparklog.spark.maintenance.per_topic import task_options
from sparklog.storage import MemoryStore
from sparklog.streaming.cluster_ref import cluster_ref_of
from sparklog.testing import Fault, FaultKind, FaultyStore
from tests.compaction.support import append_pairs, live, pairs_of
from tests.support import a_writer, foreign_commit

POLICY = OptimizePolicy(min_files=2, max_files=4, growth=1.5)
BOTH = (Step.COMPACT, Step.OPTIMIZE)
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01}


def fill(cluster: Cluster, topic: str, counts: tuple[int, ...], *, compacted: bool = False) -> None:
    """A topic whose partitions have so many files, of two records of the same three keys."""
    log = cluster.topic_log(topic)
    create_topic(log, topic, num_partitions=len(counts), configs=COMPACTED if compacted else {})
    writer = a_writer(log, topic=topic)
    for partition, count in enumerate(counts):
        for number in range(count):
            pairs = [(f"k{(number + turn) % 3}", f"{number}.{turn}") for turn in range(2)]
            append_pairs(writer, pairs, partition=partition)


def file_bytes(cluster: Cluster, topic: str) -> int:
    return live(cluster.topic_log(topic))[0].size_bytes


def small(cluster: Cluster, topic: str, small_bytes: int, **changes: Any) -> TopicOutcome:
    wanted = task_options(replace(MaintenanceOptions(steps=BOTH, policy=POLICY), **changes), small_bytes)
    found = maintain_topic(MaintenanceRun(cluster, timeout_ms=60_000, dry_run=wanted.dry_run), topic, wanted)
    assert found is not None
    return found


def test_a_partition_that_is_too_much_leaves_the_topic_whole_to_the_driver() -> None:
    cluster = open_cluster(MemoryStore())
    fill(cluster, "t", (3, 9), compacted=True)
    before = load_state(cluster.topic_log("t")).position.version
    total = sum(found.size_bytes for found in live(cluster.topic_log("t"), 1)[:-1])
    assert small(cluster, "t", (total - 1) // 8) == TopicOutcome(
        report=TopicMaintenance(topic="t", deleted=False), note=TopicNote(), left=(Step.COMPACT, Step.OPTIMIZE)
    )
    assert load_state(cluster.topic_log("t")).position.version == before
    found = small(cluster, "t", -(-total // 8))
    assert found.report.compact is not None
    assert [one.outcome for one in found.report.compact.partitions] == [Outcome.DONE, Outcome.DONE]
    assert (found.left, found.report.optimize) == ((Step.OPTIMIZE,), None)


def test_merging_that_is_too_much_is_left_and_compaction_that_is_not_is_done() -> None:
    cluster = open_cluster(MemoryStore())
    fill(cluster, "t", (9,))
    before = live(cluster.topic_log("t"))
    found = small(cluster, "t", sum(one.size_bytes for one in before[:-1]) - 1)
    assert found.left == (Step.OPTIMIZE,)
    assert found.report.compact is not None  # it looked, and there was nothing to compact
    assert (found.report.compact.compacts, found.report.optimize) == (False, None)
    assert live(cluster.topic_log("t")) == before
    found = small(cluster, "t", 1, dry_run=True)  # a plan is never too much
    assert found.left == ()
    assert found.report.optimize is not None
    assert [one.outcome for one in found.report.optimize.ranges] == [Outcome.PLANNED] * 2
    found = small(cluster, "t", 1_000_000)
    assert found.left == ()
    assert found.report.optimize is not None
    assert [one.files_before for one in found.report.optimize.ranges] == [4, 4]
    assert pickle.loads(pickle.dumps(found)) == found


def test_what_fails_is_told_as_the_steps_failure_and_not_left() -> None:
    memory = MemoryStore()
    cluster = open_cluster(memory)
    fill(cluster, "odd", (5,), compacted=True)
    log = cluster.topic_log("odd")
    metadata = load_state(log).require_whole().metadata
    foreign_commit(log, replace(metadata, configuration={**metadata.configuration, "sparklog.segment.bytes": "many"}))
    found = small(cluster, "odd", 0)
    assert found.left == ()
    assert {step: type(error) for step, error in found.report.errors.items()} == dict.fromkeys(
        BOTH, InvalidConfigurationError
    )
    fill(cluster, "t", (5,), compacted=True)
    no_probe = Fault(kind=FaultKind.READ_ONLY, ops=("put",), times=None, path="probe")
    refused = open_cluster(FaultyStore(memory, no_probe))
    found = small(refused, "t", 0)
    assert (found.left, {*found.report.errors}) == ((Step.OPTIMIZE,), {Step.COMPACT})
    delete_topic(cluster.topic_log("t"), "t")  # after it was listed
    found = small(cluster, "t", 0)
    assert (found.left, found.report.deleted, found.report.failures) == ((), True, [])


@pytest.mark.spark
def test_many_topics_are_compacted_and_merged_by_tasks_and_all_is_told_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report is the one that ``sparklog maintain`` gives for a copy of the cluster."""
    cluster = open_cluster(tmp_path / "cluster")
    fill(cluster, "deep", (45, 3), compacted=True)  # one partition of two is too much
    fill(cluster, "shallow", (8, 8), compacted=True)
    fill(cluster, "wide", (14, 14, 14))
    fill(cluster, "few", (5,))
    fill(cluster, "one", (1,))
    fill(cluster, "gone", (9,))
    fill(cluster, "odd", (9,))
    metadata = load_state(cluster.topic_log("odd")).require_whole().metadata
    odd = {**metadata.configuration, "sparklog.segment.ms": "1 week"}
    foreign_commit(cluster.topic_log("odd"), replace(metadata, configuration=odd))
    delete_topic(cluster.topic_log("gone"), "gone")
    shutil.copytree(tmp_path / "cluster", tmp_path / "copy")
    copy = open_cluster(tmp_path / "copy", create=False)

    loaded: list[str] = []

    def load(log: Any) -> Any:
        loaded.append(log.table.rpartition("/")[2])
        return load_state(log)

    monkeypatch.setattr("sparklog.compaction.topic_steps.load_state", load)
    told: list[tuple[str, Step]] = []
    report = ss.maintain(
        spark,
        tmp_path / "cluster",
        steps=BOTH,
        policy=POLICY,
        small_bytes=file_bytes(cluster, "few") * 5,
        tell=lambda topic, step: told.append((topic, step)),
    )
    monkeypatch.undo()
    assert loaded == ["deep", "wide"]  # not those that the tasks dealt with whole
    assert told == [
        ("", Step.COMPACT),
        ("", Step.OPTIMIZE),
        ("deep", Step.COMPACT),
        ("deep", Step.OPTIMIZE),
        ("wide", Step.OPTIMIZE),
    ]
    plain = maintain(copy, steps=BOTH, policy=POLICY)
    assert told_by(report) == told_by(plain)
    assert [topic.topic for topic in report.topics] == ["deep", "few", "gone", "odd", "one", "shallow", "wide"]
    assert len(told_by(report)) > 10
    assert report.failures == plain.failures
    assert len(report.failures) == 1
    for topic in ("deep", "shallow", "wide", "few", "one"):
        log, its_copy = cluster.topic_log(topic), copy.topic_log(topic)
        for partition in range(load_state(log).head.partition_count):
            assert pairs_of(log, partition) == pairs_of(its_copy, partition)
            assert len(live(log, partition)) == len(live(its_copy, partition))


def told_by(report: MaintenanceReport) -> list[tuple[object, ...]]:
    return sorted(report_rows(report), key=str)


class NoExecutors:
    """As much of a session as the driver needs before it asks executors."""

    sparkContext = None


def test_where_spark_gives_up_each_topic_tells_and_the_other_parts_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    cluster = open_cluster(tmp_path)
    for topic in ("a", "b", "gone"):
        create_topic(cluster.topic_log(topic), topic)
    delete_topic(cluster.topic_log("gone"), "gone")

    def give_up(*given: object, small_bytes: int) -> list[TopicOutcome]:
        wanted, topics = given[-1], given[-2]
        assert isinstance(wanted, MaintenanceOptions)
        assert isinstance(topics, dict)
        if Step.RETENTION in wanted.steps:
            raise RetriableError("Spark gave up: a worker died")
        return [TopicOutcome(report=TopicMaintenance(topic=name, deleted=False)) for name in topics]

    monkeypatch.setattr("sparklog.spark.maintenance.maintenance.maintain_per_topic", give_up)
    report = ss.maintain(NoExecutors(), tmp_path)
    told = {one.topic: sorted(step.value for step in one.errors) for one in report.topics}
    assert told == {topic: ["retention", "sequence"] for topic in ("a", "b", "gone")}
    assert report.may_succeed_later
    assert report.failures[0] == "topic a: sequence: Spark gave up: a worker died"


def test_a_topic_with_something_unforeseen_hinders_no_other_of_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object, topic: str, __: MaintenanceOptions, *, search_ms: int) -> TopicOutcome:
        if topic == "odd":
            raise OverflowError("date value out of range")
        return TopicOutcome(report=TopicMaintenance(topic=topic, deleted=False))

    monkeypatch.setattr(per_topic, "maintain_topic", fail)
    open_cluster(tmp_path)
    place = cluster_ref_of(tmp_path)
    wanted = MaintenanceOptions(steps=[*BOTH, Step.VACUUM])
    facts = RunFacts(began_ms=0, ids=None, barrier=None)
    odd, other = per_topic._maintain_in_task(place, facts, wanted, iter([("odd", 0), ("t", 0)]))
    assert odd is not None
    assert {step.value for step in odd.report.errors} == {"compact", "optimize", "vacuum"}
    assert odd.report.failures[0] == "compact: OverflowError: date value out of range"
    assert other is not None
    assert not other.report.errors
