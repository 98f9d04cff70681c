"""Answers of success that aren't the store's, or aren't true: a redirection, a login page, a deletion that was none."""

from collections.abc import Iterator

import pytest

from sparklog.errors import StoreError, StoreOutcomeUnknownError, StoreUnavailableError
from sparklog.storage import S3Store, _obstore_bucket
from sparklog.storage.base import CreateResult
from tests.scripted_server import OK_HEADERS, Reply, Request, ScriptedServer, scripted_server, stored, xml_error

pytest.importorskip("obstore")

PAGE = b"<html><head><title>Login</title></head><body><p>Who are you?</p></body></html>"
"""Well-formed, so that it could be a listing."""
LOGIN = Reply(200, PAGE, {**OK_HEADERS, "ETag": '"5f8a-61f2"'})
NOT_FOUND = xml_error(404, "NoSuchKey")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as server:
        yield server


@pytest.fixture
def store(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    monkeypatch.setattr(_obstore_bucket, "_PAUSES_S", (0, 0, 0))
    return S3Store("s3://bucket/root", {"key": "k", "secret": "s", "region": "us-east-1", "endpoint_url": server.url})


def methods(server: ScriptedServer) -> list[str]:
    return [request.method for request in server.requests]


def redirect(status: int, location: str) -> Reply:
    return Reply(status, b"", {"Location": location})


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirected_put_is_refused_and_sent_nowhere_else(store, server, status):
    server.answer = lambda request: redirect(status, "/elsewhere")
    for call in (lambda: store.create("a", b"x"), lambda: store.put("a", b"x")):
        with pytest.raises(StoreError, match=f"{status} .*a redirection") as caught:
            call()
        assert type(caught.value) is StoreError
    assert [request.path for request in server.requests] == ["/bucket/root/a"] * 2


@pytest.mark.parametrize("page", [LOGIN, Reply(200, PAGE, {}), stored(Request("PUT", "", {}, b"another object"))])
def test_a_create_that_a_303_made_a_get_is_unknown(store, server, page):
    """obstore follows it, and takes the page's 200 for its own."""
    server.replies = [redirect(303, "/login"), page, NOT_FOUND]
    with pytest.raises(StoreOutcomeUnknownError):
        store.create("a", b"x")
    assert methods(server)[:2] == ["PUT", "GET"]


def test_a_put_that_a_303_made_a_get_is_repeated(store, server):
    server.replies = [redirect(303, "/login"), LOGIN, NOT_FOUND]
    store.put("a", b"x")
    assert methods(server) == ["PUT", "GET", "GET", "PUT"]
    store.put_many({"a": b"x", "b": b"y"})
    server.answer = lambda request: LOGIN
    for objects in ({"a": b"x"}, {"a": b"x", "b": b"y"}):
        with pytest.raises(StoreOutcomeUnknownError, match="a success that isn't the store's"):
            store.put_many(objects)


def test_a_create_that_was_answered_by_a_page_is_unknown_if_it_cannot_be_read_back(store, server):
    """Also where reading is refused for good: the object may be there."""
    server.replies = [LOGIN, xml_error(403, "AccessDenied")]
    with pytest.raises(StoreOutcomeUnknownError, match="can't be read back"):
        store.create("a", b"x")


def test_etags_that_are_no_md5_sums_are_believed_once_an_object_was_read_back(store, server):
    """As where the bucket encrypts by a key of the user's own."""
    etag = {**OK_HEADERS, "ETag": f'"{"0123456789abcdef" * 2}"'}
    server.answer = lambda request: Reply(200, b"x" if request.method == "GET" else b"", etag)
    for name in "abc":
        assert store.create(name, b"x") is CreateResult.CREATED
    assert methods(server) == ["PUT", "GET", "PUT", "PUT"]


@pytest.mark.parametrize("call", [lambda store: [*store.list("")], lambda store: store.list_names("")])
def test_a_page_that_reads_as_an_empty_listing_is_an_error(store, server, call):
    server.answer = lambda request: LOGIN
    with pytest.raises(StoreUnavailableError, match="the answer isn't an object store's"):
        call(store)


@pytest.mark.parametrize("call", [lambda store: [*store.list("")], lambda store: store.list_names("")])
def test_a_folder_is_empty_if_what_cannot_be_there_is_not(store, server, call, monkeypatch):
    server.answer = lambda request: (
        NOT_FOUND if "no-such-object" in request.path else Reply(200, b"<ListBucketResult/>")
    )
    assert call(store) == []
    assert methods(server) == ["GET", "GET"]
    assert call(store) == []
    assert methods(server) == ["GET", "GET", "GET"]  # not each time
    monkeypatch.setattr(_obstore_bucket, "_CHECK_EVERY_S", 0)
    assert call(store) == []
    assert methods(server)[3:] == ["GET", "GET"]


DELETED = Reply(200, b"<DeleteResult><Deleted><Key>root/c</Key></Deleted></DeleteResult>")
"""obstore takes keys that the answer leaves out for deleted."""


def test_a_bulk_delete_is_done_if_one_of_its_keys_is_gone(store, server):
    server.replies = [DELETED, NOT_FOUND]
    store.delete(["a", "b"])
    assert methods(server) == ["POST", "GET"]


def test_a_bulk_delete_that_deleted_nothing_is_repeated_and_then_unknown(store, server):
    server.answer = lambda request: DELETED
    with pytest.raises(StoreOutcomeUnknownError, match=r"answered with a success, but root/[ab] is still there"):
        store.delete(["a", "b"])
    assert methods(server) == ["POST", "GET"] * 4


@pytest.mark.parametrize("key", ["a//b", "/b", "a/../b", "a/./b", "a\nb"])
def test_a_listing_that_a_foreign_key_spoils_names_the_key(store, server, key):
    row = "<Size>1</Size><LastModified>2026-11-22T20:00:00.000Z</LastModified><ETag>e</ETag>"
    rows = f"<Contents><Key>root/a</Key>{row}</Contents><Contents><Key>root/{key}</Key>{row}</Contents>"
    server.replies = [Reply(200, f"<ListBucketResult>{rows}</ListBucketResult>".encode())]
    with pytest.raises(StoreError, match=r"obstore lists nothing .* delete it") as caught:
        [*store.list("")]
    assert f"root/{key}" in str(caught.value)


def test_a_foreign_folder_without_a_name_is_named(store, server):
    prefix = b"<CommonPrefixes><Prefix>root//</Prefix></CommonPrefixes>"
    server.replies = [Reply(200, b"<ListBucketResult>%b</ListBucketResult>" % prefix)]
    with pytest.raises(StoreError, match=r'Path "root//" .* delete it'):
        store.list_names("")
