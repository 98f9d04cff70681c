"""What runs of maintenance did is there to be seen, decides nothing, and hinders nobody."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, NoReturn

import pytest

from sparklog.compaction import maintain
from sparklog.compaction.last_runs import TopicWork, Work, note_run, read_history, read_runs, summary_of, words
from sparklog.compaction.reports import MaintenanceReport, TopicMaintenance
from sparklog.compaction.steps import Step
from sparklog.errors import StorePermissionError
from sparklog.log import Cluster
from sparklog.log.state import load_state
from sparklog.log.topic import create_topic
from sparklog.paths import MAINTENANCE_RUNS
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock
from tests.compaction.support import a_run, append_at
from tests.support import T0_MS, a_writer
from tests.txn.support import a_cluster


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore(clock=ManualClock(start_ms=T0_MS))


def with_topics(memory: MemoryStore, *names: str, commits: int = 12) -> Cluster:
    cluster = a_cluster(memory, ManualClock(start_ms=T0_MS))
    for name in names:
        log = cluster.topic_log(name)
        create_topic(log, name)
        writer = a_writer(log, topic=name)
        for number in range(commits):
            append_at(writer, T0_MS + number, "x")
    return cluster


def test_a_run_notes_what_it_did_and_one_that_did_nothing_writes_nothing(memory: MemoryStore) -> None:
    cluster = with_topics(memory, "a", "b")
    assert read_runs(cluster) == ()
    maintain(cluster, dry_run=True)
    assert read_runs(cluster) == ()
    maintain(cluster)
    [run] = read_runs(cluster)
    assert words(run) == "merged 22 files into 2"
    assert (run.topic_count, run.unchanged_count, run.failed_count, run.ended_ms) == (2, 0, 0, T0_MS)
    assert [(one.topic, words(one.work)) for one in run.topics] == [
        ("a", "merged 11 files into 1"),
        ("b", "merged 11 files into 1"),
    ]
    noted = memory.read(MAINTENANCE_RUNS)
    seen = FaultyStore(memory)
    maintain(a_cluster(seen, ManualClock(start_ms=T0_MS)))
    assert memory.read(MAINTENANCE_RUNS) == noted
    assert [one for one in seen.calls if one.path == MAINTENANCE_RUNS] == [("get", MAINTENANCE_RUNS)]
    log = cluster.topic_log("a")
    append_at(a_writer(log, topic="a"), T0_MS + 100, "y")
    maintain(cluster)  # looks at a topic that has changed, and finds nothing worth doing
    assert [(words(one), one.unchanged_count) for one in read_runs(cluster)] == [("", 1), ("merged 22 files into 2", 0)]


def test_a_topic_that_failed_is_named_until_it_is_mended(memory: MemoryStore) -> None:
    cluster = with_topics(memory, "a", "b")
    files = {one.path: memory.read(one.path) for one in memory.list("topics/b/partition=0/")}
    memory.delete([*files])
    assert maintain(cluster).failures
    [run] = read_runs(cluster)
    assert (run.failed_count, words(run)) == (1, "merged 11 files into 1")
    assert [(one.topic, one.failed) for one in run.topics] == [("b", True), ("a", False)]
    assert b"parquet" not in memory.read(MAINTENANCE_RUNS)
    for path, data in files.items():
        memory.put(path, data)
    maintain(cluster)
    assert [one.failed_count for one in read_runs(cluster)] == [0, 1]


@pytest.mark.parametrize("topics", [None, ["a"]])
def test_a_failure_that_is_mended_is_not_the_last_word(
    memory: MemoryStore, monkeypatch: pytest.MonkeyPatch, topics: list[str] | None
) -> None:
    """A run that does nothing else tells that it didn't fail; those after it tell nothing."""
    cluster = with_topics(memory, "a", commits=1)
    maintain(cluster)
    with monkeypatch.context() as patched:
        patched.setattr("sparklog.compaction.maintenance.expire_groups", raise_refused)
        assert maintain(cluster).errors
    assert read_runs(cluster)[0].has_failed_otherwise
    maintain(cluster, topics)
    assert [one.has_failed for one in read_runs(cluster)][:2] == [False, True]
    noted = memory.read(MAINTENANCE_RUNS)
    maintain(cluster, topics)
    assert memory.read(MAINTENANCE_RUNS) == noted


