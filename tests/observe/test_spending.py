"""Requests that the log shows are counted, and no more of them than were made."""

from __future__ import annotations

import pytest

from sparklog import Admin, OffsetAndMetadata, TopicPartition
from sparklog.observe import ClusterWatch
from sparklog.observe.spending import heartbeats_a_day, look_requests, written_between
from sparklog.prices import DEFAULT_PRICES, Requests
from tests.observe.support import watched


def test_what_the_log_shows_is_what_was_written() -> None:
    here = watched()
    writer = here.topic("t")
    here.append(writer, "a")
    Admin(here.cluster).alter_group_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(0)})
    watch = ClusterWatch(here.cluster)
    first = watch.look()
    here.clock.advance(1_000)
    here.requests()
    here.append(writer, "b")
    puts = here.store.counts()
    here.append(writer, "c")
    Admin(here.cluster).alter_group_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(1)})
    second = watch.look()
    found = written_between(first, second)
    assert found["commits to topics"] == Requests(puts=4)  # two commits of a file each
    assert puts["put"] + puts["create"] == 2
    assert found["commits of offsets"] == Requests(puts=2)
    assert written_between(second, watch.look()) == {
        "commits to topics": Requests(),
        "commits of offsets": Requests(),
    }
    assert heartbeats_a_day(second) == Requests()


def test_a_quiet_look_costs_what_is_told() -> None:
    here = watched()
    for name in ("t", "u"):
        here.topic(name)
    Admin(here.cluster).alter_group_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(0)})
    watch = ClusterWatch(here.cluster)
    watch.look()
    watch.look()
    here.requests()
    figures = watch.look()
    told = look_requests(figures)
    assert told.gets + told.lists == here.requests()


def test_requests_have_prices() -> None:
    thousand = Requests(puts=1_000, gets=1_000, lists=1_000)
    assert thousand.dollars() == pytest.approx(DEFAULT_PRICES.put + DEFAULT_PRICES.get + DEFAULT_PRICES.list)
