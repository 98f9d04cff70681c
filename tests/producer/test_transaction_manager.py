"""Transactions as a producer's user sees them: what becomes visible when, futures, the order of calls, fencing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from sparklog.delta.checkpoint import write_checkpoint
from sparklog.errors import (
    CommitStateUnknownError,
    IllegalStateError,
    InvalidArgumentError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    InvalidTypeError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ObjectNotFoundError,
    ProducerFencedError,
    SparklogError,
    StorePermissionError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionTimedOutError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import Cluster, create_partitions, create_topic, delete_topic
from sparklog.log.data.object_paths import object_path
from sparklog.log.publishing import marker_app_id
from sparklog.log.state import load_state
from sparklog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from sparklog.producer import Producer
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock
from sparklog.txn.deciding import abort_if_open
from sparklog.txn.entries import append_entry, open_transaction_log
from sparklog.txn.forward import finish
from sparklog.txn.states import TransactionState
from tests.producer.support import (
    LONG_S,
    HeldStore,
    a_cluster,
    assert_empty,
    column,
    eventually,
    in_thread,
    rows,
    through,
    values,
)
from tests.support import foreign_vacuum
from tests.txn.support import data_files, states

ID = "tx"
NOBODY = ConsumerGroupMetadata("g", -1, "")
IN = TopicPartition("t", 0)


def topics(cluster: Cluster | None = None, *, partitions: int = 1, **configs: object) -> Cluster:
    """A cluster with the topics ``t`` and ``u``."""
    cluster = cluster or a_cluster()
    for topic in ("t", "u"):
        named = {name.replace("_", "."): value for name, value in configs.items()}
        create_topic(cluster.topic_log(topic), topic, num_partitions=partitions, configs=named)
    return cluster


@contextmanager
def a_producer(
    cluster: Cluster, *, transactional_id: str = ID, init: bool = True, **settings: Any
) -> Iterator[Producer]:
    """A producer that has taken hold of its transactional id."""
    producer = Producer(cluster, transactional_id=transactional_id, **settings)
    try:
        if init:
            producer.init_transactions()
        yield producer
    except BaseException:
        producer.close(timeout=0)
        raise
    producer.close()


def commit_one(producer: Producer, value: bytes, topic: str = "t") -> None:
    producer.begin_transaction()
    producer.send(topic, value)
    producer.commit_transaction()


def force_abort(cluster: Cluster, reason: str) -> None:
    """As a helper would."""
    log = open_transaction_log(cluster, ID)
    newest, _ = log.open_newest()
    assert newest is not None
    aborted = abort_if_open(log, newest, ticks_ms=cluster.clock.ticks_ms(), reason=reason, timeout_ms=60_000)
    assert aborted is not None
    assert aborted.reason == reason


# --- what is visible


def test_what_is_sent_is_visible_once_it_is_committed_and_not_before() -> None:
    cluster = topics(partitions=2)
    with a_producer(cluster) as producer:
        producer.begin_transaction()
        for number in range(10):
            producer.send("t", b"t%d" % number, partition=number % 2)
            producer.send("u", b"u%d" % number, partition=0)
        producer.flush(LONG_S)
        assert values(cluster, "t") == values(cluster, "u") == []
        assert len(data_files(cluster, "t")) == 2
        producer.commit_transaction()
        assert values(cluster, "t", 0) == [b"t%d" % number for number in range(0, 10, 2)]
        assert values(cluster, "t", 1) == [b"t%d" % number for number in range(1, 10, 2)]
        assert values(cluster, "u") == [b"u%d" % number for number in range(10)]
    assert states(cluster) == ["Empty", "PrepareCommit", "CompleteCommit"]


def test_a_transactions_records_follow_one_another_whatever_others_send_meanwhile() -> None:
    cluster = topics()
    with a_producer(cluster) as one, a_producer(cluster, transactional_id="other") as other:
        plain = Producer(cluster, acks=1)
        one.begin_transaction()
        other.begin_transaction()
        for number in range(4):
            one.send("t", b"one %d" % number)
            other.send("t", b"other %d" % number)
            one.flush(LONG_S)
            plain.send("t", b"plain %d" % number).get(LONG_S)
        other.commit_transaction()
        one.commit_transaction()
        plain.close()
    found = [str(value).split()[0] for value in values(cluster)]
    assert found == ["b'plain"] * 4 + ["b'other"] * 4 + ["b'one"] * 4
    assert values(cluster)[8:] == [b"one %d" % number for number in range(4)]


def test_rows_name_the_ids_producer_and_its_epoch() -> None:
    cluster = topics()
    for epoch in range(2):
        with a_producer(cluster) as producer:
            commit_one(producer, b"a")
            commit_one(producer, b"b")
        assert column(cluster, "producer_epoch")[-2:] == [epoch, epoch]
    assert len(set(column(cluster, "producer_id"))) == 1
    assert column(cluster, "sequence") == [0, 1, 0, 1]


def test_send_batch_is_part_of_the_transaction_in_the_order_of_sending() -> None:
    cluster = topics()
    with a_producer(cluster) as producer:
        producer.begin_transaction()
        producer.send("t", b"0")
        told = producer.send_batch("t", pa.table({"value": [b"1", b"2"]}))
        producer.send("t", b"3")
        assert told.get(LONG_S).offsets.to_pylist() == [-1, -1]
        producer.commit_transaction()
        assert told.get(0).offsets.to_pylist() == [1, 2]
    assert values(cluster) == [b"0", b"1", b"2", b"3"]


@pytest.mark.slow
def test_many_small_sends_make_one_file_of_each_partition_per_six_mebibytes() -> None:
    cluster = topics(partitions=2)
    with a_producer(cluster) as producer:
        producer.begin_transaction()
        for number in range(10_000):
            producer.send("t", b"%06d" % number * 100, partition=number % 2)
        producer.commit_transaction()
    assert sum(len(found) for found in rows(cluster).values()) == 10_000
    assert len(data_files(cluster, "t")) == 2 * 2  # 6.7 MiB as they are counted
    assert cluster.store.list_names("topics/t/_delta_log/")[1:] == ["00000000000000000001.json"]


def test_an_empty_transaction_costs_no_entry() -> None:
    cluster = topics()
    store = CountingStore(cluster.store)
    with a_producer(through(store, cluster)) as producer:
        store.reset()
        for _ in range(3):
            producer.begin_transaction()
            producer.commit_transaction()
            producer.begin_transaction()
            producer.abort_transaction()
            producer.begin_transaction()
            producer.send_offsets_to_transaction({}, NOBODY)
            producer.commit_transaction()
        assert store.counts() == {}
        commit_one(producer, b"x")
    assert values(cluster) == [b"x"]
    assert states(cluster) == ["Empty", "PrepareCommit", "CompleteCommit"]


def test_partitions_that_are_added_meanwhile_are_sent_to() -> None:
    cluster = topics()
    with a_producer(cluster) as producer:
        producer.begin_transaction()
        producer.send("t", b"0")
        producer.flush(LONG_S)
        create_partitions(cluster.topic_log("t"), "t", 2)
        producer.send("t", b"1", partition=1)
        producer.commit_transaction()
    assert values(cluster) == [b"0"]
    assert values(cluster, "t", 1) == [b"1"]


def test_whoever_opens_the_topic_sees_the_marker_also_behind_a_checkpoint() -> None:
    cluster = topics()
    with a_producer(cluster) as producer:
        commit_one(producer, b"a")
        plain = Producer(cluster, acks=1)
        for _ in range(3):
            plain.send("t", b"b").get(LONG_S)
        plain.close()
    write_checkpoint(cluster.topic_log("t"))
    assert load_state(cluster.topic_log("t")).transactions[marker_app_id(ID)].version == 2


# --- futures


def test_a_future_tells_all_but_the_offset_until_the_transaction_ends() -> None:
    cluster = topics(partitions=2)
    with a_producer(cluster) as producer:
        commit_one(producer, b"before")
        producer.begin_transaction()
        future = producer.send("t", b"v", key=b"k", partition=0, timestamp_ms=5)
        uploaded = future.get(LONG_S)
        assert (uploaded.topic, uploaded.partition, uploaded.offset, uploaded.timestamp) == ("t", 0, -1, 5)
        assert (uploaded.serialized_key_size, uploaded.serialized_value_size) == (1, 1)
        assert not future.is_done
        producer.commit_transaction()
        assert future.is_done
        assert future.succeeded()
        assert future.get(0).offset == len(rows(cluster)[0]) - 1
        assert future.get(0).timestamp == 5


def test_futures_of_an_aborted_transaction_fail_by_name() -> None:
    cluster = topics()
    with a_producer(cluster) as producer:
        producer.begin_transaction()
        uploaded, waiting = producer.send("t", b"1"), None
        producer.flush(LONG_S)
        waiting = producer.send("t", b"2")
        producer.abort_transaction()
        for future in (uploaded, waiting):
            with pytest.raises(TransactionAbortedError, match="the transaction was aborted"):
                future.get(LONG_S)
            assert future.failed()
        assert_empty(producer)
    assert values(cluster) == []
    assert data_files(cluster, "t") == set()


def test_callbacks_run_in_order_when_the_transaction_ends() -> None:
    cluster = topics()
    told: list[object] = []
    with a_producer(cluster) as producer:
        producer.begin_transaction()
        for number in range(3):
            producer.send("t", b"%d" % number).add_both(lambda result: told.append(getattr(result, "offset", result)))
        producer.flush(LONG_S)
        producer.send("t", b"3").add_callback(lambda result: told.append(result.offset))
        assert told == []
        producer.commit_transaction()
        assert told == [0, 1, 2, 3]
        told.clear()
        producer.begin_transaction()
        producer.send("t", b"4").add_both(told.append)
        producer.abort_transaction()
        assert [type(error) for error in told] == [TransactionAbortedError]


def test_a_callback_that_is_added_after_the_upload_is_called_too() -> None:
    cluster = topics()
    told: list[int] = []
    with a_producer(cluster) as producer:
        producer.begin_transaction()
        future = producer.send("t", b"0")
        future.get(LONG_S)
        future.add_callback(lambda result: told.append(result.offset))
        del future
        producer.commit_transaction()
    assert told == [0]


def test_a_callback_may_not_end_the_transaction_it_is_called_by() -> None:
    cluster = topics()
    raised: list[BaseException] = []
    with a_producer(cluster) as producer:

        def act(result: object) -> None:
            for call in (producer.commit_transaction, producer.abort_transaction, producer.flush):
                try:
                    call()
                except IllegalStateError as error:
                    raised.append(error)

        producer.begin_transaction()
        producer.send("t", b"0").add_callback(act)
        producer.commit_transaction()
    assert len(raised) == 3
    assert values(cluster) == [b"0"]


# --- refusals


@pytest.mark.parametrize(
    ("configs", "record", "error"),
    [
        ({"cleanup_policy": "compact"}, {"value": b"v"}, InvalidRecordError),
        (
            {"message_timestamp_before_max_ms": 1000},
            {"value": b"v", "key": b"k", "timestamp_ms": 5},
            InvalidTimestampError,
        ),
    ],
)
def test_a_record_that_is_refused_makes_the_commit_fail_and_an_abort_mends_it(
    configs: dict[str, Any], record: dict[str, Any], error: type[SparklogError]
) -> None:
    cluster = topics(None, **configs)
    with a_producer(cluster) as producer:
        producer.begin_transaction()
        good = producer.send("t", b"good", key=b"k")
        bad = producer.send("t", **record)
        with pytest.raises(TransactionAbortableError, match="can't be stored") as raised:
            producer.commit_transaction()
        assert isinstance(raised.value.__cause__, error)
        for call in (
            producer.commit_transaction,
            producer.begin_transaction,
            lambda: producer.send("t", b"x"),
            lambda: producer.send_offsets_to_transaction({IN: OffsetAndMetadata(1)}, NOBODY),
        ):
            with pytest.raises(TransactionAbortableError, match="abort"):
                call()
        producer.abort_transaction()
        with pytest.raises(error):
            bad.get(0)
        with pytest.raises(TransactionAbortedError):
            good.get(0)
        commit_one(producer, b"again") if "cleanup_policy" not in configs else None
    assert data_files(cluster, "t") == set() or values(cluster) == [b"again"]


def test_a_record_that_send_itself_refuses_leaves_the_transaction_as_it_is() -> None:
    cluster = topics()
    with a_producer(cluster, max_request_size=100) as producer:
        producer.begin_transaction()
        producer.send("t", b"good")
        with pytest.raises(MessageSizeTooLargeError):
            producer.send("t", b"x" * 101)
        with pytest.raises(InvalidTypeError):
            producer.send("t", "text")
        with pytest.raises(UnknownTopicOrPartitionError):
            producer.send("nowhere", b"x")
        with pytest.raises(UnknownTopicOrPartitionError):
            producer.send("t", b"x", partition=7)
        producer.commit_transaction()
    assert values(cluster) == [b"good"]


@pytest.mark.parametrize(
    ("offsets", "metadata", "error"),
    [
        ([], NOBODY, InvalidTypeError),
        ({"t": 5}, NOBODY, InvalidTypeError),
        ({IN: OffsetAndMetadata(-1)}, NOBODY, InvalidArgumentError),
        ({IN: OffsetAndMetadata(1)}, "g", InvalidTypeError),
        ({IN: OffsetAndMetadata(1)}, ConsumerGroupMetadata("", -1, ""), InvalidArgumentError),
    ],
)
def test_offsets_that_make_no_sense_leave_the_transaction_as_it_is(
    offsets: Any, metadata: Any, error: type[SparklogError]
) -> None:
    cluster = topics()
    with a_producer(cluster) as producer:
        producer.begin_transaction()
        producer.send("t", b"good")
        with pytest.raises(error):
            producer.send_offsets_to_transaction(offsets, metadata)
        producer.commit_transaction()
    assert values(cluster) == [b"good"]


# --- the order of calls


def test_calls_in_a_wrong_order_are_the_callers_mistake_and_change_nothing() -> None:
    cluster = topics()
    with a_producer(cluster, init=False) as producer:
        offsets = {IN: OffsetAndMetadata(1)}
        in_need_of_a_transaction: list[Callable[[], object]] = [
            lambda: producer.send("t", b"x"),
            lambda: producer.send_batch("t", pa.table({"value": [b"x"]})),
            lambda: producer.send_offsets_to_transaction(offsets, NOBODY),
            producer.commit_transaction,
            producer.abort_transaction,
        ]
        for call in (*in_need_of_a_transaction, producer.begin_transaction):
            with pytest.raises(IllegalStateError, match="before init_transactions"):
                call()
        producer.init_transactions()
        for call in (*in_need_of_a_transaction, producer.init_transactions):
            with pytest.raises(IllegalStateError, match="without a transaction"):
                call()
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.send("t", b"x")
            for call in (producer.begin_transaction, producer.init_transactions):
                with pytest.raises(IllegalStateError, match="in a transaction"):
                    call()
            end()
            for call in in_need_of_a_transaction:
                with pytest.raises(IllegalStateError, match="without a transaction"):
                    call()
    assert values(cluster) == [b"x"]
    with pytest.raises(IllegalStateError, match="closed"):
        producer.begin_transaction()


def test_a_producer_without_a_transactional_id_has_no_transactions() -> None:
    cluster = topics()
    producer = Producer(cluster)
    for call in (
        producer.init_transactions,
        producer.begin_transaction,
        producer.commit_transaction,
        producer.abort_transaction,
        lambda: producer.send_offsets_to_transaction({}, NOBODY),
    ):
        with pytest.raises(IllegalStateError, match="has no transactional_id"):
            call()
    producer.close()


def test_a_transaction_that_could_last_too_long_is_refused() -> None:
    with (
        pytest.raises(InvalidTransactionTimeoutError, match="900000 ms at most"),
        a_producer(topics(), transaction_timeout_ms=900_001),
    ):
        pass


def test_a_producer_goes_on_after_an_abort() -> None:
    cluster = topics()
    with a_producer(cluster) as producer:
        for number in range(3):
            producer.begin_transaction()
            producer.send("t", b"aborted")
            producer.abort_transaction()
            commit_one(producer, b"%d" % number)
    assert values(cluster) == [b"0", b"1", b"2"]
    assert states(cluster) == [
        "Empty",
        *["PrepareAbort", "CompleteAbort", "PrepareCommit", "CompleteCommit"] * 3,
    ]


@pytest.mark.slow
def test_a_thousand_aborted_transactions_leave_no_file_behind() -> None:
    cluster = topics()
    with a_producer(cluster) as producer:
        commit_one(producer, b"first")
        for number in range(1_000):
            producer.begin_transaction()
            producer.send("t", b"never")
            if number % 100 == 0:
                producer.flush(LONG_S)
            producer.abort_transaction()
        commit_one(producer, b"last")
    assert values(cluster) == [b"first", b"last"]
    assert len(data_files(cluster, "t")) == 2
    assert cluster.store.list_names("transactions-open/") == []


# --- its end


def test_close_aborts_what_is_open() -> None:
    cluster = topics()
    with a_producer(cluster) as producer:
        assert cluster.store.list_names(f"transactions-open/{ID}/") != []
        producer.begin_transaction()
        future = producer.send("t", b"never")
    with pytest.raises(TransactionAbortedError):
        future.get(0)
    assert values(cluster) == []
    assert data_files(cluster, "t") == set()
    assert states(cluster) == ["Empty", "PrepareAbort", "CompleteAbort"]
    assert cluster.store.list_names("transactions-open/") == []


def test_no_thread_is_left() -> None:
    cluster = topics()
    older = set(threading.enumerate())  # others' tests may have left some

    def ours() -> list[str]:
        return [t.name for t in threading.enumerate() if t.name.startswith("sparklog-") and t not in older]

    with a_producer(cluster) as producer:
        commit_one(producer, b"x")
        assert ours()
    eventually(lambda: not ours())


# --- two holders


def test_a_second_producer_fences_the_first() -> None:
    cluster = topics()
    with a_producer(cluster) as first, a_producer(cluster) as second:
        first.begin_transaction()
        future = first.send("t", b"zombie")
        future.get(LONG_S)
        with pytest.raises(ProducerFencedError, match="another producer with transactional_id 'tx' began epoch 1"):
            first.commit_transaction()
        for call in (
            first.commit_transaction,
            first.abort_transaction,
            first.begin_transaction,
            first.init_transactions,
            lambda: first.send("t", b"x"),
        ):
            with pytest.raises(ProducerFencedError):
                call()
        with pytest.raises(ProducerFencedError):
            future.get(0)
        commit_one(second, b"second")
        assert values(cluster) == [b"second"]
        assert len(data_files(cluster, "t")) == 1


def test_a_fenced_producer_learns_it_when_it_aborts_too() -> None:
    cluster = topics()
    with a_producer(cluster) as first:
        first.begin_transaction()
        first.send("t", b"zombie").get(LONG_S)
        with a_producer(cluster) as second:
            with pytest.raises(ProducerFencedError):
                first.abort_transaction()
            commit_one(second, b"second")
    assert values(cluster) == [b"second"]


def test_what_was_open_when_its_producer_died_is_never_seen() -> None:
    cluster = topics()
    dead = Producer(cluster, transactional_id=ID)
    dead.init_transactions()
    dead.begin_transaction()
    dead.send("t", b"zombie").get(LONG_S)
    with a_producer(cluster) as second:
        commit_one(second, b"second")
    assert values(cluster) == [b"second"]
    with pytest.raises(ProducerFencedError):
        dead.commit_transaction()
    dead.close()
    assert values(cluster) == [b"second"]


def test_epochs_end_with_a_new_producer_id() -> None:
    cluster = topics()
    with a_producer(cluster) as producer:
        commit_one(producer, b"a")
    log = open_transaction_log(cluster, ID)
    newest, position = log.open_newest()
    assert newest is not None
    last = newest.follow(TransactionState.EMPTY, header=replace(newest.header, producer_epoch=32_765), now_ms=0)
    append_entry(log, position, last, tokens=set(), deadline=log.clock.deadline_in(None))
    ids, epochs = [], []
    for value in (b"b", b"c", b"d"):
        with a_producer(cluster) as producer:
            commit_one(producer, value)
        ids.append(column(cluster, "producer_id")[-1])
        epochs.append(column(cluster, "producer_epoch")[-1])
    assert epochs == [32_766, 0, 1]
    assert ids[0] == newest.header.producer_id
    assert ids[1] == ids[2] != ids[0]
    assert values(cluster) == [b"a", b"b", b"c", b"d"]


# --- time


def manual(**settings: Any) -> tuple[Cluster, ManualClock]:
    clock = ManualClock()
    return topics(a_cluster(MemoryStore(clock=clock), clock)), clock


def test_a_transaction_that_was_open_for_too_long_is_not_committed() -> None:
    cluster, clock = manual()
    with a_producer(cluster, transaction_timeout_ms=1_000) as producer:
        producer.begin_transaction()
        producer.send("t", b"late")
        clock.advance(1_001)
        with pytest.raises(TransactionTimedOutError, match="longer than transaction_timeout_ms=1000: abort it"):
            producer.commit_transaction()
        with pytest.raises(TransactionAbortableError, match="transaction_timeout_ms"):
            producer.commit_transaction()
        producer.abort_transaction()
        commit_one(producer, b"in time")
    assert values(cluster) == [b"in time"]


def test_a_forced_abort_is_told_with_its_reason_and_the_producer_goes_on() -> None:
    cluster = topics()
    with a_producer(cluster) as producer:
        producer.begin_transaction()
        future = producer.send("t", b"never")
        producer.flush(LONG_S)
        force_abort(cluster, "an administrator said so")
        with pytest.raises(TransactionAbortableError, match="aborted by another: an administrator said so"):
            producer.commit_transaction()
        producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            future.get(0)
        commit_one(producer, b"again")
    assert values(cluster) == [b"again"]
    assert states(cluster) == ["Empty", "PrepareAbort", "CompleteAbort", "PrepareCommit", "CompleteCommit"]
    assert len(data_files(cluster, "t")) == 1


@pytest.mark.parametrize("is_carried_out", [False, True])
def test_a_timeout_that_befell_the_time_before_a_transaction_doesnt_befall_it(is_carried_out: bool) -> None:
    """An observer measures from the epoch's entry on: nobody writes that a transaction begins."""
    cluster = topics()
    with a_producer(cluster) as producer:
        commit_one(producer, b"0")
        producer.begin_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        eventually(lambda: states(cluster)[-1] == "CompleteCommit")
        force_abort(cluster, "timed out: nothing was heard")
        if is_carried_out:
            log = open_transaction_log(cluster, ID)
            newest, position = log.open_newest()
            assert newest is not None
            finish(cluster, log, newest, position, timeout_ms=1e9)
        producer.send("t", b"young")
        producer.commit_transaction()
        commit_one(producer, b"2")
    assert values(cluster) == [b"0", b"young", b"2"]


