"""A client's way to a store is tried before it writes: one that loses the condition of a create-only put is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparklog import Admin, Consumer, NewTopic, Producer
from sparklog.compaction import maintain
from sparklog.errors import StoreError, UnsafeStoreError
from sparklog.gateway.opening import Opening
from sparklog.integrity import check_cluster
from sparklog.log import Cluster, create_topic, open_cluster
from sparklog.model import TopicPartition
from sparklog.paths import CREATE_ONLY_FILE
from sparklog.storage import CreateResult, MemoryStore, ObjectStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock, OverwritingStore
from sparklog.testing.wrapped_store import WrappedStore
from tests.s3_proxy import s3_proxy


class Far(WrappedStore):
    """A store on another machine."""

    @property
    def is_remote(self) -> bool:
        return True


class Stripping(OverwritingStore):
    """A way to a store on another machine that loses the condition."""

    @property
    def is_remote(self) -> bool:
        return True


class Noting(Far):
    """Notes each call."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.calls: list[tuple[str, str]] = []

    def _call(self, op: str, path: str, call: Callable[[], Any]) -> Any:
        self.calls.append((op, path))
        return call()

    def count(self, op: str, path: str) -> int:
        return self.calls.count((op, path))


def a_bucket(*, is_old: bool = False) -> MemoryStore:
    """What a cluster with a topic has left in a bucket; before there was an object to try the way by: ``is_old``."""
    memory = MemoryStore()
    create_topic(open_cluster(Far(memory)).topic_log("t"), "t")
    assert memory.exists(CREATE_ONLY_FILE)
    if is_old:
        memory.delete([CREATE_ONLY_FILE])
    return memory


def objects(memory: MemoryStore) -> dict[str, str]:
    return {found.path: found.etag for found in memory.list("") if found.path != CREATE_ONLY_FILE}


WRITES: list[Callable[[Cluster], object]] = [
    lambda cluster: cluster.store.put("a", b"a"),
    lambda cluster: cluster.store.put_many({"a": b"a", "b": b"b"}),
    lambda cluster: cluster.store.create("a", b"a"),
    lambda cluster: cluster.store.delete(["cluster.json"]),
    lambda cluster: create_topic(cluster.topic_log("new"), "new"),
]


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_a_way_that_loses_the_condition_is_refused_before_anything_is_written(
    write: Callable[[Cluster], object], is_old: bool
) -> None:
    memory = a_bucket(is_old=is_old)
    before = objects(memory)
    cluster = open_cluster(Stripping(memory))
    for _ in range(2):
        with pytest.raises(UnsafeStoreError, match=r"_create_only was created twice.*If-None-Match"):
            write(cluster)
    assert objects(memory) == before


def test_clients_are_refused_there() -> None:
    memory = a_bucket()
    before = objects(memory)
    with Producer(open_cluster(Stripping(memory)), linger_ms=0) as producer, pytest.raises(UnsafeStoreError):
        producer.send("t", value=b"x").get(10)
    with pytest.raises(UnsafeStoreError):
        Admin(Stripping(memory)).create_topics([NewTopic("u")])
    with pytest.raises(UnsafeStoreError):
        Producer(open_cluster(Stripping(memory)), transactional_id="x").init_transactions()
    report = maintain(open_cluster(Stripping(memory)))
    assert report.failures
    assert objects(memory) == before


def test_a_gateway_that_opens_its_cluster_later_is_refused_there() -> None:
    opening = Opening(Stripping(a_bucket()))
    opening.start()
    cluster = opening.done.result(10).cluster
    opening.stop()
    with pytest.raises(UnsafeStoreError):
        cluster.store.put("a", b"a")
    assert cluster.store.ground is not None


@pytest.mark.parametrize(("is_old", "tries"), [(False, 1), (True, 2)])
def test_each_client_tries_it_once(is_old: bool, tries: int) -> None:
    memory = a_bucket(is_old=is_old)
    for _ in range(2):
        store = Noting(memory)
        cluster = open_cluster(store)
        assert store.count("create", CREATE_ONLY_FILE) == 0  # not at opening
        for number in range(3):
            cluster.store.put(f"{number}", b"")
        assert store.count("create", CREATE_ONLY_FILE) == tries
        assert [call for call in store.calls if call[0] != "get"][tries] == ("put", "0")
        tries = 1  # the first has made it


