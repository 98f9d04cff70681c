"""Results that are handed over in the order in which their work began, whatever the order in which it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["OrderedResults"]

T = TypeVar("T")


class OrderedResults(Generic[T]):
    """Hands results over, one at a time. Safe for several threads: none waits for another, and no lock is held while a
    result is handed over."""

    def __init__(self, hand_over: Callable[[T], None]) -> None:
        """``hand_over``: called by whichever thread ended the piece of work that the others waited for."""
        self._hand_over = hand_over
        self._lock = threading.Lock()
        self._begun_count = 0
        self._handed_count = 0
        self._ended: dict[int, T] = {}
        self._is_handing_over = False

    def begin(self) -> int:
        """The number of a piece of work that begins now. Each must come to its :meth:`end`."""
        with self._lock:
            self._begun_count += 1
            return self._begun_count - 1

    def end(self, number: int, result: T) -> None:
        """Hand the result over, and those that waited for it; it waits for those that began before it.

        Raises what handing over raises; those that follow are handed over by whoever ends the next one."""
        with self._lock:
            self._ended[number] = result
            if self._is_handing_over:
                return
            self._is_handing_over = True
        try:
            while (following := self._take()) is not None:
                self._hand_over(following[0])
        except BaseException:  # a defect, which costs this one alone
            with self._lock:
                self._is_handing_over = False
            raise

    def _take(self) -> tuple[T] | None:
        """The next result; None where it isn't there yet, and another call goes on from there."""
        with self._lock:
            if self._handed_count not in self._ended:
                self._is_handing_over = False
                return None
            self._handed_count += 1
            return (self._ended.pop(self._handed_count - 1),)
