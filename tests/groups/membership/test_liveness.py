"""Who lives, by an observer's own completed looks (rules G3, G4)."""

from __future__ import annotations

import pytest

from sparklog.groups.membership.liveness import LivenessTracker, MemberMarks
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


def a_tracker(beat: str = "1") -> LivenessTracker:
    """Has seen member ``a`` once, at tick 0."""
    tracker = LivenessTracker(heartbeat_interval_ms=INTERVAL_MS)
    tracker.update({"a": MemberMarks("s", beat)}, now_ticks_ms=0)
    tracker.set_state("a", a_state())
    return tracker


def test_a_member_whose_marks_stand_still_is_dead_after_its_session():
    tracker = a_tracker()
    for tick in range(INTERVAL_MS, SESSION_MS, INTERVAL_MS):
        tracker.update({"a": MemberMarks("s", "1")}, now_ticks_ms=tick)
        assert not tracker.members["a"].is_dead
    tracker.update({"a": MemberMarks("s", "1")}, now_ticks_ms=SESSION_MS + 1)
    assert tracker.members["a"].is_dead


@pytest.mark.parametrize("marks", [MemberMarks("s", "2"), MemberMarks("s2", "1")])
def test_a_heartbeat_or_a_new_state_ends_the_silence(marks):
    tracker = a_tracker()
    tracker.update({"a": MemberMarks("s", "1")}, now_ticks_ms=5_000)
    tracker.update({"a": marks}, now_ticks_ms=10_000)
    assert (tracker.members["a"].silence_ms, tracker.members["a"].heartbeats_seen) == (0, 1)


def test_the_session_that_counts_is_the_watched_members_own():
    tracker = a_tracker()
    tracker.set_state("a", a_state(session_timeout_ms=3_000))
    tracker.update({"a": MemberMarks("s", "1")}, now_ticks_ms=4_000)
    assert tracker.members["a"].is_dead


def test_an_observer_that_was_suspended_for_an_hour_declares_nobody_dead():
    """✗ A resumed host declares everyone dead."""
    tracker = a_tracker()
    tracker.update({"a": MemberMarks("s", "1")}, now_ticks_ms=3_600_000)
    assert tracker.members["a"].silence_ms == 2 * INTERVAL_MS
    assert not tracker.members["a"].is_dead


def test_only_members_that_described_themselves_anew_are_read():
    tracker = a_tracker()
    assert tracker.update({"a": MemberMarks("s", "2"), "b": MemberMarks("s", "1")}, now_ticks_ms=1) == ["b"]
    tracker.set_state("b", a_state("b"))
    assert tracker.update({"a": MemberMarks("s", "3"), "b": MemberMarks("s2", "2")}, now_ticks_ms=2) == ["b"]


def test_one_whose_state_could_not_be_read_is_read_again():
    tracker = LivenessTracker(heartbeat_interval_ms=INTERVAL_MS)
    assert tracker.update({"a": MemberMarks("s", None)}, now_ticks_ms=0) == ["a"]
    tracker.set_state("a", None)
    assert tracker.update({"a": MemberMarks("s", None)}, now_ticks_ms=1) == ["a"]
    assert not tracker.members["a"].is_dead


def test_a_heartbeat_without_a_state_is_no_member():
    tracker = LivenessTracker(heartbeat_interval_ms=INTERVAL_MS)
    assert tracker.update({"a": MemberMarks(None, "1")}, now_ticks_ms=0) == []


def test_one_that_is_gone_from_the_listing_is_forgotten():
    tracker = a_tracker()
    tracker.update({}, now_ticks_ms=1)
    assert tracker.members == {}
