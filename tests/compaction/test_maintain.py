"""All jobs in order, for a whole cluster: each does its part, one that fails hinders no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparklog.compaction import OptimizePolicy, Outcome, Step, maintain
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.errors import CorruptLogError, InvalidConfigurationError, UnknownTopicOrPartitionError
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.log import Cluster
from sparklog.log.data.object_paths import object_path
from sparklog.log.state import load_state
from sparklog.log.topic import create_topic, delete_topic
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from sparklog.txn.orphans import ORPHAN_AGE_MS
from tests.compaction.support import append_at, append_each, append_pairs, live, pairs_of
from tests.groups.offsets.support import do, unowned
from tests.support import DAY_MS, T0_MS, a_writer, contents, entry_lines, foreign_commit, unsequenced_file, versions_of
from tests.txn.support import IN, Driver, a_cluster, data_files

POLICY = OptimizePolicy(min_files=4)
OF_TOPICS = [Step.SEQUENCE, Step.RETENTION, Step.COMPACT, Step.OPTIMIZE, Step.VACUUM]


def a_world() -> tuple[MemoryStore, ManualClock, Cluster]:
    """Topics: ``cut`` has an old file and a foreign one, ``keyed`` is compacted, ``small`` has nine small files."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    cluster = a_cluster(memory, clock)
    for topic, configs in (("cut", {}), ("keyed", {"cleanup.policy": "compact"}), ("small", {})):
        create_topic(cluster.topic_log(topic), topic, configs=configs)
    append_at(a_writer(cluster.topic_log("cut"), topic="cut"), T0_MS - 8 * DAY_MS, "old")
    append_at(a_writer(cluster.topic_log("cut"), topic="cut"), T0_MS, "new")
    unsequenced_file(cluster.topic_log("cut"), "foreign")
    for pair in (("a", "1"), ("a", "2"), ("b", "1")):
        append_pairs(a_writer(cluster.topic_log("keyed"), topic="keyed"), [pair])
    append_each(a_writer(cluster.topic_log("small"), topic="small"), *map(str, range(9)))
    return memory, clock, cluster


def test_every_topic_gets_what_it_needs_in_order() -> None:
    _, _, cluster = a_world()
    told: list[tuple[str, Step]] = []
    report = maintain(cluster, policy=POLICY, tell=lambda topic, step: told.append((topic, step)))
    assert (told[0], told[-1]) == (("", Step.TRANSACTIONS), ("", Step.GROUPS))
    assert [step for topic, step in told if not topic] == [Step.TRANSACTIONS, Step.GROUPS]
    for name in ("cut", "keyed", "small"):  # several at a time
        assert [step for topic, step in told if topic == name] == OF_TOPICS
    cut, keyed, small = report.topics
    assert cut.sequence is not None
    assert cut.sequence.sequenced_files == 1
    assert cut.retention is not None
    assert cut.retention.removed_files == 1
    assert contents(cluster.topic_log("cut"), topic="cut") == {0: [(1, "new"), (2, "foreign")]}
    assert keyed.compact is not None
    assert keyed.compact.partitions[0].counts.superseded == 1
    assert pairs_of(cluster.topic_log("keyed")) == [(1, "a", "2"), (2, "b", "1")]
    assert small.optimize is not None
    assert [one.outcome for one in small.optimize.ranges] == [Outcome.DONE]
    assert len(live(cluster.topic_log("small"))) == 2
    assert report.failures == []
    again = maintain(cluster, policy=POLICY, full=True)
    assert [topic.optimize.ranges for topic in again.topics if topic.optimize] == [(), (), ()]
    assert [topic.retention.removed_files for topic in again.topics if topic.retention] == [0, 0, 0]


def test_a_dry_run_tells_what_would_be_done_and_changes_nothing() -> None:
    memory, _, cluster = a_world()
    before = {(found.path, found.etag) for found in memory.list("")}
    report = maintain(cluster, policy=POLICY, dry_run=True)
    assert {(found.path, found.etag) for found in memory.list("")} == before
    cut, keyed, small = report.topics
    assert cut.sequence is not None
    assert cut.retention is not None
    assert (cut.sequence.sequenced_files, cut.retention.removed_files) == (1, 1)
    assert keyed.compact is not None
    assert keyed.compact.partitions[0].outcome is Outcome.PLANNED
    assert small.optimize is not None
    assert [one.outcome for one in small.optimize.ranges] == [Outcome.PLANNED]


