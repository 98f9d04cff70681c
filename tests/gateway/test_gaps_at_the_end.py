"""The newest records of a partition were deleted by SQL: Kafka's clients read up to the end of the log all the same."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

import sparklog.gateway
from sparklog import Admin, NewTopic, Producer
from sparklog.gateway.records import batch_headers, encode_empty_batch
from tests.gateway.test_server import Wire, fetched, fetching, values

OFFSET = "base_offset + offset_delta"
GAPS = {
    "the newest": f"{OFFSET} = 9",
    "several": f"{OFFSET} >= 6",
    "all": None,
    "the middle and the newest": f"{OFFSET} in (2, 3, 8, 9)",
}
LEFT = {"the newest": 9, "several": 6, "all": 0, "the middle and the newest": 6}


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    root = str(tmp_path / "c")
    Admin(root).create_topics([NewTopic("jobs", 1)])
    return root


def send(cluster, count, *, together=True):
    """Records, all in one file or each in its own."""
    with Producer(cluster, linger_ms=1_000 if together else 0) as producer:
        for _ in range(count):
            future = producer.send("jobs", b"v", partition=0)
            if not together:
                future.get(60)


def delete(cluster, where):
    DeltaTable(f"{cluster}/topics/jobs").delete(where)


def read_to_end(wire, *, version=11, isolation_level=0, start=0):
    """The offsets of the batches that a client gets, as (base, last, count), up to the high watermark."""
    found, at = [], start
    for _ in range(20):
        body = {**fetching(at), "isolation_level": isolation_level}
        if version >= 13:
            (topic,) = wire.call("Metadata", 12, {"topics": [{"name": "jobs"}]})["topics"]
            body = {**fetching(at, topic_id=topic["topic_id"]), "isolation_level": isolation_level}
        answer = fetched(wire.call("Fetch", version, body))
        assert answer["error_code"] == 0
        for header in batch_headers(answer["records"] or b""):
            last = header.base_offset + header.last_offset_delta
            found.append((header.base_offset, last, header.count))
            at = last + 1
        if at >= answer["high_watermark"]:
            assert at == answer["high_watermark"] == answer["last_stable_offset"]
            return found
    raise AssertionError(f"the end isn't reached: {found}")


@pytest.fixture
def served(cluster):
    with sparklog.gateway.serve(cluster) as servers:
        client = Wire(servers)
        yield servers, client
        client.close()


@pytest.mark.parametrize("together", [True, False], ids=["one file", "many files"])
@pytest.mark.parametrize("gap", GAPS)
def test_an_empty_batch_carries_the_last_offset(cluster, served, gap, together):
    _, wire = served
    send(cluster, 10, together=together)
    delete(cluster, GAPS[gap])
    for version in (4, 11, 16):
        for isolation_level in (0, 1):
            found = read_to_end(wire, version=version, isolation_level=isolation_level)
            assert sum(count for *_, count in found) == LEFT[gap]
            base, last, count = found[-1]
            assert (last, count) == (9, 0)
            assert base == (found[-2][1] + 1 if len(found) > 1 else 0)


def test_readers_within_the_gap_reach_the_end_and_later_records_come(cluster, served):
    _, wire = served
    send(cluster, 10, together=False)
    delete(cluster, f"{OFFSET} in (4, 5) or {OFFSET} >= 7")
    for start in (7, 8, 9):
        assert read_to_end(wire, start=start) == [(start, 9, 0)]
    assert read_to_end(wire, start=10) == []
    send(cluster, 3)
    assert read_to_end(wire, start=7) == [(10, 12, 3)]
    delete(cluster, f"{OFFSET} >= 11")
    delete(cluster, f"{OFFSET} >= 10")  # several times
    assert read_to_end(wire, start=7) == [(7, 12, 0)]
    assert read_to_end(wire, start=6) == [(6, 6, 1), (7, 12, 0)]


def test_a_gap_is_told_with_the_leader_epoch(cluster, served):
    _, wire = served
    Admin(cluster).delete_topics(["jobs"])
    Admin(cluster).create_topics([NewTopic("jobs", 1)])
    send(cluster, 2)
    delete(cluster, None)
    data = fetched(wire.call("Fetch", 11, fetching(0)))["records"]
    assert int.from_bytes(data[12:16], "big") == 1


def test_records_that_are_put_back_are_read(cluster, served):
    _, wire = served
    send(cluster, 3)
    table = DeltaTable(f"{cluster}/topics/jobs")
    version = table.version()
    table.delete(None)
    assert read_to_end(wire) == [(0, 2, 0)]
    table.restore(version)
    assert read_to_end(wire) == [(0, 2, 3)]
    assert values(fetched(wire.call("Fetch", 11, fetching(1)))["records"]) == [b"v"] * 2


def test_a_batch_covers_what_it_can():
    (header,) = batch_headers(encode_empty_batch(5, 2**40))
    assert header.count == 0
    assert header.base_offset + header.last_offset_delta == 2**40
    assert header.last_offset_delta == 2**31 - 1


# --- Kafka's own clients


@pytest.mark.parametrize("gap", ["several", "all"])
@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_confluents_consumer_reports_the_end(cluster, served, gap, isolation_level):
    confluent = pytest.importorskip("confluent_kafka")
    send(cluster, 10, together=False)
    delete(cluster, GAPS[gap])
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": served[0],
            "group.id": "g",
            "enable.partition.eof": True,  # as kcat -e
            "isolation.level": isolation_level,
        }
    )
    consumer.assign([confluent.TopicPartition("jobs", 0, confluent.OFFSET_BEGINNING)])
    seen, until = [], time.monotonic() + 60
    while time.monotonic() < until:
        found = consumer.poll(0.2)
        if found is not None and found.error() is not None:
            assert found.error().code() == confluent.KafkaError._PARTITION_EOF
            assert found.offset() == 10
            break
        if found is not None:
            seen.append(found.offset())
    else:
        pytest.fail(f"no end after {seen}")
    assert seen == [*range(LEFT[gap])]
    consumer.close()


@pytest.mark.parametrize("gap", ["several", "all"])
def test_kafka_pythons_consumer_reaches_the_end_and_its_lag_is_zero(cluster, served, gap):
    kafka = pytest.importorskip("kafka")
    send(cluster, 10)
    delete(cluster, GAPS[gap])
    at = kafka.TopicPartition("jobs", 0)
    consumer = kafka.KafkaConsumer(bootstrap_servers=served[0], group_id="g", enable_auto_commit=False)
    consumer.assign([at])
    consumer.seek_to_beginning(at)
    seen, until = [], time.monotonic() + 60
    while consumer.position(at) < 10:
        assert time.monotonic() < until
        seen += [record.offset for records in consumer.poll(200).values() for record in records]
    assert seen == [*range(LEFT[gap])]
    consumer.commit()
    consumer.close()
    assert [row.lag for row in Admin(cluster).describe_groups(["g"])[0].partitions] == [0]


@pytest.mark.parametrize("gap", ["several", "all"])
def test_aiokafkas_consumer_reaches_the_end(cluster, served, gap):
    aiokafka = pytest.importorskip("aiokafka")
    send(cluster, 10)
    delete(cluster, GAPS[gap])

    async def play():
        at = aiokafka.TopicPartition("jobs", 0)
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=served[0]) as consumer:
            consumer.assign([at])
            await consumer.seek_to_beginning(at)
            seen, until = [], time.monotonic() + 60
            while await consumer.position(at) < 10:
                assert time.monotonic() < until
                found = await consumer.getmany(at, timeout_ms=200)
                seen += [record.offset for record in found.get(at, [])]
            return seen

    assert asyncio.run(play()) == [*range(LEFT[gap])]
