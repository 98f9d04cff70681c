"""A proxy in front of an S3 server that can hold a commit, refuse and lose requests, answer in its place, or die."""

from __future__ import annotations

import http.client
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.s3_server import free_port
from tests.scripted_server import Reply, Request

COMMIT = re.compile(r"/_delta_log/\d{20}\.json$")
HOP_BY_HOP = {"connection", "content-length", "expect", "keep-alive", "transfer-encoding"}
TIMEOUT_S = 60
LOST = 0
"""The request is passed on, then the proxy hangs up."""
STALLED = -1
"""The request is passed on, and never answered."""


class S3Proxy:
    """Passes requests on to ``endpoint``. What its attributes say is done with the next PUT of a Delta commit, once."""

    def __init__(self, endpoint: str) -> None:
        self.backend = urlsplit(endpoint).netloc
        self.hold: Callable[[], None] | None = None
        """Called before the PUT is passed on."""
        self.lose_answer = False
        """Pass it on, then hang up."""
        self.refuse: int | None = None
        """Answer with this status, and pass nothing on."""
        self.trouble: Callable[[str, str], int | None] | None = None
        """Decides by method and path with query of each request: a status, with which it is refused and not passed on;
        :data:`LOST`; :data:`STALLED`; None: nothing happens to it."""
        self.instead: Callable[[Request], Reply | None] | None = None
        """Answers in place of the server; None: the request is passed on."""
        self.rewrite: Callable[[Request, bytes], bytes] | None = None
        """Changes what the server answers to a request."""
        self.commits: list[tuple[str, str | None, int]] = []
        """Of each PUT of a commit: its file's name, ``If-None-Match``, and the status that S3 or the proxy gave."""
        self.extra_headers: dict[str, str] = {}
        """Are added to each request that is passed on."""
        self.drop_headers: frozenset[str] = frozenset()
        """Are left out of each request that is passed on; in lower case."""
        self.closing = threading.Event()
        self.connections: set[socket.socket] = set()
        self.port = free_port()  # nobody takes it while the proxy is dead
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen, on the port that it had if it was killed."""
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), handler_of(self))
        self.server.daemon_threads = True
        self.port = self.server.server_port
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def kill(self) -> None:
        """Break all connections and refuse new ones. What was passed on already may be carried out."""
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def s3_proxy(endpoint: str) -> Iterator[S3Proxy]:
    proxy = S3Proxy(endpoint)
    try:
        yield proxy
    finally:
        proxy.closing.set()
        proxy.kill()


def handler_of(proxy: S3Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = TIMEOUT_S
        wbufsize = -1  # an answer in one piece
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            proxy.connections.add(self.connection)

        def finish(self) -> None:
            proxy.connections.discard(self.connection)
            with suppress(OSError):
                super().finish()

        def serve(self) -> None:
            try:
                self.serve_one(read_body(self))
            except ConnectionError:  # the client has gone, or the proxy was killed
                self.close_connection = True

        def serve_one(self, body: bytes) -> None:
            path = urlsplit(self.path).path
            reply = proxy.instead(self.request_of(body)) if proxy.instead else None
            if reply is not None:
                self.answer(reply.status, dict(reply.headers), reply.body)
                return
            trouble = proxy.trouble(self.command, self.path) if proxy.trouble else None
            if trouble in (LOST, STALLED):
                self.forward(body)
                if trouble == STALLED:
                    proxy.closing.wait()
                self.close_connection = True
                return
            if trouble is not None:
                self.answer(trouble, {}, b"")
                return
            if self.command != "PUT" or not COMMIT.search(path):
                self.answer(*self.forward(body))
                return
            hold, proxy.hold = proxy.hold, None
            refuse, proxy.refuse = proxy.refuse, None
            lose, proxy.lose_answer = proxy.lose_answer, False
            if hold:
                hold()
            status, headers, content = (refuse, {}, b"") if refuse else self.forward(body)
            proxy.commits.append((path.rpartition("/")[2], self.headers["If-None-Match"], status))
            if lose:
                self.close_connection = True
            else:
                self.answer(status, headers, content)

        def request_of(self, body: bytes) -> Request:
            return Request(self.command, self.path, dict(self.headers), body)

        def forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
            dropped = HOP_BY_HOP | proxy.drop_headers
            headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
            headers |= proxy.extra_headers
            connection = http.client.HTTPConnection(proxy.backend, timeout=TIMEOUT_S)
            try:
                connection.request(self.command, self.path, body, {**headers, "Content-Length": str(len(body))})
                got = connection.getresponse()
                content = got.read()
                if proxy.rewrite:
                    content = proxy.rewrite(self.request_of(body), content)
                return got.status, dict(got.getheaders()), content
            finally:
                connection.close()

        def answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
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


def read_body(handler: BaseHTTPRequestHandler) -> bytes:
    if handler.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
    body = b""
    while size := int(handler.rfile.readline().split(b";")[0], 16):
        body += handler.rfile.read(size)
        handler.rfile.readline()
    handler.rfile.readline()
    return body
