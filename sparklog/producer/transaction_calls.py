"""Calls of a transactional producer: made in a thread of their own, by which their time limits hold whatever they wait
for."""

from __future__ import annotations

from collections.abc import Callable

from sparklog.clock import Clock, SystemClock
from sparklog.errors import InvalidTransactionTimeoutError, KafkaTimeoutError
from sparklog.interrupts import CallAbandonedError, CallThread, bounded_s

__all__ = ["TransactionCalls", "check_transaction_timeout"]

_MAX_TIMEOUT_MS = 900_000
"""Source: Kafka's broker, ``transaction.max.timeout.ms``."""

_GRACE_MS = 500.0
"""A call that learns by itself that its time is over ends with a better error: it has as long."""


class TransactionCalls:
    """Makes a producer's calls one after the other. One that isn't over in ``max_block_ms`` goes on, and whoever makes
    it again learns how it ended."""

    def __init__(self, max_block_ms: float, clock: Clock) -> None:
        self._max_block_ms = max_block_ms
        self._is_timed = isinstance(clock, SystemClock)
        """On another clock nobody knows when the time is over, but the calls themselves."""
        self._thread = CallThread("sparklog-transactions")

    @property
    def interrupted(self) -> object:
        """The key of a call whose caller was interrupted, or has waited long enough, and hasn't come back."""
        return self._thread.interrupted

    def check_free(self, what: str) -> None:
        """Raise ``KafkaTimeoutError`` if such a call is still under way."""
        if self._thread.is_held_up:
            raise self._too_late(what)

    def run(self, what: str, call: Callable[[], None], *, key: object = None) -> None:
        """Make a call of so many milliseconds, which ends a little later in any case. Raises what it does, and:

        Args:
            what: its name, for the message.
            key: equal for what is the same call; None: equal to no other.
        Raises:
            KafkaTimeoutError: it is still under way.
        """
        try:
            self._thread.run(call, key=key, timeout_s=self._timeout_s(self._max_block_ms + _GRACE_MS))
        except CallAbandonedError as late:
            raise self._too_late(what) from late

    def run_within(self, call: Callable[[], None], left_ms: float) -> bool:
        """Make a call in the time that is left; False: it goes on by itself."""
        try:
            self._thread.run(call, timeout_s=self._timeout_s(left_ms))
        except CallAbandonedError:
            return False
        return True

    def _timeout_s(self, timeout_ms: float) -> float | None:
        return bounded_s(timeout_ms / 1000) if self._is_timed else None

    def _too_late(self, what: str) -> KafkaTimeoutError:
        """The error of a call that isn't over."""
        return KafkaTimeoutError(
            f"{what}: this call, or one before it, still waits for the store after max_block_ms={self._max_block_ms}; "
            "call it again"
        )

    def stop(self) -> None:
        """Let the thread end once it has made the calls that were asked for."""
        self._thread.stop()


def check_transaction_timeout(timeout_ms: float) -> None:
    """Raise ``InvalidTransactionTimeoutError`` if a transaction would last too long."""
    if timeout_ms > _MAX_TIMEOUT_MS:
        raise InvalidTransactionTimeoutError(
            f"transaction_timeout_ms={timeout_ms}: a transaction may last {_MAX_TIMEOUT_MS} ms at most"
        )
