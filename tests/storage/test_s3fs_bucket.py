import hashlib
import http.server
import socket
import ssl
import sys
import threading
from collections.abc import Mapping
from typing import ClassVar

import pytest

from sparklog.errors import (
    InvalidConfigurationError,
    StoreFullError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreUnavailableError,
    UnsafeStoreError,
)
from sparklog.storage import CreateResult, ObjectStore, S3Store, _s3_client, _s3fs_bucket
from sparklog.storage._s3_sendings import note_sending
from sparklog.testing.store_contract import StoreContract

exceptions = pytest.importorskip("botocore.exceptions")


def s3fs_store(uri: str, options: Mapping[str, object] | None = None) -> S3Store:
    return S3Store(uri, {**(options or {}), "client": "s3fs"})


class FakeFilesystem:
    """Answers each request with the next of ``answers``: raises what is an error, returns the rest. Each is sent
    ``sendings`` times."""

    def __init__(self, *answers, sendings=1):
        from fsspec.asyn import get_loop

        self.loop = get_loop()
        self.answers = list(answers)
        self.requests = []
        self.sendings = sendings

    async def _call_s3(self, method, **arguments):
        self.requests.append((method, arguments))
        for _ in range(self.sendings):
            await note_sending()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if method == "put_object" and answer == {}:
            return {"ETag": f'"{hashlib.md5(arguments["Body"]).hexdigest()}"'}
        return answer


def answer(status, code):
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return exceptions.ClientError(response, "PutObject")


@pytest.fixture
def faked(monkeypatch):
    """A store over a :class:`FakeFilesystem` that doesn't wait between attempts."""

    def make(*answers, **given):
        filesystem = FakeFilesystem(*answers, **given)
        monkeypatch.setattr(_s3_client, "_connect", lambda options: filesystem)
        monkeypatch.setattr(_s3_client, "_PAUSES_S", (0, 0, 0))
        return s3fs_store("s3://bucket/root"), filesystem

    return make


class Body:
    """The body of an answer."""

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        pass

    async def read(self):
        return b"a page"


def test_a_success_that_is_not_the_stores_is_unknown(faked):
    store, filesystem = faked({"ETag": '"5f-1"'}, {"Body": Body()})
    with pytest.raises(StoreOutcomeUnknownError, match="a success that isn't the store's"):
        store.create("a", b"x")
    store, filesystem = faked({"ETag": '"5f-1"'}, {"Body": Body()}, {})
    store.put("a", b"x")
    assert [method for method, _ in filesystem.requests] == ["put_object", "get_object", "put_object"]


@pytest.mark.parametrize("call", [lambda store: [*store.list("")], lambda store: store.list_names("")])
def test_an_answer_without_the_fields_of_a_listing_is_none(faked, call):
    store, _ = faked({"ResponseMetadata": {}})
    with pytest.raises(StoreUnavailableError, match="isn't a listing"):
        call(store)


LOST = exceptions.ReadTimeoutError(endpoint_url="http://s3")
CONFLICT = answer(409, "ConditionalRequestConflict")
TAKEN = answer(412, "PreconditionFailed")


def test_create_sends_the_condition(faked):
    store, filesystem = faked({})
    assert store.create("a", b"x") is CreateResult.CREATED
    expected = {"Bucket": "bucket", "Key": "root/a", "Body": b"x", "IfNoneMatch": "*"}
    assert filesystem.requests == [("put_object", expected)]


def test_a_taken_name_is_told(faked):
    store, _ = faked(TAKEN)
    assert store.create("a", b"x") is CreateResult.EXISTS


@pytest.mark.parametrize("error", [LOST, CONFLICT, answer(500, "InternalError"), answer(503, "SlowDown")], ids=str)
def test_a_create_that_failed_is_unknown_and_not_sent_again_with_the_same_token(faked, error):
    """Also where the server says that it didn't: the request may have been sent twice on its way."""
    store, filesystem = faked(error)
    with pytest.raises(StoreOutcomeUnknownError, match="it may have been carried out"):
        store.create("a", b"x")
    assert len(filesystem.requests) == 1


REFUSALS = [
    (answer(403, "AccessDenied"), StorePermissionError),
    (answer(507, "XMinioStorageFull"), StoreFullError),
    (answer(501, "NotImplemented"), UnsafeStoreError),
]