def test_who_only_reads_writes_nothing() -> None:
    memory = a_bucket()
    with Producer(open_cluster(Far(memory))) as producer:
        producer.send("t", value=b"x").get(10)
    before = {found.path: found.etag for found in memory.list("")}
    store = CountingStore(Far(memory))
    cluster = open_cluster(store)
    with Consumer(cluster=cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        while not consumer.poll(timeout_ms=500):
            pass
    assert check_cluster(cluster).findings == ()
    assert {"put", "create", "delete"} & store.counts().keys() == set()
    assert {found.path: found.etag for found in memory.list("")} == before


def test_who_makes_a_cluster_has_proved_it_already() -> None:
    store = Noting(MemoryStore())
    cluster = open_cluster(store)
    assert store.count("create", CREATE_ONLY_FILE) == 1
    cluster.store.put("a", b"a")
    assert store.count("create", CREATE_ONLY_FILE) == 1


def test_a_folder_has_no_such_object(tmp_path) -> None:
    open_cluster(tmp_path)
    open_cluster(tmp_path).store.put("a", b"a")
    assert (tmp_path / "a").exists()
    assert not (tmp_path / CREATE_ONLY_FILE).exists()


@pytest.mark.parametrize(
    "kind",
    [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.THROTTLED, FaultKind.CONFLICT, FaultKind.READ_ONLY],
)
@pytest.mark.parametrize("is_old", [False, True])
def test_a_refusal_for_another_reason_proves_nothing_and_fails_no_write(kind: FaultKind, is_old: bool) -> None:
    clock = ManualClock()
    memory = a_bucket(is_old=is_old)
    faulty = FaultyStore(Far(memory), Fault(kind=kind, path=CREATE_ONLY_FILE, times=None), clock=clock)
    noting = Noting(faulty)
    cluster = open_cluster(noting, clock=clock)
    for number in range(1_000):
        cluster.store.put(f"{number}", b"")
        clock.advance(100)
    assert 5 < noting.count("create", CREATE_ONLY_FILE) < 12  # in a hundred seconds: spaced, and never given up


def test_a_way_whose_first_answer_is_lost_is_refused_by_a_later_write() -> None:
    clock = ManualClock()
    faulty = FaultyStore(Stripping(a_bucket()), Fault(kind=FaultKind.LOST_ANSWER, path=CREATE_ONLY_FILE), clock=clock)
    cluster = open_cluster(Far(faulty), clock=clock)
    cluster.store.put("a", b"a")
    clock.advance(1_000)
    with pytest.raises(UnsafeStoreError):
        cluster.store.put("a", b"a")


def test_a_way_whose_first_answer_is_lost_is_proved_by_a_later_write() -> None:
    clock = ManualClock()
    noting = Noting(
        FaultyStore(
            Far(a_bucket(is_old=True)), Fault(kind=FaultKind.LOST_ANSWER, path=CREATE_ONLY_FILE, skip=1), clock=clock
        )
    )
    cluster = open_cluster(noting, clock=clock)
    for number in range(10):
        cluster.store.put(f"{number}", b"")
        clock.advance(1_000)
    assert noting.count("create", CREATE_ONLY_FILE) == 3


def test_an_error_names_the_object_and_what_is_lost() -> None:
    with pytest.raises(StoreError, match="memory://unnamed: _create_only was created twice") as caught:
        open_cluster(Stripping(a_bucket())).store.create("a", b"")
    assert not caught.value.retriable


def test_an_object_that_is_overwritten_says_exists_to_others() -> None:
    memory = a_bucket()
    assert memory.create(CREATE_ONLY_FILE, b"") is CreateResult.EXISTS
    assert b"sparklog" in memory.read(CREATE_ONLY_FILE)


@pytest.mark.s3
def test_a_proxy_that_drops_the_header_is_refused(s3_uri: str, s3_options: dict[str, Any]) -> None:
    create_topic(open_cluster(s3_uri, storage_options=s3_options).topic_log("t"), "t")
    with s3_proxy(s3_options["endpoint_url"]) as proxy:
        proxy.drop_headers = frozenset({"if-none-match"})
        options = {**s3_options, "endpoint_url": proxy.url}
        with Producer(s3_uri, storage_options=options, linger_ms=0) as stripped, pytest.raises(UnsafeStoreError):
            stripped.send("t", value=b"stripped").get(30)
    with Producer(s3_uri, storage_options=s3_options, linger_ms=0) as good:
        assert good.send("t", value=b"good").get(30).offset == 0
