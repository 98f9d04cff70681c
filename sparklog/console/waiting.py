"""How long an answer is awaited: as long as the store answers, and not for the store's own time-outs, which are longer
than anybody looks at an empty page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass

from sparklog.clock import Clock
from sparklog.errors import StoreUnavailableError
from sparklog.storage.request_counts import RequestCount

__all__ = ["Activity", "Waiting", "activity", "is_silent", "read_files"]

_LONGEST_MS = 60_000.0
"""Even where the store goes on answering."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Requests of this process to the store that have ended, as of one moment."""

    requests: int = 0
    errors: int = 0
    bytes: int = 0


def activity(counts: Mapping[str, RequestCount]) -> Activity:
    """The sums over all kinds of request."""
    found = counts.values()
    return Activity(
        requests=sum(one.requests for one in found),
        errors=sum(one.errors for one in found),
        bytes=sum(one.bytes for one in found),
    )


def is_silent(before: Activity, now: Activity) -> bool:
    """Whether no request was answered between two moments: none has ended, or some have failed and none brought a
    byte."""
    return now.requests == before.requests or (now.errors > before.errors and now.bytes == before.bytes)


class Waiting:
    """The wait for one answer: says when it is over."""

    def __init__(
        self, asked: Callable[[], Activity], *, silence_ms: float, reason: Callable[[], str], clock: Clock
    ) -> None:
        """Begins now.

        Args:
            asked: the requests as of now.
            silence_ms: the wait ends where the store is silent for so long.
            reason: what is known of why the store doesn't answer; empty: nothing.
        """
        self.is_bounded = True
        """Unset by :func:`read_files`."""
        self._silence_ms = silence_ms
        self._asked = asked
        self._reason = reason
        self._clock = clock
        self._began_ms = self._since_ms = clock.ticks_ms()
        self._seen = asked()

    def __call__(self) -> Exception | None:
        if not self.is_bounded:
            return None
        now = self._clock.ticks_ms()
        if now - self._since_ms >= self._silence_ms:
            seen = self._asked()
            if is_silent(self._seen, seen):
                return self._error(f"the store hasn't answered for {(now - self._since_ms) / 1_000:.1f} s")
            self._seen, self._since_ms = seen, now
        if now - self._began_ms >= _LONGEST_MS:
            return self._error(f"the store hasn't answered all that was asked within {_LONGEST_MS / 1_000:.0f} s")
        return None

    def _error(self, text: str) -> Exception:
        reason = self._reason()
        return StoreUnavailableError(f"{text}: {reason}" if reason else text)


CURRENT: ContextVar[Waiting | None] = ContextVar("waiting", default=None)
"""The wait for the answer that a thread works on."""


def read_files() -> None:
    """Tell whoever waits for this answer that files are read from here on, for as long as it takes.

    The store has just answered; and these requests aren't counted, so that they would look like silence.
    """
    waiting = CURRENT.get()
    if waiting is not None:
        waiting.is_bounded = False
