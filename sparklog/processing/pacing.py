"""When to commit, and how long to retry after errors."""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.errors import CommitFailedError, CommitStateUnknownError, SparklogError, StoreReplacedError

__all__ = ["CommitPace", "Patience", "may_pass"]

_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 50.0, 5_000.0


@dataclass(slots=True)
class CommitPace:
    """Commits come every ``interval_ms`` while something is done, and take half of the worker's time at most: the
    longer they take, the more records share one."""

    interval_ms: float
    most_records: int
    """So many are committed at once, whatever the time."""
    _ended_ticks_ms: float = 0.0
    _took_ms: float = 0.0

    def is_due(self, count: int, *, now_ticks_ms: float) -> bool:
        """Should what is done be committed now?

        Args:
            count: records that are done and not committed.
        """
        if not count:
            return False
        wait_ms = max(self.interval_ms, self._took_ms)
        return now_ticks_ms >= self._ended_ticks_ms + wait_ms or count >= self.most_records

    def committed(self, *, began_ticks_ms: float, now_ticks_ms: float) -> None:
        """Note a commit."""
        self._ended_ticks_ms, self._took_ms = now_ticks_ms, now_ticks_ms - began_ticks_ms


@dataclass(slots=True)
class Patience:
    """Trying again what may pass, after pauses that grow, for a bounded time."""

    timeout_ms: float
    _first_ticks_ms: float | None = None
    _pause_ms: float = _FIRST_PAUSE_MS
    _next_ticks_ms: float = 0.0

    def may_try(self, now_ticks_ms: float) -> bool:
        """Is the pause over?"""
        return now_ticks_ms >= self._next_ticks_ms

    def failed(self, error: Exception, now_ticks_ms: float) -> None:
        """Note a failure, and begin a pause. Raises ``error`` if it went on for too long, or can't pass."""
        if self._first_ticks_ms is None:
            self._first_ticks_ms = now_ticks_ms
        if not may_pass(error) or now_ticks_ms - self._first_ticks_ms >= self.timeout_ms:
            raise error
        self._next_ticks_ms = now_ticks_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, _LONGEST_PAUSE_MS)

    def succeeded(self) -> None:
        """Begin anew."""
        self._first_ticks_ms, self._pause_ms, self._next_ticks_ms = None, _FIRST_PAUSE_MS, 0.0


def may_pass(error: Exception) -> bool:
    """May the same succeed later? Partitions that went to another member are forgotten by the next poll, and a commit
    whose outcome is unknown is called again to learn it. A folder that was unmounted may come back."""
    passing = CommitFailedError | CommitStateUnknownError | StoreReplacedError
    return isinstance(error, SparklogError) and (error.retriable or error.requires_abort or isinstance(error, passing))
