"""The admin client's calls about transactions, beside producers that are at work."""

from __future__ import annotations

import pytest

from sparklog import Admin, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from sparklog.admin import RecoveryAction, TransactionState
from sparklog.errors import (
    CorruptLogError,
    InvalidArgumentError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
)
from sparklog.log import open_cluster
from sparklog.model import ConsumerGroupMetadata
from sparklog.paths import transaction_entry
from sparklog.producer.transaction_uploads import TransactionUploads
from sparklog.storage import MemoryStore

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def cluster(store):
    opened = open_cluster(store)
    Admin(opened).create_topics([NewTopic("t", num_partitions=2)])
    return opened


@pytest.fixture
def admin(cluster):
    with Admin(cluster) as client:
        yield client


def a_producer(cluster, transactional_id="tx", **settings):
    producer = Producer(cluster, transactional_id=transactional_id, linger_ms=0, **settings)
    producer.init_transactions()
    return producer


def begun(cluster, transactional_id="tx", **settings):
    """With an open transaction of two records and an offset."""
    producer = a_producer(cluster, transactional_id, **settings)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.send("t", b"x", partition=partition)
    producer.send_offsets_to_transaction({P1: OffsetAndMetadata(0)}, ConsumerGroupMetadata("g"))
    return producer


def left_undone(cluster, monkeypatch, transactional_id="tx"):
    """A producer whose transaction is decided, and that can't carry it out; and how it may again."""

    def fails(uploads, transaction):
        transaction.published.set_exception(KafkaTimeoutError("not now"))

    producer = begun(cluster, transactional_id)
    with monkeypatch.context() as patch:
        patch.setattr(TransactionUploads, "_publish_transaction", fails)
        with pytest.raises(KafkaTimeoutError, match="is committed, but not visible everywhere"):
            producer.commit_transaction()
    return producer


def state(admin, transactional_id="tx"):
    [found] = admin.describe_transactions([transactional_id])
    return found.state


def ends(admin):
    return [*admin.end_offsets([P0, P1]).values()]


def test_states_from_the_first_epoch_to_the_end(cluster, admin):
    assert admin.list_transactions() == admin.describe_transactions() == []
    producer = a_producer(cluster)
    assert state(admin) is TransactionState.ONGOING  # it may be
    producer.begin_transaction()
    producer.send("t", b"x")
    producer.commit_transaction()
    producer.close()
    assert state(admin) is TransactionState.COMPLETE_COMMIT
    a_producer(cluster).close()
    assert state(admin) is TransactionState.EMPTY
    with begun(cluster):
        assert state(admin) is TransactionState.ONGOING
    assert state(admin) is TransactionState.COMPLETE_ABORT


def test_a_description_tells_what_an_unfinished_commit_changes(cluster, admin, monkeypatch):
    producer = left_undone(cluster, monkeypatch)
    [found] = admin.describe_transactions(["tx"])
    assert (found.transactional_id, found.state) == ("tx", TransactionState.PREPARE_COMMIT)
    assert (found.producer_epoch, found.transaction_timeout_ms, found.entry_number) == (0, 60_000, 2)
    assert (found.topic_partitions, found.groups) == ({P0, P1}, {"g": {P1}})
    assert (found.abort_reason, found.error) == (None, None)
    assert abs(found.written_ms - cluster.clock.now_ms()) < 600_000
    [listed] = admin.list_transactions()
    assert (listed.transactional_id, listed.producer_id, listed.state) == ("tx", found.producer_id, found.state)
    assert ends(admin) == [0, 0]
    with pytest.raises(InvalidTxnStateError, match="is committed"):
        admin.abort_transaction("tx")
    [recovered] = admin.recover_transactions(timeout_ms=5_000)
    assert (recovered.state, recovered.action) == (TransactionState.PREPARE_COMMIT, RecoveryAction.COMMITTED)
    assert ends(admin) == [1, 1]
    assert admin.list_group_offsets("g") == {P1: OffsetAndMetadata(0)}
    producer.commit_transaction()  # it finds everything done
    producer.close()
    assert ends(admin) == [1, 1]
    assert state(admin) is TransactionState.COMPLETE_COMMIT


