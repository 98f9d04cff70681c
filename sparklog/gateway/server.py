"""The gateway: connections of a listener, on one event loop."""

from __future__ import annotations

import asyncio
import logging

from sparklog.gateway.backend import Backend
from sparklog.gateway.connection import ByteBudget, Connection
from sparklog.gateway.settings import GatewaySettings
from sparklog.log.cluster import Cluster

__all__ = ["Gateway", "parse_address"]

_LOGGER = logging.getLogger("sparklog.gateway")
_READ_BUFFER_BYTES = 1_048_576
_CLOSE_S = 10.0


def parse_address(text: str) -> tuple[str, int]:
    """``host:port``. Raises ``ValueError``."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"address {text!r}: expected HOST:PORT")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - asked for by name


class Gateway:
    """Serves a cluster to Kafka's clients. Belongs to one event loop."""

    def __init__(
        self, cluster: Cluster, settings: GatewaySettings | None = None, *, advertised: tuple[str, int] | None = None
    ) -> None:
        """
        Args:
            advertised: host and port that clients are told; None: those by which each came.
        """
        self._settings = settings or GatewaySettings()
        self._backend = Backend(cluster, self._settings, advertised)
        self._budget = ByteBudget(self._settings.queued_bytes)
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Take connections from now on; returns host and port, which is a free one for 0. Raises ``OSError``."""
        self._server = await asyncio.start_server(self._connected, host, port, limit=_READ_BUFFER_BYTES)
        address: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return address

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= self._settings.max_connections:
            _LOGGER.warning("a client was refused: %d connections are open", len(self._connections))
            writer.transport.abort()
            return
        task = asyncio.ensure_future(Connection(self._backend, self._budget, reader, writer).serve())
        self._connections[task] = writer
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        writer = self._connections.pop(task)
        writer.transport.abort()  # where the task was cancelled before it began
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, (EOFError, OSError)):
            _LOGGER.error("a connection ended by an error", exc_info=error)

    async def close(self) -> None:
        """Take no more connections, end those that are open, and deliver what was sent."""
        if self._server is not None:
            self._server.close()
        if self._connections:
            for task in list(self._connections):
                task.cancel()
            await asyncio.wait(list(self._connections), timeout=_CLOSE_S)
        await self._backend.close()
