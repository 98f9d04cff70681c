"""A proxy before an object store that loses, delays, refuses and repeats requests, and can hold all of them back."""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.s3_proxy import HOP_BY_HOP, read_body
from tests.s3_server import free_port

__all__ = ["LATEST_S", "FaultyProxy"]

_TROUBLES: Mapping[str, float] = {
    "lost answer": 0.015,
    "lost request": 0.01,
    "refused": 0.015,
    "repeated": 0.02,
    "delayed": 0.04,
    "late": 0.005,
}
"""How likely each is, with each request."""
LATEST_S = 0.8
"""What nobody waits for any more is carried out within so long."""
_TIMEOUT_S = 60.0
_REFUSAL = b'<?xml version="1.0"?><Error><Code>ServerBusy</Code><Message>refused</Message></Error>'


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed, or whose connection was closed on it, is no error."""


class FaultyProxy:
    """Passes requests on to ``endpoint``, as luck will have it.

    Args:
        seed: of what happens to which request.
    """

    def __init__(self, endpoint: str, seed: int) -> None:
        self._backend = urlsplit(endpoint).netloc
        self._draw = random.Random(f"proxy {seed}")
        self._lock = threading.Condition()
        self._under_way = 0
        self._is_held = False
        self.counts: Counter[str] = Counter()
        """What happened how often."""
        self._server = _Server(("127.0.0.1", free_port()), _handler_of(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it. What was passed on may be carried out."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within: no request is under way, and all wait."""
        with self._lock:
            self._is_held = True
            self._lock.wait_for(lambda: not self._under_way)
        try:
            yield
        finally:
            with self._lock:
                self._is_held = False
                self._lock.notify_all()

    def fate(self) -> str:
        """What becomes of the next request; empty: nothing happens to it."""
        with self._lock:
            luck = self._draw.random()
            for trouble, chance in _TROUBLES.items():
                luck -= chance
                if luck < 0:
                    self.counts[trouble] += 1
                    return trouble
        return ""

    def forward(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Pass it on, unless all are held back; then it waits."""
        with self._lock:
            self._lock.wait_for(lambda: not self._is_held)
            self._under_way += 1
        try:
            return self._carry_out(method, path, headers, body)
        finally:
            with self._lock:
                self._under_way -= 1
                self._lock.notify_all()

    def _carry_out(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        given = {name: value for name, value in headers.items() if name.lower() not in HOP_BY_HOP}
        connection = http.client.HTTPConnection(self._backend, timeout=_TIMEOUT_S)
        try:
            connection.request(method, path, body, {**given, "Content-Length": str(len(body))})
            got = connection.getresponse()
            return got.status, dict(got.getheaders()), got.read()
        finally:
            connection.close()

    def pass_late(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Pass it on in a while, for nobody."""

        def arrive() -> None:
            time.sleep(self._draw.uniform(0.1, LATEST_S))
            with suppress(OSError, http.client.HTTPException):
                self.forward(method, path, headers, body)

        threading.Thread(target=arrive, daemon=True).start()

    def pause(self) -> None:
        """Let an answer wait."""
        time.sleep(self._draw.uniform(0.05, 0.6))


def _handler_of(proxy: FaultyProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = _TIMEOUT_S
        wbufsize = -1
        disable_nagle_algorithm = True

        def serve(self) -> None:
            try:
                self.serve_one(read_body(self))
            except (OSError, http.client.HTTPException, ValueError):  # the client has gone, or the server
                self.close_connection = True

        def serve_one(self, body: bytes) -> None:
            fate, request = proxy.fate(), (self.command, self.path, dict(self.headers), body)
            if fate in ("lost request", "late"):
                if fate == "late":
                    proxy.pass_late(*request)
                self.hang_up()
                return
            if fate == "refused":
                self.answer(503, {"Content-Type": "application/xml"}, _REFUSAL)
                return
            answer = proxy.forward(*request)
            if fate == "repeated":
                answer = proxy.forward(*request)
            if fate == "lost answer":
                self.hang_up()
                return
            if fate == "delayed":
                proxy.pause()
            self.answer(*answer)

        def hang_up(self) -> None:
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def answer(self, status: int, headers: Mapping[str, str], content: bytes) -> None:
            self.send_response_only(status)
            length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
            for name, value in headers.items():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

        def handle_expect_100(self) -> bool:
            goes_on = super().handle_expect_100()
            self.wfile.flush()
            return goes_on

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is told of each request."""

    return Handler
