"""``send``: what a record may be, where it goes, and what its future tells."""

from __future__ import annotations

import itertools
import random
import threading
import time
from typing import Any

import pytest

from sparklog.errors import (
    InvalidArgumentError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    InvalidTypeError,
    MessageSizeTooLargeError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import alter_topic, create_partitions, create_topic, delete_topic
from sparklog.log.data.encode import MAX_TIMESTAMP_MS
from sparklog.model import TopicPartition
from sparklog.producer.partitioner import murmur2
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.producer.support import (
    LONG_S,
    HeldStore,
    a_cluster,
    a_producer,
    a_topic,
    assert_empty,
    column,
    eventually,
    rows,
    through,
    values,
)

HOUR_MS = 3_600_000


def test_the_future_tells_where_the_record_is() -> None:
    cluster = a_topic(partitions=6)
    with a_producer(cluster) as producer:
        future = producer.send("t", b"value", b"key", headers=[("a", b"12"), ("b", None)], timestamp_ms=5)
        told = future.get(LONG_S)
    assert told.topic_partition == TopicPartition("t", (murmur2(b"key") & 0x7FFFFFFF) % 6) == (told.topic, told[1])
    assert (told.offset, told.timestamp, told.checksum) == (0, 5, None)
    assert (told.serialized_key_size, told.serialized_value_size, told.serialized_header_size) == (3, 5, 4)
    assert rows(cluster)[told.partition] == [(0, b"key", b"value")]
    assert future.is_done
    assert future.succeeded()
    assert not future.failed()
    assert future.value == told
    assert future.exception is None


def test_without_a_timestamp_a_record_has_the_time_of_sending() -> None:
    clock = ManualClock()
    cluster = a_topic(clock=clock)
    with a_producer(cluster) as producer:
        told = [producer.send("t", b"v").get(LONG_S).timestamp, producer.send("t", b"v", headers=[]).get().timestamp]
    assert told == [clock.now_ms()] * 2


def test_null_and_empty_are_told_apart() -> None:
    cluster = a_topic()
    with a_producer(cluster) as producer:
        sent = [producer.send("t", value, key) for value in (None, b"") for key in (None, b"")]
        told = [future.get(LONG_S) for future in sent]
    sizes = [(one.serialized_value_size, one.serialized_key_size, one.serialized_header_size) for one in told]
    assert sizes == [(-1, -1, -1), (-1, 0, -1), (0, -1, -1), (0, 0, -1)]
    assert rows(cluster)[0] == [(0, None, None), (1, b"", None), (2, None, b""), (3, b"", b"")]


def test_headers_keep_their_order_repeated_names_and_nulls() -> None:
    cluster = a_topic()
    with a_producer(cluster, linger_ms=50) as producer:
        producer.send("t", b"none")
        producer.send("t", b"some", headers=[("x", b"1"), ("a", None), ("x", b""), ("", b"no name")])
        producer.send("t", b"empty", headers=[])
        producer.flush(LONG_S)
    without, some, empty = column(cluster, "headers")
    assert [(one["key"], one["value"]) for one in some] == [("x", b"1"), ("a", None), ("x", b""), ("", b"no name")]
    assert not without
    assert not empty


def test_what_the_caller_changes_after_sending_is_not_sent() -> None:
    cluster = a_topic()
    value, headers = bytearray(b"sent"), [("a", b"sent")]
    with a_producer(cluster, linger_ms=50) as producer:
        producer.send("t", value, headers=headers)
        value[:] = b"late"
        headers.append(("b", b"late"))
        producer.flush(LONG_S)
    assert values(cluster) == [b"sent"]
    assert len(column(cluster, "headers")[0]) == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"a": b"1"},
        "ab",
        [("a", "text")],
        [("a",)],
        [("a", b"1", b"2")],
        [(b"a", b"1")],
        [(None, b"1")],
        ["ab"],
        [None],
        [("\ud800", b"half a surrogate pair")],
    ],
)
def test_headers_of_another_shape_are_refused(headers: Any) -> None:
    cluster = a_topic()
    with a_producer(cluster) as producer:
        with pytest.raises(InvalidTypeError, match=r"headers: got .*expected"):
            producer.send("t", b"v", headers=headers)
        assert_empty(producer)


