"""Typed topics by the wire: values are bytes of the topic's ``value.format``."""

from __future__ import annotations

import uuid

import pytest

import sparklog.gateway
from sparklog import Admin, NewTopic, Producer
from sparklog.gateway import produce as produce_requests
from sparklog.log.typed_records import ValueReading
from sparklog.schemas import UnwritableError
from tests.gateway.test_server import Wire, batch, fetched, fetching, produce, produced, values


@pytest.fixture
def cluster():
    return f"memory://gateway-{uuid.uuid4().hex}"


@pytest.fixture
def wire(cluster):
    Admin(cluster).create_topics([NewTopic("jobs", 1, value_schema="name STRING, count INT")])
    with sparklog.gateway.serve(cluster) as servers:
        client = Wire(servers)
        yield client
        client.close()


def test_values_are_fetched_as_bytes_of_the_format(cluster, wire):
    with Producer(cluster) as producer:
        producer.send("jobs", {"name": "a", "count": 1})
        producer.send("jobs", None, key=b"k")
    found = fetched(wire.call("Fetch", 11, fetching(0)))
    assert found["error_code"] == 0
    assert values(found["records"]) == [b'{"name":"a","count":1}', None]


def test_values_are_produced_as_bytes_of_the_format_and_wrong_ones_refused(wire):
    good, bad = b'{"name":"a","count":1}', b'{"name":"a","count":"many"}'
    assert produced(wire.call("Produce", 9, produce(batch(good))))["error_code"] == 0
    assert produced(wire.call("Produce", 9, produce(batch(bad))))["error_code"] == 87
    assert values(fetched(wire.call("Fetch", 11, fetching(0)))["records"]) == [good]


def test_a_value_that_cannot_be_bytes_is_told_at_its_offset(cluster, wire, monkeypatch):
    """Another engine may have written it."""
    encode = ValueReading.as_bytes

    def as_bytes(reading, records):
        offsets = records.column("offset").to_pylist()
        if 1 in offsets:
            raise UnwritableError(offsets.index(1), "no text of the enumeration")
        return encode(reading, records)

    with Producer(cluster) as producer:
        for number in range(3):
            producer.send("jobs", {"name": "a", "count": number})
    monkeypatch.setattr(ValueReading, "as_bytes", as_bytes)
    found = fetched(wire.call("Fetch", 11, fetching(0)))
    assert (found["error_code"], len(values(found["records"]))) == (0, 1)
    assert fetched(wire.call("Fetch", 11, fetching(1)))["error_code"] == 87
    assert values(fetched(wire.call("Fetch", 11, fetching(2)))["records"]) == [b'{"name":"a","count":2}']


def test_a_defect_is_answered_and_the_connection_goes_on(wire, monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("a defect")

    with monkeypatch.context() as context:
        context.setattr(produce_requests, "decode_batches", fail)
        assert produced(wire.call("Produce", 9, produce(batch(b"{}"))))["error_code"] == -1
    assert produced(wire.call("Produce", 9, produce(batch(b"{}"))))["error_code"] in (0, 87)


def test_values_of_a_schema_that_was_set_meanwhile_are_taken(cluster, wire):
    """✗ The gateway's producer goes by the schema that it has opened, and refuses them until it is started again."""
    assert produced(wire.call("Produce", 9, produce(batch(b'{"name":"a","count":1}'))))["error_code"] == 0
    new = b'{"name":"a","count":1,"more":2}'
    assert produced(wire.call("Produce", 9, produce(batch(new))))["error_code"] == 87
    with Admin(cluster) as admin:
        admin.alter_value_schema("jobs", "name STRING, count INT, more INT")
    for _ in range(2):
        assert produced(wire.call("Produce", 9, produce(batch(new))))["error_code"] == 0
    assert values(fetched(wire.call("Fetch", 11, fetching(1)))["records"]) == [new, new]
