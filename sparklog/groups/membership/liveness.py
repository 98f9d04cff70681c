"""Who lives: what a member knows of the others by watching their heartbeats. Pure (rules G3, G4).

Silence is counted over the observer's own completed looks, and no gap between two of them counts for more than twice
the heartbeat interval: an observer that was suspended, or that couldn't reach the store, declares nobody dead for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sparklog.groups.membership.member_state import MemberState

__all__ = ["Marks", "Watch", "Watched"]

_GAPS_COUNT_UP_TO = 2
"""Heartbeat intervals. Source: rule G3."""


class Marks(NamedTuple):
    """A member's two objects in a listing; each changes when the object is written again."""

    state: str | None
    """None: there is no such object, so it is no member."""
    heartbeat: str | None


@dataclass(slots=True, kw_only=True)
class Watched:
    """Another member, or oneself, as it was seen."""

    marks: Marks
    silence_ms: float = 0.0
    beats_seen: int = 0
    """How often it was seen to move since it was first seen."""
    state: MemberState | None = None
    """As it was read; None before it could be."""
    state_mark: str | None = None
    """Of ``state``."""

    @property
    def is_dead(self) -> bool:
        """Was it silent for longer than its session may be?"""
        return self.state is not None and self.silence_ms > self.state.session_timeout_ms


class Watch:
    """All members that are there. Owned by one thread."""

    def __init__(self, *, heartbeat_interval_ms: float) -> None:
        self._longest_gap_ms = _GAPS_COUNT_UP_TO * heartbeat_interval_ms
        self._looked_ticks_ms: float | None = None
        self.members: dict[str, Watched] = {}
        """By member id."""

    def look(
        self, listed: Mapping[str, Marks], *, now_ticks_ms: float, began_ticks_ms: float | None = None
    ) -> list[str]:
        """Take in a completed listing. Returns the members whose state must be read, since it was rewritten.

        Silence is counted from the end of the listing that showed a sign of life first to the beginning of the newest
        one: what came while a slow store was answering was not seen by it.
        """
        began = now_ticks_ms if began_ticks_ms is None else began_ticks_ms
        gap = 0.0 if self._looked_ticks_ms is None else began - self._looked_ticks_ms
        counted = min(gap, self._longest_gap_ms)
        self._looked_ticks_ms = began
        fresh = max(began - now_ticks_ms, -self._longest_gap_ms)
        for member_id in self.members.keys() - listed.keys():
            del self.members[member_id]
        for member_id, marks in listed.items():
            known = self.members.get(member_id)
            if known is None:
                self.members[member_id] = Watched(marks=marks, silence_ms=fresh)
            elif known.marks != marks:
                known.marks, known.silence_ms = marks, fresh
                known.beats_seen += 1
            else:
                known.silence_ms += counted
        return [i for i, m in self.members.items() if m.marks.state is not None and m.state_mark != m.marks.state]

    def read(self, member_id: str, state: MemberState | None) -> None:
        """A member's state was read; None where it is gone."""
        known = self.members[member_id]
        known.state = state
        known.state_mark = known.marks.state if state is not None else None

    def forget(self, member_id: str) -> None:
        """Its objects were deleted."""
        self.members.pop(member_id, None)
