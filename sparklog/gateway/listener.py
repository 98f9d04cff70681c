"""Accepting connections: each counts from here on, also while its TLS handshake is under way.

``asyncio`` counts nothing before it, and when there is no open file to spare it reports each client that waits, as fast
as it can, for as long as that lasts.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable

from sparklog.gateway.client_log import address_text
from sparklog.gateway.repeats import Repeats
from sparklog.logs import about

__all__ = ["Listener", "bound_sockets"]

_LOGGER = logging.getLogger("sparklog.gateway")
_BACKLOG = 512
_AT_ONCE = 32
"""Connections that are accepted before others have their turn."""
_PAUSE_S = 1.0
_LOOK_S = 0.1
_NO_FILE = (errno.EMFILE, errno.ENFILE)


def bound_sockets(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen at each address of a host; for port 0 each at a free port. Raises ``OSError``."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sockets.append(_listening(family, kind, protocol, address))
    except OSError:
        for one in sockets:
            one.close()
        raise
    return sockets


def _listening(family: int, kind: int, protocol: int, address: object) -> socket.socket:
    made = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setblocking(False)
        try:
            made.bind(address)  # type: ignore[arg-type]  # as getaddrinfo gives it
        except OSError as error:
            raise OSError(error.errno, f"listening at {address} isn't possible: {error.strerror}") from error
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made


class Listener:
    """Accepts the connections of some sockets, and refuses those for which there is no room. Belongs to an event
    loop."""

    def __init__(
        self,
        sockets: list[socket.socket],
        take: Callable[[socket.socket], None],
        why_full: Callable[[], str | None],
        refused: Callable[[], None],
        repeats: Repeats,
    ) -> None:
        """
        Args:
            sockets: of :func:`bound_sockets`.
            take: called with each connection that is to be served.
            why_full: why no connection can be taken now; None: one can.
            refused: called for each connection that isn't taken.
            repeats: limits entries of the log.
        """
        self._sockets = sockets
        self._take = take
        self._why_full = why_full
        self._refused = refused
        self._repeats = repeats
        self._spare = os.open(os.devnull, os.O_RDONLY)
        """An open file that is let go of where there is none left: so clients are disconnected, and don't wait."""
        self._tasks = [asyncio.ensure_future(self._accept_from(one)) for one in sockets]

    async def close(self) -> None:
        """Accept no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        for one in self._sockets:
            one.close()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1

    async def _accept_from(self, listening: socket.socket) -> None:
        count = 0
        while True:
            try:  # not sock_accept, which loses the connection that it has accepted when it is cancelled then
                client, address = listening.accept()
            except BlockingIOError:
                await _readable(listening)
                continue
            except ConnectionAbortedError:  # it has gone before it was accepted
                continue
            except OSError as error:
                await self._despite(error, listening)
                continue
            self._take_or_refuse(client, address)
            count += 1
            if count % _AT_ONCE == 0:
                await asyncio.sleep(0)

    def _take_or_refuse(self, client: socket.socket, address: object) -> None:
        why = self._why_full()
        if why is None:
            self._take(client)
        else:
            self._refuse(client, address_text(address), why)

    def _refuse(self, client: socket.socket, address: str, why: str) -> None:
        client.close()
        self._refused()
        left_out = self._repeats.left_out("full")
        if left_out is not None:
            extra = about(client=address, reason="full")
            _LOGGER.warning("client %s was refused: %s%s", address, why, left_out, extra=extra)

    async def _despite(self, error: OSError, listening: socket.socket) -> None:
        """Go on after an error of the system: disconnect the clients that wait, or wait for better times."""
        count = 0
        while error.errno in _NO_FILE and (client := self._accept_by_spare(listening)) is not None:
            if self._has_spare_again():  # there is room again
                self._take_or_refuse(client, None)
                return
            client.close()
            self._has_spare_again()
            self._refused()
            count += 1
            if count % _AT_ONCE == 0:
                await asyncio.sleep(0)
        is_at_hand = self._spare >= 0 or self._has_spare_again()
        left_out = self._repeats.left_out(f"accept {error.errno}")
        if left_out is not None:
            what = f"{count} clients were disconnected" if is_at_hand else "no client is accepted for now"
            _LOGGER.error("%s: %s%s", what, error, left_out, extra=about(reason="system"))
        # Without a file to spare accepting fails whether a client waits or not, so nothing tells when one comes.
        await asyncio.sleep(_LOOK_S if is_at_hand and error.errno in _NO_FILE else _PAUSE_S)

    def _accept_by_spare(self, listening: socket.socket) -> socket.socket | None:
        """The client that waits, by means of the file that is held for that; None: none waits, or there is no file."""
        if self._spare < 0:
            return None
        os.close(self._spare)
        self._spare = -1
        try:
            return listening.accept()[0]
        except OSError:  # none waits, or another thread has taken the file
            self._has_spare_again()
            return None

    def _has_spare_again(self) -> bool:
        try:
            self._spare = os.open(os.devnull, os.O_RDONLY)
        except OSError:
            return False
        return True


async def _readable(listening: socket.socket) -> None:
    """Wait until a client waits at a socket."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[None] = loop.create_future()
    loop.add_reader(listening, _set, waiting)
    try:
        await waiting
    finally:
        loop.remove_reader(listening)


def _set(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
