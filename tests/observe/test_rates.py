"""Rates between two looks."""

from __future__ import annotations

from dataclasses import replace

from sparklog import Admin, OffsetAndMetadata, TopicPartition
from sparklog.observe import ClusterWatch
from sparklog.observe.rates import group_rates, topic_rates
from tests.observe.support import watched
from tests.support import T0_MS


def test_rates_are_differences_by_time() -> None:
    here = watched()
    quiet, busy = here.topic("quiet"), here.topic("busy", num_partitions=2)
    here.append(quiet, "a", timestamp_ms=T0_MS)
    here.append(busy, "a", timestamp_ms=T0_MS)
    watch = ClusterWatch(here.cluster)
    first = TopicPartition("busy", 0)
    with Admin(here.cluster) as admin:
        admin.alter_group_offsets("g", {first: OffsetAndMetadata(0)})
        before = watch.look()
        here.clock.advance(10_000)
        here.append(busy, *"0123456789", timestamp_ms=T0_MS)
        here.append(busy, *"0123456789", timestamp_ms=T0_MS, partition=1)
        admin.alter_group_offsets("g", {first: OffsetAndMetadata(5)})
    now = watch.look()
    found, other = topic_rates(before, now)
    assert (found.name, found.records_per_s, found.commits_per_s, found.commit_age_ms) == ("busy", 2.0, 0.2, 0)
    assert (found.partition_count, found.record_count, found.file_count) == (2, 21, 3)
    assert (other.name, other.records_per_s) == ("quiet", 0)
    (group,) = group_rates(before, now)
    assert (group.lag, group.lag_ms, group.records_per_s) == (6, 10_000 - 4, 0.5)


def test_without_an_earlier_look_there_are_no_rates() -> None:
    here = watched()
    here.append(here.topic("t"), "a")
    now = ClusterWatch(here.cluster).look()
    for before in (None, now, replace(now, topics=())):  # none, at the same moment, before the topic was there
        (found,) = topic_rates(before, now)
        assert (found.records_per_s, found.commits_per_s, found.record_count) == (None, None, 1)
    assert group_rates(None, now) == []
