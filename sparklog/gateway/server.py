"""The gateway: connections of a listener, on one event loop."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sparklog.gateway.backend import Backend
from sparklog.gateway.connection import ByteBudget, Connection
from sparklog.gateway.defects import log_defect
from sparklog.gateway.frame_reader import FrameReader, new_protocol, shared_room
from sparklog.gateway.listener import Listener, bound_sockets
from sparklog.gateway.settings import GatewaySettings
from sparklog.gateway.users import KnownUsers
from sparklog.log.cluster import Cluster
from sparklog.logs import about, short

if TYPE_CHECKING:
    from sparklog.gateway.figures import GatewayProbe
    from sparklog.gateway.opening import Opened, Opening

__all__ = ["Gateway", "parse_address", "tls_context"]

_LOGGER = logging.getLogger("sparklog.gateway")
_TURNS = 5
_CLOSE_S = 10.0
_TURN_S = 1.0
_HANDSHAKE_S = 10.0
"""Bound of a TLS handshake: whoever doesn't authenticate takes the place of a client for no longer."""


def parse_address(text: str) -> tuple[str, int]:
    """``host:port``. Raises ``ValueError``."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"address {text!r}: expected HOST:PORT")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - asked for by name


def tls_context(cert: str | Path, key: str | Path | None = None, client_ca: str | Path | None = None) -> ssl.SSLContext:
    """The TLS of a gateway, version 1.2 or newer, by files in PEM.

    Args:
        key: of the certificate; None: it is in ``cert``.
        client_ca: clients must have a certificate that one of these has signed; None: they need none.
    Raises:
        OSError, ssl.SSLError: a file can't be read or isn't what it should be.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(cert, key)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def _let_transports_close() -> None:
    """Give the loop some turns: a transport closes its socket in a later one than that in which it is aborted."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


class Gateway:
    """Serves a cluster to Kafka's clients. Belongs to one event loop."""

    def __init__(
        self,
        cluster: Cluster,
        settings: GatewaySettings | None = None,
        *,
        advertised: tuple[str, int] | None = None,
        users: KnownUsers | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """
        Args:
            advertised: host and port that clients are given; None: those by which each came.
            users: who may come in, by SASL; None: nobody is asked who they are.
            tls: encrypts all connections; None: none is.
        """
        self._settings = settings or GatewaySettings()
        self._tls = tls
        self._backend = Backend(cluster, self._settings, advertised, users)
        self._backend.figures.connections_max = self._settings.max_connections
        self._budget = ByteBudget(self._settings.queued_bytes, self._backend.figures)
        self._connections: dict[asyncio.Task[None], Connection | None] = {}
        """By its task; None while its TLS handshake is under way."""
        self._unbegun: set[socket.socket] = set()
        """Connections whose task hasn't begun yet."""
        self._room = shared_room()
        self._listener: Listener | None = None
        self._turning: asyncio.Task[None] | None = None
        self._is_closing = False

    def wait_for(self, opening: Opening) -> None:
        """Serve a cluster that isn't open yet, of which this gateway was made: it isn't ready, and its clients have
        to ask again, until :meth:`opened`. Call it before :meth:`listen`."""
        self._backend.figures.why_unopened = lambda: opening.reason

    def opened(self, opened: Opened) -> None:
        """Serve the cluster from now on."""
        self._backend.opened(opened.cluster, opened.users)

    def probe(self) -> GatewayProbe:
        """The answers about this gateway by HTTP."""
        from sparklog.gateway.figures import GatewayProbe

        return GatewayProbe(self._backend.cluster, self._backend.figures)

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Take connections from now on; returns host and port, which is a free one for 0.

        Raises ``OSError``, and ``InvalidArgumentError``: this zone or address can't be announced to others."""
        sockets = bound_sockets(host, port)
        address: tuple[str, int] = sockets[0].getsockname()[:2]
        self._listener = Listener(sockets, self._take, self._why_full, self._note_refused, self._backend.log_repeats)
        self._turning = asyncio.ensure_future(self._turn())
        await self._backend.begin_zone(address, is_open=self._backend.figures.why_unopened() is None)
        return address

    def _why_full(self) -> str | None:
        if self._is_closing:
            return "the gateway is stopping"
        if len(self._connections) < self._settings.max_connections:
            return None
        return f"{len(self._connections)} connections are open"

    def _note_refused(self) -> None:
        if not self._is_closing:
            self._backend.figures.refused += 1

    def _take(self, client: socket.socket) -> None:
        """Serve a connection, which counts from now on."""
        figures = self._backend.figures
        task = asyncio.ensure_future(self._serve(client))
        self._connections[task] = None
        self._unbegun.add(client)
        figures.accepted += 1
        figures.connections = len(self._connections)
        task.add_done_callback(partial(self._ended, client))

    async def _serve(self, client: socket.socket) -> None:
        loop, made = asyncio.get_running_loop(), list[tuple[FrameReader, asyncio.StreamWriter]]()
        new = new_protocol(lambda reader, writer: made.append((reader, writer)), self._room)
        self._unbegun.discard(client)
        client.setblocking(False)
        try:
            await loop.connect_accepted_socket(
                new, client, ssl=self._tls, ssl_handshake_timeout=None if self._tls is None else _HANDSHAKE_S
            )
        except (OSError, EOFError) as error:
            self._note_no_handshake(error)
            return
        reader, writer = made.pop()
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a connection is served by a task")
        self._connections[task] = connection = Connection(self._backend, self._budget, reader, writer)
        try:
            await connection.serve()
        finally:
            writer.transport.abort()

    def _note_no_handshake(self, error: Exception) -> None:
        """Note that a client came no further than TLS: anybody may come as often, so one a second is logged."""
        self._backend.figures.disconnected["handshake"] += 1
        left_out = self._backend.log_repeats.left_out("handshake")
        if left_out is not None:
            why = short(str(error) or type(error).__name__)
            _LOGGER.info("a client's TLS handshake failed: %s%s", why, left_out, extra=about(reason="handshake"))

    def _ended(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        del self._connections[task]
        self._backend.figures.connections = len(self._connections)
        if client in self._unbegun:  # the task was cancelled before it began
            self._unbegun.discard(client)
            client.close()
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, EOFError | OSError):
            log_defect(self._backend.log_repeats, "a connection ended by an error", error=error)

    async def _turn(self) -> None:
        """Show that the loop turns."""
        while True:
            self._backend.figures.turned_s = time.monotonic()
            await asyncio.sleep(_TURN_S)

    @property
    def has_unsettled(self) -> bool:
        """Are records of clients on their way to the store? From any thread."""
        return self._backend.has_unsettled

    async def close(self, drain_s: float = 0.0) -> None:
        """Take no more connections, end those that are open, and deliver what was sent.

        Args:
            drain_s: for so long, requests that were read are answered first; then they aren't any more.
        """
        self._is_closing = self._backend.figures.is_draining = True
        if self._listener is not None:
            await self._listener.close()
        if self._backend.neighbours is not None:
            await self._backend.neighbours.withdraw()
        open_count = len(self._connections)
        if self._connections and drain_s > 0:
            for task, connection in self._connections.items():
                if connection is None:
                    task.cancel()
                else:
                    connection.drain()
            await asyncio.wait(list(self._connections), timeout=drain_s)
        if self._turning is not None:
            self._turning.cancel()
        _LOGGER.debug("%d of %d connections end before they are answered", len(self._connections), open_count)
        if self._connections:
            for task in list(self._connections):
                task.cancel()
            await asyncio.wait(list(self._connections), timeout=_CLOSE_S)
        await self._backend.close()
        await _let_transports_close()
