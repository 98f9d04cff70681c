"""Who lives, by an observer's own completed looks (rules G3, G4)."""

from __future__ import annotations

import pytest

from sparklog.groups.membership.liveness import Marks, Watch
from sparklog.groups.membership.member_state import MemberState

INTERVAL_MS = 3_000
SESSION_MS = 10_000


def a_state(member_id: str = "a", **changes: object) -> MemberState:
    given: dict[str, object] = {
        "member_id": member_id,
        "instance_id": None,
        "client_id": "c",
        "host": "h",
        "topics": ("t",),
        "assignors": ("range",),
        "session_timeout_ms": SESSION_MS,
        "generation": 0,
        "claims": frozenset(),
        **changes,
    }
    return MemberState(**given)  # type: ignore[arg-type]


def a_watch(beat: str = "1") -> Watch:
    """Has seen member ``a`` once, at tick 0."""
    watch = Watch(heartbeat_interval_ms=INTERVAL_MS)
    watch.look({"a": Marks("s", beat)}, now_ticks_ms=0)
    watch.read("a", a_state())
    return watch


def test_a_member_whose_marks_stand_still_is_dead_after_its_session():
    watch = a_watch()
    for tick in range(INTERVAL_MS, SESSION_MS, INTERVAL_MS):
        watch.look({"a": Marks("s", "1")}, now_ticks_ms=tick)
        assert not watch.members["a"].is_dead
    watch.look({"a": Marks("s", "1")}, now_ticks_ms=SESSION_MS + 1)
    assert watch.members["a"].is_dead


@pytest.mark.parametrize("marks", [Marks("s", "2"), Marks("s2", "1")])
def test_a_heartbeat_or_a_new_state_ends_the_silence(marks):
    watch = a_watch()
    watch.look({"a": Marks("s", "1")}, now_ticks_ms=5_000)
    watch.look({"a": marks}, now_ticks_ms=10_000)
    assert (watch.members["a"].silence_ms, watch.members["a"].beats_seen) == (0, 1)


def test_the_session_that_counts_is_the_watched_members_own():
    watch = a_watch()
    watch.read("a", a_state(session_timeout_ms=3_000))
    watch.look({"a": Marks("s", "1")}, now_ticks_ms=4_000)
    assert watch.members["a"].is_dead


def test_an_observer_that_was_suspended_for_an_hour_declares_nobody_dead():
    """✗ A resumed host declares everyone dead."""
    watch = a_watch()
    watch.look({"a": Marks("s", "1")}, now_ticks_ms=3_600_000)
    assert watch.members["a"].silence_ms == 2 * INTERVAL_MS
    assert not watch.members["a"].is_dead


def test_only_members_that_described_themselves_anew_are_read():
    watch = a_watch()
    assert watch.look({"a": Marks("s", "2"), "b": Marks("s", "1")}, now_ticks_ms=1) == ["b"]
    watch.read("b", a_state("b"))
    assert watch.look({"a": Marks("s", "3"), "b": Marks("s2", "2")}, now_ticks_ms=2) == ["b"]


def test_one_whose_state_could_not_be_read_is_read_again():
    watch = Watch(heartbeat_interval_ms=INTERVAL_MS)
    assert watch.look({"a": Marks("s", None)}, now_ticks_ms=0) == ["a"]
    watch.read("a", None)
    assert watch.look({"a": Marks("s", None)}, now_ticks_ms=1) == ["a"]
    assert not watch.members["a"].is_dead


def test_a_heartbeat_without_a_state_is_no_member():
    watch = Watch(heartbeat_interval_ms=INTERVAL_MS)
    assert watch.look({"a": Marks(None, "1")}, now_ticks_ms=0) == []


def test_one_that_is_gone_from_the_listing_is_forgotten():
    watch = a_watch()
    watch.look({}, now_ticks_ms=1)
    assert watch.members == {}
