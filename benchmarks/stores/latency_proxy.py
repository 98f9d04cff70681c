"""A proxy in front of an S3 server that answers as late as a cloud would, and counts requests.

A request is passed on when half of its delay is over, and its answer when all of it is; so a PUT takes effect in the
middle of its time, and what the server and the proxy themselves need counts into the delay as far as it suffices.
Requests and answers are held as a whole. Bandwidth isn't limited. Connections are kept on both sides. A client that
waits for ``100 Continue`` waits for ever.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import urllib.request
from collections import Counter, defaultdict
from typing import Any
from urllib.parse import parse_qs, urlsplit

from benchmarks.stores.http_messages import answer_size, message_size, operation_of

__all__ = ["control", "serve"]

_CONTROL_PATH = b"/-/"
"""No bucket has this name."""
_SEED = 20130101
_TAIL_SHARE = 0.02
_TAIL_FACTOR = 2.0
_TAIL_SHAPE = 1.5
_LONGEST_FACTOR = 20.0


class LatencyProxy:
    """What connections share: the delays, the counts, connections to the server that are free."""

    def __init__(self, host: str, port: int) -> None:
        self.get_ms = self.put_ms = 0.0
        self.has_tail = False
        self.counts: Counter[str] = Counter()
        """By operation; ``uploaded_bytes`` and ``retrieved_bytes`` with the heads of their messages; ``lost``: the
        server closed the connection."""
        self._address = host, port
        self._free: list[_ServerConnection] = []
        self._random = random.Random(_SEED)

    def delay_s(self, operation: str) -> float:
        """What the next request is to take: a GET ``get_ms``, all else ``put_ms``.

        With a tail one of 50 takes 2 to 20 times as long, by Pareto's distribution with the exponent 1.5: the 99th
        percentile is 3.2 times the median, the 99.9th 15 times.
        """
        delay_s = (self.get_ms if operation == "GET" else self.put_ms) / 1000
        if self.has_tail and self._random.random() < _TAIL_SHARE:
            delay_s *= min(_TAIL_FACTOR * self._random.paretovariate(_TAIL_SHAPE), _LONGEST_FACTOR)
        return delay_s

    async def pass_on(self, request: bytes) -> bytes:
        """The server's answer. Raises ConnectionError where the connection ends before it is there."""
        connection = self._free.pop() if self._free else await self._connect()
        answer = await connection.ask(request)
        self._free.append(connection)
        return answer

    def forget(self, connection: _ServerConnection) -> None:
        """A connection has ended."""
        if connection in self._free:
            self._free.remove(connection)

    def control(self, request: bytes) -> bytes:
        """Set delays by ``/-/?get_ms=…&put_ms=…&tail=…``, and answer with the counts since the start."""
        given = parse_qs(urlsplit(request.split(b" ", 2)[1].decode()).query)
        if given:
            self.get_ms, self.put_ms = (float(given[name][0]) for name in ("get_ms", "put_ms"))
            self.has_tail = given["tail"] == ["1"]
            self._random.seed(_SEED)
        body = json.dumps({**self.counts, "cpu_s": time.process_time()}).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    async def _connect(self) -> _ServerConnection:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _ServerConnection(self), *self._address
        )
        return connection


class _ServerConnection(asyncio.Protocol):
    """A connection to the server; one request at a time."""

    def __init__(self, proxy: LatencyProxy) -> None:
        self._proxy = proxy
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self._is_head = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    async def ask(self, request: bytes) -> bytes:
        if self._transport.is_closing():
            raise ConnectionError("the server closed the connection")
        self._answer = asyncio.get_running_loop().create_future()
        self._is_head = request.startswith(b"HEAD ")
        self._transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._received += data
        if answer_size(self._received, is_head=self._is_head) is not None and self._answer is not None:
            answer, self._answer = self._answer, None
            answer.set_result(bytes(self._received))
            self._received = bytearray()

    def connection_lost(self, error: Exception | None) -> None:
        self._proxy.forget(self)
        if self._answer is not None:
            self._answer.set_exception(error or ConnectionError("the server closed the connection"))


class _ClientConnection(asyncio.Protocol):
    """A connection of a client, which sends its next request when it has an answer."""

    def __init__(self, proxy: LatencyProxy) -> None:
        self._proxy = proxy
        self._received = bytearray()
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        size = message_size(self._received)
        if size is not None:
            request = bytes(self._received[:size])
            del self._received[:size]
            self._answering = asyncio.get_running_loop().create_task(self._answer(request))

    async def _answer(self, request: bytes) -> None:
        if request.split(b" ", 2)[1].startswith(_CONTROL_PATH):
            self._transport.write(self._proxy.control(request))
            return
        loop, counts, operation = asyncio.get_running_loop(), self._proxy.counts, operation_of(request)
        due, delay_s = loop.time(), self._proxy.delay_s(operation)
        due += delay_s
        counts[operation] += 1
        counts["uploaded_bytes"] += len(request)
        if delay_s:
            await asyncio.sleep(delay_s / 2)
        try:
            answer = await self._proxy.pass_on(request)
        except OSError:
            counts["lost"] += 1
            self._transport.close()
            return
        counts["retrieved_bytes"] += len(answer)
        if due > loop.time():
            await asyncio.sleep(due - loop.time())
        self._transport.write(answer)


def serve(host: str, port: int) -> None:
    """Print the port that the proxy has on the loopback, and serve until the process is killed."""

    async def forever() -> None:
        proxy = LatencyProxy(host, port)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _ClientConnection(proxy), "127.0.0.1", 0, backlog=1024)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    asyncio.run(forever())


def control(endpoint: str, query: str = "") -> dict[str, float]:
    """The proxy's counts since its start, and its CPU seconds (``cpu_s``); ``query`` sets its delays before."""
    with urllib.request.urlopen(f"{endpoint}/-/{query}", timeout=60) as answer:
        return defaultdict(float, json.loads(answer.read()))
