"""The liveness of a group's members, as one of them tracks it by their heartbeats. Pure (rules G3, observed time; G4,
one listing).

Silence is counted over the observer's own completed listings, and no gap between two of them counts for more than twice
the heartbeat interval: an observer that was suspended, or that couldn't reach the store, declares nobody dead for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sparklog.groups.membership.member_state import MemberState

__all__ = ["LivenessTracker", "MemberMarks", "TrackedMember"]

_GAPS_COUNT_UP_TO = 2
"""Heartbeat intervals. Source: rule G3, observed time."""


class MemberMarks(NamedTuple):
    """A member's two objects in a listing; each changes when the object is written again."""

    state: str | None
    """None: there is no such object, so it is no member."""
    heartbeat: str | None


@dataclass(slots=True, kw_only=True)
class TrackedMember:
    """A member as the listings show it; the observer itself is one, too."""

    marks: MemberMarks
    silence_ms: float = 0.0
    heartbeats_seen: int = 0
    """How often its marks were seen to change since it was listed first."""
    state: MemberState | None = None
    """The state as it was read last; None before it could be read."""
    state_mark: str | None = None
    """The mark of the object that ``state`` was read from."""

    @property
    def is_dead(self) -> bool:
        """Was it silent for longer than its session may be?"""
        return self.state is not None and self.silence_ms > self.state.session_timeout_ms


class LivenessTracker:
    """The members that are listed, and for how long each was silent. Owned by one thread."""

    def __init__(self, *, heartbeat_interval_ms: float) -> None:
        self._longest_gap_ms = _GAPS_COUNT_UP_TO * heartbeat_interval_ms
        self._updated_ticks_ms: float | None = None
        self.members: dict[str, TrackedMember] = {}
        """By member id."""

    def update(
        self, listed: Mapping[str, MemberMarks], *, now_ticks_ms: float, began_ticks_ms: float | None = None
    ) -> list[str]:
        """Compare a completed listing with the one before. Returns the members whose state must be read, since it was
        rewritten.

        Silence is counted from the end of the listing that showed a sign of life first to the beginning of the newest
        one: what came while a slow store was answering was not seen by it.
        """
        began = now_ticks_ms if began_ticks_ms is None else began_ticks_ms
        gap = 0.0 if self._updated_ticks_ms is None else began - self._updated_ticks_ms
        counted = min(gap, self._longest_gap_ms)
        self._updated_ticks_ms = began
        fresh = max(began - now_ticks_ms, -self._longest_gap_ms)
        for member_id in self.members.keys() - listed.keys():
            del self.members[member_id]
        for member_id, marks in listed.items():
            known = self.members.get(member_id)
            if known is None:
                self.members[member_id] = TrackedMember(marks=marks, silence_ms=fresh)
            elif known.marks != marks:
                known.marks, known.silence_ms = marks, fresh
                known.heartbeats_seen += 1
            else:
                known.silence_ms += counted
        return [i for i, m in self.members.items() if m.marks.state is not None and m.state_mark != m.marks.state]

    def set_state(self, member_id: str, state: MemberState | None) -> None:
        """Keep the state of a member as it was read; None where it is gone."""
        known = self.members[member_id]
        known.state = state
        known.state_mark = known.marks.state if state is not None else None

    def remove(self, member_id: str) -> None:
        """Forget a member whose objects were deleted."""
        self.members.pop(member_id, None)