# --- topics that go


def test_a_topic_that_is_deleted_meanwhile_takes_its_records_with_it() -> None:
    cluster = topics()
    with a_producer(cluster) as producer:
        producer.begin_transaction()
        lost = producer.send("t", b"lost")
        kept = producer.send("u", b"kept")
        producer.flush(LONG_S)
        delete_topic(cluster.topic_log("t"), "t")
        producer.commit_transaction()
        assert kept.get(0).offset == 0
        assert lost.get(0).offset == -1
    assert values(cluster, "u") == [b"kept"]


@pytest.mark.parametrize("is_known", [False, True])
def test_a_topic_that_is_created_anew_gets_nothing_meant_for_the_old(is_known: bool) -> None:
    cluster = topics()
    with a_producer(cluster) as producer:
        producer.begin_transaction()
        lost = producer.send("t", b"lost")
        producer.send("u", b"kept")
        producer.flush(LONG_S)
        delete_topic(cluster.topic_log("t"), "t")
        create_topic(cluster.topic_log("t"), "t", num_partitions=1)
        if is_known:
            producer.partitions_for("t")
            new = producer.send("t", b"new")
        with in_thread(producer.commit_transaction):
            pass
        assert lost.is_done
        assert values(cluster) == ([b"new"] if is_known else [])
        if is_known:
            assert new.get(0).offset == 0
        commit_one(producer, b"later")
    assert values(cluster)[-1:] == [b"later"]
    assert values(cluster, "u") == [b"kept"]


