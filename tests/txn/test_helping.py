"""What consumers do for producers that died: they finish decisions that are left lying, at a bounded cost (rule T4)."""

from __future__ import annotations

import logging

import pytest

from sparklog.clock import SystemClock
from sparklog.errors import StoreUnavailableError
from sparklog.log import Cluster
from sparklog.paths import transaction_entry, transaction_marker
from sparklog.storage import MemoryStore
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock
from sparklog.txn.helping import Helper, helper_of
from tests.support import DAY_MS, T0_MS
from tests.txn.support import Driver, a_cluster, a_world, contents, states, values
from tests.txn.test_recovery import NEW, filled, prepare

LOOK_MS = Helper.LOOK_MS


def look(helper: Helper, cluster: Cluster) -> list[str]:
    return helper.look(cluster, cluster.clock.ticks_ms())


def test_a_helper_finishes_what_it_saw_unchanged_for_five_seconds() -> None:
    _, clock, cluster = a_world()
    prepare(filled(cluster))
    helper = Helper()
    assert look(helper, cluster) == []
    clock.advance(4_999)
    assert look(helper, cluster) == []
    clock.advance(1)
    assert look(helper, cluster) == ["tx"]
    assert contents(cluster) == NEW
    clock.advance(LOOK_MS)
    assert look(helper, cluster) == look(helper, cluster) == []


def test_a_helper_leaves_a_living_producer_alone_and_finds_a_dead_one_in_two_minutes() -> None:
    _, clock, cluster = a_world()
    driver = Driver(cluster).init()
    helper = Helper()
    for value in "abcdefgh":
        driver.begin()
        driver.send("t", value)
        prepare(driver)
        assert look(helper, cluster) == []
        clock.advance(LOOK_MS)
        driver.commit()
        driver.complete()
    assert states(cluster) == ["Empty", *["PrepareCommit", "CompleteCommit"] * 8]
    driver.begin()
    driver.send("t", "i")
    prepare(driver)
    waited_ms = 0.0
    while look(helper, cluster) == []:
        clock.advance(LOOK_MS)
        waited_ms += LOOK_MS
        assert waited_ms <= 2 * Helper.LIVELY_MS
    assert values(cluster, "t") == [*"abcdefghi"]


def test_a_helper_that_slept_for_days_begins_anew() -> None:
    memory, clock, cluster = a_world()
    driver = filled(cluster)
    helper = Helper()
    look(helper, cluster)
    prepare(driver)
    memory.delete([transaction_entry("tx", 1)])  # what it stands on was cleaned
    clock.advance(DAY_MS)
    assert look(helper, cluster) == []
    clock.advance(LOOK_MS + Helper.LIVELY_MS)
    assert look(helper, cluster) == ["tx"]


def test_a_session_that_rests_is_hardly_looked_at_and_at_once_when_it_goes_on() -> None:
    """It refreshes its marker before it decides anything. ✗ Each consumer asks for each id every half minute."""
    memory, clock, cluster = a_world()
    driver = Driver(cluster).init()
    counting = CountingStore(memory)
    helper, seen = Helper(), a_cluster(counting, clock)
    looks = 0
    while clock.ticks_ms() < DAY_MS:
        look(helper, seen)
        looks += 1
        clock.advance(LOOK_MS)
    counts = counting.counts()
    assert counts["list"] - looks < 60  # of that one id, in 2,880 looks
    assert counts["get"] == 1

    driver.begin()
    driver.send("t", "a")
    prepare(driver)
    assert look(helper, seen) == []
    clock.advance(LOOK_MS)
    assert look(helper, seen) == ["tx"]
    assert values(cluster, "t") == ["a"]


def test_a_session_that_goes_on_is_looked_at_every_two_minutes() -> None:
    memory, clock, cluster = a_world()
    driver = Driver(cluster).init()
    counting = CountingStore(memory)
    helper, seen = Helper(), a_cluster(counting, clock)
    looks = 0
    while clock.ticks_ms() < DAY_MS / 24:
        look(helper, seen)
        looks += 1
        driver.session.begin(ticks_ms=clock.ticks_ms())
        driver.session.commit({}, deadline=driver.deadline)
        driver.complete()
        clock.advance(LOOK_MS)
    counts = counting.counts()
    assert looks == 120
    assert counts["get"] <= 32
    assert counts["list"] - looks <= 32