def test_only_the_steps_and_topics_that_were_asked_for() -> None:
    _, _, cluster = a_world()
    report = maintain(cluster, ["small", "cut"], steps=[Step.RETENTION, Step.GROUPS])
    assert [topic.topic for topic in report.topics] == ["cut", "small"]
    assert [topic.retention is not None for topic in report.topics] == [True, True]
    assert {getattr(topic, name) for topic in report.topics for name in ("sequence", "compact", "optimize")} == {None}
    assert len(live(cluster.topic_log("small"))) == 9
    with pytest.raises(UnknownTopicOrPartitionError, match="never"):
        maintain(cluster, ["never"])


def test_a_topic_or_step_that_fails_is_told_and_hinders_no_other() -> None:
    memory, _, cluster = a_world()
    log = cluster.topic_log("cut")
    metadata = load_state(log).require_whole().metadata
    foreign_commit(log, replace(metadata, configuration={**metadata.configuration, "sparklog.retention.ms": "never"}))
    memory.put("topics/bad/_delta_log/00000000000000000000.json", b"no json")
    memory.put("topics/no-topic/notes.txt", b"")
    broken = live(cluster.topic_log("small"))[0]
    memory.put(object_path("topics/small", broken.path), b"no parquet")
    report = maintain(cluster, policy=POLICY)
    found = {topic.topic: topic for topic in report.topics}
    assert list(found) == ["bad", "cut", "keyed", "small"]
    assert [type(error) for error in found["bad"].errors.values()] == [CorruptLogError] * 5
    assert {step: type(error) for step, error in found["cut"].errors.items()} == {
        Step.RETENTION: InvalidConfigurationError,
        Step.OPTIMIZE: InvalidConfigurationError,
    }
    assert found["cut"].sequence is not None
    assert found["keyed"].errors == {}
    assert found["keyed"].compact is not None
    lines = report.failures
    assert len(lines) == 5 + 2 + 1
    assert sum("sparklog.retention.ms='never'" in line for line in lines) == 2
    assert broken.path in lines[-1]


def test_what_is_left_of_a_deleted_topic_is_vacuumed() -> None:
    _, clock, cluster = a_world()
    delete_topic(cluster.topic_log("small"), "small")
    clock.advance(ORPHAN_AGE_MS + 1)
    report = maintain(cluster)
    small = report.topics[2]
    assert (small.topic, small.deleted, small.retention) == ("small", True, None)
    assert small.vacuum is not None
    assert small.vacuum.files_deleted == 9
    assert data_files(cluster, "small") == set()


def test_unfinished_transactions_and_old_offsets_are_dealt_with() -> None:
    _, clock, cluster = a_world()
    create_topic(cluster.topic_log("t"), "t", num_partitions=2)
    create_topic(cluster.topic_log("u"), "u")
    driver = Driver(cluster, "tx", topics=("t",)).init()
    driver.begin()
    driver.send("t", "never decided")
    do(OffsetTable(cluster, "g"), unowned({IN: 3}))
    clock.advance(8 * DAY_MS)
    report = maintain(cluster)
    assert [(one.transactional_id, one.action.value) for one in report.transactions] == [("tx", "timed out")]
    assert [(one.group, one.expired_offsets) for one in report.groups] == [("g", 1)]


@pytest.mark.slow
def test_a_topic_lives_for_weeks_with_few_files_and_a_short_log() -> None:
    """A file an hour; maintenance every six hours; a week is kept."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    cluster = a_cluster(memory, clock)
    log = cluster.topic_log("t")
    create_topic(log, "t", configs={"retention.ms": 2 * DAY_MS, "log.retention.ms": DAY_MS})
    writer = a_writer(log)
    for hour in range(24 * 14):
        append_at(writer, clock.now_ms(), str(hour))
        clock.advance(DAY_MS / 24)
        if hour % 6 == 5:
            assert maintain(cluster, policy=POLICY).failures == []
    seen = contents(log)[0]
    assert seen == [(hour, str(hour)) for hour in range(seen[0][0], 24 * 14)]
    assert 48 <= len(seen) <= 54
    assert len(live(log)) < 30
    assert len(versions_of(log)) < 90
    assert len(data_files(cluster, "t")) < 24 * 9 + 60
    write_checkpoint(log)
    assert entry_lines(log, versions_of(log)[-1])
