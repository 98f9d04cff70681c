"""Records that a topic refuses: the batch is stored whole or not at all, and its producer learns which they are."""

from __future__ import annotations

import time
import uuid

import pyarrow as pa
import pytest

import sparklog.gateway
from sparklog import Admin, Consumer, NewTopic, TopicPartition
from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.records import encode_batches
from sparklog.log.data.schema import HEADERS
from tests.gateway.test_server import Wire, produce, produced

NOW_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def root():
    found = f"memory://gateway-{uuid.uuid4().hex}"
    days = {"message.timestamp.after.max.ms": 86_400_000}
    Admin(found).create_topics(
        [
            NewTopic("keyed", 1, configs={"cleanup.policy": "compact"}),
            NewTopic("timed", 1, configs=days),
            NewTopic("times"),
        ]
    )
    return found


@pytest.fixture(scope="module")
def wire(root):
    with sparklog.gateway.serve(root) as servers:
        client = Wire(servers)
        yield client
        client.socket.close()


def records(*keys, times=None):
    count = len(keys)
    table = pa.table(
        {
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array(times or [NOW_MS] * count, pa.int64()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([b"v"] * count, pa.binary()),
            "headers": pa.nulls(count, HEADERS),
        }
    )
    return b"".join(encode_batches(table))


def refused(answer):
    return answer["error_code"], answer["base_offset"], [one["batch_index"] for one in answer["record_errors"]]


def test_records_without_a_key_are_named_and_none_of_their_batch_is_stored(root, wire):
    answer = produced(wire.call("Produce", 9, produce(records(b"a", None, b"b", None), topic="keyed")))
    assert refused(answer) == (ErrorCode.INVALID_RECORD, -1, [1, 3])
    assert "key" in answer["record_errors"][0]["batch_index_error_message"]
    end = TopicPartition("keyed", 0)
    assert Admin(root).list_offsets({end: -1})[end].offset == 0
    assert produced(wire.call("Produce", 9, produce(records(b"a"), topic="keyed")))["base_offset"] == 0


def test_a_timestamp_that_is_refused_is_named(wire):
    body = produce(records(b"a", b"b", times=[NOW_MS, NOW_MS * 2]), topic="timed")
    assert refused(produced(wire.call("Produce", 8, body))) == (ErrorCode.INVALID_TIMESTAMP, -1, [1])


def test_a_record_without_a_timestamp_gets_the_present_one(root, wire):
    before_ms = time.time_ns() // 1_000_000
    body = produce(records(b"none", b"old", times=[-1, NOW_MS]), topic="times")
    assert produced(wire.call("Produce", 9, body))["base_offset"] == 0
    with Consumer("times", cluster=root, auto_offset_reset="earliest", consumer_timeout_ms=60_000) as consumer:
        none, old = next(consumer), next(consumer)
    assert before_ms <= none.timestamp <= time.time_ns() // 1_000_000
    assert old.timestamp == NOW_MS


def test_so_many_records_are_named_and_no_more(wire):
    answer = produced(wire.call("Produce", 9, produce(records(*[None] * 1_001), topic="keyed")))
    assert refused(answer) == (ErrorCode.INVALID_RECORD, -1, [*range(1_000)])
