"""Clients of a bucket that refuses: credentials that expire, no right to list, deletions that are refused or only leave
markers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from sparklog import Consumer, Producer
from sparklog.compaction import maintain
from sparklog.errors import CommitStateUnknownError, StorePermissionError
from sparklog.log import Cluster, create_topic, open_cluster
from sparklog.storage._s3_client import S3Client
from tests.s3_proxy import COMMIT, LOST, S3Proxy, s3_proxy
from tests.scripted_server import Reply, Request, xml_error

pytestmark = [pytest.mark.s3, pytest.mark.slow]

DENIED = xml_error(403, "AccessDenied", "Access Denied")
EXPIRED = xml_error(400, "ExpiredToken", "The provided token has expired.")
ORPHAN = "topics/t/partition=0/orphan.parquet"


@pytest.fixture
def calm(s3_uri: str, s3_options: dict[str, Any]) -> Iterator[Cluster]:
    """A cluster with a topic, by a way to the bucket that refuses nothing."""
    cluster = open_cluster(s3_uri, storage_options=s3_options)
    create_topic(cluster.topic_log("t"), "t")
    yield cluster
    cluster.store.close()


@pytest.fixture
def proxy(s3_options: dict[str, Any]) -> Iterator[S3Proxy]:
    with s3_proxy(s3_options["endpoint_url"]) as proxy:
        yield proxy


@pytest.fixture
def options(s3_options: dict[str, Any], proxy: S3Proxy) -> dict[str, Any]:
    return {**s3_options, "endpoint_url": proxy.url}


def send(producer: Producer, value: bytes) -> int:
    """The offset that was acknowledged."""
    return producer.send("t", value=value).get(timeout=60).offset


def take(consumer: Consumer, count: int) -> list[bytes | None]:
    """The values of the next records: ``count``, or some more if they come at once."""
    read: list[bytes | None] = []
    while len(read) < count:
        read += [record.value for rows in consumer.poll(timeout_ms=1000).values() for record in rows]
    return read


def read_all(uri: str, options: dict[str, Any], count: int) -> list[bytes | None]:
    """What the topic holds, in order, of ``count`` records at least."""
    with Consumer("t", cluster=uri, storage_options=options, auto_offset_reset="earliest") as consumer:
        return take(consumer, count) + [
            record.value for rows in consumer.poll(timeout_ms=0).values() for record in rows
        ]


def signer(request: Request) -> str:
    """Whose key a request is signed by."""
    return request.headers["authorization"].partition("Credential=")[2].partition("/")[0]


def test_credentials_that_are_replaced_as_they_expire_are_not_noticed(
    calm: Cluster,
    proxy: S3Proxy,
    s3_uri: str,
    s3_options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Whoever renews them writes the profile's file, as tools for single sign-on do."""
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    valid = ["KEY0"]

    def renew(number: int) -> None:
        keys = f"aws_access_key_id = KEY{number}\naws_secret_access_key = s\naws_session_token = t\n"
        file.write_text(f"[default]\n{keys}")
        valid[:] = [f"KEY{number}"]

    renew(0)
    proxy.instead = lambda request: None if signer(request) in valid else EXPIRED
    options = {"endpoint_url": proxy.url, "region": "us-east-1"}
    read: list[bytes | None] = []
    with (
        Producer(s3_uri, storage_options=options, linger_ms=0) as producer,
        Consumer("t", cluster=s3_uri, storage_options=options, auto_offset_reset="earliest") as consumer,
    ):
        for number in range(4):
            assert send(producer, b"%d" % number) == number
            renew(number + 1)
            read += take(consumer, 1)
    assert read == [b"0", b"1", b"2", b"3"]


def test_credentials_that_expire_for_good_are_told_and_what_is_unknown_stays_so(
    calm: Cluster, proxy: S3Proxy, options: dict[str, Any], s3_uri: str, s3_options: dict[str, Any]
) -> None:
    """Until they are valid again: then the same clients go on."""
    lost: list[str] = []

    def lose_a_commit(method: str, path: str) -> int | None:
        if method != "PUT" or not COMMIT.search(urlsplit(path).path):
            return None
        lost.append(path)
        return LOST

    with (
        Producer(s3_uri, storage_options=options, linger_ms=0) as producer,
        Consumer("t", cluster=s3_uri, storage_options=options, auto_offset_reset="earliest") as consumer,
    ):
        assert send(producer, b"before") == 0
        assert take(consumer, 1) == [b"before"]
        proxy.instead = lambda request: EXPIRED
        with pytest.raises(StorePermissionError, match="ExpiredToken: The provided token has expired"):
            send(producer, b"never")
        with pytest.raises(StorePermissionError, match="ExpiredToken"):
            consumer.poll(timeout_ms=5000)
        proxy.trouble = lose_a_commit
        proxy.instead = lambda request: EXPIRED if lost else None
        with pytest.raises(CommitStateUnknownError, match="ExpiredToken"):
            send(producer, b"unknown")
        proxy.trouble = proxy.instead = None
        assert send(producer, b"after") == 2
        assert take(consumer, 2) == [b"unknown", b"after"]
    assert read_all(s3_uri, s3_options, 3) == [b"before", b"unknown", b"after"]