def test_an_administrator_aborts_a_transaction_and_its_producer_goes_on(cluster, admin):
    producer = begun(cluster)
    admin.abort_transaction("tx")
    [found] = admin.describe_transactions(["tx"])
    assert (found.state, found.abort_reason) == (TransactionState.COMPLETE_ABORT, "an administrator aborted it")
    with pytest.raises(TransactionAbortableError, match="an administrator aborted it"):
        producer.commit_transaction()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("t", b"y", partition=0)
    producer.commit_transaction()
    producer.close()
    assert ends(admin) == [1, 0]
    assert admin.list_group_offsets("g") == {}
    [found] = admin.describe_transactions()
    assert (found.state, found.abort_reason) == (TransactionState.COMPLETE_COMMIT, None)


def test_one_that_is_past_its_time_out_is_recovered(cluster, admin):
    with begun(cluster, transaction_timeout_ms=1) as producer:
        cluster.clock.sleep_ms(5)
        [recovered] = admin.recover_transactions()
        assert recovered.action is RecoveryAction.TIMED_OUT
        [found] = admin.describe_transactions(["tx"])
        assert found.abort_reason.startswith("timed out after ")
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
    assert ends(admin) == [0, 0]


def test_lists_are_filtered_by_state_and_producer(cluster, admin, monkeypatch):
    a_producer(cluster, "closed").close()
    with a_producer(cluster, "open"):
        left = left_undone(cluster, monkeypatch, "left")
        by_id = {one.transactional_id: one for one in admin.list_transactions()}
        assert {name: one.state.value for name, one in by_id.items()} == {
            "closed": "Empty",
            "left": "PrepareCommit",
            "open": "Ongoing",
        }
        assert admin.list_transactions(["Ongoing", TransactionState.EMPTY]) == [by_id["closed"], by_id["open"]]
        assert admin.list_transactions(producer_id_filter=[by_id["left"].producer_id, 0]) == [by_id["left"]]
        assert admin.list_transactions(["PrepareAbort"]) == []
        with pytest.raises(InvalidArgumentError, match=r"'ongoing'.*expected one of Empty, Ongoing"):
            admin.list_transactions(["ongoing"])
        with pytest.raises(InvalidArgumentError, match="expected a list"):
            admin.list_transactions("Ongoing")
        left.commit_transaction()
        left.close()


def test_an_id_that_can_not_be_understood_hides_no_other(cluster, store, admin):
    a_producer(cluster, "good").close()
    store.put(transaction_entry("bad/ü", 1), b"{")
    bad, good = admin.describe_transactions()
    assert (bad.transactional_id, bad.state, bad.producer_id) == ("bad/ü", None, -1)
    assert isinstance(bad.error, CorruptLogError)
    assert good.state is TransactionState.EMPTY
    assert [one.state for one in admin.list_transactions()] == [None, TransactionState.EMPTY]
    assert [one.action for one in admin.recover_transactions()] == [RecoveryAction.FAILED, RecoveryAction.NOTHING]
    with pytest.raises(CorruptLogError):
        admin.abort_transaction("bad/ü")


def test_names_that_no_producer_has_or_may_have(admin):
    for call in (lambda: admin.describe_transactions(["nosuch"]), lambda: admin.abort_transaction("nosuch")):
        with pytest.raises(TransactionalIdNotFoundError, match="unknown transactional id: 'nosuch'"):
            call()
    for wrong in ("", "x" * 201, 17):
        with pytest.raises(InvalidArgumentError):
            admin.describe_transactions([wrong])
        with pytest.raises(InvalidArgumentError):
            admin.abort_transaction(wrong)
