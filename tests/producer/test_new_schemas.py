"""Values of a schema that was set while a producer was open are taken: by one read of the topic, a second at most."""

from __future__ import annotations

import io
import json
import time
from dataclasses import replace
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from sparklog import Admin, NewTopic, Producer
from sparklog.clock import Deadline
from sparklog.errors import InvalidRecordError, SparklogError
from sparklog.log import Cluster
from sparklog.log.value_bytes import ValueBytes
from sparklog.producer.schema_looks import SchemaLooks
from sparklog.producer.typed_values import ValueEncoding
from sparklog.schemas import value_schema
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.consumer.support import a_cluster
from tests.producer.test_typed_sending import read
from tests.schemas.messages import ENUM, OPTIONAL, REPEATED, TYPES, a_file, message_of

NEW = {"a": 2, "b": 3}


def avro(*names: str) -> dict[str, Any]:
    fields = [{"name": name, "type": ["null", "long"], "default": None} for name in names]
    return {"type": "record", "name": "R", "fields": fields}


def avro_bytes(*names: str, frame: bytes = b"") -> bytes:
    out = io.BytesIO(frame)
    out.seek(len(frame))
    fastavro.schemaless_writer(out, fastavro.parse_schema(avro(*names)), NEW)
    return out.getvalue()


def protobuf(*names: str) -> Any:
    file = a_file("r")
    message = file.message_type.add(name="R")
    for number, name in enumerate(names, 1):
        message.oneof_decl.add(name=f"_{name}")
        message.field.add(
            name=name, number=number, type=TYPES["int64"], label=OPTIONAL, proto3_optional=True, oneof_index=number - 1
        )
    return message_of(file, "R")


AVRO = [json.dumps(avro("a")), json.dumps(avro("a", "b"))]
PROTOBUF = [protobuf("a"), protobuf("a", "b")]
VALUES = {
    "json": (AVRO, json.dumps(NEW).encode()),
    "avro": (AVRO, avro_bytes("a", "b")),
    "avro-confluent": (AVRO, avro_bytes("a", "b", frame=b"\0\0\0\0\2")),
    "protobuf": (PROTOBUF, b"\x08\x02\x10\x03"),
    "protobuf-confluent": (PROTOBUF, b"\0\0\0\0\2\0\x08\x02\x10\x03"),
}


def a_typed_topic(first: Any, **configs: Any) -> Cluster:
    cluster = a_cluster(MemoryStore())
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic("t", 1, value_schema=value_schema(first), configs=configs)])
    return cluster


def test_a_value_of_an_enumeration_that_came_meanwhile_has_its_name():
    """✗ A message in Protobuf is taken with the number in place of the name."""
    schemas = []
    for names in (("RED",), ("RED", "GREEN")):
        file = a_file("r")
        color = file.enum_type.add(name="Color")
        for number, name in enumerate(names):
            color.value.add(name=name, number=number)
        message = file.message_type.add(name="R")
        message.field.add(name="color", number=1, type=ENUM, label=REPEATED, type_name=".Color")
        schemas.append(message_of(file, "R"))
    cluster = a_typed_topic(schemas[0], **{"value.format": "protobuf"})
    with Producer(cluster) as producer:
        producer.send("t", b"\n\1\0").get(10)
        evolve(cluster, schemas[1])
        producer.send("t", b"\n\2\0\1").get(10)
    assert [record.value for record in read(cluster)] == [{"color": ["RED"]}, {"color": ["RED", "GREEN"]}]


def evolve(cluster: Cluster, new: Any) -> None:
    with Admin(cluster) as admin:
        admin.alter_value_schema("t", value_schema(new))


@pytest.mark.parametrize("on_error", ["reject", "keep"])
@pytest.mark.parametrize("value_format", VALUES)
def test_bytes_of_a_schema_that_was_set_meanwhile_are_taken(value_format, on_error):
    """✗ An open producer refuses them for ever, or keeps them as bytes that can't be decoded."""
    (first, second), data = VALUES[value_format]
    cluster = a_typed_topic(first, **{"value.format": value_format, "value.on.error": on_error})
    with Producer(cluster) as producer:
        producer.send("t", {"a": 1}).get(10)
        evolve(cluster, second)
        for _ in range(3):
            producer.send("t", data).get(10)
        producer.send("t", NEW).get(10)
    assert [record.value for record in read(cluster)][1:] == [NEW] * 4


