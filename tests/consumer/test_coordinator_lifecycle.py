"""The ends of members: closed, dropped, forked, left at exit, without a store; and what is counted meanwhile."""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sparklog.consumer import Consumer
from sparklog.errors import StoreUnavailableError
from sparklog.groups.assignors import RangeAssignor
from sparklog.log import Cluster, create_topic, open_cluster
from sparklog.storage import MemoryStore, ObjectStore
from sparklog.testing.wrapped_store import WrappedStore
from tests.consumer.group_support import FAST, Listener, Member, Outage, commits, joined, run
from tests.consumer.support import (
    LONG_MS,
    a_cluster,
    a_consumer,
    refused_in_a_fork,
    send,
    take,
    text,
    tp,
    until,
    with_topic,
)

T = TypeVar("T")


def a_topic(*batches: str, partitions: int = 1) -> Cluster:
    return with_topic(a_cluster(), *batches, partitions=partitions)


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("sparklog-")}


def test_closing_ends_all_threads_and_a_second_time_does_nothing():
    before = threads()
    member = Member(a_topic("a"), "t")
    run(lambda: member.text == "a", member)
    assert len(threads() - before) == 3
    member.close()
    member.close()
    assert threads() - before == set()


def test_a_member_may_be_closed_with_a_bound_that_never_comes():
    """✗ Waits of Python refuse infinity, which ``close`` accepts: the member neither leaves nor ends its threads."""
    with Member(a_topic("ab"), "t") as member:
        run(lambda: member.text == "ab", member)
        member.consumer.commit_async()
        member.consumer.close(timeout_ms=math.inf)
    assert not [thread for thread in threading.enumerate() if thread.name == "sparklog-heartbeat"]


def test_a_member_that_closes_is_gone_at_once():
    cluster = a_topic(partitions=2)
    with Member(cluster, "t", session_timeout_ms=600_000) as a, Member(cluster, "t") as b:
        joined(a, b, count=2)
        a.close()
        joined(b, count=2)  # long before its session is over


@pytest.mark.slow
def test_a_dropped_consumer_ends_its_threads_and_its_partitions_move_after_a_session():
    before = threads()
    cluster = a_topic("ab", partitions=2)

    def use_and_drop() -> None:
        member = Member(cluster, "t", session_timeout_ms=400)
        run(lambda: "ab" in member.text and commits(member), member)

    use_and_drop()
    gc.collect()
    until(lambda: not threads() - before)
    with Member(cluster, "t") as other:
        joined(other, count=2)
        assert other.seen == []


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system doesn't fork")
def test_a_forked_process_can_not_use_the_member_and_does_not_end_it():
    with Member(a_topic("ab"), "t") as member:
        run(lambda: member.text == "ab", member)
        consumer = member.consumer
        calls = (consumer.commit, consumer.commit_async, lambda: consumer.committed(tp()), consumer.group_metadata)
        assert refused_in_a_fork(calls, close=consumer.close) == len(calls)
        consumer.commit()
        assert consumer.committed(tp()) == 2


