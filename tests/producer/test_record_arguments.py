"""What ``send`` may be given: bytes and serializers, headers, timestamps, sizes, partitions and partitioners."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import (
    InvalidArgumentError,
    InvalidTypeError,
    MessageSizeTooLargeError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import alter_topic
from sparklog.model import TopicPartition
from sparklog.producer.buffer import Buffer
from sparklog.producer.partitioner import murmur2
from sparklog.producer.record_arguments import add_first
from sparklog.producer.record_memory import memory_bytes
from sparklog.producer.topic_queue import TopicQueue
from sparklog.testing import ManualClock
from tests.producer.support import (
    LONG_S,
    a_producer,
    a_topic,
    assert_empty,
    column,
    rows,
    values,
)


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


def test_a_record_beyond_max_request_size_is_refused_and_one_of_it_is_sent() -> None:
    cluster = a_topic()
    with a_producer(cluster, max_request_size=10) as producer:
        producer.send("t", b"1234567", b"890").get(LONG_S)
        producer.send("t", b"12345", b"67", headers=[("8", b"90")]).get(LONG_S)
        for headers in (None, [("8", b"90+")]):
            with pytest.raises(MessageSizeTooLargeError, match=r"11 bytes .*at most 10 .*max_request_size=10"):
                producer.send("t", b"12345" if headers else b"12345678", b"67" if headers else b"90+", headers)
        assert_empty(producer)


def test_a_record_beyond_max_message_bytes_is_refused_also_once_that_was_changed() -> None:
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


PLAIN = st.none() | st.binary(max_size=8)


@settings(max_examples=40)
@given(PLAIN, PLAIN, st.sampled_from([-1, 5, 100]))
def test_the_first_record_of_a_batch_counts_as_any_other(key: bytes | None, value: bytes | None, most: int) -> None:
    queue = TopicQueue("t", Buffer(10_000), ManualClock(), batch_size=1_000, linger_ms=10, max_block_ms=1)
    queue.max_record_bytes = most
    size = len(key or b"") + len(value or b"")
    assert (add_first(queue, key, value) is None) == (size > most) == (not queue.has_records)
    if queue.has_records:
        assert queue.add_plain(key, value) is not None
        with queue.lock:
            queue.close_open()
            [batch] = queue.take_batches()
        assert (batch.count, batch.size_bytes) == (2, 2 * memory_bytes(size, None, None, None))


@pytest.mark.parametrize("value", ["text", bytearray(b"1"), {}, 1])
def test_what_is_no_bytes_is_not_added_as_if_it_were(value: object) -> None:
    queue = TopicQueue("t", Buffer(10_000), ManualClock(), batch_size=1_000, linger_ms=10, max_block_ms=1)
    queue.max_record_bytes = 100
    assert add_first(queue, value, b"1") is add_first(queue, b"1", value) is None
    assert not queue.has_records
