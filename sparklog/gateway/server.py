"""The gateway: connections of a listener, on one event loop."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sparklog.gateway.backend import Backend
from sparklog.gateway.client_log import address_text
from sparklog.gateway.connection import ByteBudget, Connection
from sparklog.gateway.defects import log_defect
from sparklog.gateway.frame_reader import FrameReader, new_protocol
from sparklog.gateway.settings import GatewaySettings
from sparklog.gateway.users import KnownUsers
from sparklog.log.cluster import Cluster
from sparklog.logs import about

if TYPE_CHECKING:
    from sparklog.gateway.figures import GatewayProbe
    from sparklog.gateway.opening import Opened, Opening

__all__ = ["Gateway", "parse_address", "tls_context"]

_LOGGER = logging.getLogger("sparklog.gateway")
_TURNS = 5
_CLOSE_S = 10.0
_TURN_S = 1.0


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
        self._connections: dict[asyncio.Task[None], tuple[Connection, asyncio.StreamWriter]] = {}
        self._server: asyncio.Server | None = None
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
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(new_protocol(self._connected), host, port, ssl=self._tls)
        self._turning = asyncio.ensure_future(self._turn())
        address: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        await self._backend.begin_zone(address, is_open=self._backend.figures.why_unopened() is None)
        return address

    def _connected(self, reader: FrameReader, writer: asyncio.StreamWriter) -> None:
        if self._is_closing:
            writer.transport.abort()
            return
        figures = self._backend.figures
        if len(self._connections) >= self._settings.max_connections:
            figures.refused += 1
            client = address_text(writer.get_extra_info("peername"))
            _LOGGER.warning(
                "client %s was refused: %d connections are open",
                client,
                len(self._connections),
                extra=about(client=client, reason="full"),
            )
            writer.transport.abort()
            return
        connection = Connection(self._backend, self._budget, reader, writer)
        task = asyncio.ensure_future(connection.serve())
        self._connections[task] = connection, writer
        figures.accepted += 1
        figures.connections = len(self._connections)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        _, writer = self._connections.pop(task)
        self._backend.figures.connections = len(self._connections)
        writer.transport.abort()  # where the task was cancelled before it began
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, (EOFError, OSError)):
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
        if self._server is not None:
            self._server.close()
        await _let_transports_close()  # of clients that were being accepted
        if self._backend.neighbours is not None:
            await self._backend.neighbours.withdraw()
        open_count = len(self._connections)
        if self._connections and drain_s > 0:
            for connection, _ in self._connections.values():
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
