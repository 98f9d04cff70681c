"""Which locks have ended, as one member of a share group measures it. Pure (rule G3, observed time).

No clock is shared: an observer counts from the look that showed it a lock first, over its own completed looks, and no
gap between two of them counts for more than twice the interval at which it looks. So whoever comes anew waits for a
whole lock duration, and a process that was suspended takes nobody's lock for that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sparklog.groups.sharing.states import Lock

__all__ = ["LockWatch"]

_GAPS_COUNT_UP_TO = 2
"""Intervals. Source: rule G3, observed time."""


class LockWatch:
    """The locks of one partition, and for how long each was seen. Owned by one thread.

    Args:
        interval_ms: at which looks follow each other while all is well; positive.
    """

    def __init__(self, *, interval_ms: float) -> None:
        self._longest_gap_ms = _GAPS_COUNT_UP_TO * interval_ms
        self._seen_ms: dict[int, float] = {}
        self._updated_ticks_ms: float | None = None

    def update(self, locks: Mapping[int, Lock], *, began_ticks_ms: float, ended_ticks_ms: float) -> None:
        """Take note of the locks that a completed look has shown, which began and ended then.

        A lock that is new counts from the end of the look that showed it first; others up to the beginning of this one:
        what comes while a slow store is answering was not seen by it.
        """
        gap = 0.0 if self._updated_ticks_ms is None else began_ticks_ms - self._updated_ticks_ms
        counted = min(max(0.0, gap), self._longest_gap_ms)
        self._updated_ticks_ms = began_ticks_ms
        fresh = max(began_ticks_ms - ended_ticks_ms, -self._longest_gap_ms)
        known = self._seen_ms
        self._seen_ms = {number: known[number] + counted if number in known else fresh for number in locks}

    def over(self, locks: Mapping[int, Lock], *, gone: Collection[str] = ()) -> frozenset[int]:
        """The locks that may be taken back: their time is over, or their member is one of those that are gone."""
        return frozenset(
            number
            for number, lock in locks.items()
            if lock.member in gone or self._seen_ms.get(number, 0.0) > lock.duration_ms
        )
