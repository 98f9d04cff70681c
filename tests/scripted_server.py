"""An HTTP server that answers as the test says: for what real servers of clouds seldom do."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

OK_HEADERS = {"ETag": '"x"', "Last-Modified": "Sun, 22 Nov 2026 20:00:00 GMT"}


@dataclass(frozen=True)
class Reply:
    """An answer."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: OK_HEADERS)


HANG_UP = Reply(status=0)
"""Read the request whole, and close the connection without an answer."""
SILENCE = Reply(status=-1)
"""Answer when the server is closed."""


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


def xml_error(status: int, code: str, said: str = "said so") -> Reply:
    """An answer as S3, Azure and Google make them."""
    return Reply(status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{said}</Message></Error>".encode())


def stored(request: Request, **headers: str) -> Reply:
    """The success that S3 answers to a PUT: its ETag is the MD5 sum of what was put."""
    etag = f'"{hashlib.md5(request.body).hexdigest()}"'
    return Reply(headers={**OK_HEADERS, "ETag": etag, **headers})


class ScriptedServer:
    """Answers each request with the next of ``replies``, and then with a success; or with what ``answer`` says."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.answer: Callable[[Request], Reply] | None = None
        self.requests: list[Request] = []
        self.connections = 0
        self.closing = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def next_reply(self, request: Request) -> Reply:
        self.requests.append(request)
        if self.answer:
            return self.answer(request)
        return self.replies.pop(0) if self.replies else stored(request)


@contextmanager
def scripted_server() -> Iterator[ScriptedServer]:
    scripted = ScriptedServer()
    thread = threading.Thread(target=scripted.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield scripted
    finally:
        scripted.closing.set()
        scripted.server.shutdown()
        thread.join()
        scripted.server.server_close()


def _handler_of(scripted: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # an answer in one piece
        disable_nagle_algorithm = True

        def setup(self) -> None:
            scripted.connections += 1
            super().setup()

        def serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            reply = scripted.next_reply(Request(self.command, self.path, dict(self.headers), body))
            if reply is SILENCE:
                scripted.closing.wait()
            if reply in (HANG_UP, SILENCE):
                self.close_connection = True
                return
            self.send_response_only(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.status != 304:
                self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            if self.command != "HEAD" and reply.status != 304:
                self.wfile.write(reply.body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is told of each request."""

    return Handler
