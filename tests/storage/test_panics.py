"""Options that make the client's library panic: an error of ours that names them, and never a ``BaseException``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sparklog.errors import InvalidArgumentError, InvalidConfigurationError
from sparklog.storage import open_store
from sparklog.storage._client_options import panics_told
from tests.scripted_server import ScriptedServer, scripted_server

pytest.importorskip("obstore")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as server:
        yield server


def options(server: ScriptedServer, **more: Any) -> dict[str, Any]:
    return {"key": "k", "secret": "s", "region": "us-east-1", "endpoint_url": server.url, **more}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("key", "k\n"),
        ("secret", "s\n"),
        ("token", "abc\n"),
        ("region", "us-east-1\n"),
        ("region", "us\teast"),
        ("addressing_style", "virtual"),
        ("endpoint_url", "http://[::1"),
        ("endpoint_url", "http://local host:1"),
        ("endpoint_url", "http://localhost:99999"),
        ("endpoint_url", "http://localhost\n"),
        ("endpoint_url", "http://a%zz"),
        ("sse_kms_key_id", "k\n"),
        ("proxy_url", "::::"),
        ("proxy_url", "http://"),
        ("sse_customer_key_base64", "not base64!"),
        (
            "sse_customer_key_base64",
            "dmVyeS1zZWNyZXQtdmVyeS1zZWNyZXQtdmVyeS1zZWM=",
        ),  # without server_side_encryption=sse-c nothing uses it
    ],
)
def test_an_option_that_no_request_can_carry_is_named(server, name, value):
    with pytest.raises(InvalidConfigurationError, match=name) as caught:
        open_store("s3://bucket/root", options(server, **{name: value})).read("a")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "not base64!", "c2hvcnQ=", "c2hvcnQ"])
def test_a_key_that_encrypts_nothing_is_refused(key):
    given = {"region": "eu", "server_side_encryption": "sse-c", "sse_customer_key_base64": key}
    if not key:
        open_store("s3://bucket/root", given)  # it isn't given
        return
    with pytest.raises(InvalidConfigurationError, match="sse_customer_key_base64: expected 32 bytes as base64"):
        open_store("s3://bucket/root", given)


@pytest.mark.parametrize("name", ["AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID"])
def test_so_is_what_the_environment_has(server, monkeypatch, name):
    environment = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "secret-token"}
    for each, value in {**environment, name: f"{environment[name]}\n"}.items():
        monkeypatch.setenv(each, value)
    given = {"region": "us-east-1", "endpoint_url": server.url}
    calls = [
        lambda store: store.read("a"),
        lambda store: [*store.list("")],
        lambda store: store.put_many({"a": b"x", "b": b"y"}),
        lambda store: store.create("a", b"x"),
    ]
    for call in calls:
        with pytest.raises(InvalidConfigurationError, match=r"key, token, region.* the environment") as caught:
            call(open_store("s3://bucket/root", given))
        assert "secret-token" not in str(caught.value)


@pytest.mark.parametrize("uri", ["s3://b kt/root", "s3://b\nkt/root", "gs://b kt/root", "s3://b<kt/root"])
def test_a_buckets_name_that_can_be_none_is_refused(uri):
    with pytest.raises(InvalidArgumentError, match="bucket"):
        open_store(uri)


@pytest.mark.parametrize("scheme", ["s3://bucket", "gs://bucket", "az://container"])
@pytest.mark.parametrize("prefix", ["a\tb", "a\nb", "a/\x7f", "a\x85"])
def test_a_prefix_with_a_control_character_is_refused_by_name(scheme, prefix):
    with pytest.raises(InvalidArgumentError, match="control character") as caught:
        open_store(f"{scheme}/{prefix}")
    assert repr(prefix) in str(caught.value)


def test_other_exceptions_that_are_none_pass():
    with pytest.raises(KeyboardInterrupt), panics_told("a store"):
        raise KeyboardInterrupt
