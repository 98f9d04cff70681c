"""Consuming a typed topic: bytes, dicts and struct columns, of all schemas as of the newest."""

import json
from typing import Any

import pyarrow as pa
import pytest

from sparklog.consumer import Consumer
from sparklog.errors import InvalidConfigurationError
from sparklog.log.topic import alter_value_schema
from sparklog.model import TopicPartition
from sparklog.schemas import value_schema
from tests.producer.support import a_producer
from tests.producer.test_typed_sending import ROW, SCHEMA, WIDER, a_topic, read

NARROW = value_schema("note STRING")
TP = TopicPartition("t", 0)


def test_a_consumer_that_asks_for_nothing_gets_bytes_of_the_topics_format():
    cluster = a_topic()
    with a_producer(cluster) as producer:
        producer.send("t", ROW, key=b"k")
        producer.send("t", None, key=b"k")
    first, second = read(cluster, value_format="bytes")
    assert json.loads(first.value) == ROW
    assert first.serialized_value_size == len(first.value)
    assert (second.value, second.serialized_value_size) == (None, -1)


def test_a_deserializer_is_given_the_bytes():
    cluster = a_topic()
    with a_producer(cluster) as producer:
        producer.send("t", ROW)
    [record] = read(cluster, value_format="bytes", value_deserializer=json.loads)
    assert record.value == ROW


def test_dicts_and_a_deserializer_exclude_each_other():
    with pytest.raises(InvalidConfigurationError, match="value_format=python"):
        read(a_topic(), value_deserializer=json.loads)


def test_batches_have_values_as_a_struct():
    cluster = a_topic(configs={"value.on.error": "keep"})
    with a_producer(cluster, linger_ms=50) as producer:
        for value in (ROW, None, b"{no"):
            producer.send("t", value)
    with Consumer("t", cluster=cluster, auto_offset_reset="earliest") as consumer:
        batch = consumer.poll_batches(timeout_ms=60_000)[TP]
    assert batch.schema.names == ["offset", "timestamp", "key", "value", "headers", "value_bytes"]
    assert batch.schema.field("value").type == pa.struct(list(SCHEMA.arrow))
    assert batch.column("value").to_pylist() == [ROW, None, None]
    assert batch.column("value_bytes").to_pylist() == [None, None, b"{no"]


def test_records_of_all_schemas_are_read_by_the_newest():
    cluster = a_topic()
    with a_producer(cluster) as producer:
        producer.send("t", ROW).get()
        with Consumer(
            "t", cluster=cluster, auto_offset_reset="earliest", value_format="python", metadata_max_age_ms=0
        ) as consumer:
            assert [r.value for r in consumer.poll(timeout_ms=60_000)[TP]] == [ROW]
            alter_value_schema(cluster.topic_log("t"), "t", WIDER)
            producer.send("t", {"id": 8, "note": "n"}).get()
            producer.send("t", {"id": 9, "note": "m"}).get()
            found: list[Any] = []
            while len(found) < 2:
                found += [r.value for r in consumer.poll(timeout_ms=60_000).get(TP, [])]
    assert [value["note"] for value in found] == ["n", "m"]
    assert [record.value["note"] for record in read(cluster)] == [None, "n", "m"]


def test_dicts_have_the_size_of_their_content():
    cluster = a_topic()
    with a_producer(cluster) as producer:
        producer.send("t", {"id": 1, "tags": ["ab", "c"]})
    assert [record.serialized_value_size for record in read(cluster)] == [8 + 3]


def test_a_consumer_may_read_by_a_schema_of_before():
    cluster = a_topic()
    with a_producer(cluster) as producer:
        producer.send("t", ROW)
        alter_value_schema(cluster.topic_log("t"), "t", WIDER)
        producer.send("t", {"id": 8, "note": "n"})
        alter_value_schema(cluster.topic_log("t"), "t", NARROW)
        producer.partitions_for("t")
        producer.send("t", {"note": "m"})
    found = {number: [record.value for record in read(cluster, value_schema_id=number)] for number in (1, 2, 3)}
    assert found[1] == [ROW, {"id": 8, "total": None, "tags": None}, {"id": None, "total": None, "tags": None}]
    assert [row["note"] for row in found[2]] == [None, "n", "m"]
    assert found[3] == [{"note": None}, {"note": "n"}, {"note": "m"}]
    assert [json.loads(record.value) for record in read(cluster, value_schema_id=1, value_format="bytes")] == [
        ROW,
        {"id": 8},
        {},
    ]
    with Consumer("t", cluster=cluster, auto_offset_reset="earliest", value_schema_id=1) as consumer:
        batch = consumer.poll_batches(timeout_ms=60_000)[TP]
    assert batch.schema.field("value").type == SCHEMA.struct_type
    assert [row["id"] for row in batch.column("value").to_pylist()] == [7, 8, None]


def test_a_schema_that_a_topic_does_not_have_is_an_error_of_its_consumer():
    cluster = a_topic()
    with a_producer(cluster) as producer:
        producer.send("t", ROW)
    with pytest.raises(InvalidConfigurationError, match="value_schema_id=2: the topic has schemas 1 to 1"):
        read(cluster, value_schema_id=2)
    with pytest.raises(InvalidConfigurationError, match="value_schema_id"):
        read(cluster, value_schema_id=0)
