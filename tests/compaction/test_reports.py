"""Whatever happens to a job is told rightly: what is lost, what may succeed later, and how far it has come."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

import pytest

from sparklog.compaction import OptimizePolicy, Outcome, Step, maintain
from sparklog.compaction.clean_arrow import CleanPass, clean_with_arrow
from sparklog.compaction.compact import compact_topic
from sparklog.compaction.file_ranges import FileRange
from sparklog.compaction.maintenance import (
    MaintenanceOptions,
    ProgressListener,
    TopicMaintenance,
    ignore_steps,
    maintain_topic,
)
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.plan_cleaning import CleanPlan
from sparklog.compaction.progress import bytes_done
from sparklog.compaction.report_format import error_as_plain, report_as_plain, report_rows
from sparklog.compaction.retention import retain_topic
from sparklog.compaction.rewrite_arrow import Rewritten, rewrite_with_arrow
from sparklog.compaction.run_context import MaintenanceRun
from sparklog.delta.log import DeltaLog
from sparklog.errors import (
    CommitStateUnknownError,
    CorruptRecordError,
    KafkaTimeoutError,
    RetriableError,
    SparklogError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import Cluster
from sparklog.log.data.object_paths import object_path
from sparklog.log.topic import create_topic, delete_topic
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock
from tests.compaction.support import append_at, append_each, append_pairs, delete_files, live
from tests.support import DAY_MS, T0_MS, a_log, a_topic, a_writer, contents
from tests.txn.support import a_cluster

PAIRS = OptimizePolicy(min_files=2, max_files=2, growth=1.1)
"""Ranges of two files."""


def seven() -> tuple[MemoryStore, ManualClock, DeltaLog]:
    """Seven files of a record each: three ranges, and the newest."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    append_each(a_writer(log), *"0123456")
    return memory, clock, log


def a_keyed_topic(partitions: int = 2) -> tuple[MemoryStore, ManualClock, DeltaLog]:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock, num_partitions=partitions, configs={"cleanup.policy": "compact"})
    for partition in range(partitions):
        for value in "123":
            append_pairs(a_writer(log), [("a", value)], partition=partition)
    return memory, clock, log


# A live file that isn't in the store


def test_a_lost_live_file_is_reported_by_each_run_and_other_ranges_are_merged() -> None:
    _, _, log = seven()
    lost = live(log)[2]
    delete_files(log, [lost])
    for _ in range(2):
        ranges = optimize_topic(log, "t", policy=PAIRS).ranges
        failed = [one.error for one in ranges if one.outcome is Outcome.FAILED]
        assert (len(failed), {one.outcome for one in ranges}) == (1, {Outcome.FAILED, Outcome.DONE})
        assert failed[0].startswith(f"{object_path(log.table, lost.path)}: the log names this data file, and the store")


def test_a_live_file_that_is_lost_fails_its_partition_and_the_cluster_is_not_well() -> None:
    memory, clock, log = a_keyed_topic()
    delete_files(log, [live(log, 0)[0]])
    report = maintain(a_cluster(memory, clock), steps=[Step.COMPACT])
    compact = report.topics[0].compact
    assert compact is not None
    assert [one.outcome for one in compact.partitions] == [Outcome.FAILED, Outcome.DONE]
    assert ["the store hasn't got it" in line for line in report.failures] == [True]
    assert report.may_succeed_later is False


def test_a_file_that_somebody_else_cleaned_away_is_no_failure() -> None:
    _, _, log = a_keyed_topic(1)
    before = live(log)[:-1]

    def overtaken(log_: DeltaLog, plan: CleanPlan, compression: str, file_bytes: int) -> CleanPass:
        compact_topic(log, "t", now_ms=T0_MS)
        delete_files(log, before)
        return clean_with_arrow(log_, plan, compression, file_bytes)

    [found] = compact_topic(log, "t", now_ms=T0_MS, clean=overtaken).partitions
    assert (found.outcome, found.error) == (Outcome.OVERTAKEN, "")