def test_records_that_couldnt_be_uploaded_because_their_topic_went_arent_forgotten() -> None:
    cluster = topics()
    with a_producer(cluster) as producer:
        producer.begin_transaction()
        producer.send("u", b"other")
        producer.send("t", b"lost")
        delete_topic(cluster.topic_log("t"), "t")
        create_topic(cluster.topic_log("t"), "t", num_partitions=1)
        producer.partitions_for("t")
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        commit_one(producer, b"later")
    assert values(cluster) == [b"later"]
    assert values(cluster, "u") == []


# --- commits whose end isn't known


def a_cluster_with_trouble(*faults: Fault) -> tuple[Cluster, Cluster, ManualClock]:
    """A cluster, and the same as a producer sees it whose calls fail."""
    cluster, clock = manual()
    return cluster, through(FaultyStore(cluster.store, *faults, clock=clock), cluster), clock


DECISION = "transactions/tx/00000000000000000002.json"


def test_a_commit_whose_answer_is_lost_may_only_be_repeated_and_is_a_success_then() -> None:
    fault = Fault(kind=FaultKind.LOST_ANSWER, path=DECISION, ops=["create"], times=1)
    gone = Fault(kind=FaultKind.THROTTLED, path=DECISION, times=30)
    cluster, troubled, _ = a_cluster_with_trouble(fault, gone)
    with a_producer(troubled, max_block_ms=1_000) as producer:
        producer.begin_transaction()
        future = producer.send("t", b"once")
        with pytest.raises(CommitStateUnknownError):
            producer.commit_transaction()
        for _ in range(30):  # the store answers nothing that would settle it
            with pytest.raises(InvalidTxnStateError, match="only the same call may be repeated"):
                producer.abort_transaction()
            try:
                producer.commit_transaction()
                break
            except KafkaTimeoutError:
                continue
        assert future.get(0).offset == 0
        commit_one(producer, b"next")
    assert values(cluster) == [b"once", b"next"]


