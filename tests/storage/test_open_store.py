from pathlib import Path

import pytest

from sparklog.errors import InvalidArgumentError
from sparklog.storage import LocalStore, MemoryStore, S3Store, open_store


@pytest.mark.parametrize("form", [str, Path, lambda path: path.as_uri(), lambda path: f"file:{path}"])
def test_local_folders(tmp_path, form):
    folder = tmp_path / "with space"
    store = open_store(form(folder))
    assert isinstance(store, LocalStore)
    assert store.root == folder
    assert not store.is_remote
    assert store.uri == folder.as_uri()
    store.put("a/b", b"x")
    assert (folder / "a" / "b").read_bytes() == b"x"


def test_a_relative_folder_stays_where_it_was_when_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = open_store("./data")
    monkeypatch.chdir("/")
    store.put("a", b"x")
    assert (tmp_path / "data" / "a").read_bytes() == b"x"


def test_opening_and_reading_make_no_folder(tmp_path):
    store = open_store(tmp_path / "data")
    assert [*store.list(""), *store.list_names("")] == []
    assert store.read_many(["a/b"]) == [None]
    store.delete(["a/b"])
    store.sync(["a/b"])
    assert not (tmp_path / "data").exists()


def test_memory_of_one_name_is_one_store():
    open_store("memory://one").put("a", b"x")
    assert isinstance(open_store("memory://one/"), MemoryStore)
    assert open_store("memory://one").read("a") == b"x"
    assert [*open_store("memory://two").list("")] == []
    assert open_store("memory://one").uri == "memory://one"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3a://bucket/some/prefix/", "s3://bucket/some/prefix"),
        ("s3://bucket/a=b?c", "s3://bucket/a=b?c"),
    ],
)
def test_buckets(uri, shown):
    store = open_store(uri, {"key": "k", "secret": "very-secret"})
    assert isinstance(store, S3Store)
    assert store.uri == shown
    assert "very-secret" not in repr(store) + store.uri
    assert store.is_remote


@pytest.mark.parametrize("uri", ["s3://", "s3:///prefix", "s3://key:very-secret@bucket/prefix", "s3://bucket/a//b"])
def test_bad_bucket_uris_are_refused_without_repeating_secrets(uri):
    with pytest.raises(InvalidArgumentError) as caught:
        open_store(uri)
    assert "very-secret" not in str(caught.value)


def test_an_unknown_scheme_is_named_with_the_known_ones():
    with pytest.raises(InvalidArgumentError, match=r"oss:.*file:///path, s3://bucket/prefix.*memory://name"):
        open_store("oss://bucket/prefix")


@pytest.mark.parametrize(
    ("uri", "help"),
    [
        ("hdfs://namenode:8020/path", "hard links"),
        ("dbfs:/mnt/path", "/Volumes/"),
        ("wasbs://c@a.blob.core.windows.net/p", "give abfss://"),
        ("https://bucket.s3.amazonaws.com/p", "endpoint_url"),
    ],
)
def test_a_scheme_that_cannot_be_a_store_is_refused_with_what_may_be_meant(uri, help):
    with pytest.raises(InvalidArgumentError, match=f"can't be a store.*{help}"):
        open_store(uri)


@pytest.mark.parametrize(
    "uri",
    [
        Path("s3://key:very-secret@b/p"),
        Path("gs://b"),
        Path("memory://m"),
        "gs:b/p",
        "abfss:c/p",
        "s3:b",
        "memory:m",
        "file:a",
    ],
)
def test_what_was_meant_as_a_uri_names_no_local_folder(uri, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError, match=r"begins with [a-z0-9]+:") as caught:
        open_store(uri)
    assert "very-secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["./s3:b", Path("2024-01-01T00:00/x"), Path("a:b/c"), "9:00"])
def test_a_folder_may_have_a_colon_in_its_name(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given in (name, tmp_path / "s3:" / "b"):
        store = open_store(given)
        assert isinstance(store, LocalStore)
        assert store.root == tmp_path / given


@pytest.mark.parametrize("uri", ["", "file://host/path"])
def test_incomplete_uris_are_refused(uri):
    with pytest.raises(InvalidArgumentError):
        open_store(uri)


def test_options_are_refused_where_they_would_be_ignored(tmp_path):
    with pytest.raises(InvalidArgumentError, match="endpoint_url") as caught:
        open_store(tmp_path, {"endpoint_url": "http://very-secret"})
    assert "very-secret" not in str(caught.value)