# What fails hinders no other, and says whether it may succeed later


def maintained(cluster: Cluster, wanted: MaintenanceOptions) -> TopicMaintenance:
    outcome = maintain_topic(MaintenanceRun(cluster, timeout_ms=60_000), "t", wanted)
    assert outcome is not None
    return outcome.report


def failing_at(partition: int, error: SparklogError) -> Callable[..., CleanPass]:
    def clean(log: DeltaLog, plan: CleanPlan, compression: str, file_bytes: int) -> CleanPass:
        if plan.partition == partition:
            raise error
        return clean_with_arrow(log, plan, compression, file_bytes)

    return clean


def test_a_partition_that_an_engine_gives_up_hinders_no_other() -> None:
    memory, clock, _ = a_keyed_topic(3)
    wanted = MaintenanceOptions(steps=[Step.COMPACT], clean=failing_at(1, RetriableError("the engine gave up")))
    done = maintained(a_cluster(memory, clock), wanted)
    assert done.compact is not None
    outcomes = [(one.outcome, one.retriable) for one in done.compact.partitions]
    assert outcomes == [(Outcome.DONE, False), (Outcome.FAILED, True), (Outcome.DONE, False)]
    assert [*done.failures_with_prospects()] == [("compact: the engine gave up", True)]
    with pytest.raises(CommitStateUnknownError):
        compact_topic(a_keyed_topic(1)[2], "t", now_ms=T0_MS, clean=failing_at(0, CommitStateUnknownError("lost")))


def test_a_range_that_an_engine_gives_up_may_succeed_later() -> None:
    memory, clock, _ = seven()

    def rewrite(log: DeltaLog, ranges: Sequence[FileRange], compression: str) -> Generator[Rewritten, None, None]:
        for number, found in enumerate(rewrite_with_arrow(log, ranges, compression)):
            yield replace(found, files=(), error=RetriableError("gave up")) if number == 1 else found

    wanted = MaintenanceOptions(steps=[Step.OPTIMIZE], policy=PAIRS, rewrite=rewrite)
    done = maintained(a_cluster(memory, clock), wanted)
    assert done.optimize is not None
    assert [one.outcome for one in done.optimize.ranges] == [Outcome.DONE, Outcome.FAILED, Outcome.DONE]
    assert [*done.failures_with_prospects()] == [("optimize: gave up", True)]


@pytest.mark.parametrize(
    ("error", "may"),
    [
        (KafkaTimeoutError("slow"), True),
        (StoreOutcomeUnknownError("reset"), True),
        (UnknownTopicOrPartitionError("no such topic"), False),
        (CorruptRecordError("a file"), False),
        (StorePermissionError("denied"), False),
    ],
)
def test_what_only_a_consumer_may_wait_for_does_not_succeed_later(error: SparklogError, may: bool) -> None:
    memory, clock, _ = seven()
    report = maintain(a_cluster(memory, clock), steps=[])
    failed = replace(report.topics[0], errors={Step.VACUUM: error})
    report = replace(report, topics=(failed,))
    assert report.may_succeed_later is may
    plain = report_as_plain(report)
    assert (plain["failures"], plain["may_succeed_later"]) == ([f"topic t: vacuum: {error}"], may)
    assert error_as_plain(error) == {"error": str(error), "retriable": may}


def test_a_topic_that_is_deleted_during_the_run_is_no_failure() -> None:
    memory, clock, log = seven()
    cluster = a_cluster(memory, clock)

    def tell(topic: str, step: Step) -> None:
        if step is Step.COMPACT:
            delete_topic(log, "t")
        if step is Step.OPTIMIZE:
            clock.advance(100_000)  # so long that the topic is loaded anew

    report = maintain(cluster, tell=tell)
    [topic] = report.topics
    assert (topic.deleted, dict(topic.errors), report.failures) == (True, {}, [])
    assert topic.retention is not None
    assert topic.optimize is None
    assert topic.vacuum is not None


