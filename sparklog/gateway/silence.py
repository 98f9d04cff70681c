"""Time-outs of waits for a client that sends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from sparklog.gateway.frame_reader import FrameReader

__all__ = ["Silence"]

_T = TypeVar("_T")


class Silence:
    """Ends waits for a client that sends nothing, by one timer for all of them: ``wait_for`` would make a task and a
    timer for each."""

    def __init__(
        self, reader: FrameReader, loop: asyncio.AbstractEventLoop, *, wait_s: float, within_frame_s: float
    ) -> None:
        """
        Args:
            wait_s: bound of every wait.
            within_frame_s: bound of the time within a frame in which no byte of it comes; it is noticed after twice
                that at the latest.
        """
        self._reader = reader
        self._loop = loop
        self._wait_s = wait_s
        self._within_frame_s = within_frame_s
        self._look_s = min(wait_s, within_frame_s)
        self._waits_since: float | None = None
        self._heard: tuple[float, int] | None = None
        """Within a frame: when bytes were seen to have come, and how many had come by then."""
        self._timer: asyncio.TimerHandle | None = loop.call_later(self._look_s, self._look)

    async def bound(self, reading: Awaitable[_T], *, within_frame: bool = False) -> _T:
        """Wait for what is read. Raises ``TimeoutError`` of ``asyncio``: nothing comes, or it takes longer than the
        bound."""
        self._waits_since = now = self._loop.time()
        self._heard = (now, self._reader.received_bytes) if within_frame else None
        try:
            return await reading
        finally:
            self._waits_since = None

    def end(self) -> None:
        """Nothing is waited for any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now = self._loop.time()
        why = None if self._waits_since is None else self._why_ended(self._waits_since, now)
        if why is not None:
            self._timer = None
            self._reader.set_exception(TimeoutError(why))
        else:
            self._timer = self._loop.call_at(self._next_look(now), self._look)

    def _why_ended(self, waits_since: float, now: float) -> str | None:
        """Why the wait is over; None: it isn't."""
        if waits_since + self._wait_s <= now:
            return "it was idle for too long"
        if self._heard is None:
            return None
        heard_s, received_bytes = self._heard
        if self._reader.received_bytes != received_bytes:
            self._heard = now, self._reader.received_bytes
        elif heard_s + self._within_frame_s <= now:
            return "it fell silent within a request"
        return None

    def _next_look(self, now: float) -> float:
        """Soon enough for a frame that begins meanwhile."""
        ends = [now + self._look_s]
        if self._waits_since is not None:
            ends.append(self._waits_since + self._wait_s)
            if self._heard is not None:
                ends.append(self._heard[0] + self._within_frame_s)
        return min(ends)
