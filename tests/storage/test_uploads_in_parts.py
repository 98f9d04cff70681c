"""An upload in parts whose last answer is lost or wrong: settled by looking, or made again; no clean-up hides it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sparklog.errors import StoreOutcomeUnknownError, StorePermissionError
from sparklog.storage import S3Store, _obstore_bucket
from tests.scripted_server import HANG_UP, Reply, Request, ScriptedServer, scripted_server, xml_error

pytest.importorskip("obstore")

DATA = bytes(range(256)) * 4
BEGUN = Reply(200, b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
COMPLETED = Reply(
    200, b'<CompleteMultipartUploadResult><ETag>"e-2"</ETag><Key>root/a</Key></CompleteMultipartUploadResult>'
)
GONE = xml_error(404, "NoSuchUpload")


class Uploads:
    """A bucket with one object and its uploads, whose completions are answered as a test says."""

    def __init__(self) -> None:
        self.stored: bytes | None = None
        self.parts: dict[int, bytes] = {}
        self.completion: Callable[[], Reply] = lambda: COMPLETED
        self.carries_out = True
        self.abort = Reply(204)
        self.completions = 0

    def answer(self, request: Request) -> Reply:
        if request.method == "POST" and "uploads" in request.path:
            self.parts = {}
            return BEGUN
        if request.method == "PUT":
            number = int(request.path.split("partNumber=")[1].split("&")[0])
            self.parts[number] = request.body
            return Reply(200, b"", {"ETag": f'"p{number}"'})
        if request.method == "POST":
            self.completions += 1
            if self.carries_out:
                self.stored = b"".join(data for _, data in sorted(self.parts.items()))
            return self.completion()
        if request.method == "DELETE":
            return self.abort
        return self._read(request)

    def _read(self, request: Request) -> Reply:
        headers = {"ETag": '"e-2"', "Last-Modified": "Sun, 22 Nov 2026 20:00:00 GMT"}
        if self.stored is None:
            return xml_error(404, "NoSuchKey")
        data, whole = self.stored, len(self.stored)
        asked = {name.lower(): value for name, value in request.headers.items()}.get("range")
        if request.method == "HEAD":
            return Reply(200, data, headers)
        if not asked:
            return Reply(200, data, headers)
        start, end = (int(number) for number in asked.removeprefix("bytes=").split("-"))
        return Reply(206, data[start : end + 1], {**headers, "Content-Range": f"bytes {start}-{end}/{whole}"})


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as server:
        yield server


@pytest.fixture
def uploads(server: ScriptedServer) -> Uploads:
    uploads = Uploads()
    server.answer = uploads.answer
    return uploads


@pytest.fixture
def store(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    monkeypatch.setattr(_obstore_bucket, "_PAUSES_S", (0, 0, 0))
    monkeypatch.setattr(_obstore_bucket, "_PART_BYTES", 512)
    monkeypatch.setattr(_obstore_bucket, "_MULTIPART_BYTES", 1024)
    monkeypatch.setitem(_obstore_bucket._IN_PARTS, "chunk_size", 512)
    return S3Store("s3://bucket/root", {"key": "k", "secret": "s", "endpoint_url": server.url, "region": "us-east-1"})


PUTS = [lambda store: store.put("a", DATA), lambda store: store.put_many({"a": DATA, "b": b"small"})]


def small_put(answer: Callable[[Request], Reply]) -> Callable[[Request], Reply]:
    """Lets the small object of ``put_many`` pass."""

    def passing(request: Request) -> Reply:
        if "/root/b" not in request.path:
            return answer(request)
        if request.method == "PUT":
            return Reply(200, b"", {"ETag": '"eb5c1399a871211c7e7ed732d15e3a8b"'})
        return Reply(200, b"small")

    return passing


@pytest.mark.parametrize("put", PUTS)
@pytest.mark.parametrize("answer", [HANG_UP, Reply(500), GONE, xml_error(500, "InternalError")])
@pytest.mark.parametrize("abort", [GONE, xml_error(403, "AccessDenied"), Reply(204)])
def test_a_completion_that_was_carried_out_is_a_success_whatever_was_answered(
    store, server, uploads, put, answer, abort
):
    server.answer = small_put(uploads.answer)
    uploads.completion, uploads.abort = lambda: answer, abort
    put(store)
    assert uploads.stored == DATA


@pytest.mark.parametrize("abort", [GONE, xml_error(403, "AccessDenied"), Reply(204)])
def test_a_completion_that_failed_is_made_again(store, uploads, abort):
    answers = [Reply(500), xml_error(400, "InvalidPart")]

    def complete() -> Reply:
        return answers.pop() if answers else done()

    def done() -> Reply:
        uploads.stored = b"".join(data for _, data in sorted(uploads.parts.items()))
        return COMPLETED

    uploads.completion, uploads.carries_out, uploads.abort = complete, False, abort
    store.put("a", DATA)
    assert uploads.stored == DATA


def test_an_object_that_is_another_one_is_no_success(store, uploads):
    uploads.stored, uploads.carries_out = DATA[:-1] + b"x", False
    uploads.completion, uploads.abort = lambda: Reply(500), GONE
    with pytest.raises(StoreOutcomeUnknownError):
        store.put("a", DATA)
    assert uploads.completions > 1


def test_an_upload_that_is_refused_says_so(store, uploads, server):
    server.answer = lambda request: xml_error(403, "AccessDenied")
    with pytest.raises(StorePermissionError):
        store.put("a", DATA)
