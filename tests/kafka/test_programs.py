"""Programs as people write them with kafka-python; ``sparklog.`` before ``kafka`` is all that was changed."""

import json
import logging
import subprocess
import sys
import textwrap
import uuid
from itertools import islice

import pytest

from sparklog.kafka import (
    ConsumerRebalanceListener,
    DefaultSerializer,
    IsolationLevel,
    JsonSerializer,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    TopicPartition,
)
from sparklog.kafka.admin import NewTopic
from sparklog.kafka.errors import (
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from sparklog.kafka.partitioner import DefaultPartitioner, Partitioner, murmur2

log = logging.getLogger(__name__)


@pytest.fixture
def server():
    uri = f"memory://{uuid.uuid4().hex}"
    admin = KafkaAdminClient(bootstrap_servers=uri)
    admin.create_topics(
        [
            NewTopic("foobar", num_partitions=3, replication_factor=1),
            NewTopic("json-foo", num_partitions=1, replication_factor=1),
        ]
    )
    admin.close()
    return uri


# The examples of kafka-python's README


@pytest.mark.slow
def test_fire_and_forget_then_the_iterator(server):
    producer = KafkaProducer(bootstrap_servers=server)
    for number in range(100):
        producer.send("foobar", b"some_message_bytes %d" % number)
    producer.flush()

    consumer = KafkaConsumer(
        "foobar", bootstrap_servers=[server], auto_offset_reset="earliest", consumer_timeout_ms=60_000
    )
    seen = [(msg.topic, msg.value, msg.key) for msg in islice(consumer, 100)]
    assert sorted(seen) == sorted(("foobar", b"some_message_bytes %d" % number, None) for number in range(100))
    consumer.close()
    producer.close()


def test_the_result_of_a_send(server):
    producer = KafkaProducer(bootstrap_servers=server, acks="all")
    result = producer.send("foobar", b"another_message", partition=2, timestamp_ms=1_700_000_000_000).get(timeout=60)
    assert (result.topic, result.partition, result.offset, result.timestamp) == ("foobar", 2, 0, 1_700_000_000_000)
    assert result.topic_partition == TopicPartition("foobar", 2)
    producer.close(timeout=5)


def test_callbacks(server):
    sent, failed = [], []

    def on_send_success(record_metadata):
        sent.append((record_metadata.topic, record_metadata.partition, record_metadata.offset))

    def on_send_error(excp):
        log.error("I am an errback", exc_info=excp)
        failed.append(excp)

    producer = KafkaProducer(bootstrap_servers=server, key_serializer=str.encode, linger_ms=0)
    for _ in range(3):
        producer.send("foobar", key="a", value=b"raw_bytes").add_callback(on_send_success).add_errback(on_send_error)
    producer.flush()
    partition = (murmur2(b"a") & 0x7FFFFFFF) % 3
    assert (sent, failed) == ([("foobar", partition, offset) for offset in range(3)], [])
    producer.close()


def test_a_failed_send(server):
    producer = KafkaProducer(bootstrap_servers=server, retries=5)
    try:
        producer.send("no-such-topic", b"raw_bytes").get(timeout=60)
    except KafkaError as error:
        log.exception("there is no such topic")
        caught = error
    producer.close()
    assert isinstance(caught, UnknownTopicOrPartitionError)


@pytest.mark.slow
def test_serializers_deserializers_and_headers(server):
    producer = KafkaProducer(
        bootstrap_servers=server, key_serializer=DefaultSerializer(), value_serializer=JsonSerializer()
    )
    producer.send("json-foo", key="ping", value={"foo": "bar"}, headers=[("content-encoding", b"base64")])
    producer.send("json-foo", key="pong", value=None)
    producer.close()

    consumer = KafkaConsumer(
        bootstrap_servers=server,
        auto_offset_reset="earliest",
        isolation_level=IsolationLevel.READ_COMMITTED,
        key_deserializer=DefaultSerializer(),
        value_deserializer=lambda data: json.loads(data),
        consumer_timeout_ms=60_000,
    )
    consumer.subscribe(["json-foo"])
    first, second = islice(consumer, 2)
    assert (first.key, first.value, first.headers) == ("ping", {"foo": "bar"}, [("content-encoding", b"base64")])
    assert (second.key, second.value, second.headers) == ("pong", None, [])
    assert consumer.metrics()["consumer-fetch-manager-metrics"]["records-consumed-total"] == 2
    consumer.close(autocommit=False)


def test_manual_partitions_seek_and_offsets(server):
    at = TopicPartition("foobar", 2)
    with KafkaProducer(bootstrap_servers=server) as producer:
        for number in range(10):
            producer.send("foobar", b"%d" % number, partition=2, timestamp_ms=1_000 + number)
        assert producer.partitions_for("foobar") == {0, 1, 2}

    consumer = KafkaConsumer(bootstrap_servers=server)
    consumer.assign([at])
    assert consumer.assignment() == {at}
    consumer.seek_to_beginning()
    assert next(consumer).value == b"0"
    consumer.seek(at, 7)
    assert [record.offset for record in consumer.poll(timeout_ms=60_000, max_records=2)[at]] == [7, 8]
    assert (consumer.position(at), consumer.highwater(at)) == (9, 10)
    found = consumer.offsets_for_times({at: 1_004})[at]
    assert found is not None
    consumer.seek(at, found.offset)
    assert found[0] == 4  # a tuple, as in kafka-python
    assert next(consumer).timestamp == 1_004
    assert consumer.beginning_offsets([at]) == {at: 0}
    assert consumer.end_offsets([at]) == {at: 10}
    consumer.pause(at)
    assert (consumer.paused(), consumer.poll()) == ({at}, {})
    consumer.resume(at)
    consumer.seek_to_end(at)
    assert consumer.position(at) == 10
    consumer.close()


def test_a_poll_loop_over_a_pattern_with_a_listener(server):
    class Listener(ConsumerRebalanceListener):
        def __init__(self):
            self.assigned = []

        def on_partitions_revoked(self, revoked):
            pass

        def on_partitions_assigned(self, assigned):
            self.assigned.extend(assigned)

    with KafkaProducer(bootstrap_servers=server, value_serializer=lambda v: json.dumps(v).encode("utf-8")) as producer:
        for topic in ("foobar", "json-foo"):
            producer.send(topic, {"topic": topic})

    listener = Listener()
    consumer = KafkaConsumer(
        bootstrap_servers=server, auto_offset_reset="earliest", value_deserializer=lambda m: json.loads(m.decode())
    )
    consumer.subscribe(pattern="^(json|foo).*", listener=listener)
    seen: set[tuple[str, str]] = set()
    while len(seen) < 2:
        for tp, messages in consumer.poll(timeout_ms=1_000).items():
            for message in messages:
                seen.add((tp.topic, message.value["topic"]))
    assert seen == {("foobar", "foobar"), ("json-foo", "json-foo")}
    assert len(listener.assigned) == 4
    assert consumer.subscription() == {"foobar", "json-foo"}
    assert consumer.topics() == {"foobar", "json-foo"}
    assert consumer.partitions_for_topic("foobar") == {0, 1, 2}
    assert consumer.partitions_for_topic("no-such-topic") == set()
    consumer.unsubscribe()
    consumer.close()


def test_partitioners(server):
    class ByLength(Partitioner):
        def partition(self, topic, key, serialized_key, value, serialized_value, cluster):
            return len(serialized_value) % len(cluster.partitions_for_topic(topic))

    class Shifted(DefaultPartitioner):
        def partition(self, topic, key, serialized_key, value, serialized_value, cluster):
            found = super().partition(topic, key, serialized_key, value, serialized_value, cluster)
            return (found + 1) % 3

    hashed = (murmur2(b"a") & 0x7FFFFFFF) % 3
    for partitioner, expected in ((ByLength(), 2), (Shifted(), (hashed + 1) % 3), (DefaultPartitioner(), hashed)):
        with KafkaProducer(bootstrap_servers=server, partitioner=partitioner) as producer:
            assert producer.send("foobar", b"12345", key=b"a").get(60).partition == expected


def test_serializers_are_closed_with_their_client(server):
    class Closing(JsonSerializer):
        closed = 0

        def close(self):
            self.closed += 1

    serializer = Closing()
    with KafkaProducer(bootstrap_servers=server, value_serializer=serializer) as producer:
        pass
    producer.close()
    with KafkaConsumer(bootstrap_servers=server, value_deserializer=serializer) as consumer:
        pass
    consumer.close()
    assert serializer.closed == 2
    with pytest.raises(IllegalStateError):
        producer.send("foobar", b"x")


# Whoever forgets to close


def run(program, *arguments):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_what_was_sent_is_stored_though_nobody_closed_the_producer(tmp_path):
    with KafkaAdminClient(bootstrap_servers=tmp_path) as admin:
        admin.create_topics(["t"])
    run(
        """
        import sys
        from sparklog.kafka import KafkaProducer

        def forget():
            KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=500).send("t", b"collected")

        forget()
        producer = KafkaProducer(bootstrap_servers=sys.argv[1], linger_ms=500)
        producer.send("t", b"at the end")
        """,
        str(tmp_path),
    )
    with KafkaConsumer(
        "t", bootstrap_servers=tmp_path, auto_offset_reset="earliest", consumer_timeout_ms=60_000
    ) as consumer:
        assert {record.value for record in islice(consumer, 2)} == {b"collected", b"at the end"}


def test_a_time_out_of_kafka_python_is_one_here(server):
    with KafkaProducer(bootstrap_servers=server, linger_ms=10_000) as producer:
        future = producer.send("foobar", b"x")
        with pytest.raises(KafkaTimeoutError):
            future.get(timeout=0.01)
