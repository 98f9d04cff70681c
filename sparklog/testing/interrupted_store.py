"""A store in which the world goes on between two calls: what a stalled process finds when it wakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sparklog.storage.base import ObjectStore
from sparklog.testing.wrapped_store import WrappedStore

__all__ = ["InterruptedStore"]

T = TypeVar("T")


class InterruptedStore(WrappedStore):
    """Runs a function once, before or after a call of a given number: there the process stalls, and others act.

    Args:
        store: carries the calls out; what happens meanwhile should use it directly.
    """

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.call_count = 0
        """How many calls were made since the interruption was set, or in all if none was."""
        self._at = -1
        self._after = False
        self._meanwhile: Callable[[], object] = lambda: None

    def interrupt(self, meanwhile: Callable[[], object], *, at: int, after: bool) -> None:
        """Set the one interruption.

        Args:
            meanwhile: what happens while the process is stalled; what it raises, the call raises.
            at: number of the call, from 0 at the next one.
            after: stall after the call was carried out, before its answer is seen.
        """
        self.call_count, self._at, self._after, self._meanwhile = 0, at, after, meanwhile

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        number = self.call_count
        self.call_count += 1
        if number == self._at and not self._after:
            self._meanwhile()
        try:
            return call()
        finally:
            if number == self._at and self._after:
                self._meanwhile()
