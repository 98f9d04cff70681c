"""A producer's transaction over two topics, threads and all, and a bad day at each of its store calls."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import pytest

from sparklog.clock import SystemClock
from sparklog.errors import (
    CommitStateUnknownError,
    IllegalStateError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    SparklogError,
    StorePermissionError,
    StoreUnavailableError,
    TransactionTimedOutError,
)
from sparklog.groups.offsets.changes import TakePartitions
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.rows import Stamp
from sparklog.log import Cluster, create_topic
from sparklog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from sparklog.producer import Producer
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, SimulatedCrash, WrappedStore
from sparklog.txn.recovery import recover_transactions
from tests.depth import WALK, by_depth
from tests.producer.support import LONG_S, HeldStore, a_cluster, eventually, through, values

T = TypeVar("T")

IN = TopicPartition("in", 0)
ANN = ConsumerGroupMetadata("g", 1, "ann")


def a_world() -> tuple[MemoryStore, Cluster]:
    clock = ManualClock()
    memory = MemoryStore(clock=clock)
    cluster = a_cluster(memory, clock)
    for topic in ("t", "u"):
        create_topic(cluster.topic_log(topic), topic, num_partitions=1)
    take = TakePartitions(topic_ids={IN: "id"}, stamp=Stamp(1, "ann"))
    OffsetTable(cluster, "g").change([take], deadline=clock.deadline_in(None))
    return memory, cluster


def committed(cluster: Cluster) -> int | None:
    row = OffsetTable(cluster, "g").fetch()[IN]
    return row.committed.offset if row.committed else None


def transaction(producer: Producer, number: int, store: FaultyStore | None = None) -> None:
    """Sent and committed; a commit whose outcome isn't known is repeated, while the process lives."""
    producer.begin_transaction()
    for topic in ("t", "u"):
        producer.send(topic, b"%d" % number)
    producer.send_offsets_to_transaction({IN: OffsetAndMetadata(number)}, ANN)
    producer.send("t", b"%d" % number)
    while True:
        try:
            producer.commit_transaction()
            return
        except KafkaTimeoutError:
            if store is not None and store.crashed:
                raise


def contents(cluster: Cluster) -> tuple[list[bytes | None], list[bytes | None], int | None]:
    return values(cluster, "t"), values(cluster, "u"), committed(cluster)


def expected(*numbers: int) -> tuple[list[bytes], list[bytes], int | None]:
    each = [b"%d" % number for number in numbers]
    return [value for value in each for _ in range(2)], each, numbers[-1] if numbers else None