@pytest.mark.parametrize(("error", "expected"), REFUSALS, ids=str)
def test_a_create_that_is_refused_for_good_was_not_carried_out_if_it_was_sent_once(faked, error, expected):
    store, _ = faked(error)
    with pytest.raises(expected):
        store.create("a", b"x")
    for sendings in (0, 2):  # 0: nobody has counted
        store, _ = faked(error, sendings=sendings)
        with pytest.raises(StoreOutcomeUnknownError, match=str(error.response["Error"]["Code"])):
            store.create("a", b"x")


def test_what_was_never_sent_is_certain(faked):
    store, _ = faked(exceptions.NoCredentialsError(), sendings=0)
    with pytest.raises(StorePermissionError):
        store.create("a", b"x")


def test_what_was_sent_and_ended_without_an_answer_is_unknown_whatever_the_error(faked):
    """TLS may break after the server has the request."""
    store, _ = faked(exceptions.HTTPClientError(error=ssl.SSLError("bad record mac")))
    with pytest.raises(StoreOutcomeUnknownError, match="bad record mac"):
        store.create("a", b"x")


def test_create_during_another_errors_handling_is_not_taken_for_it(faked):
    store, _ = faked(LOST)
    try:
        raise TAKEN
    except exceptions.ClientError:
        with pytest.raises(StoreOutcomeUnknownError):
            store.create("a", b"x")


def test_attempts_are_bounded(faked):
    store, filesystem = faked(*[CONFLICT] * 9)
    with pytest.raises(StoreUnavailableError):
        store.put("a", b"x")
    assert len(filesystem.requests) == 4


def test_put_and_delete_may_be_repeated_after_a_lost_answer(faked):
    store, filesystem = faked(LOST, {}, LOST, {})
    store.put("a", b"x")
    store.delete(["a"])
    assert [method for method, _ in filesystem.requests] == ["put_object"] * 2 + ["delete_objects"] * 2


@pytest.mark.parametrize("error", [answer(503, "SlowDown"), answer(403, "ExpiredToken")], ids=str)
def test_a_put_that_is_refused_after_a_lost_answer_stays_unknown(faked, error):
    store, _ = faked(LOST, *[error] * 3)
    with pytest.raises(StoreOutcomeUnknownError):
        store.put("a", b"x")


def test_an_upload_in_parts_whose_last_answer_is_lost_may_be_repeated(faked, monkeypatch):
    """S3 then says that it knows of no such upload: it is complete."""
    monkeypatch.setattr(_s3fs_bucket, "_MULTIPART_BYTES", 1)
    parts = [{"UploadId": "7"}, {"ETag": "x"}]
    gone = answer(404, "NoSuchUpload")
    store, _ = faked(*parts, LOST, gone, gone, gone, answer(404, "NoSuchKey"), gone)
    with pytest.raises(StoreOutcomeUnknownError) as caught:
        store.put("a", b"xyz")
    assert caught.value.retriable


def test_a_refused_right_is_not_asked_for_again(faked):
    store, filesystem = faked(answer(403, "AccessDenied"))
    with pytest.raises(StorePermissionError):
        store.put("a", b"x")
    assert len(filesystem.requests) == 1


def test_each_key_of_a_bulk_delete_may_fail(faked):
    store, _ = faked({"Errors": [{"Key": "root/gone", "Code": "NoSuchKey"}, {"Key": "root/b", "Code": "AccessDenied"}]})
    with pytest.raises(StorePermissionError, match="s3://bucket/root/b"):
        store.delete(["gone", "a", "b"])


def test_only_keys_of_a_bulk_delete_that_were_refused_for_now_are_deleted_again(faked):
    slow = [{"Key": f"root/{name}", "Code": "SlowDown", "Message": "reduce your rate"} for name in "bc"]
    store, filesystem = faked({"Errors": slow}, {"Errors": slow[1:]}, {})
    store.delete("abcd")
    sent = [[row["Key"][-1] for row in arguments["Delete"]["Objects"]] for _, arguments in filesystem.requests]
    assert sent == [[*"abcd"], [*"bc"], ["c"]]
    store, filesystem = faked(*[{"Errors": slow}] * 9)
    with pytest.raises(StoreUnavailableError, match=r"SlowDown.*2 keys, s3://bucket/root/b among them"):
        store.delete("abcd")
    assert len(filesystem.requests) == 4


def test_a_refusal_that_lasts_ends_a_bulk_delete_at_once(faked):
    rows = [{"Key": "root/a", "Code": "SlowDown"}, {"Key": "root/b", "Code": "AccessDenied"}]
    store, filesystem = faked({"Errors": rows})
    with pytest.raises(StorePermissionError, match="s3://bucket/root/b"):
        store.delete("ab")
    assert len(filesystem.requests) == 1


