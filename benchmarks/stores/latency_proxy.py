"""A proxy in front of an S3 server that answers as late as a cloud would, and counts requests.

A request is passed on when half of its delay is over, and its answer when all of it is; so a PUT takes effect in the
middle of its time, and what the server and the proxy themselves need counts into the delay as far as it suffices.
Requests and answers are held as a whole. Bandwidth isn't limited. Connections are kept on both sides. A client that
waits for ``100 Continue`` waits for ever.

Each connection has a thread, and a connection to the server: the proxy shares the machine's cores with what is
measured, and calls that block are the cheapest, for small requests as for large ones, which are received into memory
that is there already, and sent from it, without the interpreter's lock.
"""

from __future__ import annotations

import json
import random
import socket
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from urllib.parse import parse_qs, urlsplit

from benchmarks.stores.http_messages import answer_needs, message_needs, operation_of

__all__ = ["LatencyProxy", "control", "serve"]

_CONTROL_PATH = b"/-/"
"""No bucket has this name."""
_SEED = 20130101
_TAIL_SHARE = 0.02
_TAIL_FACTOR = 2.0
_TAIL_SHAPE = 1.5
_LONGEST_FACTOR = 20.0
_PIECE = 2**16
_STACK_BYTES = 2**18
_WAITING_CONNECTIONS = 1024


class LatencyProxy:
    """What connections share: the delays and the counts. For several threads."""

    def __init__(self, host: str, port: int) -> None:
        self.get_ms = self.put_ms = 0.0
        self.has_tail = False
        self.address = host, port
        """The server's."""
        self._counts: Counter[str] = Counter()
        """By operation; ``uploaded_bytes`` and ``retrieved_bytes`` with the heads of their messages; ``lost``: the
        server closed the connection."""
        self._random = random.Random(_SEED)
        self._lock = threading.Lock()

    def count(self, **more: int) -> None:
        """Add to the counts."""
        with self._lock:
            self._counts.update(more)

    def delay_s(self, operation: str) -> float:
        """What the next request is to take: a GET ``get_ms``, all else ``put_ms``.

        With a tail one of 50 takes 2 to 20 times as long, by Pareto's distribution with the exponent 1.5: the 99th
        percentile is 3.2 times the median, the 99.9th 15 times.
        """
        delay_s = (self.get_ms if operation == "GET" else self.put_ms) / 1000
        with self._lock:
            if self.has_tail and self._random.random() < _TAIL_SHARE:
                delay_s *= min(_TAIL_FACTOR * self._random.paretovariate(_TAIL_SHAPE), _LONGEST_FACTOR)
        return delay_s

    def control(self, request: bytes) -> bytes:
        """Set delays by ``/-/?get_ms=…&put_ms=…&tail=…``, and answer with the counts since the start."""
        given = parse_qs(urlsplit(request.split(b" ", 2)[1].decode()).query)
        if given:
            self.get_ms, self.put_ms = (float(given[name][0]) for name in ("get_ms", "put_ms"))
            self.has_tail = given["tail"] == ["1"]
            with self._lock:
                self._random.seed(_SEED)
        with self._lock:
            body = json.dumps({**self._counts, "cpu_s": time.process_time()}).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


class _Incoming:
    """Messages as they come on a socket, one after the other."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._rest = b""
        self._memory = bytearray()

    def take(self, needs: Callable[[bytes], int | None]) -> bytes | memoryview | None:
        """The next message, whose memory is used again for the one after it; None: the connection has ended.

        Args:
            needs: of :mod:`benchmarks.stores.http_messages`.
        """
        data, needed = self._rest, needs(self._rest)
        while needed is None or len(data) < needed <= len(data) + _PIECE:
            more = self._socket.recv(_PIECE)
            if not more:
                return None
            data += more
            needed = needs(data)
        self._rest = data[needed:]
        return data[:needed] if needed <= len(data) else self._take_large(data, needed)

    def _take_large(self, begun: bytes, size: int) -> memoryview | None:
        if len(self._memory) < size:
            self._memory = bytearray(size)
        message = memoryview(self._memory)[:size]
        message[: len(begun)] = begun
        filled = len(begun)
        while filled < size:
            received = self._socket.recv_into(message[filled:], flags=socket.MSG_WAITALL)
            if not received:
                return None
            filled += received
        return message


class _ServerConnection:
    """A connection to the server; one request at a time."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._socket: socket.socket | None = None

    def ask(self, request: bytes | memoryview) -> bytes | memoryview:
        """The server's answer. Raises OSError where the connection ends before it is there."""
        if self._socket is None or not _is_open(self._socket):
            self.close()
            self._socket = socket.create_connection(self._address)
            _send_at_once(self._socket)
            self._incoming = _Incoming(self._socket)
        self._socket.sendall(request)
        answer = self._incoming.take(partial(answer_needs, is_head=request[:5] == b"HEAD "))
        if answer is None:
            raise ConnectionError("the server closed the connection")
        return answer

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def _is_open(idle: socket.socket) -> bool:
    """Is a connection, on which nothing is to come, still open?"""
    try:
        idle.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    except OSError:  # it was reset
        return False
    return False


def _send_at_once(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _answer_all(proxy: LatencyProxy, client: socket.socket) -> None:
    """Answer a client, which sends its next request when it has an answer, until one of both ends the connection."""
    server = _ServerConnection(proxy.address)
    try:
        with client, suppress(OSError):
            incoming = _Incoming(client)
            while (request := incoming.take(message_needs)) is not None:
                client.sendall(_answer(proxy, server, request))
    finally:
        server.close()


def _answer(proxy: LatencyProxy, server: _ServerConnection, request: bytes | memoryview) -> bytes | memoryview:
    """The server's answer, once it is due. Raises OSError: there is none."""
    began = time.monotonic()
    head = bytes(request[:_PIECE])
    if head.split(b" ", 2)[1].startswith(_CONTROL_PATH):
        return proxy.control(head)
    operation = operation_of(head)
    delay_s = proxy.delay_s(operation)
    if delay_s:
        time.sleep(delay_s / 2)
    try:
        answer = server.ask(request)
    except OSError:
        proxy.count(**{operation: 1, "uploaded_bytes": len(request), "lost": 1})
        raise
    proxy.count(**{operation: 1, "uploaded_bytes": len(request), "retrieved_bytes": len(answer)})
    left_s = began + delay_s - time.monotonic()
    if left_s > 0:
        time.sleep(left_s)
    return answer


def serve(host: str, port: int) -> None:
    """Print the port that the proxy has on the loopback, and serve until the process is killed."""
    proxy = LatencyProxy(host, port)
    threading.stack_size(_STACK_BYTES)
    with socket.create_server(("127.0.0.1", 0), backlog=_WAITING_CONNECTIONS) as listening:
        print(listening.getsockname()[1], flush=True)
        while True:
            client, _ = listening.accept()
            _send_at_once(client)
            threading.Thread(target=_answer_all, args=(proxy, client), daemon=True).start()


def control(endpoint: str, query: str = "") -> dict[str, float]:
    """The proxy's counts since its start, and its CPU seconds (``cpu_s``); ``query`` sets its delays before."""
    with urllib.request.urlopen(f"{endpoint}/-/{query}", timeout=60) as answer:
        return defaultdict(float, json.loads(answer.read()))
