"""How long an answer is awaited: as long as the store answers, and not for the store's own time-outs, which are longer
than anybody looks at an empty page."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

from sparklog.clock import Clock
from sparklog.errors import StoreUnavailableError
from sparklog.storage.request_counts import Activity, silent_ms

__all__ = ["Waiting", "read_files"]

_LONGEST_MS = 60_000.0
"""Even where the store goes on answering, or isn't asked."""


class Waiting:
    """The wait for one answer: says when it is over."""

    def __init__(
        self, asked: Callable[[], Activity], *, silence_ms: float, reason: Callable[[], str], clock: Clock
    ) -> None:
        """Begins now.

        Args:
            asked: whether the store answers, as of now.
            silence_ms: the wait ends where the store is silent for so long.
            reason: what is known of why the store doesn't answer; empty: nothing.
        """
        self.is_bounded = True
        """Unset by :func:`read_files`."""
        self._silence_ms = silence_ms
        self._asked = asked
        self._reason = reason
        self._clock = clock
        self._began_ms = clock.ticks_ms()

    def __call__(self) -> Exception | None:
        if not self.is_bounded:
            return None
        activity, now = self._asked(), self._clock.ticks_ms()
        silent = silent_ms(activity, since_ms=self._began_ms, now_ms=now)
        if silent and silent >= self._silence_ms:
            reason = self._reason()
            text = f"the store hasn't answered for {silent / 1_000:.1f} s"
            return StoreUnavailableError(f"{text}: {reason}" if reason else text)
        if now - self._began_ms >= _LONGEST_MS:
            return StoreUnavailableError(f"the answer wasn't ready within {_LONGEST_MS / 1_000:.0f} s")
        return None


CURRENT: ContextVar[Waiting | None] = ContextVar("waiting", default=None)
"""The wait for the answer that a thread works on."""


def read_files() -> None:
    """Announce to whoever waits for this answer that files are read from here on, for as long as it takes.

    The store has just answered; these requests aren't counted, and nobody knows whether they are answered.
    """
    waiting = CURRENT.get()
    if waiting is not None:
        waiting.is_bounded = False
