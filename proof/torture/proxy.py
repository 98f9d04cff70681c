"""A proxy before an object store that loses, delays, refuses and repeats requests, can hold all of them back, and can
stop a single one."""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.s3_proxy import HOP_BY_HOP, read_body
from tests.s3_server import free_port

__all__ = ["LATEST_S", "FaultyProxy", "ProxiedRequest", "StoppedRequest"]

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
Answer = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""
_REFUSAL = b'<?xml version="1.0"?><Error><Code>ServerBusy</Code><Message>refused</Message></Error>'


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed, or whose connection was closed on it, is no error."""


@dataclass(frozen=True, slots=True)
class ProxiedRequest:
    """What a client has sent."""

    method: str
    path: str
    """With its query."""
    headers: Mapping[str, str]
    body: bytes


class StoppedRequest:
    """The first request of a kind, which is held before the store until it is let go on, or dropped."""

    def __init__(self, proxy: FaultyProxy, is_wanted: Callable[[ProxiedRequest], bool]) -> None:
        self._proxy = proxy
        self._is_wanted = is_wanted
        self._request: ProxiedRequest | None = None
        self._has_come = threading.Event()
        self._is_settled = threading.Event()
        self._answer: Answer | None = None

    def takes(self, request: ProxiedRequest) -> bool:
        """Is it this one? The proxy asks one request at a time."""
        if self._request is not None or not self._is_wanted(request):
            return False
        self._request = request
        self._has_come.set()
        return True

    def wait(self, timeout_s: float) -> ProxiedRequest | None:
        """The request, once it has come; None: it hasn't within this time."""
        return self._request if self._has_come.wait(timeout_s) else None

    def carry_out(self) -> int:
        """Let it go on to the store, whether or not its client is still there: the status that the store answers."""
        if self._request is None:
            raise ValueError("no such request has come")
        try:
            self._answer = answer = self._proxy.forward(self._request)
        finally:
            self._is_settled.set()
        return answer[0]

    def drop(self) -> None:
        """Let it be lost; a client that is still there sees its connection closed."""
        self._is_settled.set()

    def settled(self) -> Answer | None:
        """Wait for the one or the other: what the store has answered; None: it was dropped."""
        self._is_settled.wait()
        return self._answer


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
        self._stopped: StoppedRequest | None = None
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

    def stop(self, is_wanted: Callable[[ProxiedRequest], bool]) -> StoppedRequest:
        """Stop the next request that is wanted. Before another can be stopped, that one has to have come."""
        stopped = StoppedRequest(self, is_wanted)
        with self._lock:
            self._stopped = stopped
        return stopped

    def stopped(self, request: ProxiedRequest) -> StoppedRequest | None:
        """What holds the request, if it is to be stopped."""
        with self._lock:
            return self._stopped if self._stopped is not None and self._stopped.takes(request) else None

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

    def forward(self, request: ProxiedRequest) -> Answer:
        """Pass it on, unless all are held back; then it waits."""
        with self._lock:
            self._lock.wait_for(lambda: not self._is_held)
            self._under_way += 1
        try:
            return self._carry_out(request)
        finally:
            with self._lock:
                self._under_way -= 1
                self._lock.notify_all()

    def _carry_out(self, request: ProxiedRequest) -> Answer:
        given = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        given["Content-Length"] = str(len(request.body))
        connection = http.client.HTTPConnection(self._backend, timeout=_TIMEOUT_S)
        try:
            connection.request(request.method, request.path, request.body, given)
            got = connection.getresponse()
            return got.status, dict(got.getheaders()), got.read()
        finally:
            connection.close()

    def pass_late(self, request: ProxiedRequest) -> None:
        """Pass it on in a while, for nobody."""

        def arrive() -> None:
            time.sleep(self._draw.uniform(0.1, LATEST_S))
            with suppress(OSError, http.client.HTTPException):
                self.forward(request)

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
            request = ProxiedRequest(self.command, self.path, dict(self.headers), body)
            stopped = proxy.stopped(request)
            if stopped is not None:
                settled = stopped.settled()
                if settled is None:
                    self.hang_up()
                else:
                    self.answer(*settled)
                return
            fate = proxy.fate()
            if fate in ("lost request", "late"):
                if fate == "late":
                    proxy.pass_late(request)
                self.hang_up()
                return
            if fate == "refused":
                self.answer(503, {"Content-Type": "application/xml"}, _REFUSAL)
                return
            answer = proxy.forward(request)
            if fate == "repeated":
                answer = proxy.forward(request)
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
