"""A bounded queue between one task that puts and one task that takes and can look at the next item."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

__all__ = ["BoundedQueue"]

_T = TypeVar("_T")


class BoundedQueue(Generic[_T]):
    """First in, first out. Nothing is done to wake a task where none waits, unlike in ``asyncio.Queue``."""

    def __init__(self, limit: int) -> None:
        """``limit``: items that it holds."""
        self._limit = limit
        self._items: deque[_T] = deque()
        self._changed: dict[str, asyncio.Future[None]] = {}
        """Waits, by ``put`` or ``get``."""

    @property
    def first(self) -> _T | None:
        """The item that :meth:`get` would return now; None: it would wait."""
        return self._items[0] if self._items else None

    def take_first(self) -> _T:
        """Take what :attr:`first` is."""
        self._wake("put")
        return self._items.popleft()

    def take_all(self) -> list[_T]:
        """Take all that is there."""
        taken = [*self._items]
        self._items.clear()
        self._wake("put")
        return taken

    async def put(self, item: _T) -> None:
        """Append an item, once there is room."""
        while len(self._items) >= self._limit:
            await self._wait("put")
        self._items.append(item)
        self._wake("get")

    def put_last(self, item: _T) -> None:
        """Append the last item, whatever the limit: nobody waits for one who may take no more."""
        self._items.append(item)
        self._wake("get")

    async def get(self) -> _T:
        """Take the first item, once there is one."""
        while not self._items:
            await self._wait("get")
        return self.take_first()

    async def _wait(self, what: str) -> None:
        waiting = self._changed[what] = asyncio.get_running_loop().create_future()
        try:
            await waiting
        finally:
            self._changed.pop(what, None)

    def _wake(self, who: str) -> None:
        if self._changed and (waiting := self._changed.get(who)) is not None and not waiting.done():
            waiting.set_result(None)