def test_without_the_right_to_list_sparklog_stops_and_says_what_is_missing(
    calm: Cluster, proxy: S3Proxy, options: dict[str, Any], s3_uri: str, s3_options: dict[str, Any]
) -> None:
    """S3 then refuses reads of what isn't there, too, and the end of a log is such a name."""
    with Producer(s3_uri, storage_options=s3_options) as producer:
        send(producer, b"before")
    root = f"/{s3_uri.removeprefix('s3://')}/"

    def without_the_right(request: Request) -> Reply | None:
        path = urlsplit(request.path)
        if request.method not in ("GET", "HEAD"):
            return None
        name = unquote(path.path)
        is_there = name.startswith(root) and calm.store.exists(name.removeprefix(root))
        return None if is_there and "list-type" not in path.query else DENIED

    proxy.instead = without_the_right
    cluster = open_cluster(s3_uri, storage_options=options)  # which is there
    missing = "no right to list the bucket"
    with pytest.raises(StorePermissionError, match=missing):
        open_cluster(f"{s3_uri}-new", storage_options=options)  # beside the cluster, not in it
    with pytest.raises(StorePermissionError, match=missing), Producer(s3_uri, storage_options=options) as producer:
        send(producer, b"never")
    with pytest.raises(StorePermissionError, match=missing):
        read_all(s3_uri, options, 1)
    with pytest.raises(StorePermissionError, match=r"list .*AccessDenied"):
        maintain(cluster)
    cluster.store.close()
    assert read_all(s3_uri, s3_options, 1) == [b"before"]


def orphans_look_old(request: Request, content: bytes) -> bytes:
    """The server's answer, in whose listings orphans are of years ago."""
    return re.sub(rb"(orphan\.parquet</Key>\s*<LastModified>)20\d\d", rb"\g<1>2020", content)


def test_where_deletions_are_refused_maintenance_says_so_and_clients_work(
    calm: Cluster, proxy: S3Proxy, options: dict[str, Any], s3_uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As a server refuses that keeps each object for some time."""
    said = b"<Code>AccessDenied</Code><Message>the object is locked</Message>"

    def lock(request: Request) -> Reply | None:
        if request.method == "POST" and "delete" in urlsplit(request.path).query:
            keys = re.findall(rb"<Key>.*?</Key>", request.body)
            rows = b"".join(b"<Error>%b%b</Error>" % (key, said) for key in keys)
            return Reply(200, b"<DeleteResult>%b</DeleteResult>" % rows, {})
        return None

    calm.store.put(ORPHAN, b"nobody names it")
    proxy.instead, proxy.rewrite = lock, orphans_look_old
    cluster = open_cluster(s3_uri, storage_options=options)
    with Producer(s3_uri, storage_options=options) as producer:
        assert [send(producer, b"a"), send(producer, b"b")] == [0, 1]
    report = maintain(cluster, full=True)
    assert [line for line in report.failures if not re.search(r"vacuum: delete .*the object is locked", line)] == []
    assert len(report.failures) == 1
    assert not report.may_succeed_later
    assert "probes/ is left over" in caplog.text
    assert read_all(s3_uri, options, 2) == [b"a", b"b"]
    with pytest.raises(StorePermissionError, match=r"delete .*_probe/.*the object is locked"):
        open_cluster(f"{s3_uri}-new", storage_options=options)  # beside the cluster, not in it
    proxy.instead = None
    assert maintain(cluster, full=True).failures == []
    assert not calm.store.exists(ORPHAN)
    cluster.store.close()


def keep_versions(other: S3Client) -> None:
    other.run(partial(other.send, "put_bucket_versioning", VersioningConfiguration={"Status": "Enabled"}))


def lock_objects(other: S3Client) -> None:
    keep_versions(other)
    kept = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
    lock = {"ObjectLockEnabled": "Enabled", "Rule": kept}
    other.run(partial(other.send, "put_object_lock_configuration", ObjectLockConfiguration=lock))


@pytest.mark.parametrize("prepare", [pytest.param(keep_versions, marks=pytest.mark.deep), lock_objects])
def test_versions_and_locks_that_leave_markers_of_deletions_hinder_nothing(
    s3_uri: str,
    s3_options: dict[str, Any],
    proxy: S3Proxy,
    options: dict[str, Any],
    prepare: Callable[[S3Client], None],
) -> None:
    """S3 keeps what is deleted or replaced as older versions, which is for a rule of the bucket to remove."""
    other = S3Client(s3_uri.split("/")[2], s3_options)
    prepare(other)
    options = {**options, "checksum_algorithm": "SHA256"}  # which a bucket with object lock asks for
    proxy.extra_headers = {"x-amz-sdk-checksum-algorithm": "SHA256"}  # moto asks for it; S3 for the sum alone
    proxy.rewrite = orphans_look_old
    cluster = open_cluster(s3_uri, storage_options=options)
    create_topic(cluster.topic_log("t"), "t")
    cluster.store.put(ORPHAN, b"nobody names it")
    with Producer(s3_uri, storage_options=options) as producer:
        assert [send(producer, b"a"), send(producer, b"b")] == [0, 1]
    assert maintain(cluster, full=True).failures == []
    assert not cluster.store.exists(ORPHAN)
    assert read_all(s3_uri, options, 2) == [b"a", b"b"]
    versions = other.run(partial(other.send, "list_object_versions", Prefix=f"root/{ORPHAN}"))
    assert len(versions["Versions"]) == len(versions["DeleteMarkers"]) == 1
    cluster.store.close()
    other.close()