def test_a_look_asks_for_no_more_ids_than_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, clock, cluster = a_world()
    for number in range(50):
        Driver(cluster, f"id {number}", topics=()).init()
    Driver(cluster, "closed", topics=()).init().session.close()
    counting = CountingStore(memory)
    helper, seen = Helper(), a_cluster(counting, clock)
    for expected in (32, 18, 0):
        counting.reset()
        look(helper, seen)
        assert counting.counts() == {"list": 1 + expected, **({"get": expected} if expected else {})}


def test_one_helper_of_a_process_looks_at_a_time_and_every_half_minute() -> None:
    helper = Helper()
    assert helper.begin_look(0.0)
    assert not helper.begin_look(LOOK_MS)
    helper.end_look()
    assert not helper.begin_look(LOOK_MS - 1)
    assert helper.begin_look(LOOK_MS)


def test_the_consumers_of_a_process_share_a_helper_for_each_cluster() -> None:
    def a_system_cluster(cluster_id: str) -> Cluster:
        clock = SystemClock()
        store = RetryingStore(MemoryStore("helped", clock=clock), clock=clock)
        return Cluster(cluster_id=cluster_id, store=store, clock=clock)

    one = helper_of(a_system_cluster("helped"))
    assert helper_of(a_system_cluster("helped")) is one
    assert helper_of(a_system_cluster("other")) is not one
    first, second = a_world()[2], a_world()[2]  # of two clocks, whose ticks can't be compared
    kept = helper_of(first)
    assert helper_of(second) is not kept


def test_what_a_helper_can_not_do_is_logged_once_and_hinders_nothing(caplog: pytest.LogCaptureFixture) -> None:
    memory, clock, cluster = a_world()
    prepare(filled(cluster))
    memory.put(transaction_marker("bad", 1), b"")
    memory.put(transaction_entry("bad", 1), b"{")
    helper = Helper()
    with caplog.at_level(logging.WARNING, "sparklog.txn"):
        assert look(helper, cluster) == []
        clock.advance(LOOK_MS)
        assert look(helper, cluster) == ["tx"]
        clock.advance(LOOK_MS)
        assert look(helper, cluster) == []
    assert [record.getMessage()[:44] for record in caplog.records] == ["looking after transactional id 'bad' failed:"]


def test_an_id_that_can_not_be_helped_is_tried_ever_less_often() -> None:
    """✗ A topic that nobody can write to is loaded by each consumer every half minute."""
    memory, clock, cluster = a_world()
    prepare(filled(cluster))
    denied = FaultyStore(memory, Fault(kind=FaultKind.READ_ONLY, path="topics/u/", times=None))
    counting = CountingStore(denied)
    helper, seen = Helper(), a_cluster(counting, clock)
    while clock.ticks_ms() < DAY_MS / 12:
        assert look(helper, seen) == []
        clock.advance(LOOK_MS)
    assert counting.counts()["create"] < 12  # each attempt publishes what isn't refused, once in all
    assert values(cluster, "t") == ["a"]
    assert values(cluster, "u") == []


def test_a_helper_raises_nothing_where_the_store_is_away(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(start_ms=T0_MS)
    faulty = FaultyStore(MemoryStore(clock=clock), Fault(kind=FaultKind.THROTTLED, times=None))
    with caplog.at_level(logging.WARNING, "sparklog.txn"):
        assert look(Helper(), a_cluster(faulty, clock)) == []
    assert StoreUnavailableError.__name__ in caplog.text
    assert clock.ticks_ms() == pytest.approx(Helper.PATIENCE_MS)


def test_of_many_sessions_a_helper_looks_at_some_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    _, clock, cluster = a_world()
    for name in "abcde":
        driver = Driver(cluster, name, topics=("t",)).init()
        driver.begin()
        driver.send("t", name)
        prepare(driver)
    monkeypatch.setattr(Helper, "MOST_IDS", 2)
    monkeypatch.setattr(Helper, "MOST_FINISHED", 1)
    helper = Helper()
    finished: list[str] = []
    for _ in range(24):
        found = look(helper, cluster)
        assert len(found) <= 1
        finished += found
        clock.advance(LOOK_MS)
    assert sorted(finished) == list("abcde")
    assert sorted(values(cluster, "t")) == list("abcde")


def test_a_look_ends_when_its_consumer_does() -> None:
    memory, clock, cluster = a_world()
    for name in "abc":
        Driver(cluster, name, topics=()).init()
    counting = CountingStore(memory)
    Helper().look(a_cluster(counting, clock), clock.ticks_ms(), is_stopped=lambda: counting.counts().get("get", 0) > 0)
    assert counting.counts() == {"list": 2, "get": 1}
