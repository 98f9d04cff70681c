"""Where a cluster may be made: not within another one, and not over what is left of one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparklog import Admin, NewTopic, Producer
from sparklog.errors import InvalidArgumentError, StorePermissionError, UnsupportedVersionError
from sparklog.log import create_topic, open_cluster
from sparklog.paths import CLUSTER_FILE
from sparklog.storage import MemoryStore, ObjectStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore
from sparklog.testing.wrapped_store import WrappedStore

PLACES = [
    "topics",
    "topics/t",
    "topics/t/inner",
    "topics/t/partition=0",
    "topics/t/_delta_log",
    "groups",
    "groups/g",
    "transactions/x",
    "_probe",
    "inner",
    "inner/very/deep",
]


@pytest.mark.parametrize("place", PLACES)
def test_no_cluster_is_made_in_another(tmp_path: Path, place: str) -> None:
    outer = open_cluster(tmp_path / "outer")
    create_topic(outer.topic_log("t"), "t")
    root = tmp_path / "outer" / place
    with pytest.raises(InvalidArgumentError, match=f"in the cluster at .*/outer, whose id is {outer.cluster_id}"):
        open_cluster(root)
    assert not (root / CLUSTER_FILE).exists()
    assert open_cluster(tmp_path / "beside").cluster_id != outer.cluster_id


def test_a_link_leads_into_no_other_cluster(tmp_path: Path) -> None:
    open_cluster(tmp_path / "outer")
    (tmp_path / "outer" / "inner").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "outer" / "inner")
    with pytest.raises(InvalidArgumentError, match="it lies in the cluster at"):
        open_cluster(tmp_path / "link")


def test_a_cluster_that_lies_in_another_already_is_opened(tmp_path: Path) -> None:
    inner = open_cluster(tmp_path / "topics" / "t")
    open_cluster(tmp_path / "other")
    os.rename(tmp_path / "other" / CLUSTER_FILE, tmp_path / CLUSTER_FILE)
    for create in (False, True):
        assert open_cluster(tmp_path / "topics" / "t", create=create).cluster_id == inner.cluster_id


@pytest.mark.parametrize(
    "content", [b"", b"not json", b"[]", b'{"cluster_id": "x"}', b'{"cluster_id": "x", "format_version": "one"}']
)
def test_another_applications_cluster_json_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / CLUSTER_FILE).write_bytes(content)
    open_cluster(tmp_path / "inner")


def test_a_cluster_of_a_newer_format_is_one(tmp_path: Path) -> None:
    (tmp_path / CLUSTER_FILE).write_text(json.dumps({"cluster_id": "new", "format_version": 99}))
    with pytest.raises(InvalidArgumentError, match="whose id is new"):
        open_cluster(tmp_path / "inner")
    with pytest.raises(UnsupportedVersionError):
        open_cluster(tmp_path)


def test_a_parent_that_may_not_be_read_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_cluster(tmp_path / "outer")
    read = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == CLUSTER_FILE:
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    open_cluster(tmp_path / "outer" / "inner")


REMAINS: list[Callable[[ObjectStore], object]] = [
    lambda store: create_topic(open_cluster(store).topic_log("t"), "t"),
    lambda store: store.put("groups/g/offsets/_delta_log/00000000000000000000.json", b"{}"),
    lambda store: store.put("share-groups/g/partitions/t/0/00000000000000000001.json", b"{}"),
    lambda store: store.put("transactions/x/00000000000000000001.json", b"{}"),
]


@pytest.mark.parametrize("leave", REMAINS)
def test_no_cluster_is_made_over_what_is_left_of_one(leave: Callable[[ObjectStore], object]) -> None:
    store = MemoryStore()
    leave(store)
    store.delete([CLUSTER_FILE])
    before = [found.path for found in store.list("")]
    for create in (True, False):
        with pytest.raises(InvalidArgumentError, match=r"there is no cluster.json, but there are objects .*/\. If"):
            open_cluster(store, create=create)
    assert [found.path for found in store.list("")] == before


def test_a_cluster_whose_file_is_put_back_goes_on(tmp_path: Path) -> None:
    Admin(tmp_path).create_topics([NewTopic("t")])
    body = (tmp_path / CLUSTER_FILE).read_bytes()
    (tmp_path / CLUSTER_FILE).unlink()
    with pytest.raises(InvalidArgumentError, match=r"put its cluster\.json back"):
        Producer(tmp_path)
    (tmp_path / CLUSTER_FILE).write_bytes(body)
    with Producer(tmp_path) as producer:
        assert producer.send("t", value=b"x").get(10).offset == 0


class MadeMeanwhile(WrappedStore):
    """Another client makes the cluster and a topic, after it was looked for."""

    def list(self, prefix: str, *, after: str = "") -> Any:
        if not self._store.exists(CLUSTER_FILE):
            create_topic(open_cluster(self._store).topic_log("t"), "t")
        return super().list(prefix, after=after)


def test_a_cluster_that_another_client_makes_at_once_is_no_remains() -> None:
    memory = MemoryStore()
    cluster = open_cluster(MadeMeanwhile(memory))
    assert cluster.cluster_id == open_cluster(memory).cluster_id


def test_opening_a_cluster_looks_at_nothing_else() -> None:
    memory = MemoryStore()
    open_cluster(memory)
    store = CountingStore(memory)
    open_cluster(store)
    assert store.counts() == {"get": 1}


def test_a_store_that_refuses_listings_makes_no_cluster() -> None:
    fault = Fault(kind=FaultKind.READ_ONLY, ops=("create",), times=None)
    with pytest.raises(StorePermissionError):
        open_cluster(FaultyStore(MemoryStore(), fault))


@pytest.mark.s3
@pytest.mark.parametrize("place", ["topics/t", "inner/deep"])
def test_no_cluster_is_made_in_another_of_a_bucket(s3_uri: str, s3_options: dict[str, Any], place: str) -> None:
    outer = open_cluster(s3_uri, storage_options=s3_options)
    with pytest.raises(InvalidArgumentError, match=f"it lies in the cluster at {s3_uri}, whose id is"):
        open_cluster(f"{s3_uri}/{place}", storage_options=s3_options)
    assert outer.store.read_above(CLUSTER_FILE) == []
    beside = open_cluster(f"{s3_uri}-2", storage_options=s3_options)
    assert beside.cluster_id != outer.cluster_id
    bucket = s3_uri.removesuffix("/root")
    at_root = open_cluster(bucket, storage_options=s3_options)
    with pytest.raises(InvalidArgumentError, match=f"in the cluster at {bucket}, whose id is {at_root.cluster_id}"):
        open_cluster(f"{bucket}/other", storage_options=s3_options)