def test_files_that_can_not_be_given_offsets_are_failures() -> None:
    memory, clock, _ = seven()
    report = maintain(a_cluster(memory, clock), steps=[Step.SEQUENCE])
    sequence = report.topics[0].sequence
    assert sequence is not None
    refused = replace(report.topics[0], sequence=replace(sequence, refused={"x.parquet": "no value"}))
    assert replace(report, topics=(refused,)).failures == ["topic t: sequence: x.parquet: no value"]


# A dry run


def test_a_dry_run_needs_no_right_to_write() -> None:
    memory, clock, _ = a_keyed_topic()
    cluster = a_cluster(memory, clock)
    create_topic(cluster.topic_log("old"), "old")
    append_at(a_writer(cluster.topic_log("old"), topic="old"), T0_MS - 9 * DAY_MS, "old")
    memory.put("topics/old/partition=0/left.parquet", b"x")
    clock.advance(8 * DAY_MS)
    read_only = FaultyStore(memory, Fault(kind=FaultKind.READ_ONLY, times=None))
    with pytest.raises(StorePermissionError):
        read_only.put("x", b"")
    report = maintain(Cluster(cluster_id="c", store=read_only, clock=clock), dry_run=True)  # type: ignore[arg-type]
    assert report.failures == []
    old, keyed = report.topics
    assert old.retention is not None
    assert old.retention.removed_files == 1
    assert old.vacuum is not None
    assert old.vacuum.files_deleted == 1
    assert keyed.compact is not None
    assert {one.outcome for one in keyed.compact.partitions} == {Outcome.PLANNED}


def test_a_topic_that_is_not_compacted_asks_for_no_time() -> None:
    _, _, log = seven()

    def now_ms() -> int:
        raise AssertionError

    assert compact_topic(log, "t", now_ms=now_ms).compacts is False


# What was committed survives, however the job ends


def failing_pieces(log: DeltaLog, plan: CleanPlan, compression: str, file_bytes: int) -> CleanPass:
    """After its first file."""
    found = clean_with_arrow(log, plan, compression, 1)

    def pieces() -> Generator[object, None, None]:
        yield next(found.pieces)
        raise CommitStateUnknownError("odd")

    return replace(found, pieces=pieces())  # type: ignore[arg-type]


def failing_rewrite(log: DeltaLog, ranges: Sequence[FileRange], compression: str) -> Generator[Rewritten, None, None]:
    yield next(rewrite_with_arrow(log, ranges, compression))
    raise CommitStateUnknownError("odd")


@pytest.mark.parametrize(
    "job",
    [
        lambda log: optimize_topic(log, "t", policy=PAIRS, rewrite=failing_rewrite),
        lambda log: compact_topic(log, "t", now_ms=T0_MS, clean=failing_pieces),
    ],
)
def test_what_a_job_committed_before_it_failed_is_made_durable(job: Callable[[DeltaLog], object]) -> None:
    memory, clock, _ = a_keyed_topic(1)
    store = CountingStore(memory)
    with pytest.raises(CommitStateUnknownError, match="odd"):
        job(a_log(store, clock))
    assert store.counts()["create"] >= 1
    assert store.counts()["sync_all"] == 1


def test_retention_that_fails_makes_its_removals_durable_and_raises_its_first_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sparklog.compaction.retention._MOST_FILES", 2)
    monkeypatch.setattr("sparklog.compaction.retention._LEAST_FILES", 1)
    memory, clock, _ = seven()
    store = FaultyStore(
        memory,
        Fault(kind=FaultKind.READ_ONLY, ops=("create",), skip=1),
        Fault(kind=FaultKind.LOST_ANSWER, ops=("sync_all",)),
    )
    with pytest.raises(StorePermissionError):
        retain_topic(a_log(store, clock), "t", now_ms=T0_MS + 8 * DAY_MS)
    assert "what was committed may not survive a power loss" in caplog.text
    assert [offset for offset, _ in contents(a_log(memory, clock))[0]] == [2, 3, 4, 5, 6]


