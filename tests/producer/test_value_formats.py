"""Topics whose values are Avro or Protobuf for clients of bytes."""

import io
from typing import Any

import pyarrow as pa
import pytest

from sparklog.consumer import Consumer
from sparklog.errors import (
    InvalidConfigurationError,
    InvalidRecordError,
    MessageSizeTooLargeError,
    RecordDeserializationError,
)
from sparklog.log.state import load_state
from sparklog.log.topic import alter_topic, alter_value_schema, create_topic, describe_topic
from sparklog.model import TopicPartition
from sparklog.schemas import value_schema
from tests.producer.support import a_cluster, a_producer
from tests.producer.test_typed_sending import a_topic, read, values
from tests.schemas.messages import message_of, orders

fastavro = pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")


def record(*fields):
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


OLD = record(("id", "long"), ("total", "double"))
NEW = record(("note", ["null", "string"]), ("total", "double"), ("id", "long"))


def avro(schema, **row):
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), row)
    return target.getvalue()


def framed(schema_id, data):
    return b"\0" + schema_id.to_bytes(4, "big") + data


def an_avro_topic(value_format="avro", schema=OLD, **configs):
    return a_topic(value_schema(schema), configs={"value.format": value_format, **configs})


def evolve(cluster, schema):
    return alter_value_schema(cluster.topic_log("t"), "t", schema)


def test_bytes_of_a_schema_without_nulls_are_read_by_it_and_come_back():
    cluster = an_avro_topic()
    with a_producer(cluster) as producer:
        producer.send("t", avro(OLD, id=0, total=1.5))
        producer.send("t", {"id": 8, "total": 2.5})
    assert values(cluster) == [{"id": 0, "total": 1.5}, {"id": 8, "total": 2.5}]
    assert values(cluster, value_format="bytes") == [avro(OLD, id=0, total=1.5), avro(OLD, id=8, total=2.5)]


def test_the_source_of_each_schema_is_a_property_of_the_table():
    cluster = an_avro_topic("avro-confluent")
    evolve(cluster, value_schema(NEW).with_registry_id(77))
    described = describe_topic(cluster.topic_log("t"), "t").value_schemas
    assert described == (value_schema(OLD), value_schema(NEW).with_registry_id(77))
    properties = load_state(cluster.topic_log("t")).require_whole().metadata.configuration
    assert [name for name in sorted(properties) if "source" in name] == [
        "sparklog.value.source.1",
        "sparklog.value.source.2",
    ]
    evolve(cluster, value_schema(NEW).with_registry_id(77))
    assert len(describe_topic(cluster.topic_log("t"), "t").value_schemas) == 2


def test_a_null_that_the_avro_schema_does_not_have_is_refused():
    cluster = an_avro_topic()
    with a_producer(cluster, linger_ms=50) as producer:
        sent = [producer.send("t", {"id": 8}), producer.send("t", None), producer.send("t", {"id": 1, "total": 1.0})]
        table = producer.send_batch("t", pa.table({"id": [1, None], "total": [1.0, 2.0]}))
        with pytest.raises(InvalidRecordError, match="field total: null"):
            sent[0].get()
        assert [sent[at].get().offset for at in (1, 2)] == [0, 1]
        with pytest.raises(InvalidRecordError, match="field id: null"):
            table.get()
    found = values(cluster)
    assert found[:2] == [None, {"id": 1, "total": 1.0}]


def test_the_frame_says_by_which_schema_bytes_are_read():
    cluster = an_avro_topic("avro-confluent")
    with a_producer(cluster, linger_ms=50) as producer:
        producer.send("t", framed(1, avro(OLD, id=1, total=1.5))).get()
        evolve(cluster, value_schema(NEW).with_registry_id(77))
        sent = [
            producer.send("t", framed(77, avro(NEW, note="n", total=2.5, id=2))),  # it knows schema 1 alone until here
            producer.send("t", framed(1, avro(OLD, id=3, total=3.5))),
            producer.send("t", framed(2, avro(NEW, note="n", total=2.5, id=2))),
            producer.send("t", avro(OLD, id=3, total=3.5)),
        ]
        for future, reason in (
            (sent[2], "schema 2, which the topic doesn't have; expected one of 1, 77"),
            (sent[3], "no framing"),
        ):
            with pytest.raises(InvalidRecordError, match=reason):
                future.get()
    assert values(cluster) == [
        {"note": None, "total": 1.5, "id": 1},
        {"note": "n", "total": 2.5, "id": 2},
        {"note": None, "total": 3.5, "id": 3},
    ]
    assert values(cluster, value_format="bytes")[2] == framed(77, avro(NEW, note=None, total=3.5, id=3))


def test_two_schemas_have_two_ids():
    cluster = an_avro_topic("avro-confluent")
    with pytest.raises(InvalidConfigurationError, match="id 1 is that of schema 1"):
        evolve(cluster, value_schema(NEW).with_registry_id(1))


