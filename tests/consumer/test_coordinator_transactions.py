"""Consume, transform, produce: a group's offsets in transactions, as consumers see them (rules G1, T2)."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from sparklog import OffsetAndMetadata, Producer, TopicPartition
from sparklog.errors import CommitFailedError, TransactionAbortableError, UnstableOffsetCommitError
from sparklog.log import Cluster, create_topic
from sparklog.model import ConsumerGroupMetadata
from sparklog.producer.transaction_manager import TransactionManager
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore
from sparklog.txn.helping import Helper
from tests.consumer.group_support import Member, run
from tests.consumer.support import a_cluster, a_consumer, send, take, text, tp, with_topic
from tests.producer.support import values


def a_topic(partitions: int = 1) -> Cluster:
    cluster = with_topic(a_cluster(retry_ms=1_000), partitions=partitions)
    create_topic(cluster.topic_log("out"), "out", num_partitions=1)
    return cluster


def a_member(cluster: Cluster, **settings: Any) -> Member:
    return Member(cluster, "t", **{"enable_auto_commit": False, "auto_offset_reset": "earliest", **settings})


def a_producer(cluster: Cluster, transactional_id: str = "copy") -> Producer:
    producer = Producer(cluster, transactional_id=transactional_id)
    producer.init_transactions()
    return producer


def pend(producer: Producer, offset: int, metadata: ConsumerGroupMetadata) -> None:
    """Leave an offset of ``t-0`` pending in an open transaction."""
    producer.begin_transaction()
    producer.send("out", b"v")
    producer.send_offsets_to_transaction({tp(): OffsetAndMetadata(offset)}, metadata)


def decide_and_die(producer: Producer) -> None:
    """Commit, but carry nothing out."""
    with (
        mock.patch.object(TransactionManager, "_publish_everywhere", return_value=None),
        mock.patch.object(TransactionManager, "_complete", return_value=None),
    ):
        producer.commit_transaction()


def outputs(cluster: Cluster) -> list[int]:
    with a_consumer(cluster) as consumer:
        return [consumer.end_offsets([TopicPartition("out", 0)])[TopicPartition("out", 0)]]


def test_offsets_are_committed_with_the_transaction_and_not_before():
    cluster = a_topic()
    send(cluster, "abc")
    with a_member(cluster) as member, a_producer(cluster) as producer:
        run(lambda: member.text == "abc", member)
        pend(producer, 3, member.consumer.group_metadata())
        assert member.consumer.committed(tp()) is None
        producer.commit_transaction()
        assert member.consumer.committed(tp()) == 3
    assert outputs(cluster) == [1]


def test_an_abort_leaves_the_offset_where_it_was():
    cluster = a_topic()
    send(cluster, "abc")
    with a_member(cluster) as member, a_producer(cluster) as producer:
        run(lambda: member.text == "abc", member)
        member.consumer.commit({tp(): OffsetAndMetadata(1)})
        pend(producer, 3, member.consumer.group_metadata())
        producer.abort_transaction()
        assert member.consumer.committed(tp()) == 1
    assert outputs(cluster) == [0]


def test_a_partitions_new_owner_aborts_open_transactions_and_begins_at_the_commit():
    """T2. ✗ The owner is paused within its transaction, another takes its partition and begins before the offset that
    the paused one commits when it wakes: records are processed twice."""
    cluster = a_topic()
    send(cluster, "abc")
    producer = a_producer(cluster)
    with a_member(cluster) as old:
        run(lambda: old.text == "abc", old)
        pend(producer, 3, old.consumer.group_metadata())
    with a_member(cluster) as new:
        run(lambda: new.text == "abc", new)
        with pytest.raises(TransactionAbortableError, match="moved to another member of group"):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("out", b"again")
        producer.commit_transaction()
        assert new.consumer.committed(tp()) is None
    producer.close()
    assert outputs(cluster) == [1]


def test_a_partitions_new_owner_goes_on_after_decided_offsets_nobody_carried_out():
    """T2. ✗ The producer dies between the decision and the group's commit; the new owner begins where it did."""
    cluster = a_topic()
    send(cluster, "abc")
    producer = a_producer(cluster)
    with a_member(cluster) as old:
        run(lambda: old.text == "abc", old)
        pend(producer, 2, old.consumer.group_metadata())
        decide_and_die(producer)
    with a_member(cluster) as new, a_producer(cluster, "other") as other:
        run(lambda: new.text == "c", new)
        assert new.consumer.committed(tp()) == 2
        assert values(cluster, "out") == [b"v"]  # before the new owner can go on
        other.begin_transaction()
        other.send("out", b"next")
        other.send_offsets_to_transaction({tp(): OffsetAndMetadata(3)}, new.consumer.group_metadata())
        other.commit_transaction()
    with a_producer(cluster):
        assert values(cluster, "out") == [b"v", b"next"]
    producer.close()


def test_who_lost_the_partition_can_not_make_its_offset_part_of_a_transaction():
    cluster = a_topic()
    send(cluster, "abc")
    with a_producer(cluster) as producer:
        with a_member(cluster) as old:
            run(lambda: old.text == "abc", old)
            stale = old.consumer.group_metadata()
        with a_member(cluster) as new:
            run(lambda: new.text == "abc", new)
            producer.begin_transaction()
            with pytest.raises(CommitFailedError, match="owned by member"):
                producer.send_offsets_to_transaction({tp(): OffsetAndMetadata(3)}, stale)
            with pytest.raises(TransactionAbortableError):
                producer.commit_transaction()
            producer.abort_transaction()


