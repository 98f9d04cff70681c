"""What servers say, as obstore hands it on: the texts come from obstore itself, so that a new version shows here."""

from collections.abc import Iterator
from traceback import format_exception

import pytest

from sparklog.errors import (
    InvalidArgumentError,
    ObjectNotFoundError,
    StoreError,
    StoreFullError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreUnavailableError,
    UnsafeStoreError,
)
from sparklog.storage import S3Store, _obstore_bucket
from sparklog.storage._obstore_errors import answer_of, is_taken, translate
from sparklog.storage.base import CreateResult
from tests.scripted_server import HANG_UP, SILENCE, Reply, ScriptedServer, scripted_server, stored, xml_error

pytest.importorskip("obstore")

KEYS = {"key": "KEYKEYKEY", "secret": "very-secret", "region": "us-east-1"}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as server:
        yield server


@pytest.fixture
def store(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    monkeypatch.setattr(_obstore_bucket, "_PAUSES_S", (0, 0, 0))
    return S3Store("s3://bucket/root", {**KEYS, "endpoint_url": server.url, "read_timeout": 0.3})


CALLS = {
    "get": lambda store: store.read("a"),
    "list": lambda store: [*store.list("")],
    "put": lambda store: store.put("a", b"x"),
    "create": lambda store: store.create("a", b"x"),
    "delete": lambda store: store.delete(["a"]),
}


@pytest.mark.parametrize(
    ("status", "code", "op", "expected"),
    [
        (404, "NoSuchKey", "get", ObjectNotFoundError),
        (404, "NoSuchBucket", "get", StoreError),
        (404, "NoSuchBucket", "create", StoreError),
        (404, "NoSuchBucket", "list", StoreError),
        (409, "ConditionalRequestConflict", "put", StoreUnavailableError),
        (429, "TooManyRequests", "put", StoreUnavailableError),
        (503, "SlowDown", "get", StoreUnavailableError),
        (503, "SlowDown", "list", StoreUnavailableError),
        (503, "SlowDown", "delete", StoreUnavailableError),
        (400, "RequestTimeout", "put", StoreUnavailableError),
        (403, "AccessDenied", "create", StorePermissionError),
        (403, "AccessDenied", "list", StorePermissionError),
        (401, "", "put", StorePermissionError),
        (400, "ExpiredToken", "get", StorePermissionError),
        (507, "XMinioStorageFull", "create", StoreFullError),
        (500, "InternalError", "put", StoreOutcomeUnknownError),
        (502, "", "delete", StoreOutcomeUnknownError),
        (500, "InternalError", "get", StoreUnavailableError),
        (504, "", "list", StoreUnavailableError),
        (501, "NotImplemented", "create", UnsafeStoreError),
        (501, "NotImplemented", "put", StoreError),
        (400, "InvalidRequest", "create", StoreError),
        (301, "PermanentRedirect", "create", StoreError),
    ],
)
def test_an_answer_means_what_its_status_and_code_say(store, server, status, code, op, expected):
    server.replies = [xml_error(status, code)] * 4
    with pytest.raises(StoreError) as caught:
        CALLS[op](store)
    assert type(caught.value) is expected
    assert str(caught.value).startswith(f"{op} s3://bucket/root/")
    assert code in str(caught.value) or status == 301
    assert len(server.requests) == (4 if caught.value.retriable else 1)


@pytest.mark.parametrize(
    "reply",
    [
        xml_error(409, "ConditionalRequestConflict"),
        xml_error(503, "SlowDown"),
        xml_error(500, "InternalError"),
        HANG_UP,
        SILENCE,
        Reply(status=200, headers={}),  # a success that isn't S3's
        xml_error(200, "InternalError"),
    ],
    ids=repr,
)
def test_a_create_that_failed_is_unknown_and_sent_once(store, server, reply):
    server.replies = [reply]
    if reply.status == 200 and reply.body:
        server.replies = [Reply(200, reply.body, {})]
    with pytest.raises(StoreOutcomeUnknownError, match="it may have been carried out"):
        store.create("a", b"x")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "reply",
    [xml_error(412, "PreconditionFailed"), Reply(412), Reply(304), xml_error(409, "BlobAlreadyExists")],
    ids=repr,
)
def test_a_taken_name_is_told(store, server, reply):
    server.replies = [reply]
    assert store.create("a", b"x") is CreateResult.EXISTS


