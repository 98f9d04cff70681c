"""Time limits hold on a store whose calls block: what a thread waits for can't be ended, so the wait for it is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sparklog import Admin, Consumer, Producer
from sparklog.errors import (
    CommitStateUnknownError,
    IllegalStateError,
    KafkaTimeoutError,
    SparklogError,
    StoreUnavailableError,
    TransactionAbortableError,
)
from sparklog.log import Cluster, create_topic, open_cluster
from sparklog.producer import overdue, transaction_calls
from sparklog.storage import LocalStore
from sparklog.testing import WrappedStore

T = TypeVar("T")
FAST: dict[str, Any] = {"delivery_timeout_ms": 200, "request_timeout_ms": 100, "linger_ms": 0, "max_block_ms": 5_000}
LARGE = b"x" * (2 * 2**20)


class BlockingStore(WrappedStore):
    """A folder whose calls of some kinds wait, deaf to everything, until the gate opens: as a disk that is gone."""

    def __init__(self, folder: Path) -> None:
        super().__init__(LocalStore(folder))
        self.blocks: Callable[[str, str], bool] = lambda op, path: False
        self.gate = threading.Event()
        self.held = 0

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if self.blocks(op, path):
            self.held += 1
            self.gate.wait()
        return call()


@pytest.fixture(autouse=True)
def little_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (overdue, transaction_calls):
        monkeypatch.setattr(module, "_GRACE_MS", 50.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlockingStore]:
    store = BlockingStore(tmp_path)
    yield store
    store.gate.set()


@pytest.fixture
def cluster(store: BlockingStore) -> Cluster:
    cluster = open_cluster(store)
    create_topic(cluster.topic_log("t"), "t", configs={"max.message.bytes": 2**24})
    return cluster


def error_of(call: Callable[[], object]) -> SparklogError:
    with pytest.raises(SparklogError) as caught:
        call()
    return caught.value


def values(cluster: Cluster) -> list[bytes | None]:
    with Consumer("t", cluster=cluster, auto_offset_reset="earliest", consumer_timeout_ms=300) as consumer:
        return [record.value for record in consumer]


def of(kind: str) -> Callable[[str, str], bool]:
    return lambda op, path: op == kind


def everything(op: str, path: str) -> bool:
    return True


@pytest.mark.parametrize("blocks", [of("create"), of("put"), everything], ids=["create", "put", "all"])
@pytest.mark.parametrize("value", [b"x", LARGE], ids=["1 B", "2 MiB"])
def test_records_are_told_in_time_and_their_buffers_stay_counted(cluster, store, blocks, value):
    with Producer(cluster, **FAST, max_request_size=2**24) as producer:
        producer.send("t", value=b"before").get(20)
        store.blocks = blocks
        future = producer.send("t", value=value)
        assert isinstance(error_of(lambda: future.get(20)), CommitStateUnknownError)
        producer.flush(20)
        assert store.held
        assert producer._buffer.used_bytes > 0
        store.blocks = of("nothing")
        store.gate.set()
    assert producer._buffer.used_bytes == 0


@pytest.mark.parametrize("blocks", [of("create"), of("put")], ids=["create", "put"])
def test_what_is_told_as_failed_is_not_stored_when_the_store_comes_back(cluster, store, blocks):
    with Producer(cluster, **FAST, max_request_size=2**24, group_commit=False) as producer:
        store.blocks = blocks
        futures = [producer.send("t", value=b"%d" % number * (2**20)) for number in range(8)]
        failed = []
        for number, future in enumerate(futures):
            error = error_of(partial(future.get, 20))
            failed += [number] if type(error) is KafkaTimeoutError else []
        assert failed
        store.blocks = of("nothing")
        store.gate.set()
        after = producer.send("t", value=b"after")
        try:
            after.get(20)
        except SparklogError:  # a thread may still be at work for those before
            producer.send("t", value=b"after").get(20)
    stored = values(cluster)
    assert stored[-1] == b"after"
    assert not {b"%d" % number for number in failed} & {(value or b"")[:1] for value in stored[:-1]}


def test_callbacks_run_once_and_tell_the_first_verdict(cluster, store):
    told: list[object] = []
    with Producer(cluster, **FAST) as producer:
        store.blocks = of("create")
        producer.send("t", value=b"x").add_both(told.append)
        producer.flush(20)
        store.blocks = of("nothing")
        store.gate.set()
    assert [type(one) for one in told] == [CommitStateUnknownError]
    assert values(cluster) == [b"x"]


def test_a_callback_of_what_was_given_up_cannot_wait_for_itself(cluster, store):
    refused: list[BaseException] = []
    producer = Producer(cluster, **FAST)

    def flush(_: object) -> None:
        try:
            producer.flush()
        except SparklogError as error:
            refused.append(error)

    producer.send("t", value=b"before").get(20)
    store.blocks = of("create")
    producer.send("t", value=b"x").add_both(flush)
    producer.flush(20)
    producer.close(timeout=0)
    assert [type(error) for error in refused] == [IllegalStateError]


@pytest.mark.slow
def test_close_without_a_bound_waits_for_no_store_that_never_answers(cluster, store):
    producer = Producer(cluster, **FAST)
    producer.send("t", value=b"x").get(20)
    store.blocks = everything
    future = producer.send("t", value=b"y")
    producer.close()
    assert isinstance(error_of(lambda: future.get(0)), CommitStateUnknownError)


def test_a_producer_opens_a_topic_in_max_block_ms(cluster, store):
    producer = Producer(cluster, **{**FAST, "max_block_ms": 100})
    store.blocks = everything
    assert isinstance(error_of(lambda: producer.send("t", value=b"x")), StoreUnavailableError)
    assert isinstance(error_of(lambda: producer.partitions_for("t")), StoreUnavailableError)
    producer.close(timeout=1)


@pytest.mark.slow
def test_a_transaction_is_over_in_max_block_ms_and_may_be_asked_again(cluster, store):
    producer = Producer(cluster, **{**FAST, "max_block_ms": 300}, transactional_id="x")
    store.blocks = everything
    assert isinstance(error_of(producer.init_transactions), KafkaTimeoutError)
    store.blocks = of("nothing")
    store.gate.set()
    producer.init_transactions()
    store.gate.clear()
    producer.begin_transaction()
    producer.send("t", value=b"x")
    store.blocks = of("create")
    assert isinstance(error_of(producer.commit_transaction), KafkaTimeoutError)
    assert isinstance(error_of(producer.begin_transaction), KafkaTimeoutError)
    store.blocks = of("nothing")
    store.gate.set()
    for _ in range(3):
        try:
            producer.commit_transaction()
            break
        except KafkaTimeoutError:
            continue
    producer.close()
    assert values(cluster) == [b"x"]


@pytest.mark.parametrize(("timeout_s", "level"), [(0, "INFO"), (0.2, "WARNING")])
def test_close_tells_of_a_transaction_that_it_leaves(cluster, store, caplog, timeout_s, level):
    """✗ A warning with ``max_block_ms=60000``, for which nobody has waited: "call it again"."""
    caplog.set_level("INFO", "sparklog.producer")
    producer = Producer(cluster, **FAST, transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"x")
    producer.flush(20)
    store.blocks = everything
    producer.close(timeout_s)
    [told] = [record for record in caplog.records if "'x'" in record.getMessage()]
    assert told.levelname == level
    expected = (
        "a transaction of 'x' is still being ended as close returns; if that fails, the id's next producer ends it"
    )
    assert told.getMessage() == expected


def test_a_transaction_whose_upload_is_overdue_cannot_be_committed(cluster, store):
    producer = Producer(cluster, **{**FAST, "max_block_ms": 5_000}, transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    store.blocks = of("put")
    future = producer.send("t", value=b"x")
    assert isinstance(error_of(producer.commit_transaction), TransactionAbortableError)
    assert isinstance(error_of(lambda: future.get(0)), KafkaTimeoutError)
    store.blocks = of("nothing")
    store.gate.set()
    producer.abort_transaction()
    producer.close()
    assert values(cluster) == []


@pytest.mark.slow
def test_an_admin_and_topics_give_up_in_their_time(cluster, store):
    admin = Admin(cluster, request_timeout_ms=100)
    consumer = Consumer(cluster=cluster, default_api_timeout_ms=100)
    store.blocks = everything
    assert isinstance(error_of(admin.list_topics), StoreUnavailableError)
    assert isinstance(error_of(lambda: admin.create_topics(["u"], timeout_ms=10)), SparklogError)
    assert isinstance(error_of(consumer.topics), StoreUnavailableError)
    store.gate.set()
    consumer.close()


@pytest.mark.slow
def test_opening_a_cluster_ends_in_request_timeout_ms(store):
    open_cluster(store)
    store.blocks = everything
    assert isinstance(error_of(lambda: open_cluster(store, create=False, timeout_ms=10)), StoreUnavailableError)
