"""When a consumer looks after transactions: as long as it is polled, by turns with the others of its process."""

from __future__ import annotations

import threading

import pytest

from sparklog.consumer.transaction_help import TransactionHelp
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, ManualClock
from sparklog.txn.helping import Helper
from tests.consumer.support import a_cluster
from tests.producer.support import HeldStore


def looks(counting: CountingStore) -> int:
    """How often markers were listed."""
    return counting.counts().get("list", 0)


def poll(helping: TransactionHelp) -> None:
    helping.polled()
    assert helping.join(60)


def test_a_consumer_looks_every_half_minute_while_it_is_polled() -> None:
    clock = ManualClock()
    counting = CountingStore(MemoryStore(clock=clock))
    helping = TransactionHelp(a_cluster(counting, clock))
    poll(helping)
    assert looks(counting) == 0  # a consumer that lives for a moment looks at nothing
    clock.advance(Helper.LOOK_MS)
    for _ in range(10):
        poll(helping)
    assert looks(counting) == 1
    clock.advance(100 * Helper.LOOK_MS)  # it isn't polled
    assert looks(counting) == 1
    for expected in (2, 3, 4):
        poll(helping)
        assert looks(counting) == expected
        clock.advance(Helper.LOOK_MS)


def test_the_consumers_of_a_process_look_by_turns() -> None:
    clock = ManualClock()
    counting = CountingStore(MemoryStore(clock=clock))
    cluster = a_cluster(counting, clock)
    several = [TransactionHelp(cluster) for _ in range(5)]
    for _ in range(10):
        clock.advance(Helper.LOOK_MS / 2)
        for helping in several:
            poll(helping)
    assert looks(counting) <= 5
    several[0].stop()
    clock.advance(2 * Helper.LOOK_MS)
    before = looks(counting)
    for helping in several:
        poll(helping)
    assert looks(counting) == before + 1  # the others go on


def test_an_interrupt_of_a_poll_leaves_no_look_that_is_said_to_be_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    counting = CountingStore(MemoryStore(clock=clock))
    helping = TransactionHelp(a_cluster(counting, clock))

    def interrupted(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    clock.advance(Helper.LOOK_MS)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            helping.polled()
    clock.advance(Helper.LOOK_MS)
    poll(helping)
    assert looks(counting) == 1


def test_a_poll_waits_for_no_look_and_a_close_for_as_long_as_it_may() -> None:
    clock = ManualClock()
    held = HeldStore(MemoryStore(clock=clock))
    helping = TransactionHelp(a_cluster(held, clock))
    clock.advance(Helper.LOOK_MS)
    held.hold("list")
    helping.polled()
    assert held.reached.wait(60)
    helping.stop()
    assert not helping.join(0.01)
    held.let_go()
    assert helping.join(60)
    clock.advance(Helper.LOOK_MS)
    helping.polled()
    assert helping.join(0)  # it was stopped: it begins no other


def test_where_no_thread_can_be_had_the_next_poll_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    counting = CountingStore(MemoryStore(clock=clock))
    helping = TransactionHelp(a_cluster(counting, clock))

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    clock.advance(Helper.LOOK_MS)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        poll(helping)
    clock.advance(Helper.LOOK_MS)
    poll(helping)
    assert looks(counting) == 1