def test_a_transaction_whose_file_another_engines_vacuum_has_taken_is_not_decided() -> None:
    cluster, clock = manual()
    with a_producer(cluster) as producer:
        producer.begin_transaction()
        producer.send("t", b"gone")
        producer.flush(LONG_S)
        [file] = producer._pipelines.transaction_uploads()[0].files()
        clock.advance(300_001)  # from then on a file is looked for
        foreign_vacuum(cluster.topic_log("t"), gone=[file.path])
        with pytest.raises(TransactionAbortableError, match=f"{file.path} was uploaded 5 minutes ago and is gone"):
            producer.commit_transaction()
        producer.abort_transaction()
        commit_one(producer, b"next")
    assert values(cluster) == [b"next"]


def test_publishing_a_committed_file_that_is_gone_names_the_file() -> None:
    cluster, _ = manual()
    log = cluster.topic_log("t")
    with a_producer(cluster) as producer:
        producer.begin_transaction()
        producer.send("t", b"1")
        producer.flush(LONG_S)
        [file] = producer._pipelines.transaction_uploads()[0].files()
        data = log.store.read(object_path(log.table, file.path))
        foreign_vacuum(log, gone=[file.path])
        with pytest.raises(ObjectNotFoundError, match=f"{file.path} is gone: entry 2 of transactional id 'tx'"):
            producer.commit_transaction()
        assert values(cluster) == []
        log.store.put(object_path(log.table, file.path), data)
        producer.commit_transaction()
    assert values(cluster) == [b"1"]


