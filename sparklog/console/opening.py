"""Opening a cluster whose store may be away: one attempt for all who ask, in a thread, awaited for a bounded time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass

from sparklog.clock import Clock, SystemClock
from sparklog.console.threads import Threads
from sparklog.errors import StoreUnavailableError
from sparklog.log.cluster import Cluster

__all__ = ["SharedOpening"]

_KEPT_MS = 3_000.0
"""A failed attempt is the answer for so long; then the next one may begin."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    result: Future[Cluster]
    began_ms: float
    ended_ms: list[float]
    """Empty while it is under way."""


class SharedOpening:
    """Opens a cluster once for several threads, and again as long as it fails."""

    def __init__(
        self, open_cluster: Callable[[], Cluster], *, wait_ms: float = 2_000.0, clock: Clock | None = None
    ) -> None:
        """Opens nothing.

        Args:
            open_cluster: makes one attempt; one at a time is under way.
            wait_ms: from the beginning of an attempt: who asks later doesn't wait for it at all.
        """
        self._open = open_cluster
        self._wait_ms = wait_ms
        self._clock = clock or SystemClock()
        self._threads = Threads("open", 1)
        self._lock = threading.Lock()
        self._attempt: _Attempt | None = None
        self._cluster: Cluster | None = None
        self._reason = ""
        """The text of the newest error."""

    @property
    def opened(self) -> Cluster | None:
        """The cluster; None before it is opened. Waits for nothing."""
        return self._cluster

    def cluster(self, *, wait_ms: float | None = None, patiently: bool = False) -> Cluster:
        """The cluster.

        Args:
            wait_ms: in place of this object's own.
            patiently: wait for an attempt as long as it takes.
        Raises:
            StoreUnavailableError: no answer within the time.
            SparklogError: what the newest attempt raised.
        """
        if self._cluster is not None:
            return self._cluster
        attempt = self._newest()
        left_ms = attempt.began_ms + (self._wait_ms if wait_ms is None else wait_ms) - self._clock.ticks_ms()
        try:
            return attempt.result.result(None if patiently else max(0.0, left_ms) / 1_000)
        except FutureTimeoutError:
            if attempt.result.done():  # the attempt itself raised it
                raise
        reason = f": {self._reason}" if self._reason else ""
        waited_s = (self._clock.ticks_ms() - attempt.began_ms) / 1_000
        raise StoreUnavailableError(f"the store hasn't answered for {waited_s:.0f} s{reason}")

    def _newest(self) -> _Attempt:
        with self._lock:
            now, newest = self._clock.ticks_ms(), self._attempt
            if newest is not None and (not newest.ended_ms or now - newest.ended_ms[0] < _KEPT_MS):
                return newest
            ended: list[float] = []
            newest = _Attempt(self._threads.submit(lambda: self._attempted(ended)), now, ended)
            self._attempt = newest
            return newest

    def _attempted(self, ended: list[float]) -> Cluster:
        try:
            self._cluster = self._open()
        except Exception as error:
            self._reason = str(error)
            raise
        finally:
            ended.append(self._clock.ticks_ms())
        return self._cluster
