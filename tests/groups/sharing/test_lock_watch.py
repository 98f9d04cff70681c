"""Locks end by what an observer has seen, not by anybody's clock."""

from __future__ import annotations

from sparklog.groups.sharing.lock_watch import LockWatch
from sparklog.groups.sharing.states import Lock

LOCKS = {4: Lock(member="a", duration_ms=1000), 5: Lock(member="b", duration_ms=300)}


def watch(*looks: float, locks: dict[int, Lock] = LOCKS, slow_ms: float = 0) -> LockWatch:
    watching = LockWatch(interval_ms=100)
    for began in looks:
        watching.update(locks, began_ticks_ms=began, ended_ticks_ms=began + slow_ms)
    return watching


def test_a_fresh_observer_waits_for_a_whole_lock_duration():
    assert watch(10_000).over(LOCKS) == frozenset()
    assert watch(0, 100, 200, 300).over(LOCKS) == frozenset()
    assert watch(0, 100, 200, 300, 400).over(LOCKS) == {5}
    assert watch(*range(0, 1200, 100)).over(LOCKS) == {4, 5}


def test_an_observer_that_was_suspended_takes_nobody_s_lock_for_that():
    assert watch(0, 3_600_000).over(LOCKS) == frozenset()
    assert watch(0, 3_600_000, 3_600_150).over(LOCKS) == {5}


def test_a_store_that_is_slow_shows_a_lock_when_it_answers():
    assert watch(0, 200, 400, slow_ms=150).over(LOCKS) == frozenset()
    assert watch(0, 200, 400, 600, slow_ms=150).over(LOCKS) == {5}


def test_the_locks_of_a_member_that_is_gone_are_over_at_once():
    assert watch(0).over(LOCKS, gone={"a"}) == {4}


def test_a_lock_that_was_renewed_is_another_one_and_counts_anew():
    watching = watch(0, 100, 200, 300)
    renewed = {4: LOCKS[4], 9: Lock(member="b", duration_ms=300)}
    watching.update(renewed, began_ticks_ms=400, ended_ticks_ms=400)
    assert watching.over(renewed) == frozenset()
    assert watching.over({5: LOCKS[5]}) == frozenset()
