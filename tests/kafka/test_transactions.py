"""Transactional programs as people write them with kafka-python, and its admin client's calls about transactions."""

from __future__ import annotations

import uuid
from itertools import islice
from typing import Any

import pytest

from sparklog.kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from sparklog.kafka.admin import (
    AbortTransactionSpec,
    NewTopic,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from sparklog.kafka.errors import (
    IllegalArgumentError,
    IllegalStateError,
    IncompatibleBrokerVersion,
    InvalidProducerEpochError,
    InvalidTransactionTimeoutError,
    KafkaConfigurationError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionalIdNotFoundError,
)
from sparklog.kafka.structs import ConsumerGroupMetadata

QUICK: dict[str, Any] = {"heartbeat_interval_ms": 50, "session_timeout_ms": 2_000, "auto_offset_reset": "earliest"}
P0 = TopicPartition("in", 0)


@pytest.fixture
def server():
    uri = f"memory://{uuid.uuid4().hex}"
    with KafkaAdminClient(bootstrap_servers=uri) as admin:
        admin.create_topics([NewTopic("in", 1), NewTopic("out", 2)])
    return uri


@pytest.fixture
def admin(server):
    with KafkaAdminClient(bootstrap_servers=server) as client:
        yield client


def values(server, topic):
    with KafkaConsumer(
        topic,
        bootstrap_servers=server,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=30_000,
    ) as consumer:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
        count = sum(consumer.end_offsets(partitions).values())
        return [record.value for record in islice(consumer, count)]


def a_producer(server, **settings):
    producer = KafkaProducer(bootstrap_servers=server, transactional_id="fizzbuzz", linger_ms=0, **settings)
    producer.init_transactions()
    return producer


# Programs


def test_the_example_of_kafka_pythons_readme(server):
    producer = KafkaProducer(transactional_id="fizzbuzz", bootstrap_servers=server)
    producer.init_transactions()
    producer.begin_transaction()
    future = producer.send("out", value=b"yes", partition=0)
    producer.commit_transaction()
    assert future.get(timeout=60).offset == 0
    producer.begin_transaction()
    future = producer.send("out", value=b"no")
    producer.abort_transaction()
    with pytest.raises(TransactionAbortedError):
        future.get(timeout=60)
    producer.close()
    assert values(server, "out") == [b"yes"]


def test_consume_transform_produce(server, admin):
    with KafkaProducer(bootstrap_servers=server) as plain:
        for number in range(6):
            plain.send("in", b"%d" % number)
    producer = a_producer(server)
    consumer = KafkaConsumer(
        "in",
        bootstrap_servers=server,
        group_id="g",
        enable_auto_commit=False,
        isolation_level="read_committed",
        max_poll_records=2,
        **QUICK,
    )
    done = failures = 0
    while done < 6:
        polled = consumer.poll(timeout_ms=200)
        if not polled:
            continue
        try:
            producer.begin_transaction()
            offsets = {}
            for tp, messages in polled.items():
                for message in messages:
                    producer.send("out", b"<%s>" % message.value, partition=0)
                offsets[tp] = OffsetAndMetadata(messages[-1].offset + 1, "", -1)
            if done == 2 and not failures:
                raise KafkaError("an accident")
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            producer.commit_transaction()
            done += sum(len(messages) for messages in polled.values())
        except KafkaError:
            failures += 1
            producer.abort_transaction()
            for tp in consumer.assignment():
                committed = consumer.committed(tp)
                consumer.seek(tp, committed or 0)
    producer.close()
    consumer.close()
    assert failures == 1
    assert values(server, "out") == [b"<%d>" % number for number in range(6)]
    assert admin.list_group_offsets("g") == {"g": {P0: OffsetAndMetadata(6, "", -1)}}


def test_offsets_of_a_group_without_members_are_sent_by_its_name(server, admin):
    producer = a_producer(server)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({P0: OffsetAndMetadata(0, None, None)}, "g")  # type: ignore[arg-type]
    assert admin.list_group_offsets("g") == {"g": {}}
    producer.commit_transaction()
    assert admin.list_group_offsets("g")["g"][P0].offset == 0
    producer.begin_transaction()
    producer.send_offsets_to_transaction({P0: OffsetAndMetadata(0, "again", -1)}, ConsumerGroupMetadata("g"))
    producer.commit_transaction()
    assert admin.list_group_offsets("g")["g"][P0].metadata == "again"
    producer.begin_transaction()
    for wrong, error in ((ConsumerGroupMetadata("g", 3), ValueError), (None, TypeError), (17, TypeError)):
        with pytest.raises(error, match="group_metadata"):
            producer.send_offsets_to_transaction({P0: OffsetAndMetadata(0, "", -1)}, wrong)
    with pytest.raises(TypeError, match="offsets"):
        producer.send_offsets_to_transaction([P0], "g")
    producer.close()


def test_a_second_producer_fences_the_first(server):
    first, second = a_producer(server), a_producer(server)
    first.begin_transaction()
    first.send("out", b"x")
    with pytest.raises(ProducerFencedError):
        first.commit_transaction()
    second.begin_transaction()
    second.send("out", b"y")
    second.commit_transaction()
    first.close()
    second.close()
    assert values(server, "out") == [b"y"]


def test_calls_in_a_wrong_order_and_settings_that_contradict(server):
    with KafkaProducer(bootstrap_servers=server) as plain:
        for call in (
            plain.init_transactions,
            plain.begin_transaction,
            plain.commit_transaction,
            plain.abort_transaction,
        ):
            with pytest.raises(IllegalStateError, match="transactional_id"):
                call()
        with pytest.raises(IllegalStateError, match="transactional_id"):
            plain.send_offsets_to_transaction({}, "g")
    with (
        KafkaProducer(bootstrap_servers=server, transactional_id="x") as producer,
        pytest.raises(IllegalStateError, match="before init_transactions"),
    ):
        producer.begin_transaction()
    for contradiction in ({"acks": 0}, {"enable_idempotence": False}, {"max_in_flight_requests_per_connection": 6}):
        with pytest.raises(KafkaConfigurationError, match="transactional_id"):
            KafkaProducer(bootstrap_servers=server, transactional_id="x", **contradiction)
    with (
        KafkaProducer(bootstrap_servers=server, transactional_id="x", transaction_timeout_ms=900_001) as producer,
        pytest.raises(InvalidTransactionTimeoutError),
    ):
        producer.init_transactions()


# The admin client


def test_transactions_are_listed_described_and_aborted(server, admin):
    assert admin.list_transactions() == {0: []}
    with a_producer(server) as producer:
        producer.begin_transaction()
        producer.send("out", b"x").succeeded()
        listed = admin.list_transactions()[0]
        [(name, producer_id, state)] = listed
        assert listed == [TransactionListing("fizzbuzz", producer_id, TransactionState.ONGOING)]
        assert (name, state) == ("fizzbuzz", "Ongoing")
        described = TransactionDescription(0, TransactionState.ONGOING, producer_id, 0, 60_000, -1, set())
        assert admin.describe_transactions(["fizzbuzz"]) == {"fizzbuzz": described}
        with pytest.raises(InvalidProducerEpochError, match="has epoch 0"):
            admin.abort_transaction(AbortTransactionSpec(TopicPartition("out", 0), producer_id, 7))
        admin.abort_transaction(AbortTransactionSpec(TopicPartition("out", 0), producer_id, 0))
        with pytest.raises(TransactionAbortableError, match="an administrator aborted it"):
            producer.commit_transaction()
        producer.abort_transaction()
    assert admin.describe_transactions(["fizzbuzz"])["fizzbuzz"].state == TransactionState.COMPLETE_ABORT
    assert values(server, "out") == []
    assert admin.find_hanging_transactions() == []


def test_lists_are_filtered(server, admin):
    a_producer(server).close()
    [(_, producer_id, _)] = admin.list_transactions([1, 2])[0]
    for found in (
        admin.list_transactions(producer_id_filters=[producer_id]),
        admin.list_transactions(state_filters=["Empty"]),
        admin.list_transactions(state_filters=[TransactionState.EMPTY, "Ongoing"]),
        admin.list_transactions(transactional_id_pattern="f.*z"),
    ):
        assert len(found[0]) == 1
    for found in (
        admin.list_transactions(producer_id_filters=[producer_id + 1]),
        admin.list_transactions(state_filters=["Ongoing", "Dead"]),
        admin.list_transactions(transactional_id_pattern="fizz"),
    ):
        assert found == {0: []}
    with pytest.raises(IncompatibleBrokerVersion, match="duration_filter_ms"):
        admin.list_transactions(duration_filter_ms=5)
    with pytest.raises(IllegalArgumentError, match="transactional_id_pattern"):
        admin.list_transactions(transactional_id_pattern="(")


def test_transactions_that_are_not_there(admin):
    assert admin.describe_transactions([]) == {}
    with pytest.raises(TransactionalIdNotFoundError, match="'nosuch'"):
        admin.describe_transactions(["nosuch"])
    with pytest.raises(TransactionalIdNotFoundError, match="producer 17"):
        admin.abort_transaction(AbortTransactionSpec(P0, 17, 0))
