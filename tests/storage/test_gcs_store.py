"""What is sent to Google Cloud Storage, and what its answers mean; ``test_gcs_by_obstore.py`` has an emulator."""

import pytest

from sparklog.errors import (
    InvalidArgumentError,
    InvalidConfigurationError,
    StoreError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreUnavailableError,
)
from sparklog.storage import CreateResult, GcsStore, _obstore_bucket, open_store
from sparklog.storage.gcs import gcs_options
from tests.scripted_server import HANG_UP, Reply, scripted_server, xml_error

pytest.importorskip("obstore")


@pytest.fixture
def server():
    with scripted_server() as server:
        yield server


@pytest.fixture
def store(server, monkeypatch):
    monkeypatch.setattr(_obstore_bucket, "_PAUSES_S", (0, 0, 0))
    return GcsStore("gs://bucket/root", {"bearer_token": "very-secret", "endpoint_url": server.url})


@pytest.mark.parametrize(
    ("uri", "shown"),
    [("gs://bucket", "gs://bucket"), ("gs://bucket/", "gs://bucket"), ("gs://bucket/a/b/", "gs://bucket/a/b")],
)
def test_uris(uri, shown):
    store = open_store(uri, {"bearer_token": "very-secret"})
    assert isinstance(store, GcsStore)
    assert store.uri == shown
    assert "very-secret" not in repr(store)


@pytest.mark.parametrize("uri", ["gs://", "gs:///prefix", "gs://user:very-secret@bucket/prefix", "gs://bucket/a//b"])
def test_bad_uris_are_refused_without_repeating_secrets(uri):
    with pytest.raises(InvalidArgumentError) as caught:
        open_store(uri)
    assert "very-secret" not in str(caught.value)


def test_an_unknown_option_is_named_and_its_value_is_not():
    with pytest.raises(InvalidConfigurationError, match="storage_options no_such_option: unknown") as caught:
        GcsStore("gs://bucket", {"no_such_option": "very-secret"})
    assert "very-secret" not in str(caught.value)


def test_gcsfs_token_is_a_file_a_key_or_nobody():
    assert gcs_options({"token": "/a/file.json"}).config == {"service_account": "/a/file.json"}
    assert gcs_options({"token": {"client_email": "x"}}).config == {"service_account_key": '{"client_email": "x"}'}
    assert gcs_options({"token": "anon"}).is_anonymous
    assert gcs_options({"token": "google_default"}).config == {}


def test_create_sends_the_condition(store, server):
    assert store.create("a", b"x") is CreateResult.CREATED
    [request] = server.requests
    assert (request.method, request.path, request.body) == ("PUT", "/bucket/root%2Fa", b"x")
    assert request.headers["x-goog-if-generation-match"] == "0"
    assert request.headers["authorization"] == "Bearer very-secret"


def test_a_taken_name_is_told(store, server):
    server.replies = [xml_error(412, "PreconditionFailed")]
    assert store.create("a", b"x") is CreateResult.EXISTS


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (HANG_UP, StoreOutcomeUnknownError),
        (xml_error(503, "ServiceUnavailable"), StoreOutcomeUnknownError),
        (xml_error(429, "SlowDown"), StoreOutcomeUnknownError),
        (xml_error(409, "Conflict"), StoreOutcomeUnknownError),
        (xml_error(403, "AccessDenied"), StorePermissionError),
        (xml_error(404, "NoSuchBucket"), StoreError),
    ],
    ids=repr,
)
def test_a_create_that_failed_is_unknown_unless_it_was_refused_for_good(store, server, reply, expected):
    server.replies = [reply]
    with pytest.raises(expected) as caught:
        store.create("a", b"x")
    assert type(caught.value) is expected
    assert len(server.requests) == 1
    assert "very-secret" not in str(caught.value)


def test_each_object_is_deleted_by_itself_and_a_missing_one_is_no_error(store, server):
    server.answer = lambda request: xml_error(404, "NoSuchKey") if request.path.endswith("b") else Reply(204)
    store.delete("abc")
    assert sorted(request.path[-1] for request in server.requests) == ["a", "b", "c"]
    server.answer = lambda request: xml_error(503, "ServiceUnavailable")
    with pytest.raises(StoreUnavailableError):
        store.delete("a")


def test_anonymous_requests_carry_no_account(server):
    store = GcsStore("gs://bucket/root", {"anon": True, "endpoint_url": server.url})
    server.replies = [Reply(200, b"data")]
    assert store.read("a") == b"data"


def test_options_of_credentials_are_not_handed_to_arrow(store):
    with pytest.raises(InvalidConfigurationError, match=r"bearer_token.*GOOGLE_APPLICATION_CREDENTIALS"):
        store.arrow_filesystem()
