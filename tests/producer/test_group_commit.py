"""Producers that share a topic: others publish what they announce, and each future tells what became of its record."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from sparklog.delta.actions import SetTransaction
from sparklog.errors import (
    CommitStateUnknownError,
    IllegalStateError,
    KafkaTimeoutError,
    StoreFullError,
    StorePermissionError,
)
from sparklog.log import Cluster, TopicWriter
from sparklog.log.announced import group
from sparklog.log.state import open_state
from sparklog.producer import Producer, topic_committer
from sparklog.producer.metrics import ProducerMetrics
from sparklog.storage import MemoryStore, ObjectStore
from sparklog.testing import Fault, FaultKind, FaultyStore, WrappedStore
from tests.producer.support import (
    IMPATIENT,
    LONG_S,
    HeldStore,
    a_producer,
    a_topic,
    assert_empty,
    error_of,
    eventually,
    through,
    values,
)
from tests.support import records, within

T = TypeVar("T")
TAKES_S = {"put": 0.01, "create": 0.01, "get": 0.004, "list": 0.004}


class SleepingStore(WrappedStore):
    """A store that takes some milliseconds for each call, half of them before it is carried out."""

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        time.sleep(TAKES_S.get(op, 0) / 2)
        answer = call()
        time.sleep(TAKES_S.get(op, 0) / 2)
        return answer


@pytest.fixture
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers announce and include, whether any has lost a race or not."""
    monkeypatch.setattr(group, "is_on", lambda last_seen, now: True)


def a_writer(cluster: Cluster) -> TopicWriter:
    return TopicWriter(cluster.topic_log("t"), "t", group_commit=True)


def publish_something(writer: TopicWriter, value: str) -> None:
    files = writer.upload([(0, records(value))], announce=True)
    writer.append(files, deadline=within(writer, 10_000))


def includers(cluster: Cluster) -> int:
    """How many entries settle numbers of more than one announcer."""
    log = cluster.topic_log("t")
    entries = log.read_entries(0, open_state(log).position.version + 1)
    announced = [
        [a for a in entry.actions if isinstance(a, SetTransaction) and a.app_id.startswith("announced:")]
        for entry in entries
        if entry is not None
    ]
    return sum(len(actions) > 1 for actions in announced)


@pytest.mark.slow
@pytest.mark.usefixtures("switched_on")
def test_two_producers_that_share_a_topic_publish_each_others_records_in_order() -> None:
    share(2)


@pytest.mark.slow
def test_group_commit_switches_itself_on_for_eight_producers() -> None:
    share(8)


def share(count: int) -> None:
    """Let producers send at once: every record is stored once, where its future says, and in the order of sending.

    They go on until one has published another's: a busy machine may let them run one after the other for long.
    """
    memory = MemoryStore()
    cluster = a_topic(memory)
    is_shared = threading.Event()

    def produce(number: int) -> list[int]:
        with a_producer(through(SleepingStore(memory), cluster), group_commit=True) as producer:
            futures: list[Any] = []
            while len(futures) < 60 or not is_shared.is_set():
                futures.append(producer.send("t", b"%d:%d" % (number, len(futures))))
                time.sleep(0.005)
            return [future.get(LONG_S).offset for future in futures]

    with ThreadPoolExecutor(count) as threads:
        producing = [threads.submit(produce, number) for number in range(count)]
        deadline = time.monotonic() + LONG_S
        while not includers(cluster) and time.monotonic() < deadline:
            time.sleep(0.1)
        is_shared.set()
        offsets = [each.result(LONG_S) for each in producing]
    found = values(cluster)
    for number, of_producer in enumerate(offsets):
        sent = [b"%d:%d" % (number, record) for record in range(len(of_producer))]
        assert [found[offset] for offset in of_producer] == sent
        assert of_producer == sorted(of_producer)
    assert len(found) == sum(map(len, offsets))
    assert includers(cluster) > 0


def test_a_lone_producer_announces_nothing() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    with a_producer(cluster, group_commit=True) as producer:
        for _ in range(5):
            producer.send("t", b"x").get(LONG_S)
    assert [*memory.list("topics/t/announced/")] == []
    assert includers(cluster) == 0


