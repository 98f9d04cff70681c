"""Bad days of maintenance on Spark: producers at full speed, two drivers at once, slow readers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import sparklog.spark as ss
from sparklog.compaction import OptimizePolicy, Outcome, Step, compact_topic, optimize_topic
from sparklog.compaction.clean_arrow import Clean, CleanPass
from sparklog.compaction.rewrite_arrow import Rewrite, Rewritten
from sparklog.consumer import Consumer
from sparklog.delta.log import DeltaLog
from sparklog.errors import OffsetOutOfRangeError
from sparklog.log import TopicWriter, open_cluster
from sparklog.log.state import load_state
from sparklog.log.topic import create_topic
from sparklog.model import TopicPartition
from sparklog.spark.maintenance.clean_by_shuffle import SparkClean
from sparklog.spark.maintenance.rewrite_on_executors import SparkRewrite
from sparklog.storage import LocalStore, open_store
from sparklog.streaming.cluster_ref import cluster_ref_of
from sparklog.testing import WrappedStore
from sparklog.txn import orphans
from tests.compaction.support import Key, append_at, append_each, append_pairs, live, pairs_of
from tests.spark.keyed_topics import COMPACTED, a_keyed_topic, check_keys
from tests.support import DAY_MS, T0_MS, a_writer, contents

POLICY = OptimizePolicy(min_files=2, max_files=4, growth=1.5)


# --- producers at full speed


class CreatesOfEntries(WrappedStore):
    """Counts the attempts to write an entry of a topic's log."""

    count = 0

    def _call(self, op: str, path: str, call: Callable[[], Any]) -> Any:
        if op == "create" and path.endswith(".json"):
            self.count += 1
        return call()


MOST = 60
"""Appends of a producer during one job: three that never end leave a job on two cores, in their own process, more to do
than it has done."""


class Appending:
    """A thread that appends records of ten keys, one after the other, each in a commit of its own."""

    def __init__(self, root: Path, topic: str, name: str) -> None:
        self.sent: list[str] = []
        self.error: BaseException | None = None
        self.name = name
        self.store = CreatesOfEntries(LocalStore(root))
        self._log = open_cluster(self.store).topic_log(topic)
        self._topic = topic
        self._is_over = False
        self._allowed = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run)
        self.store.count = 0
        self._thread.start()

    def _run(self) -> None:
        try:
            writer = TopicWriter(self._log, self._topic)
            while self._allowed.acquire() and not self._is_over:
                value = f"{self.name}{len(self.sent)}"
                pair = (f"{self.name}{len(self.sent) % 10}", value)
                append_pairs(writer, [pair], timestamp_ms=self._log.clock.now_ms())
                self.sent.append(value)
            writer.close()
        except BaseException as error:  # told by the test
            self.error = error

    def go_on(self) -> None:
        """:data:`MOST` times more, from now on."""
        self._allowed.release(MOST)

    def end(self) -> None:
        self._is_over = True
        self._allowed.release()
        self._thread.join()

    @property
    def lost_races(self) -> int:
        return self.store.count - len(self.sent)


