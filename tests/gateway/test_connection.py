"""What one connection keeps, and how it ends, without a network."""

from __future__ import annotations

import asyncio
import errno
import ssl
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.gateway.apis import API_VERSIONS, APIS
from sparklog.gateway.connection import ByteBudget, Connection
from sparklog.gateway.counts import GatewayFigures
from sparklog.gateway.frame_reader import new_protocol
from sparklog.gateway.repeats import Repeats
from sparklog.gateway.settings import GatewaySettings

FRAME = (20).to_bytes(4, "big") + API_VERSIONS.to_bytes(2, "big") + bytes(18)
MOST_READ = 9  # one that is being answered, and the queue
ANSWER = b"answer"
LOST = {
    "closed": None,
    "reset": ConnectionResetError("reset"),
    "unreachable": OSError(errno.EHOSTUNREACH, "No route to host"),
    "too late": TimeoutError(errno.ETIMEDOUT, "Connection timed out"),
    "TLS": ssl.SSLError(1, "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC] decryption failed or bad record mac"),
}
"""Ordinary ends of connections."""


class Transport(asyncio.Transport):
    """A transport, as one of TLS behaves once its connection is lost: in Python 3.10, or in later ones."""

    def __init__(self, *, is_of_python_310=False):
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.written = []
        self._is_of_python_310 = is_of_python_310
        self._is_lost = self._is_closing = self._has_let_go = self.is_aborted = False

    def lose(self):
        self._is_lost = True
        self._is_closing = not self._is_of_python_310
        self._has_let_go = self._is_of_python_310

    def set_write_buffer_limits(self, high=None, low=None):
        pass

    def get_write_buffer_size(self):
        if self._has_let_go:
            raise AttributeError("'NoneType' object has no attribute 'get_write_buffer_size'")
        return 0

    def is_closing(self):
        return self._is_closing

    def write(self, data):
        self.written.append(bytes(data))

    def close(self):
        self._has_let_go = self._is_lost
        self._is_closing = True

    def abort(self):
        self._is_closing = self.is_aborted = True


class Waiting(Connection):
    """A connection whose requests are answered once that is allowed."""

    def __init__(self, reader, writer):
        self.may_answer = asyncio.Event()
        self.begun = []
        """The frames that were read."""
        figures = GatewayFigures()
        settings = GatewaySettings()
        backend: Any = SimpleNamespace(settings=settings, figures=figures, log_repeats=Repeats(), users=None)
        self.figures = figures
        super().__init__(backend, ByteBudget(settings.queued_bytes, figures), reader, writer)

    async def _begin(self, frame):
        self.begun.append(weakref.ref(frame))
        return APIS[API_VERSIONS], lambda: self._wait_for(frame)

    async def _wait_for(self, frame):
        await self.may_answer.wait()
        return ANSWER if len(frame) == 20 else None


class Client:
    def __init__(self, transport):
        made = []
        self.transport = transport
        self.protocol = new_protocol(lambda reader, writer: made.append(Waiting(reader, writer)))()
        self.protocol.connection_made(transport)
        self.connection = made[0]
        self.serving = asyncio.ensure_future(self.connection.serve())

    def send(self, data):
        room = memoryview(self.protocol.get_buffer(-1))
        room[: len(data)] = data
        self.protocol.buffer_updated(len(data))

    def go(self, error=None):
        self.transport.lose()
        self.protocol.connection_lost(error)

    async def has_ended(self):
        await asyncio.wait_for(self.serving, 60)
        figures = self.connection.figures
        assert (figures.queued_bytes, figures.connections_waiting, dict(figures.disconnected)) == (0, 0, {})


async def turns():
    """Let whatever can go on do so."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_of_python_310", [True, False])
@pytest.mark.parametrize("error", LOST.values(), ids=LOST)
def test_a_client_that_goes_while_its_queue_is_full_keeps_nothing(error, is_of_python_310):
    async def play():
        client = Client(Transport(is_of_python_310=is_of_python_310))
        client.send(FRAME * MOST_READ)
        await turns()
        assert len(client.connection.begun) == MOST_READ
        assert client.connection.figures.queued_bytes == 20 * MOST_READ
        client.go(error)
        await turns()
        assert not client.serving.done()
        client.connection.may_answer.set()
        await client.has_ended()
        assert len(client.transport.written) == 1  # and answering ends where it was written in vain

    asyncio.run(play())


def test_a_drain_while_the_queue_is_full_answers_what_was_read():
    async def play():
        client = Client(Transport())
        client.send(FRAME * MOST_READ)
        await turns()
        client.connection.drain()
        await turns()
        client.connection.may_answer.set()
        await turns()
        client.go()
        await client.has_ended()
        assert client.transport.written == [ANSWER] * MOST_READ

    asyncio.run(play())


@pytest.mark.parametrize("is_of_python_310", [True, False])
@pytest.mark.parametrize("sent", [b"", FRAME[:9], FRAME], ids=["between requests", "within one", "before its answer"])
@pytest.mark.parametrize("error", LOST.values(), ids=LOST)
def test_a_client_that_goes_is_no_defect(error, sent, is_of_python_310, caplog):
    async def play():
        client = Client(Transport(is_of_python_310=is_of_python_310))
        client.send(sent)
        await turns()
        client.go(error)
        client.connection.may_answer.set()
        await client.has_ended()
        assert client.transport.is_aborted

    asyncio.run(play())
    assert caplog.messages == []


def test_an_error_of_the_system_within_a_request_is_a_defect(monkeypatch, caplog):
    """The client is still there: what failed is something of the gateway's."""

    async def play():
        client = Client(Transport())
        monkeypatch.setattr(client.connection, "_wait_for", failing)
        client.send(FRAME)
        await asyncio.wait_for(client.serving, 60)
        assert client.connection.figures.disconnected == {"error": 1}

    async def failing(frame):
        raise OSError(errno.EHOSTUNREACH, "No route to host")

    asyncio.run(play())
    assert caplog.messages == ["client 127.0.0.1:1 was disconnected by an error"]


def test_nothing_of_a_request_is_kept_once_it_is_answered():
    async def play():
        client = Client(Transport())
        client.connection.may_answer.set()
        client.send(FRAME)
        await turns()
        assert client.transport.written == [ANSWER]
        [frame] = client.connection.begun
        assert frame() is None
        client.go()
        await client.has_ended()

    asyncio.run(play())


def test_nothing_of_a_request_is_kept_while_its_answer_is_written(monkeypatch):
    async def play():
        client, is_written = Client(Transport()), asyncio.Event()
        monkeypatch.setattr(client.connection, "_write", lambda data: is_written.wait())
        client.connection.may_answer.set()
        client.send(FRAME)
        await turns()
        [frame] = client.connection.begun
        assert frame() is None
        is_written.set()
        await turns()
        client.go()
        await client.has_ended()

    asyncio.run(play())