def a_faulty_producer(store: ObjectStore, cluster: Cluster, *faults: Fault, **settings: object) -> Producer:
    given: dict[str, Any] = {"acks": 1, "linger_ms": 0, "group_commit": True, **settings}
    return Producer(through(FaultyStore(store, *faults), cluster), **given)


@pytest.mark.usefixtures("switched_on")
def test_a_record_whose_commit_is_refused_is_withdrawn_before_it_fails() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    producer = a_faulty_producer(memory, cluster, Fault(kind=FaultKind.READ_ONLY, ops=["create"]))
    assert isinstance(error_of(producer.send("t", b"refused")), StorePermissionError)
    publish_something(a_writer(cluster), "other")
    assert values(cluster) == [b"other"]
    assert producer.send("t", b"next").get(LONG_S).offset == 1
    assert_empty(producer)
    producer.close()


@pytest.mark.usefixtures("switched_on")
def test_a_record_that_cant_be_withdrawn_is_unknown() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    producer = a_faulty_producer(memory, cluster, Fault(kind=FaultKind.READ_ONLY, ops=["create"], times=None))
    error = error_of(producer.send("t", b"perhaps"))
    assert isinstance(error, CommitStateUnknownError)
    publish_something(a_writer(cluster), "other")
    assert values(cluster) == [b"other", b"perhaps"]
    producer.close()


@pytest.mark.usefixtures("switched_on")
@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST])
def test_an_upload_without_an_answer_is_withdrawn_before_it_fails(kind: FaultKind) -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    fault = Fault(kind=kind, ops=["put"], path="announced/", times=None)
    producer = a_faulty_producer(memory, cluster, fault, **IMPATIENT)
    error = error_of(producer.send("t", b"lost"))
    assert isinstance(error, KafkaTimeoutError)
    assert not isinstance(error, CommitStateUnknownError)
    publish_something(a_writer(cluster), "other")
    assert values(cluster) == [b"other"]
    assert_empty(producer)
    producer.close()


@pytest.mark.slow
@pytest.mark.usefixtures("switched_on")
def test_an_upload_without_an_answer_that_others_published_is_success() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    fault = Fault(kind=FaultKind.LOST_ANSWER, ops=["put"], path="announced/", times=None)
    settings = {**IMPATIENT, "request_timeout_ms": 1_000, "delivery_timeout_ms": 2_000}
    producer = a_faulty_producer(memory, cluster, fault, **settings)
    future = producer.send("t", b"lost")
    eventually(lambda: [*memory.list("topics/t/announced/")] != [])
    publish_something(a_writer(cluster), "other")
    assert future.get(LONG_S).offset == 1
    assert values(cluster) == [b"other", b"lost"]
    producer.close()


@pytest.mark.usefixtures("switched_on")
@pytest.mark.parametrize("op", ["create", "put"])
def test_what_was_announced_and_is_aborted_is_unknown(op: str) -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    held = HeldStore(memory)
    producer = Producer(through(held, cluster), acks=1, linger_ms=0, batch_size=0, group_commit=True)
    producer.send("t", b"0").get(LONG_S)
    held.hold(op)
    first = producer.send("t", b"1")
    held.wait_until_reached()
    second = producer.send("t", b"2")
    if op == "create":
        eventually(lambda: len(producer._pipelines.get("t")._committer._uploaded) == 1)
    producer.close(timeout=0)
    announced = first if op == "put" else second
    assert isinstance(announced.exception, CommitStateUnknownError)
    if op == "put":
        error = second.exception
        assert error is not None
        assert not isinstance(error, CommitStateUnknownError)
    held.let_go()


@pytest.mark.usefixtures("switched_on")
def test_nothing_of_a_transaction_is_announced() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    with a_producer(cluster, transactional_id="x", acks="all", group_commit=True) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"a")
        publish_something(a_writer(cluster), "other")
        producer.commit_transaction()
    assert values(cluster) == [b"other", b"a"]
    listed = [found.path for found in memory.list("topics/t/announced/")]
    assert len(listed) == 1