@pytest.mark.deep  # in each run tests/compaction/test_full_speed.py, and on Spark two drivers that commit at once
@pytest.mark.spark
def test_no_append_fails_or_waits_while_every_job_runs(spark: Any, tmp_path: Path) -> None:
    cluster = open_cluster(tmp_path)
    now_ms = cluster.clock.now_ms()
    for topic, configs in (("cut", {"retention.ms": DAY_MS}), ("keyed", COMPACTED)):
        create_topic(cluster.topic_log(topic), topic, configs=configs)
    old = a_writer(cluster.topic_log("cut"), topic="cut")
    for number in range(5):
        append_at(old, now_ms - 2 * DAY_MS, f"old{number}")
    for number in range(12):  # so that there is something to do, however slow the producers are
        append_pairs(a_writer(cluster.topic_log("keyed"), topic="keyed"), [(f"first{number % 2}", str(number))])
    version = load_state(cluster.topic_log("keyed")).position.version
    producers = [Appending(tmp_path, "cut", "c"), Appending(tmp_path, "keyed", "x"), Appending(tmp_path, "keyed", "y")]

    def run(job: Callable[..., Any], **more: Any) -> dict[str, Any]:
        before = [len(producer.sent) for producer in producers]
        for producer in producers:
            producer.go_on()
        report = job(spark, tmp_path, **more)
        assert report.failures == []
        # The one that was under way when the job began, and the one that is when it ends, prove nothing.
        assert all(len(producer.sent) - count > 2 for producer, count in zip(producers, before, strict=True))
        return {topic.topic: topic for topic in report.topics}

    try:
        retention = run(ss.run_retention)["cut"].retention
        assert (retention.removed_files, dict(retention.log_start_offsets)) == (5, {0: (0, 5)})
        [compacted] = run(ss.run_compaction, small_bytes=0)["keyed"].compact.partitions
        assert compacted.outcome is Outcome.DONE
        assert compacted.counts.dropped > 0
        merged = run(ss.optimize, small_bytes=0, policy=OptimizePolicy(min_files=2, max_files=20, growth=1.1))
        outcomes = [one.outcome for topic in merged.values() for one in topic.optimize.ranges]
        assert {*outcomes} == {Outcome.DONE}
        vacuumed = run(ss.vacuum)
        assert {topic.vacuum.files_deleted for topic in vacuumed.values()} == {0}
    finally:
        for producer in producers:
            producer.end()
    assert [producer.error for producer in producers] == [None] * 3

    cut, *keyed = producers
    assert [value for _, _, value in pairs_of(cluster.topic_log("cut"))] == cut.sent
    assert load_state(cluster.topic_log("cut")).head.log_end_offsets == (5 + len(cut.sent),)
    last: dict[Key, str | None] = {"first0": "10", "first1": "11"}
    for producer in keyed:
        last |= {f"{producer.name}{number % 10}": value for number, value in enumerate(producer.sent)}
    check_keys(cluster.topic_log("keyed"), last)
    end = 12 + sum(len(producer.sent) for producer in keyed)
    assert load_state(cluster.topic_log("keyed")).head.log_end_offsets == (end,)
    # Who lost a race lost it to another commit, and to each once at most: nobody tried in vain.
    assert cut.lost_races <= load_state(cluster.topic_log("cut")).position.version - len(cut.sent)
    versions = load_state(cluster.topic_log("keyed")).position.version - version
    for producer in keyed:
        assert producer.lost_races <= versions - len(producer.sent)


# --- two drivers


