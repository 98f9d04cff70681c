"""Receiving: a large request goes from the socket to where it stays, without a copy between.

``StreamReader`` copies each byte three times, and wakes its reader for every piece of a request that comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import SupportsIndex

__all__ = ["FrameReader", "new_protocol"]

_SHARED_BYTES = 65_536
"""Most bytes that are received at once while nobody has asked for them; small requests come whole in them."""
_DIRECT_BYTES = 4_194_304
"""Bound of a request whose memory is taken before its bytes have come: whoever announces more is to send it first."""


class FrameReader(asyncio.StreamReader):
    """A ``StreamReader`` for frames."""

    def __init__(self) -> None:
        super().__init__(limit=_SHARED_BYTES)
        self.received_bytes = 0
        """All bytes that have come."""
        self._ahead_bytes = 0
        """Bytes that were received and not read."""
        self._left: memoryview | None = None
        """Where the next bytes belong; None: nobody waits for a frame's."""
        self._filled: asyncio.Future[None] | None = None

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        """Keep what has come until it is read."""
        received = bytes(data)  # no copy of what is bytes already
        self._ahead_bytes += len(received)
        super().feed_data(received)

    async def readexactly(self, n: int) -> bytes:
        """Read so many bytes. Raises ``IncompleteReadError``, and what :meth:`set_exception` was called with."""
        data = await super().readexactly(n)
        self._ahead_bytes -= n
        return data

    async def read_frame(self, start: bytes, size: int) -> memoryview:
        """Read what is left of a frame of ``size`` bytes that begins with ``start``. Raises as :meth:`readexactly`."""
        missing = size - len(start) - self._ahead_bytes
        if missing <= 0 or size > _DIRECT_BYTES:
            return memoryview(start + await self.readexactly(size - len(start)))
        frame = bytearray(size)
        have = size - missing
        frame[: len(start)] = start
        if self._ahead_bytes:
            frame[len(start) : have] = await self.readexactly(self._ahead_bytes)
        if (error := self.exception()) is not None:
            raise error
        if self.at_eof():
            raise asyncio.IncompleteReadError(bytes(frame[:have]), size)
        self._left = memoryview(frame)[have:]
        self._filled = asyncio.get_running_loop().create_future()
        try:
            await self._filled
        finally:
            self._left = self._filled = None
        return memoryview(frame).toreadonly()

    def room(self, shared: memoryview) -> memoryview:
        """Where to receive: a frame's own memory, or what all share."""
        return shared if self._left is None else self._left

    def received(self, size: int, shared: memoryview) -> None:
        """So many bytes were received into :meth:`room`."""
        self.received_bytes += size
        if self._left is None:
            self.feed_data(bytes(shared[:size]))
            return
        self._left = self._left[size:]
        if not self._left and self._filled is not None:
            self._left = None  # what comes before the next frame is asked for is kept
            if not self._filled.done():
                self._filled.set_result(None)

    def feed_eof(self) -> None:
        """Nothing more will come."""
        super().feed_eof()
        self._fail(asyncio.IncompleteReadError(b"", None))

    def set_exception(self, exc: Exception) -> None:
        """Have reading fail."""
        super().set_exception(exc)
        self._fail(exc)

    def _fail(self, error: Exception) -> None:
        if self._filled is not None and not self._filled.done():
            self._filled.set_exception(error)


class _Protocol(asyncio.StreamReaderProtocol, asyncio.BufferedProtocol):
    """Receives into the memory that a reader names."""

    def __init__(
        self,
        reader: FrameReader,
        connected: Callable[[FrameReader, asyncio.StreamWriter], None],
        shared: memoryview,
    ) -> None:
        super().__init__(reader, lambda _, writer: connected(reader, writer))
        self._frames = reader
        self._shared = shared

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to receive."""
        return self._frames.room(self._shared)

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was received."""
        self._frames.received(nbytes, self._shared)


def new_protocol(
    connected: Callable[[FrameReader, asyncio.StreamWriter], None],
) -> Callable[[], asyncio.BufferedProtocol]:
    """The protocols of one event loop's connections; ``connected`` is called for each connection. One receives at a
    time, so they share the memory of what nobody has asked for yet."""
    shared = memoryview(bytearray(_SHARED_BYTES))
    return lambda: _Protocol(FrameReader(), connected, shared)
