"""The pause of a member between two heartbeat rounds. Pure."""

from __future__ import annotations

__all__ = ["RoundPace"]

_FAST_PER_INTERVAL = 10
"""Rounds in a heartbeat interval while something is to be settled."""
_SLOWER = 1.5
_SHORTEST_WAIT_MS = 5.0


class RoundPace:
    """The waits of one member: a heartbeat interval where all is settled, else less. Owned by one thread."""

    def __init__(self, *, heartbeat_interval_ms: float) -> None:
        self._interval_ms = heartbeat_interval_ms
        self._wait_ms = 0.0
        self._progress: object = None

    def next_wait_ms(self, *, is_settled: bool, progress: object) -> float:
        """The milliseconds until the next round; they grow again while nothing moves.

        Args:
            progress: any value that differs from the last round's if the group came nearer to being settled.
        """
        if is_settled:
            self._wait_ms = self._interval_ms
        elif progress != self._progress:
            self._wait_ms = self._interval_ms / _FAST_PER_INTERVAL
        else:
            self._wait_ms = min(self._wait_ms * _SLOWER, self._interval_ms)
        self._progress = progress
        return max(_SHORTEST_WAIT_MS, self._wait_ms)
