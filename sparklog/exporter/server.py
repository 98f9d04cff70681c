"""A small HTTP server for an exporter's answers: Python's own, for Prometheus and for probes."""

from __future__ import annotations

import logging
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6, AddressFamily, getaddrinfo
from typing import Any, Protocol

from sparklog.errors import InvalidArgumentError
from sparklog.exporter.app import Response
from sparklog.workers import Worker

__all__ = ["ExporterServer", "parse_address"]

_LOGGER = logging.getLogger("sparklog.exporter")
_TIMEOUT_S = 30


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``, ``[ADDRESS]:PORT`` or ``:PORT``, which means every address of the machine.

    Raises ``InvalidArgumentError``."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or not 0 <= int(port) <= 65_535 or (":" in host and host[0] != "["):
        raise InvalidArgumentError(f"got {text!r} to listen at, expected HOST:PORT, such as 127.0.0.1:9308")
    return host.strip("[]"), int(port)


class _App(Protocol):
    def respond(self, path: str, *, accepts_gzip: bool = False) -> Response:
        """The answer to a GET."""


class ExporterServer:
    """Serves an app until it is closed."""

    def __init__(self, app: _App, host: str, port: int) -> None:
        """Begin to listen.

        Args:
            host: a name or an address; empty for every address.
            port: 0 for any that is free.
        Raises:
            OSError: the address isn't free, or isn't this machine's.
        """
        family = getaddrinfo(host or "0.0.0.0", port)[0][0]  # noqa: S104 - what the caller asked for
        self._server = _server(app, host, port, family)
        self._worker = Worker("exporter", self._server.serve_forever)
        self._worker.start()

    @property
    def port(self) -> int:
        """The port it listens at."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._worker.join(5.0)


def _server(app: _App, host: str, port: int, family: AddressFamily) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        server_version = "sparklog"
        sys_version = ""
        timeout = _TIMEOUT_S

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def _answer(self, *, with_body: bool) -> None:
            accepts_gzip = "gzip" in self.headers.get("Accept-Encoding", "")
            response = app.respond(self.path.partition("?")[0], accepts_gzip=accepts_gzip)
            self.send_response(response.status)
            self.send_header("Content-Type", response.content_type)
            self.send_header("Content-Length", str(len(response.body)))
            if response.is_gzip:
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            if with_body:
                self.wfile.write(response.body)

        def log_message(self, format: str, *args: Any) -> None:
            _LOGGER.debug(format, *args)

    class Server(ThreadingHTTPServer):
        address_family = family
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            _LOGGER.debug("an answer to %s failed", client_address, exc_info=True)

    return Server(("::" if family == AF_INET6 and not host else host, port), Handler)