@pytest.mark.usefixtures("switched_on")
@pytest.mark.parametrize("group_commit", [True, False])
def test_a_failure_behind_an_upload_withdraws_what_was_announced(
    group_commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    producer = Producer(cluster, acks=1, linger_ms=0, group_commit=group_commit)
    producer.send("t", b"first").get(LONG_S)
    with monkeypatch.context() as broken:
        broken.setattr(ProducerMetrics, "encoded", lambda *_, **__: 1 // 0)
        assert isinstance(error_of(producer.send("t", b"failed")), IllegalStateError)
    publish_something(a_writer(cluster), "other")
    producer.send("t", b"next").get(LONG_S)
    assert values(cluster) == [b"first", b"other", b"next"]
    assert producer._pipelines.get("t")._committer._topic._writer._staged == {}
    producer.close()


@pytest.mark.slow
@pytest.mark.usefixtures("switched_on")
def test_withdrawals_of_several_uploads_take_no_longer_than_that_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_committer, "WITHDRAW_MS", 200)
    memory = MemoryStore()
    cluster = a_topic(memory)
    refuses = Fault(kind=FaultKind.LOST_REQUEST, ops=["create"], times=None, skip=1)
    held = HeldStore(FaultyStore(memory, refuses))
    settings = {**IMPATIENT, "batch_size": 0, "request_timeout_ms": 10, "delivery_timeout_ms": 1_000}
    producer = Producer(through(held, cluster), acks=1, group_commit=True, **settings)
    producer.send("t", b"0").get(LONG_S)
    passed: list[bool] = []
    withdraw = TopicWriter.withdraw

    def note(self: TopicWriter, *given: Any, **kwargs: Any) -> Any:
        passed.append(kwargs["deadline"].has_passed)
        return withdraw(self, *given, **kwargs)

    monkeypatch.setattr(TopicWriter, "withdraw", note)
    held.hold("create")
    futures = []
    for number in range(1, 5):
        futures.append(producer.send("t", b"%d" % number))
        eventually(lambda number=number: len([*memory.list("topics/t/announced/")]) == 1 + number)  # type: ignore[misc]
    held.let_go()
    assert all(isinstance(error_of(future), CommitStateUnknownError) for future in futures)
    producer.close()  # records whose time is over are told at once, the withdrawals may go on
    assert 0 < len(passed) <= len(futures)  # on a busy machine each may come to its turn alone
    assert not any(passed)


@pytest.mark.usefixtures("switched_on")
@pytest.mark.parametrize("kind", [FaultKind.DISK_FULL, FaultKind.READ_ONLY])
def test_records_whose_announced_upload_is_refused_for_good_fail_as_that(kind: FaultKind) -> None:
    """Nothing was announced, so nothing is unknown, though no entry can be created that withdraws it."""
    memory = MemoryStore()
    cluster = a_topic(memory)
    is_refused = threading.Event()
    is_refused.set()
    faults = Fault(kind=kind, ops=["put", "create"], times=None, when=lambda call: is_refused.is_set())
    with a_faulty_producer(memory, cluster, faults) as producer:
        for value in (b"a", b"b"):
            error = error_of(producer.send("t", value))
            assert type(error) is (StoreFullError if kind is FaultKind.DISK_FULL else StorePermissionError)
        is_refused.clear()
        assert [producer.send("t", value).get(LONG_S).offset for value in (b"c", b"d")] == [0, 1]
    with a_producer(cluster, group_commit=True) as other:  # publishes what it finds announced
        other.send("t", b"e").get(LONG_S)
    assert values(cluster) == [b"c", b"d", b"e"]


@pytest.mark.usefixtures("switched_on")
def test_records_whose_upload_was_in_doubt_before_it_was_refused_are_unknown() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    lost = Fault(kind=FaultKind.LOST_ANSWER, ops=["put"], path="announced/")
    full = Fault(kind=FaultKind.DISK_FULL, ops=["put", "create"], times=None, skip=0)
    with a_faulty_producer(memory, cluster, lost, full, max_block_ms=2_000) as producer:
        assert isinstance(error_of(producer.send("t", b"a")), CommitStateUnknownError)