@contextmanager
def quiet() -> Iterator[None]:
    """A thread of a process that has died says so in the log, at length."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def bury(producer: Producer) -> None:
    """End the threads of a producer whose store answers nothing any more."""
    with suppress(SimulatedCrash):
        producer.close(timeout=0)
    dead = IllegalStateError("the process has died")
    for pipeline in producer._pipelines.all():
        pipeline.end_when_delivered(dead)
        pipeline.abort(dead)
        assert pipeline.join(SystemClock().deadline_in(LONG_S * 1_000))
    assert producer._transactions is not None
    producer._transactions._background.stop()


def dies(fault: Fault) -> bool:
    """One transaction, and another in which the process may die; True if it did."""
    memory, cluster = a_world()
    store = FaultyStore(memory, fault)
    producer = Producer(through(store, cluster), transactional_id="tx", max_block_ms=1_000)
    acknowledged = []
    with quiet():
        try:
            producer.init_transactions()
            for number in (1, 2):
                transaction(producer, number, store)
                acknowledged.append(number)
        except (SimulatedCrash, SparklogError):
            assert store.crashed
        died = store.crashed
        bury(producer)
    if not died:
        assert contents(cluster) == expected(1, 2)
        return False
    second = Producer(cluster, transactional_id="tx")
    second.init_transactions()
    seen = contents(cluster)
    assert seen in [expected(*range(1, last + 1)) for last in range(len(acknowledged), len(acknowledged) + 2)]
    transaction(second, 3)
    second.close()
    assert contents(cluster) == expected(*range(1, (seen[2] or 0) + 1), 3)
    return True


def suffers(fault: Fault) -> bool:
    """Two transactions, one of which may suffer; True if there was a call for the fault."""
    memory, cluster = a_world()
    store = FaultyStore(memory, fault)
    producer = Producer(through(store, cluster), transactional_id="tx")
    producer.init_transactions()
    for number in (1, 2):
        transaction(producer, number)
    producer.close()
    assert contents(cluster) == expected(1, 2)
    assert cluster.store.list_names("transactions-open/") == []
    return len(store.calls) > (fault.at or 0)


DEATHS = (FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER)
TROUBLES = (
    FaultKind.LOST_ANSWER,
    FaultKind.LOST_REQUEST,
    FaultKind.CONFLICT,
    FaultKind.THROTTLED,
    FaultKind.OWN_SUCCESS,
)
UNTROUBLED = ("sync", "sync_all")
"""An fsync that fails is no passing trouble."""


@pytest.mark.parametrize("kind", DEATHS)
def test_a_producer_that_dies_leaves_all_or_nothing_to_the_next(kind: FaultKind) -> None:
    for at in range(24, 48, 6):
        dies(Fault(kind=kind, at=at))


@pytest.mark.slow
@pytest.mark.parametrize("kind", DEATHS)
def test_a_producer_that_dies_at_any_store_call_leaves_all_or_nothing_to_the_next(kind: FaultKind) -> None:
    every = by_depth(gate=6, nightly=1)
    at = WALK % every
    while dies(Fault(kind=kind, at=at)):
        at += every
    assert at > 35


@pytest.mark.parametrize("kind", TROUBLES)
def test_a_passing_trouble_changes_nothing(kind: FaultKind) -> None:
    for at in range(26, 46, 7):
        suffers(Fault(kind=kind, at=at, when=lambda call: call.op not in UNTROUBLED))


@pytest.mark.slow
@pytest.mark.parametrize("kind", TROUBLES)
def test_a_passing_trouble_at_any_store_call_changes_nothing(kind: FaultKind) -> None:
    every = by_depth(gate=6, nightly=1)
    at = WALK % every
    while suffers(Fault(kind=kind, at=at, when=lambda call: call.op not in UNTROUBLED)):
        at += every
    assert at > 35


@pytest.mark.slow
def test_transactions_go_on_beside_random_trouble() -> None:
    """Hundreds of transactions, each tenth call in trouble; every one that was acknowledged is there, once."""
    older = {*threading.enumerate()}  # others' tests may have left some
    for seed in range(6):
        memory, cluster = a_world()
        faults = [
            Fault(kind=kind, chance=0.03, times=None, when=lambda call: call.op not in UNTROUBLED) for kind in TROUBLES
        ]
        store = FaultyStore(memory, *faults, seed=seed)
        producer = Producer(through(store, cluster), transactional_id="tx", max_block_ms=400)
        while True:
            try:
                producer.init_transactions()
                break
            except SparklogError:
                continue
        there: list[int] = []
        for number in range(40):
            try:
                transaction(producer, number)
                there.append(number)
            except (CommitStateUnknownError, InvalidTxnStateError):
                raise
            except SparklogError:
                aborted = False
                while not aborted:
                    try:
                        producer.abort_transaction()
                        aborted = True
                    except KafkaTimeoutError:
                        continue
        producer.close()
        assert contents(cluster) == expected(*there)
    eventually(lambda: not any(t.name.startswith("sparklog-") for t in threading.enumerate() if t not in older))


# --- the order of topics and groups (rule T2)


def a_troubled_producer(cluster: Cluster, *faults: Fault) -> Producer:
    """Within a transaction over both topics and the group, that is to be committed."""
    producer = Producer(
        through(FaultyStore(cluster.store, *faults), cluster), transactional_id="tx", max_block_ms=1_000
    )
    producer.init_transactions()
    producer.begin_transaction()
    for topic in ("t", "u"):
        producer.send(topic, b"1")
    producer.send_offsets_to_transaction({IN: OffsetAndMetadata(1)}, ANN)
    return producer


def test_no_offset_counts_before_the_records_are_in_every_topic() -> None:
    """✗ The partition's next owner sees an offset that counts, goes on behind it, and publishes before the records."""
    _, cluster = a_world()
    is_away = [True]
    fault = Fault(
        kind=FaultKind.THROTTLED, path="topics/u/_delta_log", ops=["create"], when=lambda _: is_away[0], times=None
    )
    producer = a_troubled_producer(cluster, fault)
    found: list[bytes | None] = []
    while found != [b"1"]:  # a busy machine may not come to the other topic in the producer's time
        with pytest.raises(KafkaTimeoutError, match="is committed, but not visible everywhere yet; call it again"):
            producer.commit_transaction()
        row = OffsetTable(cluster, "g").fetch()[IN]
        assert (row.committed, row.pending is not None) == (None, True)
        found = values(cluster, "t")
        assert found in ([], [b"1"])
    is_away[0] = False
    producer.commit_transaction()
    assert contents(cluster) == ([b"1"], [b"1"], 1)
    producer.close()