def test_delete_sends_at_most_a_thousand_keys_at_once(faked):
    store, filesystem = faked({}, {}, {})
    store.delete(str(number) for number in range(2500))
    assert sorted(len(arguments["Delete"]["Objects"]) for _, arguments in filesystem.requests) == [500, 1000, 1000]


def test_a_failed_upload_in_parts_is_aborted(faked, monkeypatch):
    monkeypatch.setattr(_s3fs_bucket, "_MULTIPART_BYTES", 1)
    store, filesystem = faked({"UploadId": "7"}, answer(403, "AccessDenied"), {})
    with pytest.raises(StorePermissionError):
        store.put("a", b"xyz")
    assert [method for method, _ in filesystem.requests] == [
        "create_multipart_upload",
        "upload_part",
        "abort_multipart_upload",
    ]


def test_without_s3fs_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(InvalidConfigurationError, match=r"pip install sparklog\[s3fs\]"):
        s3fs_store("s3://bucket").read("a")


def test_an_option_that_s3fs_does_not_know_is_refused():
    with pytest.raises(InvalidConfigurationError, match="no_such_option") as caught:
        s3fs_store("s3://bucket", {"no_such_option": "very-secret"}).read("a")
    assert "very-secret" not in str(caught.value)


@pytest.mark.deep
@pytest.mark.s3
class TestS3fsBucket(StoreContract):
    @pytest.fixture
    def store(self, s3_uri: str, s3_options: dict[str, object]) -> ObjectStore:
        return s3fs_store(s3_uri, s3_options)


class RefusingServer(http.server.BaseHTTPRequestHandler):
    """Answers every request with 500 and counts them."""

    protocol_version = "HTTP/1.1"  # an older one would not answer "Expect: 100-continue"

    requests = 0

    def do_PUT(self):
        type(self).requests += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_error(500)

    def log_message(self, *arguments):
        pass


@pytest.mark.s3
def test_nothing_below_repeats_a_create_by_itself(s3_options):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), RefusingServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = {
            "endpoint_url": f"http://127.0.0.1:{server.server_port}",
            "config_kwargs": {"retries": {"mode": "standard"}},
        }
        store = s3fs_store("s3://bucket", {**s3_options, **options})
        with pytest.raises(StoreOutcomeUnknownError):
            store.create("a", b"x")
        server.shutdown()
    store.close()
    assert RefusingServer.requests == 1


class DroppingServer(http.server.BaseHTTPRequestHandler):
    """Carries out the first PUT of a name and drops the connection; refuses every other with what its name says."""

    protocol_version = "HTTP/1.1"
    stored: ClassVar[dict[str, bytes]] = {}
    requests = 0

    def do_PUT(self):
        type(self).requests += 1
        name = self.path.rpartition("/")[2].partition("?")[0]
        data = self.rfile.read(int(self.headers["Content-Length"]))
        status, drops = name.split("-")
        if drops == "dropped" and name not in self.stored:
            self.stored[name] = data
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response(int(status))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.mark.s3
@pytest.mark.parametrize(
    ("name", "expected", "requests"),
    [
        ("503-dropped", StoreOutcomeUnknownError, 2),
        ("403-dropped", StoreOutcomeUnknownError, 2),
        ("403-answered", StorePermissionError, 1),
    ],
)
def test_a_create_that_aiohttp_sent_twice_is_unknown_whatever_the_second_answer_says(
    s3_options, name, expected, requests
):
    DroppingServer.requests = 0
    DroppingServer.stored.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), DroppingServer) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        store = s3fs_store("s3://bucket", {**s3_options, "endpoint_url": f"http://127.0.0.1:{server.server_port}"})
        with pytest.raises(expected) as caught:
            store.create(name, b"x")
        store.close()
        server.shutdown()
    assert type(caught.value) is expected
    assert DroppingServer.requests == requests  # if it is 1 for what was dropped, aiohttp does so no more


@pytest.mark.s3
@pytest.mark.parametrize("call", [lambda store: store.create("a", b"x"), lambda store: store.put("a", b"x")])
def test_a_server_that_never_answers_is_not_waited_for_for_ever(s3_options, monkeypatch, call):
    monkeypatch.setattr(_s3_client, "_GRACE_S", 0)
    monkeypatch.setattr(_s3_client, "_PAUSES_S", (0,))
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the system accepts, nobody reads
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        config = {"connect_timeout": 0.5, "read_timeout": 0.5}
        store = s3fs_store("s3://bucket", {**s3_options, "endpoint_url": endpoint, "config_kwargs": config})
        with pytest.raises(StoreOutcomeUnknownError):
            call(store)
        store.close()