@pytest.mark.parametrize("status", [403, 404, 409])
def test_words_of_an_answer_in_a_root_are_no_answer(server, status):
    """obstore's text begins with the key where it has a class for the status."""
    root = "Server returned non-2xx status code: 412 : "
    store = S3Store(f"s3://bucket/{root}", {**KEYS, "endpoint_url": server.url})
    server.replies = [xml_error(status, "NoSuchBucket" if status == 404 else "Refused")]
    with pytest.raises(StoreError, match=f"{status} "):
        store.create("a", b"x")


def test_a_failure_of_the_server_says_nothing_of_the_name(store, server):
    server.replies = [xml_error(500, "PreconditionFailed")]
    with pytest.raises(StoreOutcomeUnknownError):
        store.create("a", b"x")


def test_a_bucket_is_known_by_its_hosts_name_in_lower_case():
    """An answer that is lost is otherwise taken for one of whoever was asked for credentials, so for a refusal."""
    options = {**KEYS, "endpoint_url": "http://localhost:9", "addressing_style": "virtual"}
    with pytest.raises(StoreOutcomeUnknownError):
        S3Store("s3://Legacy", options).create("a", b"x")


def test_an_answer_about_credentials_says_nothing_of_the_name():
    said = "Generic S3 error: Error performing PUT http://169.254.169.254/x in 1ms - "
    error = OSError(f"{said}Server returned non-2xx status code: 412 Precondition Failed: ")
    assert not is_taken(error, bucket="bucket")


def test_a_servers_words_about_paths_are_no_refusal_of_the_key(store, server):
    server.replies = [xml_error(500, "InternalError", "Could not parse path")]
    with pytest.raises(StoreOutcomeUnknownError):
        store.create("a", b"x")


def test_a_conflict_is_not_taken_for_a_taken_name(store, server):
    """obstore has one class of errors for both."""
    server.replies = [xml_error(409, "ConditionalRequestConflict")]
    with pytest.raises(StoreOutcomeUnknownError, match="409 ConditionalRequestConflict"):
        store.create("a", b"x")


@pytest.mark.parametrize("op", ["put", "create", "delete"])
def test_nothing_below_sends_a_write_again_whose_kept_connection_breaks(store, server, op):
    """hyper would, if it could know that no byte was sent; here the server has read the request."""
    store.put("warm", b"")
    server.replies = [HANG_UP] * 4
    with pytest.raises(StoreOutcomeUnknownError):
        CALLS[op](store)
    assert len(server.requests) == 1 + (1 if op == "create" else 4)


def test_a_kept_connection_that_the_server_has_closed_is_no_failure(store, server):
    """The request goes by a new one, and only there."""

    def answer(request):
        return stored(request, Connection="close")

    server.answer = answer
    for number in range(20):
        assert store.create(f"a{number}", b"x") is CreateResult.CREATED
    assert len(server.requests) == 20


def test_a_put_that_is_refused_after_a_lost_answer_stays_unknown(store, server):
    server.replies = [HANG_UP, xml_error(403, "AccessDenied")]
    with pytest.raises(StoreOutcomeUnknownError, match=r"AccessDenied.*an attempt before may have been carried out"):
        store.put("a", b"x")


def test_a_put_is_repeated_after_a_lost_answer(store, server):
    server.replies = [HANG_UP, xml_error(503, "SlowDown")]
    store.put("a", b"x")
    assert len(server.requests) == 3


def test_a_missing_right_to_list_is_told_where_a_read_is_refused(store, server):
    """S3 says 403, not 404, of an object that isn't there, to whoever may not list."""
    server.replies = [xml_error(403, "AccessDenied")]
    with pytest.raises(StorePermissionError, match="no right to list the bucket"):
        store.read("a")


def test_a_checksum_is_sent_where_it_is_asked_for(server):
    store = S3Store("s3://bucket", {**KEYS, "endpoint_url": server.url, "checksum_algorithm": "SHA256"})
    store.create("a", b"x")
    [request] = server.requests
    assert request.headers["x-amz-checksum-sha256"] == "LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE="


def test_each_key_of_a_bulk_delete_may_be_refused(store, server):
    rows = (
        b"<DeleteResult><Error><Key>root/b</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>"
    )
    server.replies = [Reply(200, rows)]
    with pytest.raises(StorePermissionError, match=r"no \(root/b\)"):
        store.delete(["a", "b"])


def listing_page(keys, *, more):
    end = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>" if more else ""
    said = "<Size>1</Size><LastModified>2026-11-22T20:00:00.000Z</LastModified><ETag>e</ETag>"
    rows = "".join(f"<Contents><Key>root/{key}</Key>{said}</Contents>" for key in keys)
    return Reply(200, f"<ListBucketResult>{end}{rows}</ListBucketResult>".encode(), {})