def test_read_committed_waits_for_an_offset_that_may_still_change():
    cluster = a_topic()
    send(cluster, "abc")
    with a_member(cluster, isolation_level="read_committed") as member, a_producer(cluster) as producer:
        run(lambda: member.text == "abc", member)
        pend(producer, 3, member.consumer.group_metadata())
        with pytest.raises(UnstableOffsetCommitError, match="'copy'"):
            member.consumer.committed(tp(), timeout_ms=2_000)  # a busy machine hears within it that it is pending
        producer.commit_transaction()
        assert member.consumer.committed(tp()) == 3


def test_a_consumer_that_assigns_partitions_itself_commits_with_a_transaction_too():
    cluster = a_topic()
    send(cluster, "abc")
    with a_consumer(cluster, group_id="alone") as consumer, a_producer(cluster) as producer:
        consumer.assign([tp()])
        pend(producer, 2, consumer.group_metadata())
        producer.commit_transaction()
        assert consumer.committed(tp()) == 2


def test_a_plain_commit_over_a_pending_offset_counts_for_it_is_later():
    """Source: Kafka, where the later of two commits counts."""
    cluster = a_topic()
    send(cluster, "abc")
    with a_member(cluster) as member, a_producer(cluster) as producer:
        run(lambda: member.text == "abc", member)
        pend(producer, 3, member.consumer.group_metadata())
        member.consumer.commit({tp(): OffsetAndMetadata(1)})
        producer.commit_transaction()
        assert member.consumer.committed(tp()) == 1


@pytest.mark.slow
def test_many_members_and_producers_copy_each_record_once():
    cluster = a_topic(4)
    for number in range(4):
        send(cluster, "abcdefgh", partition=number)
    with a_member(cluster) as a, a_member(cluster) as b:
        producers = {a: a_producer(cluster, "a"), b: a_producer(cluster, "b")}
        done: dict[TopicPartition, int] = {}
        while sum(done.values()) < 32:
            for member, producer in producers.items():
                for partition, records in member.consumer.poll(100, max_records=3).items():
                    producer.begin_transaction()
                    for record in records:
                        producer.send("out", record.value)
                    offsets = {partition: OffsetAndMetadata(records[-1].offset + 1)}
                    producer.send_offsets_to_transaction(offsets, member.consumer.group_metadata())
                    producer.commit_transaction()
                    done[partition] = records[-1].offset + 1
        for producer in producers.values():
            producer.close()
    assert outputs(cluster) == [32]


def test_an_idle_consumer_carries_out_what_a_producer_left():
    cluster = a_topic()
    producer = a_producer(cluster)
    producer.begin_transaction()
    producer.send("out", b"v")
    decide_and_die(producer)
    helper = Helper()
    now = cluster.clock.ticks_ms()
    assert helper.look(cluster, now) == []
    assert helper.look(cluster, now + Helper.UNCHANGED_MS + 1) == ["copy"]
    assert outputs(cluster) == [1]
    producer.close()


def test_who_waits_for_a_transaction_asks_ten_times_a_second_at_most():
    """✗ A partition that was assigned by hand has no position as long as a transaction may move its offset: the offset
    table is read again and again, thousands of times a second."""
    store = CountingStore(MemoryStore())
    cluster = with_topic(a_cluster(store, retry_ms=1_000), "abc")
    create_topic(cluster.topic_log("out"), "out", num_partitions=1)
    by_hand: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
    with a_consumer(cluster, **by_hand) as one, a_producer(cluster) as producer:
        one.assign([tp()])
        pend(producer, 2, one.group_metadata())
        with a_consumer(cluster, isolation_level="read_committed", **by_hand) as other:
            other.assign([tp()])
            store.reset()
            assert other.poll(250) == {}
            assert sum(store.counts().values()) < 100, store.counts()
            producer.commit_transaction()
            assert text(take(other, 1)) == "c"


@pytest.mark.parametrize(
    "settings",
    [{"enable_auto_commit": True, "auto_commit_interval_ms": 10}, {"group_id": None}],
    ids=["auto-commit", "no group"],
)
def test_consumers_with_default_settings_help_transactions_while_they_are_polled(settings, monkeypatch):
    """T4. ✗ Automatic commits end every wait of half a minute; who has no group never waits for one."""
    cluster = replace(a_topic(), cluster_id=f"helped by {settings}")  # consumers of one cluster share a helper
    send(cluster, "abc")
    producer = a_producer(cluster)
    producer.begin_transaction()
    producer.send("out", b"v")
    decide_and_die(producer)
    monkeypatch.setattr(Helper, "LOOK_MS", 40.0)
    monkeypatch.setattr(Helper, "UNCHANGED_MS", 20.0)
    with a_member(cluster, **settings) as member:
        run(lambda: outputs(cluster) == [1] and member.text == "abc", member)
    assert not [thread.name for thread in threading.enumerate() if thread.name == "sparklog-helper"]
    producer.close()
