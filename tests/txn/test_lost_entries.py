"""Entries of a transactional id were deleted by others than sparklog, say by a rule that goes by age."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sparklog import Consumer, Producer
from sparklog.errors import TransactionAbortableError
from sparklog.integrity import check_cluster
from sparklog.log import Cluster, create_topic, open_cluster
from sparklog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from sparklog.paths import transaction_log
from sparklog.storage import MemoryStore
from sparklog.txn.entries import open_transaction_log

AT = TopicPartition("t", 0)


def a_used_id(count: int = 3) -> tuple[MemoryStore, Cluster]:
    memory = MemoryStore()
    cluster = open_cluster(memory)
    create_topic(cluster.topic_log("t"), "t")
    with Producer(cluster, transactional_id="tx") as producer:
        producer.init_transactions()
        for number in range(count):
            commit(producer, f"old {number}")
    return memory, cluster


def commit(producer: Producer, value: str) -> int:
    producer.begin_transaction()
    future = producer.send("t", value=value.encode())
    producer.commit_transaction()
    return future.get(10).offset


def lose(memory: MemoryStore, keep: Sequence[int] = ()) -> None:
    entries = [found.path for found in memory.list(transaction_log("tx"))]
    memory.delete([path for path in entries if int(path[-25:-5]) not in keep])


def values(cluster: Cluster) -> list[str]:
    with Consumer(cluster=cluster, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([AT])
        end = consumer.end_offsets([AT])[AT]
        read: list[str] = []
        while consumer.position(AT) < end:
            read += [record.value.decode() for rows in consumer.poll(timeout_ms=200).values() for record in rows]
        return read


@pytest.mark.parametrize("keep", [(), (1,), (1, 2, 3), (7,)])
def test_what_is_committed_afterwards_is_readable(keep: Sequence[int]) -> None:
    memory, cluster = a_used_id()
    lose(memory, keep)
    for number in range(3):
        with Producer(cluster, transactional_id="tx") as producer:
            producer.init_transactions()
            assert commit(producer, f"new {number}") == 3 + number
    assert values(cluster) == ["old 0", "old 1", "old 2", "new 0", "new 1", "new 2"]
    newest, _ = open_transaction_log(cluster, "tx").open_newest()
    assert newest is not None
    assert newest.version > 7


def test_a_producer_that_lives_through_it_goes_on() -> None:
    memory, cluster = a_used_id()
    with Producer(cluster, transactional_id="tx") as producer:
        producer.init_transactions()
        assert commit(producer, "before") == 3
        lose(memory)
        assert commit(producer, "after") == 4
    with Producer(cluster, transactional_id="tx") as producer:
        producer.init_transactions()
        assert commit(producer, "another") == 5
    assert values(cluster)[3:] == ["before", "after", "another"]


def test_a_transaction_with_offsets_is_aborted_and_the_next_one_passes_the_numbers() -> None:
    memory, cluster = a_used_id()
    lose(memory)
    nobody = ConsumerGroupMetadata("g", -1, "", None)
    with Producer(cluster, transactional_id="tx") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({AT: OffsetAndMetadata(1)}, nobody)
        producer.send("t", value=b"refused")
        with pytest.raises(TransactionAbortableError, match="a topic has transaction 6 of this id"):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({AT: OffsetAndMetadata(2)}, nobody)
        producer.send("t", value=b"stored")
        producer.commit_transaction()
    assert values(cluster)[3:] == ["stored"]


def test_check_names_the_transactions_whose_entries_are_gone() -> None:
    memory, cluster = a_used_id()
    lose(memory)
    found = [finding for finding in check_cluster(cluster).errors if finding.subject.transactional_id == "tx"]
    assert {finding.code.value for finding in found} == {"transaction-not-committed"}


def test_an_id_whose_numbers_are_right_passes_none() -> None:
    memory, cluster = a_used_id()
    with Producer(cluster, transactional_id="tx") as producer:
        producer.init_transactions()
        commit(producer, "next")
    numbers = [int(found.path[-25:-5]) for found in memory.list(transaction_log("tx"))]
    assert max(numbers) == 10
