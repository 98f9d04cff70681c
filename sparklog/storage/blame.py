"""Is an error one object's, or the store's?

Who goes over many topics, groups, transactional ids, entries or files reports what one of them raises by its name, and
goes on with the others: permission, a bad sector, a circle of links, a bucket's policy and damage are of one object.
Where the store itself fails, or may not be read, every further object would fail alike, after a time-out each: then
whoever goes over them stops at once. What tells the two apart is whether ``cluster.json`` can still be read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from sparklog.clock import Clock
from sparklog.errors import KafkaTimeoutError, ObjectNotFoundError, SparklogError, StoreError

__all__ = ["StoreJudge", "may_be_of_store"]

_KEPT_MS = 1_000.0
"""For so long one look at the store counts for all errors: of ten thousand topics each may be refused."""


def may_be_of_store(error: Exception) -> bool:
    """May an error be the store's, as far as it tells by itself? Pure.

    Damage, a missing object, and whatever isn't of the store's making is one object's. A refusal or a failure of the
    store may befall one object or all; and so may a time-out of what was tried again until then.
    """
    return isinstance(error, StoreError | KafkaTimeoutError) and not isinstance(error, ObjectNotFoundError)


class StoreJudge:
    """Tells errors of one object from those of the store. For several threads.

    Args:
        look: raises ``SparklogError`` unless the store can be read, after a few attempts.
    """

    def __init__(self, look: Callable[[], object], clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._lock = threading.Lock()
        """Held while the store is looked at: of many calls that fail at the same time one looks."""
        self._looked_ticks_ms: float | None = None
        """When the newest look ended."""
        self._fault: SparklogError | None = None
        """The error of that look; None where the store could be read."""

    def check(self, error: Exception) -> None:
        """Return if an error is one object's: whoever met it reports it and goes on.

        Raises:
            SparklogError: it is the store's, and this is what a look at the store raised.
        """
        fault = self._looked() if may_be_of_store(error) else None
        if fault is not None:
            raise fault.with_traceback(None) from error

    def _looked(self) -> SparklogError | None:
        with self._lock:
            before = self._looked_ticks_ms
            if before is None or self._clock.ticks_ms() - before > _KEPT_MS:
                self._fault = self._fault_now()
                self._looked_ticks_ms = self._clock.ticks_ms()
            return self._fault

    def _fault_now(self) -> SparklogError | None:
        try:
            self._look()
        except SparklogError as error:
            return error
        return None