class Together:
    """Lets two drivers go on once both have made their plans."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(2)

    def clean(self, clean: Clean) -> Clean:
        waiting = [self._barrier]

        def together(log: DeltaLog, *planned: Any) -> CleanPass:
            if waiting:
                waiting.pop().wait(300)
            return clean(log, *planned)

        return together

    def rewrite(self, rewrite: Rewrite) -> Rewrite:
        def together(log: DeltaLog, *planned: Any) -> Generator[Rewritten, None, None]:
            self._barrier.wait(300)
            return rewrite(log, *planned)

        return together


def both(*works: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(works)) as threads:
        return [future.result() for future in [threads.submit(work) for work in works]]


@pytest.mark.spark
def test_two_drivers_compact_and_merge_one_topic_at_once(spark: Any, tmp_path: Path) -> None:
    """Both have planned the same before either commits. One compacts in its own process, the other on Spark; both merge
    on Spark."""
    cluster = open_cluster(tmp_path)
    place = cluster_ref_of(tmp_path)
    last = a_keyed_topic(cluster, 12)
    size = sum(found.size_bytes for found in live(cluster.topic_log("t"))[:4])
    small_bytes = {"spark": 0, "plain": 2**40}  # above it is done in this process
    together = Together()

    def compact(who: str) -> Any:
        clean = together.clean(SparkClean(spark, place, small_bytes=small_bytes[who]))
        return compact_topic(cluster.topic_log("t"), "t", now_ms=T0_MS, clean=clean, target_bytes=size)

    reports = both(lambda: compact("spark"), lambda: compact("plain"))
    outcomes = [one.outcome for report in reports for one in report.partitions]
    assert {*outcomes} <= {Outcome.DONE, Outcome.OVERTAKEN}
    check_keys(cluster.topic_log("t"), last)
    [again] = ss.run_compaction(spark, tmp_path, small_bytes=0).topics
    assert again.compact is not None
    assert again.failures == []
    assert len(check_keys(cluster.topic_log("t"), last)) == len(last) + 1  # a tombstone in the newest file

    for number in range(8):
        append_pairs(a_writer(cluster.topic_log("t")), [(f"new{number}", "v")])
    last |= {f"new{number}": "v" for number in range(8)}
    before = check_keys(cluster.topic_log("t"), last)
    together = Together()

    def merge() -> Any:
        rewrite = together.rewrite(SparkRewrite(spark, place, small_bytes=0))
        return optimize_topic(cluster.topic_log("t"), "t", policy=POLICY, rewrite=rewrite)

    reports = both(merge, merge)
    ranges = [{(one.first_offset, one.outcome) for one in report.ranges} for report in reports]
    planned = {first for first, _ in ranges[0]}
    assert planned == {first for first, _ in ranges[1]}
    done = [first for found in ranges for first, outcome in found if outcome is Outcome.DONE]
    assert sorted(done) == sorted(planned)  # each by one of them
    assert check_keys(cluster.topic_log("t"), last) == before


@pytest.mark.spark
def test_what_retention_removes_under_another_driver_stays_removed(spark: Any, tmp_path: Path) -> None:
    cluster = open_cluster(tmp_path)
    now_ms = cluster.clock.now_ms()
    for topic in ("t", "other"):
        create_topic(cluster.topic_log(topic), topic, configs={"retention.ms": DAY_MS})
    writer = a_writer(cluster.topic_log("t"))
    for number in range(4):
        append_at(writer, now_ms - 2 * DAY_MS, f"old{number}")
    for number in range(5):
        append_at(writer, now_ms, f"new{number}")
    on_spark = SparkRewrite(spark, cluster_ref_of(tmp_path), small_bytes=0)

    def rewrite(log: DeltaLog, *planned: Any) -> Generator[Rewritten, None, None]:
        rewritten = [*on_spark(log, *planned)]
        report = ss.run_retention(spark, tmp_path)  # both topics, by tasks
        assert [topic.retention and topic.retention.removed_files for topic in report.topics] == [0, 4]
        yield from rewritten

    report = optimize_topic(cluster.topic_log("t"), "t", policy=POLICY, rewrite=rewrite)
    assert {one.first_offset: one.outcome for one in report.ranges} == {0: Outcome.OVERTAKEN, 4: Outcome.DONE}
    assert contents(cluster.topic_log("t"))[0] == [(4 + number, f"new{number}") for number in range(5)]

    with Consumer(cluster=cluster, auto_offset_reset="none") as strict:
        strict.assign([TopicPartition("t", 0)])
        strict.seek(TopicPartition("t", 0), 2)
        with pytest.raises(OffsetOutOfRangeError, match="log start 4"):
            strict.poll(timeout_ms=60_000)
    for reset, first in (("earliest", [4, 5, 6, 7, 8]), ("latest", [])):
        with Consumer(cluster=cluster, auto_offset_reset=reset) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek(TopicPartition("t", 0), 2)
            found = consumer.poll(timeout_ms=60_000 if first else 200)
            assert [record.offset for records in found.values() for record in records] == first


# --- readers


def a_week_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """For vacuum in this process: what was removed, or uploaded, by now is old enough."""
    for name in ("orphan_age_ms", "removed_age_ms"):
        monkeypatch.setattr(orphans, name, lambda table, metadata: -1_000)


@pytest.mark.deep  # in each run tests/compaction/test_compact.py has such a consumer, test_stream.py such a query
@pytest.mark.spark
def test_readers_see_each_keys_last_state_while_files_are_replaced_and_deleted(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "cluster"
    cluster = open_cluster(root)
    last = a_keyed_topic(cluster, 30)
    files = [*(root / "topics" / "t" / "partition=0").iterdir()]
    a_week_later(monkeypatch)
    little: dict[str, Any] = {"fetch_max_bytes": 1, "max_partition_fetch_bytes": 1}  # so that nothing is read ahead
    consumer = Consumer("t", cluster=cluster, auto_offset_reset="earliest", **little)
    polled: list[tuple[int, Key, str | None]] = []
    streamed: list[tuple[int, Key, str | None]] = []

    def text(data: Any) -> str | None:
        return None if data is None else bytes(data).decode()

    def poll(most: int) -> int:
        found = consumer.poll(timeout_ms=1_000, max_records=most).values()
        polled.extend((r.offset, text(r.key), text(r.value)) for records in found for r in records)
        return sum(map(len, found))

    def each(frame: Any, number: int) -> None:
        streamed.extend((row.offset, text(row.key), text(row.value)) for row in frame.collect())
        poll(9)
        if number == 1:  # both readers are in the middle; the stream has planned by what goes now
            [compacted] = ss.run_compaction(spark, root, small_bytes=0).topics
            assert compacted.compact is not None
            assert compacted.compact.partitions[0].counts.dropped > 100
            [vacuumed] = ss.vacuum(spark, root).topics
            assert vacuumed.vacuum is not None
            assert vacuumed.vacuum.files_deleted >= 29
            assert sum(file.exists() for file in files) <= 2
        if number == 2:  # what is left of the first pass, and what came since
            append_pairs(a_writer(cluster.topic_log("t")), [("k0", "again"), ("late", "1")])
            append_pairs(a_writer(cluster.topic_log("t")), [("late", "2")])
            ss.run_compaction(spark, root, small_bytes=0)
            ss.vacuum(spark, root)

    last |= {"k0": "again", "late": "2"}
    options = {"subscribe": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
    frame = spark.readStream.format("sparklog").options(**options).load(str(root))
    writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path / "checkpoint"))
    for _ in range(2):  # availableNow ends where the log ended when it began
        assert writer.trigger(availableNow=True).start().awaitTermination(120)
    while poll(9):
        pass
    consumer.close()
    for found in (polled, streamed):
        assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
        assert {key: value for _, key, value in found} == last
        assert len(found) < 122  # some were compacted away before they were read


# --- on an object store


@pytest.mark.spark
@pytest.mark.s3
def test_executors_maintain_topics_on_s3(spark: Any, s3_uri: str, s3_options: dict[str, Any]) -> None:
    cluster = open_cluster(open_store(s3_uri, s3_options))
    last = a_keyed_topic(cluster, 9)
    create_topic(cluster.topic_log("u"), "u", configs={"retention.ms": DAY_MS})
    writer = a_writer(cluster.topic_log("u"), topic="u")
    append_at(writer, cluster.clock.now_ms() - 2 * DAY_MS, "old")
    append_each(writer, *"abcdefghi")
    how: dict[str, Any] = {"storage_options": s3_options, "small_bytes": 0, "policy": POLICY}
    report = ss.maintain(spark, s3_uri, steps=[Step.RETENTION, Step.COMPACT, Step.OPTIMIZE, Step.VACUUM], **how)
    assert report.failures == []
    keyed, merged = report.topics
    assert keyed.compact is not None
    assert [(one.outcome, one.counts.dropped) for one in keyed.compact.partitions] == [(Outcome.DONE, 29)]
    assert merged.retention is not None
    assert merged.retention.removed_files == 1
    assert merged.optimize is not None
    assert [(one.files_before, one.outcome) for one in merged.optimize.ranges] == [(4, Outcome.DONE)] * 2
    check_keys(cluster.topic_log("t"), last)
    assert contents(cluster.topic_log("u"), topic="u")[0] == [*enumerate("abcdefghi", 1)]
