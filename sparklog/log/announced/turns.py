"""Turns: when a writer that shares its topic with others lists and creates, and when it looks for what they created.

Politeness; nothing depends on it but latency and cost. Calls no store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection

__all__ = ["LEAST_ROUND_TRIP_MS", "Turns", "is_on"]

LEAST_ROUND_TRIP_MS = 4.0
"""Group commit is worth while where a create takes as long: where a round trip is shorter, races are cheap."""

_ON_FOR_MS = 5_000
_RECENT_MS = 1_000
_LONGEST_CYCLE_MS = 1_000.0
_FIRST_CYCLE_MS = 70.0
_LONGEST_WAIT_MS = 1_500.0
_LOOKS_PER_CYCLE = 0.35
_MOST_AHEAD = 8
_MOST_LOSSES = 8


def is_on(last_seen_ticks_ms: float, now_ticks_ms: float) -> bool:
    """Does a writer announce and include? For five seconds after an entry that asked for it."""
    return now_ticks_ms - last_seen_ticks_ms <= _ON_FOR_MS


class Turns:
    """One writer's turns at its topic. Belongs to the thread that commits."""

    def __init__(self, random: Callable[[], float]) -> None:
        """
        Args:
            random: draws from [0, 1).
        """
        self._random = random
        self._cycle_ms = _FIRST_CYCLE_MS
        self._recent: deque[tuple[float, frozenset[str]]] = deque()
        """The entries of the last second: when they were applied, and the ``txn`` appIds of their writers but this."""

    def observe(self, writers: Collection[str], ticks_ms: float) -> None:
        """Note an entry that was applied.

        Args:
            writers: the ``txn`` appIds of the announcers and producers in it, this writer's own left out.
        """
        self._recent.append((ticks_ms, frozenset(writers)))
        self._forget(ticks_ms)

    def note_cycle(self, duration_ms: float) -> None:
        """Note how long this writer's last listing and create took together."""
        self._cycle_ms = min(max(duration_ms, 0.0), _LONGEST_CYCLE_MS)

    def draw(self, now_ticks_ms: float, *, is_creator: bool, left_ms: float) -> float:
        """The tick from which on the writer may create.

        Args:
            is_creator: did it create the newest version?
            left_ms: how much time its oldest flush has left.
        """
        if is_creator:
            return now_ticks_ms
        self._forget(now_ticks_ms)
        others = len(frozenset().union(*(writers for _, writers in self._recent)))
        wait_ms = self._random() * others * self._cycle_ms / 3
        return now_ticks_ms + max(0.0, min(wait_ms, _LONGEST_WAIT_MS, left_ms / 4))

    def draw_after_loss(self, now_ticks_ms: float, *, lost_races: int, left_ms: float) -> float:
        """The same for a writer that lost a create."""
        wait_ms = self._random() * min(lost_races, _MOST_LOSSES) * self._cycle_ms
        return now_ticks_ms + max(0.0, min(wait_ms, _LONGEST_WAIT_MS, left_ms / 4))

    @property
    def cycle_ms(self) -> float:
        """How long a listing and a create take together."""
        return self._cycle_ms

    @property
    def look_every_ms(self) -> float:
        """How often a writer that waits for its turn looks for the next version."""
        return max(1.0, self._cycle_ms * _LOOKS_PER_CYCLE)

    def ahead(self, now_ticks_ms: float) -> int:
        """How many versions a look reads at once: as many as the last second's rate lets expect."""
        self._forget(now_ticks_ms)
        expected = len(self._recent) * self.look_every_ms / _RECENT_MS
        return max(1, min(_MOST_AHEAD, round(expected)))

    def _forget(self, now_ticks_ms: float) -> None:
        while self._recent and now_ticks_ms - self._recent[0][0] > _RECENT_MS:
            self._recent.popleft()
