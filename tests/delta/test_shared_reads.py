"""What writers of a process read of a log for each other: as good as a look of one's own that is answered late."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from sparklog.delta.log import DeltaLog
from sparklog.delta.shared_reads import KEPT_MS, SharedReads, shared_reads_of
from sparklog.errors import StoreUnavailableError
from sparklog.log import open_cluster
from sparklog.storage import MemoryStore
from sparklog.storage.cleanup_marks import mark_name
from sparklog.storage.entry_log import PositionLost
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock
from tests.delta.test_log import TRUST_MS, a_bare_log, at


def a_shared_log(*tokens: str) -> tuple[DeltaLog, CountingStore, ManualClock]:
    """A log whose readers share what they read, and its store, which counts."""
    store, clock = CountingStore(MemoryStore()), ManualClock()
    log = replace(a_bare_log(*tokens, store=store, clock=clock), shared=SharedReads(writer_count=2))
    store.reset()
    return log, store, clock


def test_what_one_has_read_another_takes_without_a_request() -> None:
    log, store, clock = a_shared_log("a", "b", "c", "d")
    clock.advance(10)
    found = log.look(at(0, "a"), ahead=2)
    store.reset()
    shared = log.shared_look(at(0, "a"))
    assert shared is not None
    assert shared.entries == found.entries
    assert shared.position == at(2, "c")  # finding entries moves no anchor
    assert log.shared_look(at(1, "b")).entries == found.entries[1:]  # type: ignore[union-attr]
    assert store.counts() == {}


def test_behind_a_gap_nothing_is_taken() -> None:
    log, _, _ = a_shared_log("a", "b", "c")
    log.look(at(1, "b"))
    assert log.shared_look(at(0, "a")) is None
    log.look(at(0, "a"))
    assert [entry.token for entry in log.shared_look(at(0, "a")).entries] == ["b", "c"]  # type: ignore[union-attr]


def test_a_log_that_shares_nothing_reads_for_itself() -> None:
    log, _, _ = a_shared_log("a", "b")
    alone = replace(log, shared=None)
    assert [entry.token for entry in alone.look(at(0, "a")).entries] == ["b"]
    assert alone.shared_look(at(0, "a")) is None
    assert alone.looked_for_since(at(0, "a"), within_ms=100) is None
    assert log.shared_look(at(0, "a")) is None


def test_a_look_that_began_before_ones_own_anchor_counts_for_nothing() -> None:
    log, _, clock = a_shared_log("a", "b")
    clock.advance(10)
    log.look(at(0, "a"))
    assert log.shared_look(at(0, "a", anchor=10)) is not None
    assert log.shared_look(at(0, "a", anchor=11)) is None


def test_entries_are_taken_for_five_seconds_and_the_newest_sixteen_are_kept() -> None:
    log, _, clock = a_shared_log(*map(str, range(20)))
    log.look(at(0, "0"), ahead=19)
    clock.advance(KEPT_MS)
    assert log.shared_look(at(2, "2")) is None
    assert len(log.shared_look(at(3, "3")).entries) == 16  # type: ignore[union-attr]
    clock.advance(1)
    assert log.shared_look(at(3, "3")) is None


def test_that_there_is_no_entry_counts_once_and_from_when_that_look_began() -> None:
    log, store, clock = a_shared_log("a")
    clock.advance(10)
    log.look(at(0, "a"))
    store.reset()
    assert log.shared_look(at(0, "a")) is None
    assert log.shared_look(at(0, "a"), ended_from_ticks_ms=11) is None
    found = log.shared_look(at(0, "a"), ended_from_ticks_ms=10)
    assert found is not None
    assert (found.entries, found.position) == ((), at(0, "a", anchor=10))
    assert log.shared_look(found.position, ended_from_ticks_ms=10) is None
    assert log.shared_look(at(1, "b"), ended_from_ticks_ms=10) is None  # of another entry
    assert store.counts() == {}


def test_behind_entries_that_were_found_their_end_is_shared_too() -> None:
    log, _, clock = a_shared_log("a", "b")
    clock.advance(10)
    log.look(at(0, "a"), ahead=3)
    found = log.shared_look(at(1, "b"), ended_from_ticks_ms=0)
    assert found is not None
    assert found.position == at(1, "b", anchor=10)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_position_whose_trust_has_run_out_is_verified_first(is_there: bool) -> None:
    """Rule L1: by requests of one's own, whatever others have found."""
    log, store, clock = a_shared_log("a", "b", *("c" * is_there))
    clock.advance(TRUST_MS + 1)
    log.look(at(1, "b", anchor=TRUST_MS))
    store.reset()
    found = log.shared_look(at(1, "b"), ended_from_ticks_ms=0)
    assert found is not None
    assert len(found.entries) == is_there
    assert store.counts() == {"get": 1, "list": 1 + is_there}  # the marks only where the log is seen to go on


