"""The log of logins that failed: by whom, and never with which password."""

from __future__ import annotations

import logging

from sparklog.clock import Clock
from sparklog.logs import about, short

__all__ = ["FailedLogins"]

_LOGGER = logging.getLogger("sparklog.console")
_EVERY_MS = 60_000.0
_MOST = 10
"""Entries in that time: who guesses fills no disk."""


class FailedLogins:
    """Logs them, those of a minute up to a bound. Belongs to the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms = float("-inf")
        self._count = 0

    def note(self, client: str, name: str) -> None:
        """Note one.

        Args:
            client: its address.
            name: the user that it says it is.
        """
        now = self._clock.ticks_ms()
        if now - self._since_ms >= _EVERY_MS:
            if self._count > _MOST:
                _LOGGER.warning("%d more logins failed", self._count - _MOST)
            self._since_ms, self._count = now, 0
        self._count += 1
        if self._count <= _MOST:
            user = short(name)
            _LOGGER.warning("login as %r from %s failed", user, client, extra=about(user=user, client=client))