def test_a_job_with_nothing_to_do_flushes_nothing() -> None:
    memory, clock, _ = seven()
    store = CountingStore(memory)
    retain_topic(a_log(store, clock), "t", now_ms=T0_MS)
    optimize_topic(a_log(store, clock), "t", policy=OptimizePolicy(min_files=99))
    assert "sync_all" not in store.counts()


# No work in vain


def counting(rewritten: list[FileRange], meanwhile: Callable[[], object]) -> Callable[..., object]:
    """A rewrite in this process; after its first range others act."""

    def rewrite(log: DeltaLog, ranges: Sequence[FileRange], compression: str) -> Generator[Rewritten, None, None]:
        for found in rewrite_with_arrow(log, ranges, compression):
            rewritten.append(found.range)
            if len(rewritten) == 1:
                meanwhile()
            yield found

    return rewrite


def test_once_the_topic_is_gone_nothing_more_is_rewritten() -> None:
    _, _, log = seven()
    rewritten: list[FileRange] = []

    def again() -> None:
        delete_topic(log, "t")
        create_topic(log, "t")

    report = optimize_topic(log, "t", policy=PAIRS, rewrite=counting(rewritten, again))  # type: ignore[arg-type]
    assert [one.outcome for one in report.ranges] == [Outcome.OVERTAKEN]
    assert len(rewritten) == 1


def test_ranges_that_another_job_merged_meanwhile_are_passed_over() -> None:
    _, _, log = seven()
    rewritten: list[FileRange] = []

    def other() -> None:
        optimize_topic(log, "t", policy=PAIRS)

    report = optimize_topic(log, "t", policy=PAIRS, rewrite=counting(rewritten, other))  # type: ignore[arg-type]
    assert [one.outcome for one in report.ranges] == [Outcome.OVERTAKEN] * 3
    assert len(rewritten) == 1
    assert contents(log) == {0: [*enumerate("0123456")]}


# Progress


def test_how_far_a_step_has_come_is_told() -> None:
    memory, clock, _ = a_keyed_topic(1)
    told: list[tuple[str, Step, str]] = []
    telling = ProgressListener(ignore_steps, lambda *given: told.append(given))
    maintain(a_cluster(memory, clock), policy=PAIRS, steps=[Step.COMPACT], tell=telling)
    assert told == [("t", Step.COMPACT, "partition 0: 2 of 2 records")]
    memory, clock, log = seven()
    sizes = [file.size_bytes for file in live(log)]
    told.clear()
    maintain(a_cluster(memory, clock), policy=PAIRS, steps=[Step.OPTIMIZE], tell=telling)
    total = sum(sizes[:6])
    assert [how_far for _, _, how_far in told] == [
        f"{number} of 3 ranges, {bytes_done(sum(sizes[: 2 * number]), total)}" for number in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("done", "total", "words"),
    [
        (0, 0, "0 of 0 B"),
        (999, 999, "999 of 999 B"),
        (500, 1_000, "0.5 of 1.0 kB"),
        (4_700_000_000, 100_000_000_000, "4.7 of 100.0 GB"),
        (10**15, 10**16, "1000.0 of 10000.0 TB"),
    ],
)
def test_bytes_are_told_in_the_unit_of_the_total(done: int, total: int, words: str) -> None:
    assert bytes_done(done, total) == words


def test_the_table_tells_why_a_partition_is_due_and_what_vacuum_let_go() -> None:
    memory, clock, _ = a_keyed_topic(1)
    report = maintain(a_cluster(memory, clock), dry_run=True)
    [row] = report_rows(report)
    assert row[4] == ("partition 0: planned (dirty), 100% dirty, 0 tombstones due, oldest of 2100-01-01T00:00:00.000Z")
    topic = report.topics[0]
    assert topic.vacuum is not None
    let_go = replace(topic, compact=None, vacuum=replace(topic.vacuum, expired_ids=3))
    [row] = report_rows(replace(report, topics=(let_go,)))
    assert row[1:] == ("vacuum", 0, 0, "deleted; 3 expired transactional ids let go")