@pytest.mark.slow
def test_an_interpreter_ends_with_a_member_that_was_not_closed(tmp_path: Path):
    create_topic(open_cluster(tmp_path).topic_log("t"), "t")
    script = """
        import sys, threading
        from sparklog import Consumer
        consumer = Consumer("t", cluster=sys.argv[1], group_id="g")
        while not consumer.assignment():
            consumer.poll(10)
        print(sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("sparklog")))
    """
    given = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    ended = subprocess.run(given, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    threads = ended.stdout.replace("'sparklog-folder-watch', ", "").strip()  # where the file system notifies
    threads = threads.replace(", 'sparklog-request'", "")  # that opened the cluster, and waits for the next such call
    assert threads == "['sparklog-fetcher', 'sparklog-heartbeat', 'sparklog-offsets']"


def test_closing_without_a_store_ends_with_its_time_and_the_listener_is_told():
    outage = Outage(MemoryStore())
    member = Member(with_topic(outage.cluster, "ab"), "t", default_api_timeout_ms=600_000)
    run(lambda: member.text == "ab", member)
    member.consumer.commit_async()
    outage.is_on = True
    member.consumer.close(timeout_ms=300)  # else it would try as long as its default is
    assert member.listener.calls == [("assigned", [0]), ("revoked", [0])]
    outage.is_on = False  # its threads end


class HangingHeartbeats(WrappedStore):
    """Heartbeats hang while they are told to."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.go = threading.Event()
        self.go.set()
        self.hangs = threading.Event()

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if path.endswith("/heartbeat") and not self.go.is_set():
            self.hangs.set()
            self.go.wait()
        return call()


def test_a_consumer_that_unsubscribed_while_a_heartbeat_hung_can_be_a_member_again():
    """✗ It couldn't leave, so the next rounds take it for a member, and never look where the group stands."""
    store = HangingHeartbeats(MemoryStore())
    cluster = with_topic(a_cluster(store), "ab")
    with Member(cluster, "t", default_api_timeout_ms=100, request_timeout_ms=50) as member:
        run(lambda: member.text == "ab", member)
        before = member.id
        store.go.clear()
        assert store.hangs.wait(LONG_MS / 1000)
        member.consumer.unsubscribe()
        member.consumer.subscribe(["t"], listener=member.listener)
        member.poll()
        store.go.set()
        joined(member)
        assert member.id != before
        member.consumer.commit()


def test_closing_is_no_matter_of_what_an_assignor_raises():
    class Broken(RangeAssignor):
        is_broken = False

        def assign(self, *given: Any) -> Any:
            if self.is_broken:
                raise ValueError("broken")
            return super().assign(*given)

    cluster, assignor = a_topic(partitions=2), Broken()
    with Member(cluster, "t", partition_assignment_strategy=[assignor]) as a:
        b = Member(cluster, "t", partition_assignment_strategy=[assignor])
        joined(a, b, count=2)
        assignor.is_broken = True
        b.close()
        with pytest.raises(ValueError, match="broken"):
            run(lambda: False, a)
        assignor.is_broken = False
        joined(a, count=2)


def test_closing_one_that_never_polled_takes_no_time_and_asks_for_nothing():
    outage = Outage(MemoryStore())
    cluster = with_topic(outage.cluster, "ab")
    outage.is_on = True
    Member(cluster, "t").close()
    a_consumer(cluster, group_id="g").close()


def test_a_store_that_is_away_for_less_than_the_session_ends_nothing():
    outage = Outage(MemoryStore())
    cluster = with_topic(outage.cluster, "ab", partitions=2)
    with (
        Member(cluster, "t", session_timeout_ms=60_000) as a,
        Member(cluster, "t", session_timeout_ms=60_000) as b,
    ):
        joined(a, b, count=2)
        generation = a.consumer.group_metadata().generation_id
        outage.is_on = True
        for _ in range(20):
            poll_quietly(a, b)
        outage.is_on = False
        for number in (0, 1):
            send(cluster, "xyz", partition=number)
        until_polled(lambda: len(a.seen + b.seen) == 8, a, b)
        for member in (a, b):
            member.consumer.commit()
            assert [call for call, _ in member.listener.calls].count("lost") == 0
        assert a.consumer.group_metadata().generation_id == b.consumer.group_metadata().generation_id == generation


def test_members_lose_all_to_an_outage_beyond_their_session_and_then_come_back():
    outage = Outage(MemoryStore())
    cluster = with_topic(outage.cluster, "ab", partitions=2)
    with Member(cluster, "t", session_timeout_ms=200) as a, Member(cluster, "t", session_timeout_ms=200) as b:
        joined(a, b, count=2)
        outage.is_on = True
        for member in (a, b):
            until_polled(lambda member=member: "lost" in dict(member.listener.calls), member)  # type: ignore[misc]
        outage.is_on = False
        until_polled(lambda: len(a.numbers) == len(b.numbers) == 1, a, b)
        for member in (a, b):
            until_polled(lambda member=member: commits(member), a, b)  # type: ignore[misc]


def poll_quietly(*members: Member) -> None:
    """A poll may raise what reading the topic came to; it goes on."""
    for member in members:
        with suppress(StoreUnavailableError):
            member.poll(5)


def until_polled(condition: Callable[[], bool], *members: Member) -> None:
    def is_so() -> bool:
        poll_quietly(*members)
        return condition()

    until(is_so)


# What is counted

GROUP = "consumer-coordinator-metrics"


def counted(consumer: Consumer) -> dict[str, float]:
    return consumer.metrics()[GROUP]


@pytest.mark.slow
def test_commits_heartbeats_and_rebalances_are_counted():
    cluster = a_topic("ab", partitions=2)
    with Member(cluster, "t", enable_auto_commit=False) as a:
        run(lambda: a.text == "ab", a)
        a.consumer.commit()
        a.consumer.commit_async().result(LONG_MS / 1000)
        until(lambda: counted(a.consumer)["commit-total"] == 2)
        found = counted(a.consumer)
        assert (found["assigned-partitions"], found["rebalance-total"]) == (2, 1)
        assert found["commit-latency-max"] >= found["commit-latency-avg"] > 0
        assert found["commit-rate"] == pytest.approx(2 / 30, rel=0.5)
        assert found["failed-rebalance-total"] == 0
        assert min(found["last-heartbeat-seconds-ago"], found["last-rebalance-seconds-ago"]) >= 0
        until(lambda: counted(a.consumer)["heartbeat-total"] >= 3)
        with Member(cluster, "t", enable_auto_commit=False) as b:
            joined(a, b, count=2)
            assert counted(a.consumer)["rebalance-total"] == 2
            assert counted(a.consumer)["partition-revoked-latency-max"] >= 0


@pytest.mark.slow
def test_what_a_member_lost_for_want_of_polls_is_counted():
    cluster = a_topic(partitions=2)
    with (
        Member(cluster, "t", enable_auto_commit=False, max_poll_interval_ms=500) as a,
        Member(cluster, "t", enable_auto_commit=False) as b,
    ):
        run(lambda: a.numbers, a)
        joined(b, count=2)  # and the other doesn't poll
        a.poll()
        found = counted(a.consumer)
        assert found["assigned-partitions"] == 0
        assert found["failed-rebalance-total"] >= 1  # more where the machine was busy before
        assert found["failed-rebalance-rate-per-hour"] > 0
        assert found["partition-lost-latency-avg"] >= 0


def test_a_consumer_without_a_group_counts_no_heartbeats():
    with a_consumer(a_topic("a"), "t") as consumer:
        take(consumer, 1)
        found = counted(consumer)
        assert (found["assigned-partitions"], found["heartbeat-total"], found["commit-total"]) == (1, 0, 0)
        assert (found["last-heartbeat-seconds-ago"], found["last-rebalance-seconds-ago"]) == (-1, -1)
        assert math.isnan(found["commit-latency-avg"])


# Several threads


def test_a_member_may_be_used_by_threads_in_turn():
    cluster = a_topic("ab")
    with a_consumer(cluster, "t", group_id="g", **FAST) as consumer:
        assert text(take(consumer, 2)) == "ab"
        thread = threading.Thread(target=consumer.commit)
        thread.start()
        thread.join()
        assert consumer.committed(tp()) == 2


def test_a_listener_is_called_in_the_thread_that_polls():
    with Member(a_topic("ab"), "t", listener=Listener()) as member:
        thread = threading.Thread(target=run, args=(lambda: member.text == "ab", member), name="the-poller")
        thread.start()
        thread.join()
        assert member.listener.threads == {"the-poller"}
