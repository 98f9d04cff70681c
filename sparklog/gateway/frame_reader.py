"""Receiving: a large request goes from the socket to where it stays, without a copy between.

``StreamReader`` copies each byte three times, and wakes its reader for every piece of a request that comes.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable
from typing import SupportsIndex

__all__ = ["FrameReader", "new_protocol", "shared_room"]

_HEAD = struct.Struct(">iH")
"""The size of a frame, and its first two bytes."""
_HEAD_BYTES = 12
"""A frame's size, and what every request begins with: no frame has fewer bytes."""

_SHARED_BYTES = 65_536
"""Most bytes that are received at once while nobody has asked for them; small requests come whole in them."""
_DIRECT_BYTES = 4_194_304
"""Bound of a request whose memory is taken before its bytes have come: whoever announces more is to send it first."""


class FrameReader(asyncio.StreamReader):
    """A ``StreamReader`` for frames, which has its own buffer: of that one nothing can be taken without waiting."""

    def __init__(self) -> None:
        super().__init__(limit=_SHARED_BYTES)
        self.received_bytes = 0
        """All bytes that have come."""
        self.lost_by: Exception | None = None
        """The reason why the system or TLS gave the connection up; None: it is there, or the client has closed it."""
        self._ahead = bytearray()
        """The bytes that were received."""
        self._at = 0
        """The number of those that were read."""
        self._left: memoryview | None = None
        """Where the next bytes belong; None: nobody waits for a frame's."""
        self._news: asyncio.Future[None] | None = None
        """Done as soon as a frame's memory is full, or more bytes have come where nobody waits for a frame's."""
        self._error: Exception | None = None
        self._is_over = False
        self._receiving: asyncio.ReadTransport | None = None
        self._is_paused = False

    def set_transport(self, transport: asyncio.BaseTransport) -> None:
        """Take what receives, to stop it while too much is here that nobody has read."""
        super().set_transport(transport)
        self._receiving = transport if isinstance(transport, asyncio.ReadTransport) else None

    def exception(self) -> Exception | None:
        """The error of every further reading."""
        return self._error

    def at_eof(self) -> bool:
        """Was everything read, and will nothing more come?"""
        return self._is_over and self._at == len(self._ahead)

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        """Keep what has come until it is read."""
        self._keep(bytes(data))

    def _keep(self, data: bytes | memoryview) -> None:
        if self._at:
            del self._ahead[: self._at]
            self._at = 0
        self._ahead += data
        if len(self._ahead) > 2 * _SHARED_BYTES and self._receiving is not None and not self._is_paused:
            self._is_paused = True
            self._receiving.pause_reading()
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def _wait(self) -> None:
        self._resume()
        self._news = asyncio.get_running_loop().create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _resume(self) -> None:
        # TLS of Python 3.10 can't resume what is lost; and nothing more would come.
        if self._is_paused and self._receiving is not None and not self._is_over and self._error is None:
            self._is_paused = False
            self._receiving.resume_reading()

    def _take(self, size: int) -> bytes:
        """So many bytes, which are here."""
        end = self._at + size
        taken = bytes(memoryview(self._ahead)[self._at : end])
        if end == len(self._ahead):
            self._ahead.clear()
            end = 0
        elif end > 2 * _SHARED_BYTES:  # a large request: the first bytes of the next one don't keep its memory
            del self._ahead[:end]
            end = 0
        self._at = end
        if self._is_paused and len(self._ahead) - end <= _SHARED_BYTES:
            self._resume()
        return taken

    async def readexactly(self, n: int) -> bytes:
        """Read so many bytes. Raises ``IncompleteReadError``, and what :meth:`set_exception` was called with."""
        while True:
            if self._error is not None:
                raise self._error
            if len(self._ahead) - self._at >= n:
                return self._take(n)
            if self._is_over:
                raise asyncio.IncompleteReadError(b"", n)  # what has come is of no use to anybody
            await self._wait()

    async def has_come(self, size: int) -> bool:
        """Wait until so many bytes are here, and take none of them; False: so many will never come. Raises what
        :meth:`set_exception` was called with."""
        while self._error is None and len(self._ahead) - self._at < size and not self._is_over:
            await self._wait()
        if self._error is not None:
            raise self._error
        return len(self._ahead) - self._at >= size

    def head(self) -> tuple[int, int] | None:
        """Size and first two bytes, as a number, of a frame of which :data:`_HEAD_BYTES` are here; None: fewer are."""
        if len(self._ahead) - self._at < _HEAD_BYTES or self._error is not None:
            return None
        size, key = _HEAD.unpack_from(self._ahead, self._at)
        return size, key

    def take_frame(self, size: int) -> memoryview | None:
        """Take the frame that :meth:`head` has described; None: it isn't here as a whole, and nothing is taken."""
        if len(self._ahead) - self._at - 4 < size:
            return None
        self._at += 4
        return memoryview(self._take(size))

    async def read_frame(self, start: bytes, size: int) -> memoryview:
        """Read what is left of a frame of ``size`` bytes that begins with ``start``. Raises as :meth:`readexactly`."""
        received = len(self._ahead) - self._at
        if size - len(start) <= received or size > _DIRECT_BYTES:
            return memoryview(start + await self.readexactly(size - len(start)))
        if (error := self.exception()) is not None:
            raise error
        if self._is_over:
            raise asyncio.IncompleteReadError(b"", size)
        frame, have = bytearray(size), len(start) + received
        frame[: len(start)] = start
        frame[len(start) : have] = self._take(received)
        self._left = memoryview(frame)[have:]
        is_whole = False
        try:
            await self._wait()
            is_whole = self._left is None
        finally:
            self._left = None
            if not is_whole:
                del frame  # an error's trace would keep it, when others have its room already
        if not is_whole:
            raise self.exception() or asyncio.IncompleteReadError(b"", size)
        return memoryview(frame).toreadonly()

    def room(self, shared: memoryview) -> memoryview:
        """Where to receive: a frame's own memory, or what all share."""
        return shared if self._left is None else self._left

    def received(self, size: int, shared: memoryview) -> None:
        """So many bytes were received into :meth:`room`."""
        self.received_bytes += size
        if self._left is None:
            self._keep(shared[:size])
            return
        self._left = self._left[size:]
        if not self._left:
            self._left = None  # what comes before the next frame is asked for is kept
            self._wake()

    def feed_eof(self) -> None:
        """Nothing more will come."""
        self._is_over = True
        self._wake()

    def set_exception(self, exc: Exception) -> None:
        """Have reading fail."""
        self._error = exc
        self._wake()

    def let_go(self) -> None:
        """Keep nothing any more of what has come, nor an error: its trace would keep what was being read."""
        self._ahead, self._at, self._left = bytearray(), 0, None
        self._error = self.lost_by = None


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

    def connection_lost(self, exc: Exception | None) -> None:
        """Have reading fail, or end."""
        self._frames.lost_by = exc
        super().connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to receive."""
        return self._frames.room(self._shared)

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was received."""
        self._frames.received(nbytes, self._shared)


def shared_room() -> memoryview:
    """Where the connections of one event loop receive what nobody has asked for yet: one receives at a time."""
    return memoryview(bytearray(_SHARED_BYTES))


def new_protocol(
    connected: Callable[[FrameReader, asyncio.StreamWriter], None], room: memoryview | None = None
) -> Callable[[], asyncio.BufferedProtocol]:
    """The protocols of connections; ``connected`` is called for each of them. ``room``: of :func:`shared_room`; None:
    one of these connections' own."""
    shared = shared_room() if room is None else room
    return lambda: _Protocol(FrameReader(), connected, shared)