def test_a_defect_in_the_summary_loses_no_report(
    memory: MemoryStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = with_topics(memory, "a")
    monkeypatch.setattr("sparklog.compaction.maintenance.summary_of", raise_defect)
    assert [one.topic for one in maintain(cluster).topics] == ["a"]
    [record] = [one for one in caplog.records if "isn't recorded" in one.getMessage()]
    assert record.exc_info is not None
    assert read_runs(cluster) == ()


def raise_refused(*_: object, **__: object) -> NoReturn:
    raise StorePermissionError("refused")


def raise_defect(*_: object, **__: object) -> NoReturn:
    raise ZeroDivisionError("a defect")


def test_ten_runs_are_kept_and_of_those_that_did_nothing_the_newest_alone(memory: MemoryStore) -> None:
    cluster = with_topics(memory)
    for number in range(30):
        note_run(cluster, a_run(took_ms=number, work=Work(merged_files=number % 2, merged_into=1)))
    assert [one.took_ms for one in read_runs(cluster)] == [29, 27, 25, 23, 21, 19, 17, 15, 13, 11]
    note_run(cluster, a_run(took_ms=30))
    assert [one.took_ms for one in read_runs(cluster)] == [30, 29, 27, 25, 23, 21, 19, 17, 15, 13]


def test_of_very_many_topics_few_are_named(memory: MemoryStore) -> None:
    """So that what looks at it reads little: ten such runs are below what is read."""
    cluster = with_topics(memory)
    failed = {Step.OPTIMIZE: StorePermissionError("secret")}
    topics = tuple(TopicMaintenance(topic=f"{number:0249}", deleted=False, errors=failed) for number in range(1_000))
    report = MaintenanceReport(topics=topics, transactions=(), groups=(), errors={}, dry_run=False)
    for _ in range(11):
        note_run(cluster, summary_of(report, ended_ms=T0_MS, took_ms=1.0))
    runs = read_runs(cluster)
    assert [(one.failed_count, len(one.topics)) for one in runs] == [(1_000, 20)] * 10
    assert b"secret" not in memory.read(MAINTENANCE_RUNS)


def test_failed_runs_are_counted_by_topic_also_once_all_is_well(memory: MemoryStore) -> None:
    cluster = with_topics(memory, "a", "b")
    files = {one.path: memory.read(one.path) for one in memory.list("topics/b/partition=0/")}
    memory.delete([*files])
    for _ in range(3):
        assert maintain(cluster, ["a", "b"]).failures
    for path, data in files.items():
        memory.put(path, data)
    maintain(cluster)
    failed = read_history(cluster).failed
    assert (failed.total, dict(failed.by_topic)) == (3, {"b": 3})


def test_of_very_many_topics_those_are_counted_that_failed_last(memory: MemoryStore) -> None:
    cluster = with_topics(memory)
    names = [f"{number:0249}" for number in range(1_000)]
    note_run(cluster, a_run(failed_count=1, topic_count=1), failed_topics=names)
    note_run(cluster, a_run(failed_count=1, topic_count=1), failed_topics=names[:100])
    failed = read_history(cluster).failed
    assert (failed.total, len(failed.by_topic)) == (2, 200)
    assert [*failed.by_topic][100:] == names[:100]
    assert len(memory.read(MAINTENANCE_RUNS)) < 262_144


def test_what_was_done_is_told_in_words() -> None:
    work = Work(
        sequenced_files=1,
        retention_files=2,
        compacted_files=3,
        dropped_records=4_000,
        merged_files=5,
        merged_into=1,
        deleted_files=6,
        deleted_entries=1,
        checkpoints=1,
    )
    assert words(a_run(work=work, finished_transactions=1, expired_offsets=2)) == (
        "gave offsets to 1 file, removed 2 files by retention, compacted 3 files, dropping 4,000 records, "
        "merged 5 files into 1, wrote 1 checkpoint, deleted 6 files, deleted 1 log entry, finished 1 transaction, "
        "let 2 offsets of groups expire"
    )
    assert a_run().is_idle
    assert not a_run(has_failed_otherwise=True).is_idle


_GOOD = asdict(a_run(topics=(TopicWork(topic="a", work=Work()),)))
_HOSTILE: dict[str, bytes | dict[str, Any]] = {
    "no JSON": b"\xff{",
    "empty": b"",
    "deep": b"[" * 100_000,
    "long": b"[" + b" " * 300_000 + b"]",
    "a list": b"[]",
    "another format": {"format": 2, "runs": []},
    "another cluster": {"cluster_id": "x", "runs": []},
    "no runs": {},
    "runs of nothing": {"runs": [None]},
    "a text for a number": {"runs": [{**_GOOD, "took_ms": "<b>1</b>"}]},
    "a truth for a number": {"runs": [{**_GOOD, "took_ms": True}]},
    "a time that no calendar has": {"runs": [{**_GOOD, "ended_ms": 10**17}]},
    "less than nothing": {"runs": [{**_GOOD, "topic_count": -1}]},
    "a name that no topic has": {"runs": [{**_GOOD, "topics": [{"topic": "<script>", "work": {}, "failed": True}]}]},
    "more failures than topics": {"runs": [{**_GOOD, "topic_count": 1, "failed_count": 2}]},
    "more topics passed over than there were": {"runs": [{**_GOOD, "unchanged_count": 9}]},
    "failures that are no numbers": {"runs": [_GOOD], "failed": {"total": 1, "by_topic": {"a": "many"}}},
    "failures of a name that no topic has": {"runs": [_GOOD], "failed": {"total": 1, "by_topic": {"<script>": 1}}},
    "failures that are a list": {"runs": [_GOOD], "failed": [1]},
    "no work": {"runs": [{**_GOOD, "work": None}]},
}


@pytest.mark.parametrize("found", _HOSTILE)
def test_what_cannot_be_understood_hinders_no_run(memory: MemoryStore, found: str) -> None:
    cluster = with_topics(memory, "a")
    body = _HOSTILE[found]
    if isinstance(body, dict):
        body = json.dumps({"format": 1, "cluster_id": cluster.cluster_id, **body}).encode()
    memory.put(MAINTENANCE_RUNS, body)
    with pytest.raises(ValueError, match=r"."):
        read_runs(cluster)
    assert maintain(cluster).failures == []
    assert [words(one) for one in read_runs(cluster)] == ["merged 11 files into 1"]


@pytest.mark.parametrize("op", ["put", "get"])
def test_a_store_that_refuses_hinders_no_run(memory: MemoryStore, op: str) -> None:
    with_topics(memory, "a")
    fault = Fault(kind=FaultKind.READ_ONLY, ops=(op,), path=MAINTENANCE_RUNS, times=None)
    refused = a_cluster(FaultyStore(memory, fault), ManualClock(start_ms=T0_MS))
    assert maintain(refused).failures == []
    assert len(live(refused)) == 2


def live(cluster: Cluster) -> list[str]:

    return [*load_state(cluster.topic_log("a")).require_whole().index.by_path]
