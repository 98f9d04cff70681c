"""Reading ahead: while a client processes an answer to Fetch, the gateway reads and encodes what it will fetch next."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from itertools import islice

from sparklog.errors import SparklogError
from sparklog.gateway.backend import Backend
from sparklog.gateway.topic_view import TopicView

__all__ = ["ReadAhead"]

_Place = tuple[TopicView, int]
"""A topic and a partition."""

_LOGGER = logging.getLogger("sparklog.gateway")
_MANY = 1_000
"""Partitions that wait to be read; of more, each reader reads its own when it comes."""
_TOGETHER = 8
"""Partitions that are read by one trip to a thread, which wakes that thread, and then the event loop."""


class ReadAhead:
    """Reads for all connections, one partition after the other, in one thread at a time. Belongs to the event loop."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._waiting: dict[_Place, int] = {}
        """Offsets by topic and partition."""
        self._reading: asyncio.Task[None] | None = None

    def add(self, view: TopicView, partition: int, offset: int) -> None:
        """Let a partition be read from an offset on, once :meth:`begin` is called."""
        if len(self._waiting) < _MANY:
            self._waiting[view, partition] = offset

    def begin(self) -> None:
        """Read what waits."""
        if self._waiting and self._reading is None:
            self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        try:
            while self._waiting:
                taken = [*islice(self._waiting.items(), _TOGETHER)]
                for place, _ in taken:
                    del self._waiting[place]
                await self._backend.run_look(partial(_read_all, taken))
        finally:
            self._reading = None

    async def close(self) -> None:
        """Read nothing more."""
        self._waiting.clear()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])


def _read_all(places: Iterable[tuple[_Place, int]]) -> None:
    """Read partitions ahead, each from an offset on. May block."""
    for (view, partition), offset in places:
        try:
            view.read_ahead(partition, offset)
        except SparklogError as error:  # the reader's own Fetch reports it
            _LOGGER.debug("partition %d wasn't read ahead: %s", partition, error)
