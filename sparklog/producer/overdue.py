"""Records whose time is over while a thread waits in a store's call, for a disk or a server that never answers.

``delivery_timeout_ms`` holds all the same: what the thread does later changes nothing of what is told now.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sparklog.clock import Clock, SystemClock
from sparklog.config import ProducerConfig
from sparklog.errors import CommitStateUnknownError, KafkaTimeoutError
from sparklog.interrupts import SafeEvent
from sparklog.workers import Worker

__all__ = ["OverdueWatch", "overdue_errors"]

_LOGGER = logging.getLogger("sparklog.producer")
_GRACE_MS = 500.0
"""Threads that learn by themselves that a batch's time is over settle it with a better error: they have as long."""
_LEAST_WAIT_MS = 50.0


def overdue_errors(topic: str, config: ProducerConfig) -> tuple[KafkaTimeoutError, CommitStateUnknownError]:
    """The errors of records that aren't stored, and won't be; and of those of which nobody knows."""
    bound = f"delivery_timeout_ms={config.delivery_timeout_ms}: the store's answer is still awaited"
    return (
        KafkaTimeoutError(f"records of topic {topic!r} were not stored within {bound}"),
        CommitStateUnknownError(f"whether records of topic {topic!r} are or will be stored is unknown after {bound}"),
    )


class OverdueWatch:
    """A thread of a producer that gives up what is overdue, and costs nothing while nothing is: it wakes once in
    ``delivery_timeout_ms``, since nothing that is sent after it looked can be overdue before."""

    def __init__(self, config: ProducerConfig, clock: Clock, give_up: Callable[[float], float | None]) -> None:
        """
        Args:
            give_up: gives up what was sent at or before a moment, and settles it; returns when the oldest was sent of
                what is left, None without any.
        """
        self._bound_ms = config.delivery_timeout_ms
        self._clock = clock
        self._give_up = give_up
        self._ended = SafeEvent()
        self._worker = Worker("overdue", self._run)
        self._is_started = False
        self._is_ending = False

    @property
    def is_current(self) -> bool:
        """Is this called by a callback of what was given up?"""
        return self._worker.is_current

    def start(self) -> None:
        """Begin, once. On a clock of its own, and where no thread can be started, store calls alone bound what is told
        when."""
        if self._is_started or not isinstance(self._clock, SystemClock):
            return
        self._is_started = True
        try:
            self._worker.start()
        except RuntimeError as error:
            _LOGGER.warning("nobody watches delivery_timeout_ms while a store doesn't answer: %s", error)

    def end_when_told(self) -> None:
        """Let the thread end once everything that was sent has its verdict: the producer is closed."""
        self._is_ending = True

    def end(self) -> None:
        """Let the thread end: nothing is sent any more, and all is settled."""
        self._ended.set()
        self._worker.join(1.0)

    def _run(self) -> None:
        wait_ms = self._bound_ms + _GRACE_MS
        while not self._ended.wait(wait_ms / 1000):
            now = self._clock.ticks_ms()
            oldest = self._give_up(now - self._bound_ms - _GRACE_MS)
            if oldest is None and self._is_ending:
                return
            wait_ms = self._bound_ms + _GRACE_MS - (0.0 if oldest is None else now - oldest)
            wait_ms = max(_LEAST_WAIT_MS, wait_ms)