def test_a_position_that_is_lost_takes_nothing_and_shares_nothing() -> None:
    log, store, clock = a_shared_log("a", "b", "c")
    clock.advance(TRUST_MS + 1)
    store.put(f"{log.cleanup_marks}{mark_name(2)}", b"")
    with pytest.raises(PositionLost):
        log.look(at(1, "b"))
    assert log.shared_look(at(1, "b", anchor=TRUST_MS)) is None
    log.look(at(1, "b", anchor=TRUST_MS))
    with pytest.raises(PositionLost):
        log.shared_look(at(1, "b"))


def test_a_look_is_under_way_until_it_ends_or_fails_or_takes_too_long() -> None:
    log, _, clock = a_shared_log("a", "b")
    seen: list[tuple[float | None, float | None]] = []
    began = clock.ticks_ms()

    def ask(_: object) -> bool:
        clock.advance(30)
        position = at(0, "a")
        seen.append((log.looked_for_since(position, within_ms=30), log.looked_for_since(position, within_ms=29)))
        seen.append((log.looked_for_since(at(1, "b"), within_ms=30), None))
        return True

    fault = Fault(kind=FaultKind.THROTTLED, ops=["get"], when=ask)
    with pytest.raises(StoreUnavailableError):
        replace(log, store=FaultyStore(log.store, fault, clock=clock)).look(at(0, "a"))
    assert seen[:2] == [(began, None), (None, None)]
    assert log.looked_for_since(at(0, "a"), within_ms=1_000) is None
    assert log.shared_look(at(0, "a"), ended_from_ticks_ms=0) is None


def test_those_share_who_have_one_store_or_opened_it_by_the_same_options(tmp_path) -> None:
    clock = ManualClock()
    root = str(tmp_path)
    first, second = (open_cluster(root, clock=clock) for _ in range(2))
    assert first.store is not second.store
    assert first.sharing_key == second.sharing_key
    for other in (open_cluster(root, clock=ManualClock()), open_cluster(MemoryStore(), clock=clock)):
        assert other.sharing_key != first.sharing_key
    shared = shared_reads_of(first.sharing_key, "topics/a")
    assert shared_reads_of(second.sharing_key, "topics/a") is shared
    assert shared_reads_of(second.sharing_key, "topics/b") is not shared


def test_a_forked_child_shares_nothing_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = shared_reads_of("cluster", "topics/a")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert shared_reads_of("cluster", "topics/a") is not shared


def test_what_nobody_holds_is_kept_no_longer() -> None:
    shared = shared_reads_of("cluster", "topics/a")
    shared.add_absence(7, began_ticks_ms=1.0, ended_ticks_ms=2.0)
    del shared
    assert shared_reads_of("cluster", "topics/a").absence(7, after_ticks_ms=0.0, ended_from_ticks_ms=0.0) is None


def test_of_one_writer_alone_nothing_is_kept() -> None:
    log, _, _ = a_shared_log("a", "b")
    alone = shared_reads_of("cluster", "topics/alone")
    log = replace(log, shared=alone)
    log.look(at(0, "a"))
    assert log.shared_look(at(0, "a")) is None
    assert shared_reads_of("cluster", "topics/alone") is alone
    log.look(at(0, "a"))
    assert [entry.version for entry in log.shared_look(at(0, "a")).entries] == [1]  # type: ignore[union-attr]


def test_a_topic_that_was_made_again_keeps_its_first_entries() -> None:
    log, _, _ = a_shared_log(*map(str, range(20)))
    log.look(at(0, "0"), ahead=19)
    again, _, _ = a_shared_log("x", "y")
    again = replace(again, shared=log.shared)
    again.look(at(0, "x"))
    assert [entry.token for entry in again.shared_look(at(0, "x")).entries] == ["y"]  # type: ignore[union-attr]