def test_each_of_several_schemas_within_a_second_is_taken():
    clock = ManualClock()
    cluster = a_typed_topic(json.dumps(avro("a")), **{"value.format": "json"})
    cluster = replace(cluster, clock=clock)
    names = ["a"]
    with Producer(cluster, linger_ms=0) as producer:
        producer.send("t", {"a": 1}).get(10)
        for name in ("b", "c", "d"):
            names.append(name)
            with pytest.raises(InvalidRecordError):
                producer.send("t", json.dumps(dict.fromkeys(names, 1)).encode()).get(10)
            evolve(cluster, json.dumps(avro(*names)))
            producer.send("t", json.dumps(dict.fromkeys(names, 1)).encode()).get(10)
            producer.send("t", dict.fromkeys(names, 2)).get(10)


def test_a_caller_that_must_not_wait_is_told_within_a_second_of_a_look():
    """✗ An event loop waits with all that runs in it."""
    cluster = a_typed_topic(AVRO[0])
    with Producer(cluster) as producer:
        producer.send("t", {"a": 1}).get(10)
        assert not producer._may_wait("t")
        with pytest.raises(InvalidRecordError):
            producer.send("t", NEW)
        assert producer._may_wait("t")
        producer._pipelines.get("t").topic._looks._began_ticks_ms -= 1_000
        assert not producer._may_wait("t")


def test_tables_and_dicts_of_a_schema_that_was_set_meanwhile_are_taken():
    cluster = a_typed_topic(AVRO[0])
    with Producer(cluster) as producer:
        producer.send("t", {"a": 1}).get(10)
        evolve(cluster, AVRO[1])
        producer.send_batch("t", pa.table({"a": [2], "b": [3]})).get(10)
        producer.send("t", NEW).get(10)
    assert [record.value for record in read(cluster)][1:] == [NEW] * 2


def test_wrong_values_cost_a_read_a_second_at_most_and_good_ones_none():
    """✗ Each batch with a bad value reads the topic; or all wait for it."""
    cluster = a_typed_topic(AVRO[0])
    reads = 0
    with Producer(cluster) as producer:
        producer.send("t", {"a": 1}).get(10)
        topic = producer._pipelines.get("t").topic
        refresh = topic._writer.refresh

        def counted() -> Any:
            nonlocal reads
            reads += 1
            return refresh()

        topic._writer.refresh = counted  # type: ignore[method-assign]
        for number in range(20):
            producer.send("t", b'{"a":%d}' % number).get(10)
        assert reads == 0
        began = time.monotonic()
        for value, least in ((b"no JSON", 0), (b'{"typo":1}', 1)):
            for future in [producer.send("t", value) for _ in range(200)]:
                with pytest.raises(InvalidRecordError):
                    future.get(10)
            assert least <= reads <= (time.monotonic() - began + 1 if least else 0)


class Looks:
    """A topic whose schema is a number."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.there = self.known = 1
        self.reads: list[float] = []
        self.looks = SchemaLooks(self.clock, lambda: self.encoding(self.known))

    @staticmethod
    def encoding(number: int) -> ValueEncoding:
        parsed = value_schema(AVRO[0])
        return ValueEncoding(
            topic="t",
            schema=parsed,
            schema_id=number,
            physical=parsed,
            codec=ValueBytes("json", (parsed,)),
            keeps_undecodable=False,
            keeps_bytes=False,
            decoded_bytes=0,
        )

    def look(self, known: int, wait_ms: float = 60_000.0, why: str = "field b") -> int | None:
        def read_topic() -> None:
            self.reads.append(self.clock.ticks_ms())
            self.known = self.there

        deadline = self.clock.deadline_in(wait_ms)
        found = self.looks.newer_than(self.encoding(known), [why], read_topic, deadline)
        return None if found is None else found.schema_id


def test_a_look_waits_for_the_rest_of_the_second_and_no_longer_than_its_deadline():
    world = Looks()
    assert world.look(1) is None
    world.there = 2
    assert world.look(1, wait_ms=500) is None
    assert world.look(1) == 2
    assert world.reads == [0.0, 1000.0]
    assert world.look(1) == 2  # what others have found
    assert world.reads == [0.0, 1000.0]


def test_after_some_looks_in_vain_none_is_waited_for_and_each_second_still_has_one():
    world = Looks()
    for _ in range(20):
        assert world.look(1) is None
    assert len(world.reads) == 5
    for _ in range(30):
        world.clock.advance(100)
        world.look(1)
    assert len(world.reads) == 8
    world.there = 2
    assert world.look(1) is None
    assert world.look(1, why="field c") == 2  # something else is wrong: it may well be new
    assert all(later - sooner >= 1_000 for sooner, later in zip(world.reads, world.reads[1:], strict=False))


def test_an_error_of_a_look_is_raised_and_the_next_second_has_another():
    world = Looks()

    def fail() -> None:
        raise SparklogError("no")

    with pytest.raises(SparklogError, match="no"):
        world.looks.newer_than(world.encoding(1), [], fail, Deadline(world.clock, 1e9))
    world.there = 2
    assert world.look(1) == 2
