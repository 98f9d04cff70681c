"""The group's committed offsets of partitions that the application assigned itself: read in the background."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future

from sparklog.clock import Clock
from sparklog.config import ConsumerConfig
from sparklog.consumer.fetch_state import FetchState
from sparklog.consumer.subscription import HELD
from sparklog.errors import UnstableOffsetCommitError
from sparklog.groups.offsets.rows import Rows
from sparklog.model import TopicPartition

__all__ = ["CommittedPositions"]

_SHORTEST_WAIT_MS = 100.0


class CommittedPositions:
    """Used by the consumer's own thread alone.

    Offsets that a transaction may still change, or that couldn't be read, are asked for again: after
    ``retry_backoff_ms``, a tenth of a second at least, and twice as long each time up to ``retry_backoff_max_ms``.

    Args:
        fetch: begins to read the group's rows.
    """

    def __init__(
        self,
        fetch_state: FetchState,
        clock: Clock,
        config: ConsumerConfig,
        fetch: Callable[[Collection[TopicPartition]], Future[Rows]],
    ) -> None:
        self._fetch_state = fetch_state
        self._clock = clock
        self._fetch = fetch
        self._first_wait_ms = max(_SHORTEST_WAIT_MS, float(config.retry_backoff_ms))
        self._longest_wait_ms = max(self._first_wait_ms, float(config.retry_backoff_max_ms))
        self._wait_ms = 0.0
        self._again_ticks_ms: float | None = None
        self._asked: Future[Rows] | None = None

    def ask(self) -> None:
        """Ask, if a partition has to begin at what the group has committed and no position yet."""
        with self._fetch_state.lock:
            assigned = self._fetch_state.assignment.partitions()
            is_needed = any(state.begin == HELD and state.position is None for state in self._fetch_state.assignment)
        self._asked = self._fetch(assigned) if is_needed else None
        self._again_ticks_ms = None

    def answer(self) -> Rows | None:
        """The group's rows, until :meth:`forget`; None where nothing was asked, or there is no answer yet.

        Raises:
            Exception: why they can't be read now; they are asked for again.
        """
        if self._asked is None:
            if self._again_ticks_ms is not None and self._clock.ticks_ms() >= self._again_ticks_ms:
                self.ask()
            return None
        if not self._asked.done():
            return None
        try:
            rows = self._asked.result()
        except UnstableOffsetCommitError:  # a transaction is about to be decided
            self._rest()
            return None
        except Exception:
            self._rest()
            raise
        self._wait_ms = 0.0
        return rows

    def forget(self) -> None:
        """Drop the answer: it was taken up, or isn't wanted any more."""
        self._asked = self._again_ticks_ms = None

    def _rest(self) -> None:
        self._wait_ms = min(max(2 * self._wait_ms, self._first_wait_ms), self._longest_wait_ms)
        self._again_ticks_ms, self._asked = self._clock.ticks_ms() + self._wait_ms, None
