"""The S3 store by its default client, on a server that nobody here wrote; what servers seldom do is in
``test_obstore_errors.py``."""

import os
import signal
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from sparklog.clock import SystemClock
from sparklog.errors import (
    InvalidConfigurationError,
    StoreError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
)
from sparklog.storage import (
    CreateResult,
    ObjectStore,
    S3Store,
    _obstore_bucket,
    _obstore_library,
    _s3_client,
    open_store,
    probe_create_only,
)
from sparklog.storage._s3_client import S3Client
from sparklog.testing.store_contract import StoreContract
from tests.s3_server import PAGE_SIZE
from tests.scripted_server import SILENCE, scripted_server

pytest.importorskip("obstore")


def test_without_obstore_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(_obstore_library, "_loaded", None)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(InvalidConfigurationError, match=r"pip install 'sparklog\[s3\]'"):
        S3Store("s3://bucket", {"key": "k", "secret": "s", "region": "us-east-1"}).read("a")


@pytest.mark.s3
class TestS3Store(StoreContract):
    page_size, raced_names = PAGE_SIZE, 15

    @pytest.fixture
    def store(self, s3_uri: str, s3_options: dict[str, object]) -> ObjectStore:
        return S3Store(s3_uri, s3_options)


@pytest.mark.s3
def test_the_probe_passes_and_leaves_nothing(s3_uri, s3_options):
    store = open_store(s3_uri, s3_options)
    probe_create_only(store, clock=SystemClock())
    assert [*store.list("")] == []


@pytest.mark.s3
def test_two_roots_in_a_bucket_do_not_mix(s3_uri, s3_options):
    one, two = S3Store(f"{s3_uri}/a", s3_options), S3Store(f"{s3_uri}/ab", s3_options)
    one.put("x", b"1")
    two.put("x", b"2")
    assert [info.path for info in one.list("")] == ["x"]
    assert one.read("x") == b"1"
    above = S3Store(s3_uri, s3_options)
    assert above.list_names("") == ["a", "ab"]


@pytest.mark.s3
def test_markers_that_others_write_for_folders_are_not_listed(s3_uri, s3_options):
    store = S3Store(s3_uri, s3_options)
    store.put_many({"a/b": b"", "c": b"1", "c-d": b"2", "c/e": b"3", "f": b""})
    other = S3Client(s3_uri.split("/")[2], s3_options)
    for marker in ("root/", "root/a/", "root/a/empty/", "root/c/", "root/f/"):
        other.run(partial(other.send, "put_object", Key=marker, Body=b""))
    assert [(info.path, info.size_bytes) for info in store.list("")] == [
        *(("a/b", 0), ("c", 1), ("c-d", 1), ("c/e", 1), ("f", 0))
    ]
    assert [info.path for info in store.list("a/")] == ["a/b"]
    assert "b" in store.list_names("a/")
    assert store.list_names("") == ["a", "c", "c-d", "f"]


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
@pytest.mark.s3
def test_a_bucket_that_is_not_there_is_no_missing_object(s3_options, client):
    store = S3Store("s3://no-such-bucket-anywhere/root", {**s3_options, "client": client})
    for call in (lambda: store.read("a"), lambda: store.create("a", b""), lambda: [*store.list("")]):
        with pytest.raises(StoreError, match="the bucket is not there") as caught:
            call()
        assert type(caught.value) is StoreError


@pytest.mark.s3
def test_a_bucket_with_versions_gives_a_deleted_name_again(s3_uri, s3_options):
    """What a deletion leaves there, a marker and older versions, is no object."""
    other = S3Client(s3_uri.split("/")[2], s3_options)
    other.run(partial(other.send, "put_bucket_versioning", VersioningConfiguration={"Status": "Enabled"}))
    store = S3Store(s3_uri, s3_options)
    assert store.create("a", b"1") is CreateResult.CREATED
    store.put("a", b"2")
    assert store.create("a", b"3") is CreateResult.EXISTS
    store.delete(["a"])
    assert store.read_many(["a", "b"]) == [None, None]
    assert [*store.list("")] == []
    assert store.create("a", b"4") is CreateResult.CREATED
    assert [info.size_bytes for info in store.list("")] == [1]


@pytest.mark.s3
def test_a_bucket_that_asks_for_checksums_gets_them(s3_uri, s3_options):
    store = S3Store(s3_uri, {**s3_options, "checksum_algorithm": "SHA256"})
    assert store.create("a", b"1") is CreateResult.CREATED
    assert store.create("a", b"2") is CreateResult.EXISTS
    store.put("large", bytes(20 * 2**20))
    assert len(store.read("large")) == 20 * 2**20


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
@pytest.mark.s3
def test_large_objects_go_in_parts(s3_uri, s3_options, client):
    store = S3Store(s3_uri, {**s3_options, "client": client})
    data = os.urandom(2**20) * 70
    store.put("large", data)
    assert store.read("large") == data
    assert [info.size_bytes for info in store.list("")] == [len(data)]


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
@pytest.mark.s3
def test_threads_and_closing(s3_uri, s3_options, client):
    store = S3Store(s3_uri, {**s3_options, "client": client})
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda number: store.put(f"a/{number}", b"x" * number), range(100)))
        sizes = list(threads.map(lambda number: len(store.read(f"a/{number}")), range(100)))
    assert sizes == list(range(100))
    store.close()
    store.close()
    assert len(store.read("a/9")) == 9


def in_child(call):
    """The exit code of a forked process that makes a call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forking with threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(30)  # what hangs ends
            call()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
@pytest.mark.s3
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_has_a_connection_of_its_own(s3_uri, s3_options, client):
    """Its parent's runtime would never answer."""
    store = S3Store(s3_uri, {**s3_options, "client": client})
    store.put("a", b"parent")
    store.read_many(["a", "b"])

    def write():
        store.put("a", b"child")
        assert store.read_many(["a", "b"]) == [b"child", None]
        assert in_child(lambda: store.put("b", b"grandchild")) == 0

    assert in_child(write) == 0
    assert store.read_many(["a", "b"]) == [b"child", b"grandchild"]


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
@pytest.mark.s3
def test_a_server_that_is_not_there(s3_options, client, monkeypatch):
    for module in (_obstore_bucket, _s3_client):
        monkeypatch.setattr(module, "_PAUSES_S", (0, 0, 0))
    store = S3Store("s3://bucket/root", {**s3_options, "endpoint_url": "http://127.0.0.1:9", "client": client})
    with pytest.raises(StoreOutcomeUnknownError, match=r"(?i)connect"):
        store.create("a", b"")
    with pytest.raises(StoreUnavailableError):
        store.read("a")


@pytest.mark.slow
@pytest.mark.parametrize("call", [lambda store: store.read("a"), lambda store: store.read_many(["a", "b"])])
def test_an_interrupt_ends_a_wait_for_a_server_that_never_answers(call):
    with scripted_server() as server:
        server.answer = lambda request: SILENCE
        options = {"key": "k", "secret": "s", "region": "us-east-1", "endpoint_url": server.url}
        store = S3Store("s3://bucket/root", options)
        timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - on a busy machine it may come before the call
            timer.start()
            call(store)
        timer.join()
        store.close()
