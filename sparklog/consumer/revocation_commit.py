"""The automatic commit before partitions are revoked: started by one poll, and awaited by the polls after it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from concurrent.futures import Future

from sparklog.clock import Clock, Deadline
from sparklog.consumer.fetch_state import FetchState
from sparklog.groups.offsets.rows import Rows
from sparklog.model import TopicPartition

__all__ = ["RevocationCommit"]

_LOGGER = logging.getLogger("sparklog.consumer")


class RevocationCommit:
    """Used by the consumer's own thread alone. No poll waits for the commit beyond its own time-out.

    Source: Kafka ``ConsumerCoordinator.onJoinPrepare``.

    Args:
        commit: begins to commit the positions of partitions.
        timeout_ms: after which the partitions are given up without their commit.
    """

    def __init__(
        self,
        fetch_state: FetchState,
        clock: Clock,
        commit: Callable[[Collection[TopicPartition]], Future[Rows]],
        *,
        timeout_ms: float,
    ) -> None:
        self._fetch_state = fetch_state
        self._clock = clock
        self._commit = commit
        self._timeout_ms = timeout_ms
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._committing: Future[Rows] | None = None
        self._deadline = Deadline(clock, 0.0)

    def is_over(self, partitions: Collection[TopicPartition]) -> bool:
        """Is the commit for these partitions done, or has it failed? The first call begins it; from then on no poll
        returns records of them, which nobody would commit any more."""
        if self._committing is None or not self._partitions.issuperset(partitions):
            self._begin(frozenset(partitions))
        committing = self._committing
        if committing is None:
            return False
        if committing.done():
            error = committing.exception()
            if error is not None:
                _LOGGER.warning("automatic commit of revoked partitions failed: %s", error)
        elif self._deadline.has_passed:
            _LOGGER.warning(
                "revoked partitions are released though their automatic commit wasn't done within %g ms: "
                "it may still be carried out, unless their next owner claims them first",
                self._timeout_ms,
            )
        else:
            return False
        self.forget()
        return True

    def forget(self) -> None:
        """Drop the commit: nothing is to be given up any more."""
        self._committing, self._partitions = None, frozenset()

    def _begin(self, partitions: frozenset[TopicPartition]) -> None:
        with self._fetch_state.lock:
            for partition in partitions:
                state = self._fetch_state.assignment.get(partition)
                if state is not None:
                    self._fetch_state.assignment.leave(state)
            self._fetch_state.request_update()
        self._partitions = partitions
        self._deadline = self._clock.deadline_in(self._timeout_ms)
        self._committing = self._commit(partitions)