def test_a_commit_that_is_certainly_not_decided_may_be_aborted() -> None:
    cluster, troubled, _ = a_cluster_with_trouble(Fault(kind=FaultKind.READ_ONLY, path=DECISION, times=1))
    with a_producer(troubled, max_block_ms=1_000) as producer:
        producer.begin_transaction()
        producer.send("t", b"never")
        with pytest.raises(StorePermissionError):
            producer.commit_transaction()
        producer.abort_transaction()
        commit_one(producer, b"next")
    assert values(cluster) == [b"next"]


@pytest.mark.parametrize("kind", [FaultKind.THROTTLED, FaultKind.FALSE_REFUSAL])
def test_a_decision_that_was_refused_for_now_may_be_made_all_the_same(kind: FaultKind) -> None:
    later = Fault(kind=FaultKind.THROTTLED, path=DECISION, ops=["create"], skip=1, times=6)
    cluster, troubled, _ = a_cluster_with_trouble(later, Fault(kind=kind, path=DECISION, ops=["create"], times=1))
    with a_producer(troubled, max_block_ms=200) as producer:
        producer.begin_transaction()
        producer.send("t", b"once")
        with pytest.raises(CommitStateUnknownError):
            producer.commit_transaction()
        with pytest.raises(InvalidTxnStateError):
            producer.abort_transaction()
        while True:
            try:
                producer.commit_transaction()
                break
            except CommitStateUnknownError:
                continue
        commit_one(producer, b"next")
    assert values(cluster) == [b"once", b"next"]


