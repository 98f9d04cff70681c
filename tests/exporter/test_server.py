"""The server answers probes and Prometheus over HTTP."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from sparklog.errors import InvalidArgumentError
from sparklog.exporter import ExporterApp, ExporterServer, parse_address


@pytest.fixture
def connection() -> Iterator[HTTPConnection]:
    server = ExporterServer(ExporterApp(), "127.0.0.1", 0)
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    yield connection
    connection.close()
    server.close()


def test_answers_are_of_http(connection: HTTPConnection) -> None:
    for method, path, status in (
        ("GET", "/metrics", 200),
        ("GET", "/metrics?name[]=x", 200),
        ("HEAD", "/metrics", 200),
        ("GET", "/readyz", 503),
        ("GET", "/../etc/passwd", 404),
        ("POST", "/metrics", 501),
    ):
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read()
        assert (response.status, bool(body)) == (status, method != "HEAD"), path
        connection.close()


def test_who_takes_gzip_gets_it(connection: HTTPConnection) -> None:
    connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
    response = connection.getresponse()
    assert response.headers["Content-Encoding"] == "gzip"
    assert b"sparklog_up 0" in gzip.decompress(response.read())


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:9308", ("127.0.0.1", 9308)), (":80", ("", 80)), ("[::1]:0", ("::1", 0)), ("a.b:1", ("a.b", 1))],
)
def test_an_address_is_host_and_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "9308", "host:", "host:x", "::1:80", "host:99999", "host:-1"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="expected HOST:PORT"):
        parse_address(text)
