"""How often a request is tried, and what the failures of its attempts mean together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from sparklog.errors import StoreError, StoreOutcomeUnknownError
from sparklog.storage.call_limit import call_limit

__all__ = ["PAUSES_S", "Attempts", "of_create"]

T = TypeVar("T")

PAUSES_S = (0.1, 0.3, 0.9)
"""Between at most four attempts."""


class Attempts:
    """The failed attempts at one request that may be repeated; a create may not. None begins after the caller's
    :func:`~sparklog.storage.call_limit.call_limit`."""

    def __init__(
        self,
        translate: Callable[[Exception], StoreError | None],
        *,
        pauses_s: Sequence[float],
    ) -> None:
        """
        Args:
            translate: the store error that a library's exception means; None for what isn't the store's doing.
            pauses_s: between attempts, of which there is one more.
        """
        self._translate = translate
        self._pauses_s = iter(pauses_s)
        self._may_be_done = False
        self._limit = call_limit()

    def run(self, call: Callable[[], T]) -> T:
        """Make a call until it succeeds or is not to be tried again. Raises as :meth:`pause_after`."""
        while True:
            try:
                return call()
            except Exception as error:
                pause_s = self.pause_after(error)
            time.sleep(pause_s)

    async def run_async(self, call: Callable[[], Awaitable[T]]) -> T:
        """The same with a coroutine, for an event loop."""
        while True:
            try:
                return await call()
            except Exception as error:
                pause_s = self.pause_after(error)
            await asyncio.sleep(pause_s)

    def pause_after(self, error: Exception) -> float:
        """The seconds to wait before the next attempt.

        Raises:
            StoreError: there is no next one; ``StoreOutcomeUnknownError`` if an attempt may have been carried out,
                whatever is wrong with the last.
        """
        failure = self._translate(error)
        if failure is None:
            raise error
        pause_s = next(self._pauses_s, None) if failure.retriable else None
        if pause_s is not None and self._limit is not None and self._limit.left_ms <= pause_s * 1000:
            pause_s = None  # it would begin after the caller has given up
        unknown = isinstance(failure, StoreOutcomeUnknownError)
        if pause_s is None:
            if self._may_be_done and not unknown:
                failure = StoreOutcomeUnknownError(f"{failure}; an attempt before may have been carried out")
            raise failure from error
        self._may_be_done = self._may_be_done or unknown
        return pause_s


def of_create(failure: StoreError, *, is_certain: bool) -> StoreError:
    """The error that a failed create means. A refusal for now (409, 429, 503) is not believed: whoever is between us
    and the server may have sent it twice, and repeating it settles it anyway. One for good is, where ``is_certain``: it
    answers the only request, or the request was never sent."""
    if isinstance(failure, StoreOutcomeUnknownError) or (not failure.retriable and is_certain):
        return failure
    return StoreOutcomeUnknownError(f"{failure}; it may have been carried out all the same")