@pytest.mark.parametrize("is_stored", [True, False])
def test_closing_after_a_commit_of_unknown_outcome_removes_no_file_it_may_name(is_stored: bool) -> None:
    kind = FaultKind.LOST_ANSWER if is_stored else FaultKind.LOST_REQUEST
    fault = Fault(kind=kind, path=DECISION, ops=["create"], times=1)
    cluster, troubled, _ = a_cluster_with_trouble(fault, Fault(kind=FaultKind.THROTTLED, path=DECISION, times=None))
    with a_producer(troubled, max_block_ms=1_000) as producer:
        producer.begin_transaction()
        future = producer.send("t", b"once")
        with pytest.raises(CommitStateUnknownError):
            producer.commit_transaction()
    with pytest.raises(CommitStateUnknownError):
        future.get(0)
    with a_producer(cluster) as second:
        commit_one(second, b"next")
    assert values(cluster) == ([b"once", b"next"] if is_stored else [b"next"])


def test_closing_before_a_committed_transaction_is_visible_leaves_it_to_the_next() -> None:
    fault = Fault(kind=FaultKind.THROTTLED, path="topics/u/_delta_log", ops=["create"], times=None)
    cluster, troubled, _ = a_cluster_with_trouble(fault)
    with a_producer(troubled, max_block_ms=1_000) as producer:
        producer.begin_transaction()
        producer.send("t", b"t")
        future = producer.send("u", b"u")
        with pytest.raises(KafkaTimeoutError, match="is committed, but not visible everywhere yet; call it again"):
            producer.commit_transaction()
        with pytest.raises(InvalidTxnStateError):
            producer.abort_transaction()
    assert future.failed()
    assert cluster.store.list_names(f"transactions-open/{ID}/") != []
    assert values(cluster, "t") == [b"t"]
    assert values(cluster, "u") == []
    with a_producer(cluster):
        assert values(cluster, "u") == [b"u"]
    assert values(cluster, "t") == [b"t"]


