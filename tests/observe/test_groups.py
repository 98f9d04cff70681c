"""Lag in records and in seconds, members that live, offsets of transactions that aren't settled."""

from __future__ import annotations

import pytest

from sparklog import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from sparklog.log import open_cluster
from sparklog.observe import ClusterFigures, ClusterWatch, GroupFigures
from sparklog.storage import MemoryStore
from tests.observe.support import Watched, a_member, watched
from tests.observe.test_cluster_watch import LISTINGS
from tests.support import T0_MS

FIRST = TopicPartition("t", 0)


@pytest.fixture
def here() -> Watched:
    return watched()


def commit(here: Watched, group: str, offset: int, partition: TopicPartition = FIRST) -> None:
    with Admin(here.cluster) as admin:
        admin.alter_group_offsets(group, {partition: OffsetAndMetadata(offset)})


def group(figures: ClusterFigures, name: str) -> GroupFigures:
    return next(one for one in figures.groups if one.group_id == name)


def test_lag_in_seconds_is_the_age_of_the_oldest_record_that_was_not_read(here: Watched) -> None:
    writer = here.topic("t")
    for age_s in (90, 60, 10):
        here.append(writer, "a", timestamp_ms=T0_MS - age_s * 1_000)
    watch = ClusterWatch(here.cluster)
    for offset, lag, age_s in ((0, 3, 90), (1, 2, 60), (2, 1, 10), (3, 0, 0)):
        commit(here, "g", offset)
        (found,) = group(watch.look(), "g").partitions
        assert (found.partition, found.committed_offset, found.lag, found.lag_ms) == (FIRST, offset, lag, age_s * 1_000)


def test_lag_grows_while_nobody_reads(here: Watched) -> None:
    writer = here.topic("t")
    here.append(writer, "a", "b", timestamp_ms=T0_MS)
    commit(here, "g", 1)
    watch = ClusterWatch(here.cluster)
    watch.look()
    here.clock.advance(30_000)
    (found,) = group(watch.look(), "g").partitions
    assert (found.lag, found.lag_ms) == (1, 29_999)


def test_lag_of_what_was_deleted_is_told_by_the_first_record_that_is_left(here: Watched) -> None:
    writer = here.topic("t")
    here.append(writer, "a", timestamp_ms=T0_MS - 9_000)
    here.append(writer, "b", timestamp_ms=T0_MS - 5_000)
    commit(here, "g", 0)
    with Admin(here.cluster) as admin:
        admin.delete_records({FIRST: 1})
    (found,) = group(ClusterWatch(here.cluster).look(), "g").partitions
    assert (found.lag, found.lag_ms) == (2, 5_000)


def test_lag_in_a_busy_topic_lies_between_two_commits_that_were_seen(here: Watched) -> None:
    writer = here.topic("t")
    commit(here, "g", 0)
    watch = ClusterWatch(here.cluster)
    watch.look()
    for _ in range(2):
        here.clock.advance(10_000)
        for _ in range(10):
            here.append(writer, "a", timestamp_ms=here.clock.now_ms())
        watch.look()
    commit(here, "g", 15)
    (found,) = group(watch.look(), "g").partitions
    assert found.lag == 5
    assert found.lag_ms is not None
    assert 0 <= found.lag_ms <= 20_000


def test_an_unchanged_group_costs_two_requests(here: Watched) -> None:
    here.topic("t")
    for number in range(10):
        commit(here, f"g{number}", 0)
    watch = ClusterWatch(here.cluster)
    watch.look()
    here.requests()
    watch.look()
    assert here.requests() == 2 * 10 + 1 + LISTINGS


def test_a_member_lives_as_long_as_it_is_seen_to_write(here: Watched) -> None:
    roster = a_member(here, "g", "t")
    watch = ClusterWatch(here.cluster)
    assert group(watch.look(), "g").member_count == 1
    for _ in range(5):
        here.clock.advance(30_000)
        roster.write_heartbeat("ann")
        assert group(watch.look(), "g").member_count == 1
    here.clock.advance(30_000)
    assert group(watch.look(), "g").member_count == 1
    here.clock.advance(30_000)
    assert watch.look().groups == ()
    assert ClusterWatch(here.cluster).look().groups == ()  # whoever begins now sees by the object's age


def test_records_for_which_a_member_never_committed_anything_are_counted(here: Watched) -> None:
    """✗ A group that is stuck at its very first record has no lag."""
    writer = here.topic("t", num_partitions=2)
    here.append(writer, "a", "b")
    here.append(writer, "c", partition=1)
    here.topic("empty")
    a_member(here, "g", "t", "empty", "nosuch", reads_from_start=True)
    watch = ClusterWatch(here.cluster)
    found = group(watch.look(), "g")
    assert (found.partitions, dict(found.uncommitted)) == ((), {"t": 3})
    here.clock.advance(46_000)  # it is dead
    commit(here, "g", 0)
    assert dict(group(watch.look(), "g").uncommitted) == {}


def test_a_member_that_begins_at_the_end_has_read_all_until_something_arrives(here: Watched) -> None:
    """✗ The alert about a group that never commits fires for one that waits for its first record."""
    writer = here.topic("t", num_partitions=2)
    here.append(writer, "a", "b")
    a_member(here, "g", "t")
    watch = ClusterWatch(here.cluster)
    assert dict(group(watch.look(), "g").uncommitted) == {}
    here.append(writer, "c")
    here.append(writer, "d", "e", partition=1)
    for _ in range(2):
        assert dict(group(watch.look(), "g").uncommitted) == {"t": 3}
    here.clock.advance(46_000)  # it is dead; whoever comes next begins at the end again
    commit(here, "g", 3)
    assert dict(group(watch.look(), "g").uncommitted) == {}
    a_member(here, "g", "t")
    assert dict(group(watch.look(), "g").uncommitted) == {}
    here.append(writer, "f", partition=1)
    assert dict(group(watch.look(), "g").uncommitted) == {"t": 1}


def test_a_group_that_cannot_be_read_is_named(here: Watched) -> None:
    here.topic("t")
    commit(here, "good", 0)
    commit(here, "bad", 0)
    for found in [*here.memory.list("groups/bad/offsets/_delta_log/")]:
        here.memory.put(found.path, b"{torn")
    figures = ClusterWatch(here.cluster).look()
    assert [one.group_id for one in figures.groups] == ["good"]
    assert [(one.kind, one.name) for one in figures.problems] == [("group", "bad")]


def test_offsets_of_a_topic_that_was_deleted_are_left_out(here: Watched) -> None:
    here.topic("t")
    commit(here, "g", 0)
    watch = ClusterWatch(here.cluster)
    assert len(group(watch.look(), "g").partitions) == 1
    with Admin(here.cluster) as admin:
        admin.delete_topics(["t"])
    assert group(watch.look(), "g").partitions == ()
    here.topic("t")
    assert group(watch.look(), "g").partitions == ()


@pytest.mark.slow
def test_a_real_consumer_is_a_member_with_partitions() -> None:
    cluster = open_cluster(MemoryStore())
    with Producer(cluster) as producer, Admin(cluster) as admin:
        admin.create_topics(["t"])
        producer.send("t", b"a").get(60)
        watch = ClusterWatch(cluster)
        with Consumer("t", cluster=cluster, group_id="g", auto_offset_reset="earliest") as consumer:
            while not consumer.poll(timeout_ms=1_000):
                pass
            consumer.commit()
            found = group(watch.look(), "g")
            assert found.member_count == 1
            assert [(one.lag, bool(one.member_id)) for one in found.partitions] == [(0, True)]
        assert group(watch.look(), "g").member_count == 0