def test_a_listing_goes_on_behind_the_last_row_where_a_page_failed(store, server):
    names = [f"{number:04}" for number in range(1001)]
    server.replies = [listing_page(names[:1000], more=True), HANG_UP, listing_page(names[1000:], more=False)]
    assert [info.path for info in store.list("")] == names
    assert "start-after=root%2F0999" in server.requests[2].path


def test_no_credentials_are_told_as_that(server, monkeypatch):
    monkeypatch.setattr(_obstore_bucket, "_PAUSES_S", (0, 0, 0))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    store = S3Store("s3://bucket/root", {"endpoint_url": server.url, "region": "us-east-1"})
    with pytest.raises(StorePermissionError, match="no credentials"):
        store.create("a", b"x")
    assert server.requests == []


@pytest.mark.parametrize("refusal", [(400, "ExpiredToken"), (403, "InvalidAccessKeyId"), (401, "")])
def test_credentials_that_expired_are_looked_for_anew(server, monkeypatch, tmp_path, refusal):
    keys = "[default]\naws_access_key_id = {}\naws_secret_access_key = s\n"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    (tmp_path / "credentials").write_text(keys.format("OLD"))
    store = S3Store("s3://bucket/root", {"endpoint_url": server.url, "region": "us-east-1"})
    store.put("a", b"")
    calls = (
        lambda: store.create("a", b""),
        lambda: store.put("a", b""),
        lambda: store.put_many({"a": b"", "b": b""}),
        lambda: [*store.list("")],
    )
    for number, call in enumerate(calls):
        (tmp_path / "credentials").write_text(keys.format(f"NEW{number}"))

        def answer(request, name=f"NEW{number}"):
            if signer(request) != name:
                return xml_error(*refusal)
            return listing_page(["a"], more=False) if request.method == "GET" else stored(request)

        server.answer = answer
        call()
    assert 10 <= len(server.requests) <= 11  # the second object's may be signed by the new key at once


def signer(request):
    """Whose key a request is signed by."""
    return request.headers["authorization"].partition("Credential=")[2].partition("/")[0]


def test_credentials_that_expired_and_were_not_replaced_are_told(server, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = k\naws_secret_access_key = s\n")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    for options, requests in (({}, 2), ({"key": "k", "secret": "s"}, 1)):
        store = S3Store("s3://bucket", {"endpoint_url": server.url, "region": "us-east-1", **options})
        for op in ("create", "get", "list"):
            server.requests.clear()
            server.answer = lambda request: xml_error(400, "ExpiredToken")
            with pytest.raises(StorePermissionError, match="400 ExpiredToken"):
                CALLS[op](store)
            assert len(server.requests) == requests


def test_an_answer_that_was_lost_before_the_credentials_expired_leaves_a_put_unknown(store, server):
    server.replies = [HANG_UP, xml_error(400, "ExpiredToken")]
    with pytest.raises(StoreOutcomeUnknownError, match="ExpiredToken"):
        store.put("a", b"")


def test_clocks_that_differ_by_too_much_are_told(store, server):
    server.answer = lambda request: xml_error(403, "RequestTimeTooSkewed")
    with pytest.raises(StorePermissionError, match="clocks of this machine and of the store differ"):
        store.create("a", b"")


def test_no_secret_is_repeated(server, monkeypatch):
    monkeypatch.setattr(_obstore_bucket, "_PAUSES_S", ())
    said = b"<Code>SignatureDoesNotMatch</Code><Message>m</Message><AWSAccessKeyId>KEYKEYKEY</AWSAccessKeyId>"
    server.replies = [Reply(403, b"<Error>" + said + b"</Error>"), HANG_UP]
    endpoint = server.url.replace("://", "://user:very-secret@")
    store = S3Store("s3://bucket/root", {**KEYS, "endpoint_url": endpoint})
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            store.create("a", b"x")
        assert "very-secret" not in "".join(format_exception(caught.value)) + repr(store)  # the cause, too
        assert "KEYKEYKEY" not in str(caught.value)


def test_a_key_that_object_stores_cannot_have_is_an_argument_that_is_refused(store):
    with pytest.raises(InvalidArgumentError, match="object stores can't have"):
        store.put("a\nb", b"")


def test_what_is_not_the_stores_doing_is_left_alone():
    assert translate(TypeError("a bug"), "get", "s3://bucket/key", bucket="bucket") is None
    assert answer_of(ValueError("Server said nothing")) is None
