"""A consumer finishes transactions of producers that died, from time to time (rule T4, open sessions, recovery)."""

from __future__ import annotations

import random
from functools import partial

from sparklog.log import Cluster
from sparklog.txn.helping import helper_of
from sparklog.workers import Background

__all__ = ["TransactionHelp"]


class TransactionHelp:
    """Looks for such transactions beside one consumer, as long as that is polled, whether it has records or not.

    The consumers of a process that read one cluster take turns: together they look every 30 s.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._helper = helper_of(cluster)
        self._background = Background("helper")
        self._is_stopped = False
        first_ms = self._helper.LOOK_MS * random.uniform(0.5, 1.0)  # noqa: S311 - spreads processes, no secret
        self._due_ticks_ms = cluster.clock.ticks_ms() + first_ms

    def polled(self) -> None:
        """Look if it is time to, in a thread that lives for this look. Called by each poll; never waits."""
        now = self._cluster.clock.ticks_ms()
        if now < self._due_ticks_ms or self._is_stopped:
            return
        self._due_ticks_ms = now + self._helper.LOOK_MS
        if not self._helper.is_due(now):
            return
        self._background.start(partial(self._look, now))

    def stop(self) -> None:
        """End a look that is under way as soon as it can end, and begin none. From any thread."""
        self._is_stopped = True

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of a look that is under way. True: there is none any more."""
        return self._background.close(timeout_s * 1_000)

    def _look(self, now_ticks_ms: float) -> None:
        """Look, in the look's own thread: an interrupt of the caller doesn't end it in the middle."""
        if not self._helper.begin_look(now_ticks_ms):
            return
        try:
            self._helper.look(self._cluster, now_ticks_ms, is_stopped=lambda: self._is_stopped)
        finally:
            self._helper.end_look()
