"""Idempotent producers by the wire: each batch is stored once, whichever gateway it is repeated to."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import replace

import pyarrow as pa
import pytest

import sparklog.gateway
from sparklog import Admin, Consumer, NewTopic, TopicPartition
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.gateway.records import batch_headers, encode_batches
from sparklog.gateway.records.batches import batch_with_header
from sparklog.log.cluster import open_cluster
from sparklog.log.data.schema import HEADERS
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore
from tests.gateway.test_server import Wire, batch, produce, produced


@pytest.fixture
def cluster():
    root = f"memory://gateway-{uuid.uuid4().hex}"
    Admin(root).create_topics([NewTopic("jobs", 2)])
    return root


@pytest.fixture
def servers(cluster):
    with sparklog.gateway.serve(cluster) as bootstrap_servers:
        yield bootstrap_servers


@pytest.fixture
def connect():
    clients = []

    def make(servers):
        clients.append(Wire(servers))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def numbered(*values, sequence, producer_id=5, epoch=0):
    (header,) = batch_headers(batch(*values))
    return batch_with_header(replace(header, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


def sent(client, *values, **numbers):
    answer = produced(client.call("Produce", 9, produce(numbered(*values, **numbers))))
    return answer["error_code"] or answer["base_offset"]


def end_offset(cluster, partition=0):
    (end,) = Admin(cluster).end_offsets([TopicPartition("jobs", partition)]).values()
    return end


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(servers, connect, version):
    client = connect(servers)
    body = {"transactional_id": None, "transaction_timeout_ms": 1_000}
    found = [client.call("InitProducerId", version, body) for _ in range(2)]
    assert [(one["error_code"], one["producer_epoch"]) for one in found] == [(0, 0)] * 2
    assert found[0]["producer_id"] != found[1]["producer_id"]


def test_what_is_repeated_has_its_offset_and_gaps_are_refused(cluster, servers, connect):
    client = connect(servers)
    assert sent(client, b"a", b"b", sequence=0) == 0
    assert sent(client, b"c", sequence=2) == 2
    assert sent(client, b"a", b"b", sequence=0) == 0
    assert sent(client, b"e", sequence=4) == 45
    assert sent(client, b"d", sequence=3) == 3
    assert sent(client, b"x", sequence=0, epoch=1) == 4
    assert sent(client, b"e", sequence=4) == 47
    assert end_offset(cluster) == 5


def test_two_gateways_and_one_that_is_started_anew_know_the_same(cluster, connect):
    with sparklog.gateway.serve(cluster) as one, sparklog.gateway.serve(cluster) as other:
        first, second = connect(one), connect(other)
        assert sent(first, b"a", sequence=0) == 0
        assert sent(second, b"a", sequence=0) == 0
        assert sent(second, b"b", sequence=1) == 1
        assert sent(second, b"c", sequence=2) == 2
        assert sent(first, b"d", sequence=3) == 3
        assert sent(first, b"b", sequence=1) == 1
        assert sent(second, b"f", sequence=5) == 45
    with sparklog.gateway.serve(cluster) as third:
        client = connect(third)
        assert [sent(client, value, sequence=n) for n, value in enumerate((b"a", b"b", b"c", b"d"))] == [0, 1, 2, 3]
        assert sent(client, b"e", sequence=4) == 4
    assert end_offset(cluster) == 5


def test_the_last_batch_is_known_behind_a_log_cleanup(connect):
    """A gateway that was started since can't know its offset; Kafka's clients take the answer for success."""
    memory = MemoryStore()
    cluster = open_cluster(memory)
    Admin(cluster).create_topics([NewTopic("jobs", 2)])
    log = open_cluster(memory, tail_trust_ms=1).topic_log("jobs")  # of whoever cleans alone
    with sparklog.gateway.serve(cluster) as servers:
        client = connect(servers)
        assert sent(client, b"a", sequence=0) == 0
        assert sent(client, b"b", sequence=1) == 1
        for number in range(3):
            assert sent(client, b"x", sequence=number, producer_id=6) == 2 + number
    time.sleep(0.02)  # entries as young as that are kept
    Admin(cluster).create_partitions({"jobs": 3})
    write_checkpoint(log)
    cleaned = clean_log(log, retention_ms=10)
    assert cleaned is not None
    assert cleaned.deleted_count >= 2
    with sparklog.gateway.serve(cluster) as servers:
        client = connect(servers)
        answer = produced(client.call("Produce", 9, produce(numbered(b"b", sequence=1))))
        assert (answer["error_code"], answer["base_offset"], answer["record_errors"]) == (46, -1, [])
        assert sent(client, b"c", sequence=2) == 5


def test_batches_under_way_in_two_connections_are_stored_once(cluster, servers, connect):
    first, second = connect(servers), connect(servers)
    for client in (first, second):
        for number in range(5):
            client.send("Produce", 9, produce(numbered(b"%d" % number, sequence=number)))
    answers = [client.receive() for client in (first, second) for _ in range(5)]
    assert len(answers) == 10
    assert end_offset(cluster) == 5
    assert [sent(first, b"%d" % number, sequence=number) for number in range(5)] == [*range(5)]


def test_a_batch_whose_answer_was_lost_is_stored_once(connect):
    store = MemoryStore()
    Admin(open_cluster(store)).create_topics([NewTopic("jobs", 2)])
    is_on: list[bool] = []
    lost = Fault(kind=FaultKind.LOST_ANSWER, ops=("create",), times=None, when=lambda call: bool(is_on))
    faulty = FaultyStore(store, lost)
    with sparklog.gateway.serve(open_cluster(faulty), delivery_timeout_ms=400) as servers:
        client = connect(servers)
        while sent(client, b"a", sequence=0) != 0:  # a busy machine may take longer than the bound
            pass
        is_on.append(True)
        assert sent(client, b"b", sequence=1) == 7
    with sparklog.gateway.serve(open_cluster(store)) as servers:
        client = connect(servers)
        assert sent(client, b"b", sequence=1) == 1
        assert sent(client, b"c", sequence=2) == 2


def test_a_client_that_goes_away_before_its_answer_repeats_without_doubling(cluster, servers, connect):
    for number in range(10):
        gone = connect(servers)
        gone.send("Produce", 9, produce(numbered(b"%d" % number, sequence=number)))
        gone.close()
        assert sent(connect(servers), b"%d" % number, sequence=number) in (number, 45)
        assert sent(connect(servers), b"%d" % number, sequence=number) == number
    assert end_offset(cluster) == 10


def test_a_refused_record_refuses_its_whole_batch_and_what_follows_it(connect):
    root = f"memory://gateway-{uuid.uuid4().hex}"
    Admin(root).create_topics([NewTopic("jobs", 1, configs={"cleanup.policy": "compact"})])
    with sparklog.gateway.serve(root) as servers:
        client = connect(servers)
        assert sent(client, b"without a key", sequence=0) == 87
    assert end_offset(root) == 0


def test_several_batches_of_one_idempotent_producer_in_a_request_are_refused(servers, connect):
    client = connect(servers)
    records = numbered(b"a", sequence=0) + numbered(b"b", sequence=1)
    assert produced(client.call("Produce", 9, produce(records)))["error_code"] == 87


def test_a_batch_as_large_as_may_be_is_stored_whole(cluster, servers, connect):
    client = connect(servers)
    table = pa.table(
        {
            "offset": pa.array(range(38_000), pa.int64()),
            "timestamp": pa.array([1_000] * 38_000, pa.int64()),
            "key": pa.nulls(38_000, pa.binary()),
            "value": pa.array([bytes(130)] * 38_000, pa.binary()),
            "headers": pa.nulls(38_000, HEADERS),
        }
    )
    (header,) = batch_headers(b"".join(encode_batches(table, batch_bytes=1 << 24)))
    large = batch_with_header(replace(header, producer_id=5, producer_epoch=0, base_sequence=0))
    assert produced(client.call("Produce", 9, produce(large)))["base_offset"] == 0
    assert sent(client, b"x", sequence=38_000) == 38_000
    assert produced(client.call("Produce", 9, produce(large)))["base_offset"] == 0


def values(cluster, count):
    assert end_offset(cluster) + end_offset(cluster, 1) == count
    with Consumer("jobs", cluster=cluster, auto_offset_reset="earliest") as consumer:
        return {next(consumer).value for _ in range(count)}


def test_confluents_idempotent_producer_works_as_it_comes(cluster, servers):
    confluent = pytest.importorskip("confluent_kafka")
    results = []
    producer = confluent.Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})
    for number in range(200):
        producer.produce("jobs", b"%d" % number, on_delivery=lambda error, found: results.append((error, found)))
        producer.poll(0)
    assert producer.flush(60) == 0
    assert [error for error, _ in results if error] == []
    assert values(cluster, 200) == {b"%d" % number for number in range(200)}


def test_kafka_pythons_producer_works_with_its_defaults(cluster, servers):
    kafka = pytest.importorskip("kafka")
    producer = kafka.KafkaProducer(bootstrap_servers=servers)
    sent = [producer.send("jobs", b"%d" % number) for number in range(50)]
    assert {(one.get(60).partition, one.get(60).offset) for one in sent}
    producer.close()
    assert values(cluster, 50) == {b"%d" % number for number in range(50)}


def test_aiokafkas_idempotent_producer_works(cluster, servers):
    aiokafka = pytest.importorskip("aiokafka")

    async def play():
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
            await asyncio.gather(*[await producer.send("jobs", b"%d" % number) for number in range(50)])

    asyncio.run(play())
    assert values(cluster, 50) == {b"%d" % number for number in range(50)}


def test_idempotent_and_other_producers_share_a_topic(cluster, servers, connect):
    one, other = connect(servers), connect(servers)
    for number in range(20):
        one.send("Produce", 9, produce(numbered(b"%d" % number, sequence=number)))
        other.send("Produce", 9, produce(batch(b"other")))
    for _ in range(20):
        one.receive()
        other.receive()
    assert end_offset(cluster) == 40
    assert len({sent(one, b"%d" % number, sequence=number) for number in range(15, 20)}) == 5


@pytest.mark.parametrize("has_records", [False, True])
def test_a_batch_that_overtakes_the_first_of_its_producer_is_refused(cluster, connect, has_records):
    with sparklog.gateway.serve(cluster) as one, sparklog.gateway.serve(cluster) as other:
        first, second = connect(one), connect(other)
        begin = 0
        if has_records:
            begin = sent(first, b"x", sequence=0, producer_id=6) + 1
        assert sent(second, b"c", sequence=2) == 45
        assert sent(second, b"c", sequence=2) == 45
        assert sent(first, b"a", b"b", sequence=0) == begin
        assert sent(second, b"c", sequence=2) == begin + 2
        assert sent(first, b"a", b"b", sequence=0) == begin


def test_confluents_producer_goes_on_where_partitions_are_added(cluster, servers):
    confluent = pytest.importorskip("confluent_kafka")
    producer = confluent.Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    errors: list[object] = []

    def send(partition):
        producer.produce("jobs", b"v", partition=partition, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0

    for _ in range(3):
        send(0)
    Admin(cluster).create_partitions({"jobs": 3})
    deadline = time.monotonic() + 60
    while "jobs" not in (found := producer.list_topics("jobs").topics) or len(found["jobs"].partitions) < 3:
        assert time.monotonic() < deadline
    for _ in range(3):
        send(2)
    assert errors == [None] * 6
    assert (end_offset(cluster, 0), end_offset(cluster, 2)) == (3, 3)