def test_a_groups_file_is_uploaded_while_topics_are_published() -> None:
    """So that the order costs one round trip, not two: of three writes of topics and group only one waits."""
    _, cluster = a_world()
    held = HeldStore(cluster.store)
    producer = Producer(through(held, cluster), transactional_id="tx")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"1")
    producer.send_offsets_to_transaction({IN: OffsetAndMetadata(1)}, ANN)
    producer.flush()
    files = len(offset_files(cluster))
    held.hold("create", path="topics/")
    thread = threading.Thread(target=producer.commit_transaction)
    thread.start()
    assert held.reached.wait(LONG_S)
    eventually(lambda: len(offset_files(cluster)) > files)
    assert committed(cluster) is None
    held.let_go()
    thread.join(LONG_S)
    producer.close()
    assert (values(cluster, "t"), committed(cluster)) == ([b"1"], 1)


def offset_files(cluster: Cluster) -> list[str]:
    return [name for name in cluster.store.list_names("groups/g/offsets/") if name.endswith(".parquet")]


def test_a_topic_that_refuses_hinders_neither_the_other_topics_nor_the_groups() -> None:
    _, cluster = a_world()
    producer = a_troubled_producer(cluster, Fault(kind=FaultKind.READ_ONLY, path="topics/u/_delta_log", times=None))
    for _ in range(2):
        with pytest.raises(StorePermissionError, match="topics/u"):
            producer.commit_transaction()
        assert contents(cluster) == ([b"1"], [], 1)
    producer.close()
    second = Producer(cluster, transactional_id="tx")
    second.init_transactions()
    second.close()
    assert contents(cluster) == ([b"1"], [b"1"], 1)


# --- idle producers (rule T4)


def test_a_transaction_that_begins_after_a_long_idle_is_not_timed_out() -> None:
    """✗ A second after it began, maintenance takes it for as old as the producer's last one."""
    _, cluster = a_world()
    assert isinstance(cluster.clock, ManualClock)
    producer = Producer(cluster, transactional_id="tx", transaction_timeout_ms=60_000)
    producer.init_transactions()
    cluster.clock.advance(120_000)
    producer.begin_transaction()
    producer.send("t", b"1")
    producer.send("u", b"1")
    producer.send_offsets_to_transaction({IN: OffsetAndMetadata(1)}, ANN)
    cluster.clock.advance(1_000)
    assert [one.action.value for one in recover_transactions(cluster)] == ["nothing"]
    producer.commit_transaction()
    assert contents(cluster) == ([b"1"], [b"1"], 1)
    producer.close()


def test_a_store_that_is_away_as_a_transaction_begins_holds_nothing_up() -> None:
    """The marker is refreshed beside the transaction, once."""
    _, cluster = a_world()
    assert isinstance(cluster.clock, ManualClock)
    fault = Fault(kind=FaultKind.THROTTLED, path="transactions-open/", ops=["put"], skip=1, times=None)
    store = FaultyStore(cluster.store, fault, clock=cluster.clock)
    producer = Producer(through(store, cluster), transactional_id="tx")
    producer.init_transactions()
    assert producer._transactions is not None
    for number in (1, 2):
        eventually(lambda: producer._transactions._background.is_idle)  # type: ignore[union-attr]
        cluster.clock.advance(120_000)
        before = cluster.clock.ticks_ms()
        transaction(producer, number)
        assert cluster.clock.ticks_ms() - before < 1_000
    producer.close()
    assert contents(cluster) == expected(1, 2)
    assert sum(call == ("put", "transactions-open/tx/00000000000000000001") for call in store.calls) == 3


# Between the upload and the decision.


class Away(WrappedStore):
    """Refuses for now to read data files, while it :attr:`is_away`."""

    is_away = False

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        if self.is_away and op == "get" and path.endswith(".parquet"):
            raise StoreUnavailableError(path)
        return call()


def test_a_commit_that_times_out_before_the_decision_may_be_repeated() -> None:
    memory, cluster = a_world()
    store = Away(memory)
    clock = cluster.clock
    assert isinstance(clock, ManualClock)
    with Producer(through(store, cluster), transactional_id="tx", transaction_timeout_ms=900_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"1")
        producer.flush(LONG_S)
        clock.advance(301_000)  # files as old as this are looked for
        store.is_away = True
        with pytest.raises(KafkaTimeoutError, match="call it again, or abort") as caught:
            producer.commit_transaction()
        assert not isinstance(caught.value, CommitStateUnknownError)
        store.is_away = False
        producer.send("t", b"2")
        producer.commit_transaction()
    assert values(cluster, "t") == [b"1", b"2"]


def test_a_transaction_whose_file_was_taken_is_not_decided() -> None:
    memory, cluster = a_world()
    clock = cluster.clock
    assert isinstance(clock, ManualClock)
    with Producer(cluster, transactional_id="tx", transaction_timeout_ms=900_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"1")
        producer.flush(LONG_S)
        clock.advance(301_000)
        memory.delete([one.path for one in memory.list("topics/t/") if one.path.endswith(".parquet")])
        with pytest.raises(TransactionTimedOutError, match="and is gone"):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("t", b"2")
        producer.commit_transaction()
    assert values(cluster, "t") == [b"2"]
