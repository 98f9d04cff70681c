"""sparklog's own clients, recorded: a clean history, on a good store and on a faulty one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sparklog.consumer import Consumer
from sparklog.errors import ProducerFencedError, SparklogError
from sparklog.log import Cluster, create_topic
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.producer import Producer
from sparklog.storage import MemoryStore, ObjectStore
from sparklog.testing import Fault, FaultKind, FaultyStore
from sparklog.testing.history import (
    AnomalyKind,
    FinalRead,
    History,
    Recorder,
    RecordingConsumer,
    RecordingProducer,
    Source,
    TransactionEnded,
    check,
    record_final,
)
from tests.producer.support import a_cluster

LONG_MS = 60_000


def two_topics(store: ObjectStore) -> Cluster:
    cluster = a_cluster(store)
    for topic in ("in", "out"):
        create_topic(cluster.topic_log(topic), topic, num_partitions=2)
    return cluster


def a_producer(
    recorder: Recorder, cluster: Cluster, name: str, transactional_id: str | None = None
) -> RecordingProducer:
    producer = Producer(cluster, linger_ms=0, retry_backoff_ms=1, transactional_id=transactional_id)
    return RecordingProducer(producer, recorder.producer(name, transactional_id=transactional_id))


def a_consumer(recorder: Recorder, cluster: Cluster, name: str, group: str) -> RecordingConsumer:
    consumer = Consumer(
        cluster=cluster,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    return RecordingConsumer(consumer, recorder.consumer(name, group=group, from_start=True))


def copy(consumer: RecordingConsumer, producer: RecordingProducer, *, until: int, outcomes: Sequence[bool]) -> None:
    """Consume, transform, produce: a transaction per poll, of which some are aborted, until so many are copied."""
    producer.init_transactions()
    consumer.subscribe(["in"])
    copied, turn = 0, 0
    for _ in range(500):
        if copied >= until:
            break
        found = consumer.poll(LONG_MS / 100, max_records=4)
        if not found:
            continue
        name = producer.begin_transaction()
        for partition, records in found.items():
            for record in records:
                source = Source("copy", partition, record.offset)
                value = f"{name} of {record.value.decode()}".encode()
                producer.send("out", value, partition=partition.partition, source=source)
        positions = {partition: consumer.positions()[partition] for partition in found}
        producer.send_offsets_to_transaction(positions, consumer.consumer.group_metadata())
        is_kept = outcomes[turn % len(outcomes)]
        turn += 1
        if is_kept:
            producer.commit_transaction()
            copied += sum(map(len, found.values()))
            continue
        producer.abort_transaction()
        for partition, records in found.items():
            consumer.seek(partition, records[0].offset)


def read_all(consumer: RecordingConsumer, topic: str) -> None:
    consumer.subscribe([topic])
    for _ in range(500):
        consumer.poll(LONG_MS / 100)
        if consumer.consumer.assignment() and consumer.note_caught_up():
            break
    consumer.commit()


def played(*faults: Fault) -> History:
    """A producer, a copying group and a reading group; the last, and the final read, meet no fault."""
    memory = MemoryStore()
    cluster = two_topics(memory)
    through = a_cluster(FaultyStore(memory, *faults, seed=1)) if faults else cluster
    recorder = Recorder("p")
    sender = a_producer(recorder, through, "sender")
    for number in range(40):
        sender.send("in", f"v{number}".encode(), key=f"k{number % 5}".encode())
    sender.producer.flush()
    sender.close()
    consumer, copier = a_consumer(recorder, through, "c", "copy"), a_producer(recorder, through, "copier", "copier")
    copy(consumer, copier, until=40, outcomes=[True, False, True])
    consumer.close()
    copier.close()
    reader = a_consumer(recorder, cluster, "reader", "read")
    read_all(reader, "out")
    reader.close()
    record_final(recorder, cluster, topics=["in", "out"], groups=["copy", "read"])
    return recorder.history()


@pytest.mark.parametrize(
    "faults",
    [
        (),
        (
            Fault(kind=FaultKind.LOST_ANSWER, ops=["create"], chance=0.1, times=None),
            Fault(kind=FaultKind.THROTTLED, ops=["get", "put", "create", "list", "delete"], chance=0.05, times=None),
        ),
    ],
    ids=["good store", "faulty store"],
)
def test_the_clients_show_no_anomaly(faults):
    verdict = check(played(*faults), contiguous_transactions=True)
    assert verdict.anomalies == (), str(verdict)
    verdict.raise_if_any()
    verdict.require(acknowledged=80, committed=7, aborted=3, polled=90, final_records=80, required=80, inputs=40)
    verdict.require(seeks=3, offset_commits=11, assignments=4)


def test_a_fault_in_what_the_clients_recorded_is_found():
    """Nothing in the adapters hides it: the last output is not there."""
    events = list(played().events)
    number = max(n for n, event in enumerate(events) if isinstance(event, FinalRead) and event.offsets)
    final = events[number]
    assert isinstance(final, FinalRead)
    events[number] = final._replace(offsets=final.offsets[:-1], values=final.values[:-1])
    found = set(check(History(events)).by_kind())
    assert found & {AnomalyKind.TORN_TRANSACTION, AnomalyKind.LOST_WRITE}


def test_errors_are_outcomes():
    cluster, recorder = two_topics(MemoryStore()), Recorder()
    first, second = (a_producer(recorder, cluster, name, "one") for name in ("first", "second"))
    first.init_transactions()
    first.begin_transaction()
    first.send("in", b"v", partition=0)
    second.init_transactions()
    with pytest.raises(ProducerFencedError):
        first.commit_transaction()
    with pytest.raises(SparklogError):
        second.send("in", b"w", partition=0)  # outside of a transaction
    first.close()
    second.close()
    record_final(recorder, cluster, topics=["in"])
    history = recorder.history()
    assert [event.outcome.value for event in history if isinstance(event, TransactionEnded)] == ["aborted"]
    counts = check(history).counts
    assert (counts.sends, counts.failed, counts.aborted) == (2, 2, 1)


def test_assigned_by_hand():
    cluster, recorder = two_topics(MemoryStore()), Recorder()
    sender = a_producer(recorder, cluster, "sender")
    for number in range(6):
        sender.send("in", f"v{number}".encode(), partition=number % 2)
    sender.close()
    consumer = a_consumer(recorder, cluster, "c", "g")
    one, other = TopicPartition("in", 0), TopicPartition("in", 1)
    consumer.assign([one, other])
    consumer.seek_to_beginning()
    seen = 0
    for _ in range(100):
        seen += sum(map(len, consumer.poll(LONG_MS / 100).values()))
        if seen == 6:
            break
    consumer.commit({one: OffsetAndMetadata(3)})
    consumer.assign([other])
    consumer.seek(other, 1)
    consumer.poll(LONG_MS / 10)
    consumer.seek_to_end(other)
    assert consumer.note_caught_up()
    consumer.commit()
    consumer.close()
    record_final(recorder, cluster, topics=["in"], groups=["g"])
    verdict = check(recorder.history())
    verdict.raise_if_any()
    verdict.require(acknowledged=6, polled=8, seeks=4, assignments=2, offset_commits=1, final_records=6)
