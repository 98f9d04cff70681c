"""A cluster is a root URI: its identity, and whether its store can be trusted."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparklog.errors import (
    CorruptLogError,
    InvalidArgumentError,
    InvalidTopicError,
    StoreFullError,
    StorePermissionError,
    UnsafeStoreError,
    UnsupportedVersionError,
)
from sparklog.log.cluster import CLUSTER_FORMAT_VERSION, open_cluster
from sparklog.log.topic import create_topic, describe_topic
from sparklog.paths import CLUSTER_FILE
from sparklog.storage import MemoryStore
from sparklog.testing import (
    CheckThenWriteStore,
    CountingStore,
    Fault,
    FaultKind,
    FaultyStore,
    ManualClock,
    OverwritingStore,
    WrongBytesStore,
)


def paths(store):
    return [info.path for info in store.list("")]


def test_a_cluster_is_made_where_there_is_none_and_found_again():
    store = MemoryStore()
    cluster = open_cluster(store)
    assert json.loads(store.read(CLUSTER_FILE)) == {
        "cluster_id": cluster.cluster_id,
        "format_version": CLUSTER_FORMAT_VERSION,
    }
    before = store.read(CLUSTER_FILE)
    assert open_cluster(store).cluster_id == cluster.cluster_id
    assert open_cluster(store, create=False).cluster_id == cluster.cluster_id
    assert store.read(CLUSTER_FILE) == before
    assert paths(store) == [CLUSTER_FILE]  # the probe left nothing


def test_two_clusters_have_two_ids():
    assert open_cluster(MemoryStore()).cluster_id != open_cluster(MemoryStore()).cluster_id


@pytest.mark.parametrize("as_uri", [True, False])
def test_a_cluster_is_opened_by_its_path_or_uri(tmp_path, as_uri):
    root = tmp_path / "made" / "by us"
    cluster = open_cluster(root.as_uri() if as_uri else root)
    assert (root / CLUSTER_FILE).exists()
    assert open_cluster(str(root)).cluster_id == cluster.cluster_id


def test_what_a_cluster_keeps_of_how_it_was_opened_holds_no_secret(tmp_path, monkeypatch):
    plain = open_cluster(tmp_path).opened_by
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    with_key = open_cluster(tmp_path).opened_by
    assert with_key not in (None, plain)
    assert "very-secret" not in str(with_key)


def test_a_cluster_in_memory_is_found_by_its_name():
    one = open_cluster("memory://test_cluster")
    assert open_cluster("memory://test_cluster").cluster_id == one.cluster_id
    assert open_cluster("memory://test_cluster_2").cluster_id != one.cluster_id


def test_a_root_that_is_no_uri_of_ours_is_refused():
    with pytest.raises(InvalidArgumentError, match="unknown scheme ftp:"):
        open_cluster("ftp://host/x")


def test_opening_a_cluster_that_is_there_is_one_get():
    memory = MemoryStore()
    open_cluster(memory)
    store = CountingStore(memory)
    open_cluster(store)
    assert store.counts() == {"get": 1}


def test_a_cluster_that_is_not_there_is_not_made_unasked():
    store = MemoryStore("empty")
    with pytest.raises(InvalidArgumentError, match=r"no sparklog cluster at memory://empty: .*cluster\.json"):
        open_cluster(store, create=False)
    assert paths(store) == []


def test_of_racing_opens_all_agree_on_one_cluster():
    store = MemoryStore()
    with ThreadPoolExecutor(4) as threads:
        clusters = list(threads.map(lambda _: open_cluster(store), range(4)))
    assert len({cluster.cluster_id for cluster in clusters}) == 1
    assert paths(store) == [CLUSTER_FILE]


def test_whoever_comes_second_takes_what_the_first_made():
    class Overtaken(MemoryStore):
        def create(self, path, data, *, sync=False):
            if path == CLUSTER_FILE:
                super().create(path, json.dumps({"cluster_id": "theirs", "format_version": 1}).encode())
            return super().create(path, data, sync=sync)

    assert open_cluster(Overtaken()).cluster_id == "theirs"


@pytest.mark.parametrize(
    ("store", "seen"),
    [
        (OverwritingStore, r"racers were told they created it|created a second time"),
        (CheckThenWriteStore, r"\d of 8 racers were told they created it"),
        (WrongBytesStore, r"racer \d was told it created it, but racer \d's bytes are stored"),
    ],
)
def test_a_store_without_an_atomic_create_is_refused_with_what_was_seen(store, seen):
    memory = MemoryStore("unsafe")
    with pytest.raises(UnsafeStoreError, match=rf"memory://unsafe: .*({seen})"):
        open_cluster(store(memory))
    assert paths(memory) == []


def test_a_cluster_of_a_newer_sparklog_is_refused():
    store = MemoryStore("new")
    store.put(CLUSTER_FILE, json.dumps({"cluster_id": "x", "format_version": CLUSTER_FORMAT_VERSION + 1}).encode())
    with pytest.raises(
        UnsupportedVersionError, match="memory://new has format 2; this sparklog knows up to 1: upgrade"
    ):
        open_cluster(store)


@pytest.mark.parametrize(
    "found",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"7",
        b"null",
        b"{}",
        b'{"cluster_id": "x"}',
        b'{"format_version": 1}',
        b'{"cluster_id": "x", "format_version": "one"}',
        b'{"cluster_id": "x", "format_version": null}',
    ],
)
def test_a_cluster_file_that_is_garbled_is_named_and_left_alone(found):
    store = MemoryStore("bad")
    store.put(CLUSTER_FILE, found)
    with pytest.raises(CorruptLogError, match=r"memory://bad/cluster\.json"):
        open_cluster(store)
    assert store.read(CLUSTER_FILE) == found


@pytest.mark.parametrize(
    "kind",
    [
        FaultKind.LOST_ANSWER,
        FaultKind.LOST_REQUEST,
        FaultKind.OWN_SUCCESS,
        FaultKind.CONFLICT,
        FaultKind.THROTTLED,
    ],
    ids=lambda kind: kind.name,
)
def test_a_cluster_is_made_despite_a_fault_at_its_create(kind):
    memory = MemoryStore()
    clock = ManualClock()
    store = FaultyStore(memory, Fault(kind=kind, ops=["create"], path=CLUSTER_FILE, times=3))
    cluster = open_cluster(store, clock=clock)
    assert open_cluster(memory).cluster_id == cluster.cluster_id


@pytest.mark.parametrize(
    ("kind", "error"), [(FaultKind.DISK_FULL, StoreFullError), (FaultKind.READ_ONLY, StorePermissionError)]
)
@pytest.mark.parametrize("path", ["", CLUSTER_FILE], ids=["at the probe", "at its create"])
def test_a_store_that_cannot_be_written_is_told_and_works_afterwards(kind, error, path):
    memory = MemoryStore()
    with pytest.raises(error, match=kind.value):
        open_cluster(FaultyStore(memory, Fault(kind=kind, path=path, times=None)), clock=ManualClock())
    assert paths(memory) == []
    open_cluster(memory)


def test_a_read_only_cluster_can_be_opened():
    memory = MemoryStore()
    cluster = open_cluster(memory)
    store = FaultyStore(memory, Fault(kind=FaultKind.READ_ONLY, times=None))
    assert open_cluster(store).cluster_id == cluster.cluster_id


def test_topics_lie_in_their_own_folders():
    store, clock = MemoryStore(), ManualClock()
    cluster = open_cluster(store, clock=clock, tail_trust_ms=5)
    log = cluster.topic_log("orders")
    assert (log.table, log.tail_trust_ms, log.clock) == ("topics/orders", 5, clock)
    assert paths(store) == [CLUSTER_FILE]
    create_topic(log, "orders")
    assert describe_topic(open_cluster(store).topic_log("orders"), "orders").name == "orders"
    with pytest.raises(InvalidTopicError):
        cluster.topic_log("../cluster.json")