def test_avro_of_before_the_topic_was_typed_is_read_by_its_first_schema():
    cluster = a_cluster()
    log = cluster.topic_log("t")
    create_topic(log, "t", configs={"value.format": "avro"})
    with a_producer(cluster) as producer:
        producer.send("t", avro(OLD, id=1, total=1.5))
    evolve(cluster, value_schema(OLD))
    wider = {**OLD, "fields": [*OLD["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}
    evolve(cluster, value_schema(wider))
    assert values(cluster) == [{"id": 1, "total": 1.5, "note": None}]
    assert values(cluster, value_format="bytes") == [avro(wider, id=1, total=1.5, note=None)]
    assert values(cluster, value_format="bytes", value_schema_id=1) == [avro(OLD, id=1, total=1.5)]


def test_a_format_that_the_schema_is_not_for_is_refused():
    cluster = a_topic()
    with pytest.raises(InvalidConfigurationError, match="wasn't made of a Protobuf message"):
        alter_topic(cluster.topic_log("t"), "t", {"value.format": "protobuf"})
    with pytest.raises(InvalidConfigurationError, match="wasn't made of a Protobuf message"):
        a_topic(configs={"value.format": "protobuf"})
    Order = message_of(orders(), "shop.Other")
    cluster = a_topic(value_schema(Order), configs={"value.format": "protobuf"})
    with pytest.raises(InvalidConfigurationError, match="wasn't made of a Protobuf message"):
        evolve(cluster, value_schema("x INT, y INT"))


@pytest.mark.parametrize("value_format", ["protobuf", "protobuf-confluent"])
def test_messages_become_columns_and_come_back(value_format):
    Order: Any = message_of(orders(), "shop.Order")
    cluster = a_topic(value_schema(Order), configs={"value.format": value_format})
    sent = Order(f_int64=7, color=1, tags=["a"], note="")
    sent.place.city = "Ulm"
    head = framed(1, b"\2\2") if value_format == "protobuf-confluent" else b""
    with a_producer(cluster, linger_ms=50) as producer:
        producer.send("t", head + sent.SerializeToString())
        producer.send("t", {"f_int64": 8, "color": "RED", "place": {"city": "Bonn"}})
        with pytest.raises(InvalidRecordError, match="color: got BLUE"):
            producer.send("t", {"color": "BLUE"}).get()
        with pytest.raises(InvalidRecordError):
            producer.send("t", b"\xff" * 20).get()
    first, second = values(cluster)
    assert (first["f_int64"], first["color"], first["place"], first["note"]) == (7, "GREEN", {"city": "Ulm"}, "")
    assert (second["f_int64"], second["f_int32"], second["color"]) == (8, None, "RED")
    one, other = values(cluster, value_format="bytes")
    assert one.startswith(head)
    assert Order.FromString(one[len(head) :]) == sent
    assert Order.FromString(other[len(head) :]) == Order(f_int64=8, place={"city": "Bonn"})


def test_a_value_that_the_format_cannot_hold_stops_no_reader_of_columns():
    """Such a record comes from another engine, or from when the topic had another format."""
    cluster = an_avro_topic("json")
    with a_producer(cluster, linger_ms=50) as producer:
        for row in ({"id": 1, "total": 1.0}, {"id": 2}, {"id": 3, "total": 3.0}):
            producer.send("t", row)
    alter_topic(cluster.topic_log("t"), "t", {"value.format": "avro"})
    assert [row["total"] for row in values(cluster)] == [1.0, None, 3.0]
    with Consumer("t", cluster=cluster, auto_offset_reset="earliest", consumer_timeout_ms=60_000) as consumer:
        assert next(consumer).value == avro(OLD, id=1, total=1.0)
        with pytest.raises(RecordDeserializationError, match="seek beyond it"):
            next(consumer)
        consumer.seek(TopicPartition("t", 0), 2)
        assert next(consumer).value == avro(OLD, id=3, total=3.0)


def test_undecodable_avro_is_kept_where_the_topic_says_so():
    cluster = an_avro_topic(**{"value.on.error": "keep"})
    with a_producer(cluster, linger_ms=50) as producer:
        producer.send("t", b"\xff")
        producer.send("t", avro(OLD, id=1, total=1.0))
    first, second = read(cluster)
    assert (first.value, second.value) == (b"\xff", {"id": 1, "total": 1.0})
    assert "no Avro of the schema" in first.headers[0][1].decode()


@pytest.mark.parametrize("value_format", ["json", "avro-confluent"])
def test_bytes_are_kept_beside_the_columns_where_the_topic_says_so(value_format):
    cluster = an_avro_topic(value_format, **{"value.bytes": "keep", "value.on.error": "keep"})
    sent = b' {"total": 1.50, "id": 0}' if value_format == "json" else framed(1, avro(OLD, id=0, total=1.5))
    with a_producer(cluster, linger_ms=50) as producer:
        futures = [producer.send("t", each, key=b"k") for each in (sent, {"id": 2, "total": 2.5}, None, b"{no")]
        assert futures[0].get().serialized_value_size == len(sent)
    assert values(cluster) == [{"id": 0, "total": 1.5}, {"id": 2, "total": 2.5}, None, b"{no"]
    as_bytes = values(cluster, value_format="bytes")
    assert (as_bytes[0], as_bytes[2], as_bytes[3]) == (sent, None, b"{no")
    assert as_bytes[1] == (b'{"id":2,"total":2.5}' if value_format == "json" else framed(1, avro(OLD, id=2, total=2.5)))
    with Consumer("t", cluster=cluster, auto_offset_reset="earliest") as consumer:
        batch = consumer.poll_batches(timeout_ms=60_000)[TopicPartition("t", 0)]
    assert batch.column("value_bytes").to_pylist() == [None, None, None, b"{no"]
    alter_topic(cluster.topic_log("t"), "t", {"value.bytes": "drop"})
    assert values(cluster, value_format="bytes")[0] == sent  # what was kept stays


def test_kept_bytes_bound_the_size_of_a_record():
    cluster = a_topic(configs={"value.bytes": "keep", "max.message.bytes": 100})
    with a_producer(cluster) as producer, pytest.raises(MessageSizeTooLargeError):
        producer.send("t", b'{"id": 1}' + b" " * 200)