def test_a_record_sent_by_another_thread_during_the_commit_is_refused_or_committed() -> None:
    """It never slips into the next transaction, nor into the log without being named by the decision."""
    memory = MemoryStore()
    cluster = topics(a_cluster(memory))
    store = HeldStore(memory)
    with a_producer(through(store, cluster)) as producer:
        for _ in range(3):
            producer.begin_transaction()
            producer.send("t", b"first")
            producer.flush(LONG_S)
            producer.send("t", b"second")
            store.hold("put")
            with in_thread(producer.commit_transaction):
                store.wait_until_reached()
                with pytest.raises(IllegalStateError, match="commit"):
                    producer.send("t", b"late")
                with pytest.raises(IllegalStateError, match="commit"):
                    producer.send_batch("t", pa.table({"value": [b"late"]}))
                with pytest.raises(IllegalStateError, match="commit"):
                    producer.send("u", b"late")
                store.let_go()
    assert values(cluster) == [b"first", b"second"] * 3
    assert values(cluster, "u") == []


def test_a_callback_may_not_begin_a_transaction_that_would_wait_for_it() -> None:
    cluster = topics()
    raised: list[BaseException] = []
    with a_producer(cluster) as producer:

        def act(result: object) -> None:
            for call in (
                producer.begin_transaction,
                producer.init_transactions,
                lambda: producer.send_offsets_to_transaction({IN: OffsetAndMetadata(1)}, NOBODY),
            ):
                try:
                    call()
                except IllegalStateError as error:
                    raised.append(error)

        producer.begin_transaction()
        producer.send("t", b"0").add_callback(act)
        with in_thread(producer.commit_transaction):
            pass
    assert [str(error).split()[0] for error in raised] == [
        "begin_transaction",
        "init_transactions",
        "send_offsets_to_transaction",
    ]


def test_a_callback_that_waits_holds_a_commit_up_for_max_block_ms_at_most() -> None:
    cluster = topics()
    go = threading.Event()
    with a_producer(cluster, max_block_ms=2_000) as producer:  # within which a busy machine commits
        producer.begin_transaction()
        future = producer.send("t", b"0").add_callback(lambda _: go.wait(LONG_S))
        with pytest.raises(KafkaTimeoutError, match="is committed, but not visible everywhere yet; call it again"):
            producer.commit_transaction()
        assert values(cluster) == [b"0"]
        go.set()
        producer.commit_transaction()
        assert future.get(0).offset == 0
        commit_one(producer, b"1")
    assert values(cluster) == [b"0", b"1"]
