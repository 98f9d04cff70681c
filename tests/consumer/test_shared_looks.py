"""Consumers of one process that follow the same topic: how many requests, and how soon each has news."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sparklog.consumer.shared_looks import Absence, SharedLooks, shared_looks_of
from sparklog.errors import StoreUnavailableError
from sparklog.log import open_cluster
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock
from tests.consumer.support import Rounds, a_cluster, send, tp, with_topic
from tests.overlapping import OverlappingClock, SlowStore, overlapping


class Crowd:
    """Fetchers of one topic on a store that takes 20 ms a request, driven as their threads do, on simulated time."""

    def __init__(self, clock: OverlappingClock, count: int, *, is_shared: bool = True, **settings: Any) -> None:
        self.clock = clock
        self.memory = MemoryStore(clock=clock)
        with_topic(a_cluster(self.memory, clock), "a")
        self.store = SlowStore(self.memory, clock, latency_ms=20.0)
        cluster = a_cluster(self.store, clock)
        clusters = [cluster if is_shared else a_cluster(self.store, clock) for _ in range(count)]
        self.members = [Rounds(each, **settings) for each in clusters]
        for member in self.members:
            member.assign(tp())

    def run(self, duration_ms: float) -> dict[str, int]:
        """Let time pass; what is asked of the store meanwhile."""
        self.store.reset()
        end, clock = self.clock.now + duration_ms, self.clock
        while clock.now < end:
            were_busy = [member.fetcher.round(clock.now) for member in self.members]
            if any(were_busy):
                continue
            clock.wait_until(min(end, *(self._due(member) for member in self.members)))
        return self.store.counts()

    def taken(self) -> list[int]:
        """The number of records that each has read and that weren't taken yet."""
        return [len(member.take(tp())) for member in self.members]

    @staticmethod
    def _due(member: Rounds) -> float:
        with member.fetch_state.lock:
            return member.fetcher.next_due_ticks_ms()


@pytest.fixture
def clock() -> Iterator[OverlappingClock]:
    with overlapping() as clock:
        yield clock


def a_quiet_crowd(clock: OverlappingClock, count: int, **settings: Any) -> Crowd:
    crowd = Crowd(clock, count, **settings)
    crowd.run(30_000)
    assert crowd.taken() == [1] * count
    return crowd


@pytest.mark.parametrize(("count", "is_shared", "gets"), [(1, True, 20), (3, True, 20), (8, True, 20), (3, False, 60)])
def test_idle_consumers_of_one_topic_cost_the_requests_of_one(clock, count, is_shared, gets):
    crowd = a_quiet_crowd(clock, count, is_shared=is_shared)
    counts = crowd.run(10_000)
    assert set(counts) == {"get"}
    assert gets * 0.9 <= counts["get"] <= gets * 1.1


@pytest.mark.slow
def test_a_record_after_long_silence_comes_to_all_within_fetch_max_wait_ms(clock):
    crowd = a_quiet_crowd(clock, 4)
    for number in range(10):
        crowd.run(20_000 + 37 * number)
        send(a_cluster(crowd.memory, clock), "b")
        crowd.run(500 + 4 * 3 * 20)  # each one's looks, and the file, in one thread here
        assert crowd.taken() == [1] * 4


def test_a_consumer_that_seeks_looks_for_itself(clock):
    crowd = a_quiet_crowd(clock, 2)
    send(a_cluster(crowd.memory, clock), "b")
    crowd.members[1].seek(tp(), 0)
    crowd.members[1].run()
    assert [value for _, value in crowd.members[1].take(tp())] == ["a", "b"]


def test_each_verifies_its_own_position_once_trust_in_it_has_run_out(clock):
    """Rule L1: no look of another consumer stands in for that."""
    crowd = a_quiet_crowd(clock, 3)
    clock.advance(600_000)
    assert crowd.run(1_000)["list"] == 3
    send(a_cluster(crowd.memory, clock), "b")
    crowd.run(1_000)
    assert crowd.taken() == [1] * 3


def test_a_look_that_fails_is_the_failure_of_one_consumer_and_the_next_one_looks():
    clock, memory = ManualClock(), MemoryStore()
    with_topic(a_cluster(memory, clock), "a")
    store = FaultyStore(
        memory, Fault(kind=FaultKind.THROTTLED, ops=["get"], times=2, when=lambda _: clock.ticks_ms() > 0)
    )
    cluster = a_cluster(store, clock)
    first, second = Rounds(cluster), Rounds(cluster)
    for member in (first, second):
        member.assign(tp())
        member.run()
    clock.advance(20_000)
    first.fetcher.round()
    assert isinstance(first.fetch_state.errors["t"], StoreUnavailableError)
    send(a_cluster(memory, clock), "b")
    second.run()
    assert [value for _, value in second.take(tp())] == ["a", "b"]


# What is shared, and by whom


def test_only_a_newer_look_for_the_same_entry_is_taken():
    looks = SharedLooks()
    assert looks.absence("t", "7.json", after_ticks_ms=0) is None
    looks.begin("t", "7.json", 100)
    looks.end("t", Absence("7.json", 100, 120))
    assert looks.absence("t", "7.json", after_ticks_ms=99) == Absence("7.json", 100, 120)
    assert looks.absence("t", "7.json", after_ticks_ms=100) is None
    assert looks.absence("t", "8.json", after_ticks_ms=0) is None
    assert looks.absence("u", "7.json", after_ticks_ms=0) is None
    looks.end("t", None)
    assert looks.absence("t", "7.json", after_ticks_ms=0) is not None


def test_a_look_under_way_is_waited_for_but_not_for_long():
    looks = SharedLooks()
    looks.begin("t", "7.json", 100)
    assert looks.is_under_way("t", "7.json", now_ticks_ms=300)
    assert not looks.is_under_way("t", "8.json", now_ticks_ms=300)
    assert not looks.is_under_way("t", "7.json", now_ticks_ms=350)
    looks.end("t", None)
    assert not looks.is_under_way("t", "7.json", now_ticks_ms=300)


def test_clusters_opened_by_the_same_uri_and_options_share_looks(tmp_path, monkeypatch):
    first, second = open_cluster(tmp_path), open_cluster(str(tmp_path))
    looks = shared_looks_of(first)
    assert shared_looks_of(second) is looks
    assert shared_looks_of(replace(first, clock=ManualClock())) is not looks
    assert shared_looks_of(replace(first, cluster_id="another")) is not looks
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert shared_looks_of(open_cluster(tmp_path)) is not looks


def test_stores_given_as_objects_share_looks_only_as_one_object():
    store = CountingStore(MemoryStore())
    cluster = open_cluster(store)
    assert shared_looks_of(cluster) is shared_looks_of(replace(cluster))
    assert shared_looks_of(cluster) is not shared_looks_of(open_cluster(store))
