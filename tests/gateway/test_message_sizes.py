"""``max.message.bytes``: a broker judges a batch as it came, compressed or not; so a gateway takes what compression has
made small enough, within its own bound of memory."""

from __future__ import annotations

import os
import uuid
from dataclasses import replace

import pytest

import sparklog.gateway
from sparklog import Admin, Consumer, NewTopic
from sparklog.gateway.records import batch_headers
from sparklog.gateway.records.batches import batch_with_header
from tests.gateway.test_server import Wire, batch, fetched, fetching, produce, produced, values
from tests.gateway.test_transactions import TRANSACTIONAL, Client

TOO_LARGE = 10
MIB = 1_048_576
CODECS = ["gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def cluster():
    root = f"memory://gateway-{uuid.uuid4().hex}"
    Admin(root).create_topics([NewTopic("jobs", 1), NewTopic("small", 1, topic_configs={"max.message.bytes": "1000"})])
    return root


@pytest.fixture
def servers(cluster):
    with sparklog.gateway.serve(cluster) as bootstrap_servers:
        yield bootstrap_servers


@pytest.fixture
def wire(servers):
    client = Wire(servers)
    yield client
    client.close()


def code(wire, records, topic="jobs"):
    return produced(wire.call("Produce", 9, produce(records, topic)))["error_code"]


def of_producer(records, sequence=0, attributes=0, number=(5, 0)):
    (header,) = batch_headers(records)
    header = replace(header, attributes=header.attributes | attributes, base_sequence=sequence)
    return batch_with_header(replace(header, producer_id=number[0], producer_epoch=number[1]))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("is_numbered", [False, True])
def test_a_record_that_compression_has_made_small_enough_is_taken(wire, codec, is_numbered):
    large = b"v" * 2 * MIB
    sent = [large] if is_numbered else [large, b"small"]  # which are two batches
    records = batch(*sent, codec=codec)
    assert code(wire, of_producer(records) if is_numbered else records) == 0
    found = fetched(wire.call("Fetch", 11, fetching(0, max_bytes=4 * MIB)))
    assert values(found["records"]) == sent


def test_consumers_of_sparklog_read_it(cluster, wire):
    large = b"v" * 5 * MIB
    assert code(wire, batch(large, codec="zstd")) == 0
    with Consumer("jobs", cluster=cluster, auto_offset_reset="earliest", consumer_timeout_ms=60_000) as consumer:
        assert next(consumer).value == large


def test_without_compression_it_is_refused_with_a_message_for_kafkas_clients(wire):
    answer = produced(wire.call("Produce", 9, produce(batch(b"v" * 2 * MIB))))
    assert answer["error_code"] == TOO_LARGE
    assert "max.message.bytes" in answer["error_message"]
    assert "send_batch" not in answer["error_message"]


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_batch_above_the_topics_limit_is_refused(wire, codec):
    assert code(wire, batch(os.urandom(1_500), codec=codec), "small") == TOO_LARGE
    assert code(wire, batch(b"v" * 10_000, codec=codec), "small") == 0


def test_what_is_behind_a_refused_batch_follows_once_that_is_small_enough(wire):
    assert code(wire, of_producer(batch(os.urandom(1_500), codec="gzip")), "small") == TOO_LARGE
    assert code(wire, of_producer(batch(b"b", codec="gzip"), 1), "small") == 45
    assert code(wire, of_producer(batch(b"a" * 1_500, codec="gzip")), "small") == 0
    assert code(wire, of_producer(batch(b"b", codec="gzip"), 1), "small") == 0


@pytest.mark.parametrize("codec", CODECS)
def test_the_gateways_bound_of_memory_stays(wire, codec):
    assert code(wire, batch(b"v" * 7 * MIB, codec=codec)) == TOO_LARGE
    assert code(wire, batch(*[b"v" * MIB] * 7, codec=codec)) == TOO_LARGE
    assert code(wire, batch(b"v", codec=codec)) == 0


def test_it_is_taken_in_a_transaction_too(servers):
    client = Client(servers)
    assert client.init() == client.add() == 0
    for sequence, (codec, expected) in enumerate(((None, TOO_LARGE), ("zstd", 0))):
        records = of_producer(batch(b"v" * 2 * MIB, codec=codec), sequence, TRANSACTIONAL, client.number)
        body = {**produce(records), "transactional_id": client.name}
        assert produced(client.wire.call("Produce", 9, body))["error_code"] == expected
        if expected:
            assert client.end(commit=False) == client.add() == 0
    assert client.end() == 0
    client.wire.close()


def test_confluents_producer_sends_it(cluster, servers):
    confluent = pytest.importorskip("confluent_kafka")
    settings = {"bootstrap.servers": servers, "compression.type": "zstd", "message.max.bytes": 4 * MIB}
    producer = confluent.Producer(settings)
    errors: list[object] = []
    producer.produce("jobs", b"v" * 3 * MIB, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]