@pytest.mark.parametrize("field", ["key", "value"])
@pytest.mark.parametrize("data", ["text", 5, 1.5, [b"x"], {"a": 1}, object()], ids=lambda data: type(data).__name__)
def test_other_types_than_bytes_need_a_serializer(field: str, data: object) -> None:
    arguments: dict[str, Any] = {field: data}
    with (
        a_producer(a_topic()) as producer,
        pytest.raises(InvalidTypeError, match=f"{field}: got .* {field}_serializer"),
    ):
        producer.send("t", **arguments)


def test_bytes_by_other_names_are_bytes() -> None:
    class MyBytes(bytes):
        pass

    cluster = a_topic()
    with a_producer(cluster) as producer:
        for value in (bytearray(b"1"), memoryview(b"2"), MyBytes(b"3")):
            producer.send("t", value, value)
        producer.flush(LONG_S)
    assert rows(cluster)[0] == [(0, b"1", b"1"), (1, b"2", b"2"), (2, b"3", b"3")]


class Prefix:
    """A serializer as kafka-python 3 has them."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: object) -> bytes:
        return f"{self.prefix}:{topic}:{len(headers)}:{data}".encode()


def test_serializers_are_functions_or_objects() -> None:
    cluster = a_topic()
    with a_producer(cluster, key_serializer=str.encode, value_serializer=Prefix("v")) as producer:
        told = producer.send("t", 7, "k", headers=[("h", b"1")]).get(LONG_S)
    assert rows(cluster)[0] == [(0, b"k", b"v:t:1:7")]
    assert (told.serialized_key_size, told.serialized_value_size) == (1, 7)


def test_a_serializer_that_returns_no_bytes_is_told_so() -> None:
    with (
        a_producer(a_topic(), value_serializer=str) as producer,
        pytest.raises(InvalidTypeError, match="value: got str"),
    ):
        producer.send("t", 5)


def test_what_a_serializer_raises_reaches_the_caller_and_nothing_is_sent() -> None:
    cluster = a_topic()
    with a_producer(cluster, value_serializer=lambda data: 1 / data) as producer:
        with pytest.raises(ZeroDivisionError):
            producer.send("t", 0)
        assert_empty(producer)
    assert values(cluster) == []


@pytest.mark.parametrize("timestamp", [-1, -(2**63), 2**63])
def test_a_timestamp_that_no_int64_of_milliseconds_is_refused(timestamp: int) -> None:
    with a_producer(a_topic()) as producer, pytest.raises(InvalidArgumentError, match=f"timestamp_ms={timestamp}"):
        producer.send("t", b"v", timestamp_ms=timestamp)


@pytest.mark.parametrize("timestamp", [1.5, "1", True])
def test_a_timestamp_of_another_type_is_refused(timestamp: Any) -> None:
    with a_producer(a_topic()) as producer, pytest.raises(InvalidTypeError, match="timestamp_ms: got"):
        producer.send("t", b"v", timestamp_ms=timestamp)


def test_a_timestamp_outside_of_the_topics_window_fails_its_record_alone() -> None:
    clock = ManualClock()
    now = clock.now_ms()
    configs = {"message.timestamp.before.max.ms": 1_000, "message.timestamp.after.max.ms": 500}
    cluster = a_topic(clock=clock, configs=configs)
    times = [now, now - 1_001, now - 1_000, now + 500, now + 501, 0, MAX_TIMESTAMP_MS + 1, 2**63 - 1]
    with a_producer(cluster, batch_size=1_000_000, linger_ms=10) as producer:
        sent = [producer.send("t", str(time).encode(), timestamp_ms=time) for time in times]
        producer.flush(LONG_S)
        allowed = [now - 1_000 <= time <= now + 500 for time in times]
        assert [future.succeeded() for future in sent] == allowed
        for future, ok in zip(sent, allowed, strict=True):
            assert isinstance(future.exception, InvalidTimestampError) is not ok
        assert "message.timestamp" in str(sent[1].exception)
        assert_empty(producer)
    assert values(cluster) == [str(now).encode(), str(now - 1_000).encode(), str(now + 500).encode()]
    assert [future.get().offset for future in sent if future.succeeded()] == [0, 1, 2]


def test_an_hour_ahead_is_the_most_by_default() -> None:
    """Source: Kafka 4.0, ``message.timestamp.after.max.ms``."""
    clock = ManualClock()
    with a_producer(a_topic(clock=clock)) as producer:
        producer.send("t", b"v", timestamp_ms=clock.now_ms() + HOUR_MS).get(LONG_S)
        with pytest.raises(InvalidTimestampError):
            producer.send("t", b"v", timestamp_ms=clock.now_ms() + HOUR_MS + 1).get(LONG_S)


def test_with_log_append_time_the_given_time_counts_for_nothing() -> None:
    clock = ManualClock()
    cluster = a_topic(clock=clock, configs={"message.timestamp.type": "LogAppendTime"})
    with a_producer(cluster) as producer:
        told = [producer.send("t", b"v", timestamp_ms=time).get(LONG_S).timestamp for time in (0, 2**63 - 1)]
    assert told == [clock.now_ms()] * 2
    assert [int(time.timestamp() * 1000) for time in column(cluster, "timestamp")] == told


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_refuses_records_without_a_key_alone(policy: str) -> None:
    cluster = a_topic(configs={"cleanup.policy": policy})
    with a_producer(cluster, linger_ms=20) as producer:
        sent = [producer.send("t", b"v", key) for key in (None, b"k", None, b"")]
        producer.flush(LONG_S)
        assert [type(future.exception) for future in sent] == [
            InvalidRecordError,
            type(None),
            InvalidRecordError,
            type(None),
        ]
    assert rows(cluster)[0] == [(0, b"k", b"v"), (1, b"", b"v")]


@pytest.mark.parametrize(
    ("topics", "producers", "stored"),
    [("producer", "zstd", "ZSTD"), ("gzip", "zstd", "GZIP"), ("uncompressed", "zstd", "UNCOMPRESSED")],
)
def test_the_topics_own_compression_wins(topics: str, producers: str, stored: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    store = MemoryStore()
    cluster = a_topic(store, configs={"compression.type": topics})
    with a_producer(cluster, compression_type=producers) as producer:
        producer.send("t", b"v" * 100).get(LONG_S)
    (file,) = (found.path for found in store.list("") if found.path.endswith(".parquet"))
    metadata = pq.ParquetFile(pa.BufferReader(store.read(file))).metadata
    assert {metadata.row_group(0).column(n).compression for n in range(metadata.num_columns)} == {stored}
    assert values(cluster) == [b"v" * 100]


def test_a_record_beyond_max_request_size_is_refused_and_one_of_it_is_sent() -> None:
    cluster = a_topic()
    with a_producer(cluster, max_request_size=10) as producer:
        producer.send("t", b"1234567", b"890").get(LONG_S)
        producer.send("t", b"12345", b"67", headers=[("8", b"90")]).get(LONG_S)
        for headers in (None, [("8", b"90+")]):
            with pytest.raises(MessageSizeTooLargeError, match=r"11 bytes .*at most 10 .*max_request_size=10"):
                producer.send("t", b"12345" if headers else b"12345678", b"67" if headers else b"90+", headers)
        assert_empty(producer)


def test_a_record_beyond_the_topics_max_message_bytes_is_refused_also_once_that_was_changed() -> None:
    cluster = a_topic(configs={"max.message.bytes": 20})
    with a_producer(cluster) as producer:
        with pytest.raises(MessageSizeTooLargeError, match=r"max\.message\.bytes=20"):
            producer.send("t", b"v" * 21)
        alter_topic(cluster.topic_log("t"), "t", {"max.message.bytes": 30})
        producer.send("t", b"v" * 20).get(LONG_S)  # this commit learns of it
        producer.send("t", b"v" * 30).get(LONG_S)
        with pytest.raises(MessageSizeTooLargeError):
            producer.send("t", b"v" * 31)
        alter_topic(cluster.topic_log("t"), "t", {"max.message.bytes": 40})
        producer.partitions_for("t")  # and so does this
        producer.send("t", b"v" * 40).get(LONG_S)


def test_a_chosen_partition_is_used() -> None:
    cluster = a_topic(partitions=3)
    with a_producer(cluster, linger_ms=20) as producer:
        for number in range(9):
            producer.send("t", str(number).encode(), b"key" if number % 2 else None, partition=number % 3)
        producer.send("t", b"by key", b"key")
        producer.flush(LONG_S)
    by_key = (murmur2(b"key") & 0x7FFFFFFF) % 3
    for partition in range(3):
        expected = [str(number).encode() for number in range(partition, 9, 3)] + [b"by key"] * (partition == by_key)
        assert values(cluster, partition=partition) == expected


@pytest.mark.parametrize("partition", [3, -1, 10_000_000_000])
def test_a_partition_that_isnt_there_is_refused(partition: int) -> None:
    with a_producer(a_topic(partitions=3)) as producer:
        with pytest.raises(UnknownTopicOrPartitionError, match=f"no partition {partition}; it has 0 to 2"):
            producer.send("t", b"v", partition=partition)
        assert_empty(producer)


@pytest.mark.parametrize("partition", ["0", 0.0, True, b"0"])
def test_a_partition_of_another_type_is_refused(partition: Any) -> None:
    with a_producer(a_topic()) as producer, pytest.raises(InvalidTypeError, match="partition: got"):
        producer.send("t", b"v", partition=partition)


def test_a_partitioner_is_a_function_of_the_serialized_key_and_the_partitions() -> None:
    seen = []

    def last(key: bytes | None, partitions: list[int], available: list[int]) -> int:
        seen.append((key, partitions, available))
        return partitions[-1]

    cluster = a_topic(partitions=3)
    with a_producer(cluster, partitioner=last, key_serializer=lambda key: key and key.encode()) as producer:
        assert producer.send("t", b"v", "k").get(LONG_S).partition == 2
        assert producer.send("t", b"v").get(LONG_S).partition == 2
        assert producer.send("t", b"v", "k", partition=1).get(LONG_S).partition == 1
    assert seen == [(b"k", [0, 1, 2], [0, 1, 2]), (None, [0, 1, 2], [0, 1, 2])]


def test_a_partitioner_may_be_an_object_as_kafka_pythons() -> None:
    class ByValue:
        def partition(
            self, topic: str, key: Any, key_bytes: bytes | None, value: Any, value_bytes: bytes | None, cluster: Any
        ) -> int:
            assert (topic, key, key_bytes, value_bytes) == ("t", "k", b"k", str(value).encode())
            assert cluster.topics() == {"t"}
            assert cluster.partitions_for_topic("t") == cluster.available_partitions_for_topic("t") == {0, 1, 2}
            assert cluster.partitions_for_topic("u") is None
            return int(value)

    settings: dict[str, Any] = {"key_serializer": str.encode, "value_serializer": lambda data: str(data).encode()}
    with a_producer(a_topic(partitions=3), partitioner=ByValue(), **settings) as producer:
        assert [producer.send("t", number, "k").get(LONG_S).partition for number in (2, 0, 1)] == [2, 0, 1]


@pytest.mark.parametrize(
    ("answer", "error"),
    [(3, UnknownTopicOrPartitionError), (-1, UnknownTopicOrPartitionError), ("0", InvalidTypeError)],
)
def test_what_a_partitioner_may_not_answer_is_refused(answer: Any, error: type[SparklogError]) -> None:
    with a_producer(a_topic(partitions=3), partitioner=lambda *_: answer) as producer:
        with pytest.raises(error, match="partition"):
            producer.send("t", b"v", b"k")
        assert_empty(producer)


def test_a_partitioner_may_answer_with_numpys_integers() -> None:
    import numpy as np

    with a_producer(a_topic(partitions=3), partitioner=lambda *_: np.int64(2)) as producer:
        assert producer.send("t", b"v").get(LONG_S).partition == 2


def test_records_without_a_key_stick_to_a_partition_until_a_batch_of_bytes_went_there() -> None:
    cluster = a_topic(partitions=4)
    with a_producer(cluster, batch_size=100) as producer:
        found = [producer.send("t", b"v" * 50).get(LONG_S).partition for _ in range(40)]
    pairs = [tuple(found[at : at + 2]) for at in range(0, 40, 2)]
    assert all(one == other for one, other in pairs)
    assert all(before != after for before, after in itertools.pairwise(pairs))


def test_records_without_a_key_of_one_drain_go_to_one_partition() -> None:
    cluster = a_topic(partitions=8)
    with a_producer(cluster, linger_ms=50, batch_size=1_000_000) as producer:
        sent = [producer.send("t", b"v") for _ in range(50)]
        assert len({future.get(LONG_S).partition for future in sent}) == 1


def test_an_unknown_topic_is_refused_and_works_once_it_is_there() -> None:
    cluster = a_cluster()
    with a_producer(cluster) as producer:
        for act in (lambda: producer.send("t", b"v"), lambda: producer.partitions_for("t")):
            with pytest.raises(UnknownTopicOrPartitionError, match=r"'?t'?"):
                act()
        create_topic(cluster.topic_log("t"), "t")
        producer.send("t", b"v").get(LONG_S)


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "ä", "a/b", "x" * 250, 5, None, b"t"])
def test_a_name_that_no_topic_has_is_refused(topic: Any) -> None:
    with a_producer(a_cluster()) as producer, pytest.raises(InvalidTopicError):
        producer.send(topic, b"v")


def test_a_topic_deleted_while_in_use_fails_its_records() -> None:
    cluster = a_topic()
    with a_producer(cluster) as producer:
        producer.send("t", b"before").get(LONG_S)
        delete_topic(cluster.topic_log("t"), "t")
        with pytest.raises(UnknownTopicOrPartitionError, match="deleted"):
            producer.send("t", b"into the void").get(LONG_S)
        with pytest.raises(UnknownTopicOrPartitionError, match="deleted"):
            producer.send("t", b"again")
        producer.flush(LONG_S)
        assert_empty(producer)


def test_a_topic_deleted_and_created_again_is_sent_to_by_the_next_send() -> None:
    cluster = a_topic()
    with a_producer(cluster) as producer:
        producer.send("t", b"old").get(LONG_S)
        delete_topic(cluster.topic_log("t"), "t")
        create_topic(cluster.topic_log("t"), "t", num_partitions=2)
        with pytest.raises(UnknownTopicOrPartitionError, match="deleted"):
            producer.send("t", b"meant for the old one", partition=0).get(LONG_S)
        assert producer.send("t", b"new", partition=1).get(LONG_S).offset == 0
    assert rows(cluster) == {0: [], 1: [(0, None, b"new")]}


def test_partitions_for_notices_a_topic_that_was_created_again() -> None:
    cluster = a_topic(partitions=1)
    with a_producer(cluster) as producer:
        producer.send("t", b"old").get(LONG_S)
        delete_topic(cluster.topic_log("t"), "t")
        create_topic(cluster.topic_log("t"), "t", num_partitions=3)
        assert producer.partitions_for("t") == {0, 1, 2}
        assert producer.send("t", b"new", partition=2).get(LONG_S).offset == 0


def test_records_that_wait_when_their_topic_is_deleted_fail_before_flush_returns() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    store = HeldStore(memory)
    told: list[object] = []

    def tell(error: BaseException) -> None:
        time.sleep(0.01)  # so that who doesn't wait is too early
        told.append(type(error))

    with a_producer(through(store, cluster), max_in_flight_requests_per_connection=1) as producer:
        producer.send("t", b"old").get(LONG_S)
        store.hold("create")
        sent = [producer.send("t", b"1")]
        store.wait_until_reached()
        sent += [producer.send("t", b"2", partition=0), producer.send("t", b"3")]
        for future in sent:
            future.add_errback(tell)
        delete_topic(cluster.topic_log("t"), "t")
        create_topic(cluster.topic_log("t"), "t")
        store.let_go()
        eventually(lambda: sent[0].is_done)
        assert producer.send("t", b"new").get(LONG_S).offset == 0
        producer.flush(LONG_S)
        assert told == [UnknownTopicOrPartitionError] * 3
        assert_empty(producer)
    assert values(cluster) == [b"new"]


def test_new_partitions_are_noticed_when_one_is_chosen_or_asked_for() -> None:
    cluster = a_topic(partitions=1)
    with a_producer(cluster) as producer:
        producer.send("t", b"v").get(LONG_S)
        create_partitions(cluster.topic_log("t"), "t", 2)
        assert producer.send("t", b"v", partition=1).get(LONG_S).offset == 0
        create_partitions(cluster.topic_log("t"), "t", 4)
        assert producer.partitions_for("t") == {0, 1, 2, 3}


def test_new_partitions_are_noticed_by_the_commit_after_they_were_made() -> None:
    cluster = a_topic(partitions=1)
    with a_producer(cluster) as producer:
        producer.send("t", b"v", b"k").get(LONG_S)
        create_partitions(cluster.topic_log("t"), "t", 50)
        producer.send("t", b"v", b"k").get(LONG_S)  # may still go by the old number
        assert producer.send("t", b"v", b"k").get(LONG_S).partition == (murmur2(b"k") & 0x7FFFFFFF) % 50


@pytest.mark.parametrize("settings", [{}, {"max_in_flight_requests_per_connection": 1}, {"batch_size": 0}])
def test_eight_threads_send_at_once_and_each_ones_order_is_kept(settings: dict[str, Any]) -> None:
    threads, count, keys = 8, 300, 5
    cluster = a_topic(partitions=3)
    start = threading.Barrier(threads)
    with a_producer(cluster, **settings) as producer:

        def work(name: int) -> None:
            start.wait()
            for number in range(count):
                producer.send("t", f"{name}-{number}".encode(), f"{name}-{number % keys}".encode())

        workers = [threading.Thread(target=work, args=(name,)) for name in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        producer.flush(LONG_S)
        assert_empty(producer)
    by_key: dict[bytes | None, list[bytes | None]] = {}
    for stored in rows(cluster).values():
        for _, key, value in stored:
            by_key.setdefault(key, []).append(value)
    assert by_key == {
        f"{name}-{key}".encode(): [f"{name}-{number}".encode() for number in range(key, count, keys)]
        for name in range(threads)
        for key in range(keys)
    }


@pytest.mark.slow
def test_many_topics_are_sent_to_by_one_producer() -> None:
    cluster = a_cluster()
    topics = [f"t{number}" for number in range(20)]
    for topic in topics:
        create_topic(cluster.topic_log(topic), topic)
    with a_producer(cluster) as producer:
        order = topics * 5
        random.Random(3).shuffle(order)
        for number, topic in enumerate(order):
            producer.send(topic, str(number).encode())
        producer.flush(LONG_S)
        assert_empty(producer)
    for topic in topics:
        assert values(cluster, topic) == [str(number).encode() for number, one in enumerate(order) if one == topic]
