"""404 means that an object is missing only with the store's own code for that; without any, a listing settles it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from sparklog.errors import ObjectNotFoundError, StoreError, StorePermissionError, StoreUnavailableError
from sparklog.storage import S3Store, _fsspec_bucket, _obstore_bucket, _s3_client, open_store
from sparklog.storage._answers import error_of_code
from tests.scripted_server import Reply, Request, ScriptedServer, scripted_server, xml_error

pytest.importorskip("obstore")

NO_CODE = Reply(404, b"<html>nothing here</html>")
ROW = "<Size>1</Size><LastModified>2026-11-22T20:00:00.000Z</LastModified><ETag>e</ETag>"


def listing(*keys: str) -> Reply:
    rows = "".join(f"<Contents><Key>{key}</Key>{ROW}</Contents>" for key in keys)
    return Reply(200, f"<ListBucketResult><Name>bucket</Name>{rows}</ListBucketResult>".encode())


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as server:
        yield server


@pytest.fixture(params=["obstore", "s3fs"])
def store(request: Any, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    monkeypatch.setattr(_obstore_bucket, "_PAUSES_S", (0, 0, 0))
    monkeypatch.setattr(_s3_client, "_PAUSES_S", (0, 0, 0))
    if request.param == "s3fs":
        pytest.importorskip("s3fs")
        options = {"client": "s3fs", "client_kwargs": {"region_name": "us-east-1"}}
    else:
        options = {"region": "us-east-1"}
    return S3Store("s3://bucket/root", {"key": "k", "secret": "s", "endpoint_url": server.url, **options})


READS = [
    lambda store: store.read("a/b"),
    lambda store: store.read_range("a/b", 0, 1),
    lambda store: store.read_many(["a/b"])[0],
    lambda store: store.read_many(["a/b", "a/b"])[0],
]


def is_listing(request: Request) -> bool:
    return "list-type=2" in request.path


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("code", ["XAdminUserNotFound", "NoSuchRoute", "NoSuchBucket", "NoSuchUpload"])
def test_another_code_is_an_error_that_names_it(store, server, read, code):
    server.answer = lambda request: xml_error(404, code)
    with pytest.raises(StoreError, match=code) as caught:
        read(store)
    assert not isinstance(caught.value, ObjectNotFoundError)
    assert isinstance(caught.value, StorePermissionError) == (code == "XAdminUserNotFound")


@pytest.mark.parametrize("read", READS)
def test_without_a_code_a_listing_shows_that_it_is_missing(store, server, read):
    server.answer = lambda request: listing("root/a/b2", "root/a/c") if is_listing(request) else NO_CODE
    with suppress(ObjectNotFoundError):
        assert read(store) is None
    assert any(map(is_listing, server.requests))


@pytest.mark.parametrize("read", READS)
def test_without_a_code_a_listing_shows_that_it_is_there(store, server, read):
    server.answer = lambda request: listing("root/a/b") if is_listing(request) else NO_CODE
    with pytest.raises(StoreUnavailableError, match="a listing shows it"):
        read(store)


@pytest.mark.parametrize("read", READS)
def test_where_nobody_answers_but_with_404_it_is_an_error(store, server, read):
    """As an ingress without a backend does."""
    server.answer = lambda request: NO_CODE
    with pytest.raises(StoreError) as caught:
        read(store)
    assert not isinstance(caught.value, ObjectNotFoundError)


def test_the_stores_own_code_costs_no_listing(store, server):
    server.answer = lambda request: xml_error(404, "NoSuchKey")
    with pytest.raises(ObjectNotFoundError):
        store.read("a/b")
    assert len(server.requests) == 1


@pytest.mark.parametrize("code", ["BlobNotFound", "PathNotFound"])
def test_azures_codes_say_that_a_blob_is_missing(code):
    assert type(error_of_code(code, 404, "", "get", "c/k")) is ObjectNotFoundError
    assert type(error_of_code("ResourceNotFound", 404, "", "get", "c/k")) is StoreError


class Listed:
    """A file system whose server loses an object, and lists it."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def cat_file(self, path: str, **_: Any) -> bytes:
        raise FileNotFoundError(path)

    def find(self, path: str, prefix: str = "") -> list[str]:
        assert prefix == "b"
        return [name for name in self.names if name.startswith(f"{path}/{prefix}")]


def test_what_a_file_system_of_fsspec_calls_missing_is_settled_by_a_listing(monkeypatch):
    files = Listed(["bucket/root/a/b2"])
    monkeypatch.setattr(_fsspec_bucket, "open_filesystem", lambda protocol, options: files)
    store = open_store("oss://bucket/root", {"client": "fsspec"})
    with pytest.raises(ObjectNotFoundError):
        store.read("a/b")
    files.names.append("bucket/root/a/b")
    with pytest.raises(StoreUnavailableError, match="a listing shows it"):
        store.read("a/b")
