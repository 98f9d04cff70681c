import pytest

from sparklog.clock import SystemClock
from sparklog.errors import (
    InvalidArgumentError,
    InvalidConfigurationError,
    ObjectNotFoundError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreUnavailableError,
    UnsafeStoreError,
)
from sparklog.storage import CreateResult, FsspecStore, ObjectStore, _fsspec_bucket, open_store, probe_create_only
from sparklog.testing.store_contract import StoreContract

pytest.importorskip("fsspec")


class Refused(Exception):
    """As gcsfs's HttpError says it."""

    code = 416


class Failing:
    """A file system whose calls all fail."""

    def __init__(self, error):
        self.error = error
        self.calls = 0

    def __getattr__(self, name):
        def fail(*arguments, **named):
            self.calls += 1
            raise self.error

        return fail


@pytest.fixture
def failing(monkeypatch):
    def make(error):
        filesystem = Failing(error)
        monkeypatch.setattr(_fsspec_bucket, "open_filesystem", lambda protocol, options: filesystem)
        monkeypatch.setattr(_fsspec_bucket, "PAUSES_S", (0, 0))
        return open_store("oss://bucket/root", {"client": "fsspec"}), filesystem

    return make


@pytest.mark.parametrize("error", [PermissionError("no"), TimeoutError(), OSError(5, "broken"), RuntimeError("odd")])
def test_a_create_that_failed_is_unknown_whatever_the_file_system_says(failing, error):
    store, filesystem = failing(error)
    with pytest.raises(StoreOutcomeUnknownError):
        store.create("a", b"x")
    assert filesystem.calls == 1


def test_a_taken_name_is_told(failing):
    store, _ = failing(FileExistsError())
    assert store.create("a", b"x") is CreateResult.EXISTS


@pytest.mark.parametrize(
    ("error", "read", "put", "calls"),
    [
        (FileNotFoundError("a"), ObjectNotFoundError, ObjectNotFoundError, 2),  # one is a listing
        (PermissionError("no"), StorePermissionError, StorePermissionError, 1),
        (OSError(5, "broken"), StoreUnavailableError, StoreOutcomeUnknownError, 3),
    ],
)
def test_other_calls_are_repeated_where_that_may_help(failing, error, read, put, calls):
    store, filesystem = failing(error)
    with pytest.raises(read):
        store.read("a")
    assert filesystem.calls == calls
    with pytest.raises(put):
        store.put("a", b"x")


def test_a_range_that_a_server_refuses_as_behind_the_end_is_empty(failing):
    refused = Refused("Requested range not satisfiable, 416")
    store, filesystem = failing(refused)
    assert store.read_range("a", 10, 20) == b""
    assert filesystem.calls == 1


def test_a_file_system_without_a_create_only_put_of_its_own_is_refused():
    with pytest.raises(UnsafeStoreError, match="no create-only put"):
        open_store("ftp://host/x", {"client": "fsspec"}).create("a", b"")


def test_a_protocol_that_fsspec_does_not_know_is_told():
    with pytest.raises(InvalidConfigurationError, match="can't open no-such-protocol"):
        open_store("no-such-protocol://bucket", {"client": "fsspec"}).read("a")


@pytest.mark.parametrize("uri", ["oss://user:very-secret@bucket/p", "oss://bucket//p", "oss://"])
def test_bad_uris_are_refused_without_repeating_secrets(uri):
    with pytest.raises(InvalidArgumentError) as caught:
        open_store(uri, {"client": "fsspec"})
    assert "very-secret" not in str(caught.value)


@pytest.mark.deep
@pytest.mark.s3
class TestFsspecStore(StoreContract):
    """With s3fs, as any file system of fsspec is used."""

    @pytest.fixture
    def store(self, s3_uri: str, s3_options: dict[str, object]) -> ObjectStore:
        return FsspecStore(s3_uri, s3_options)

    @pytest.mark.parametrize("name", ["with space", "per%20cent%", "späße/日本語/🦆", ".hidden"])
    def test_odd_names(self, store: ObjectStore, name: str) -> None:
        """Without ``?versionId=``, which means something else to s3fs."""
        super().test_odd_names(store, name)


@pytest.mark.s3
def test_the_probe_passes_over_fsspec(s3_uri, s3_options):
    store = open_store(s3_uri, {**s3_options, "client": "fsspec"})
    probe_create_only(store, clock=SystemClock())
    assert [*store.list("")] == []
