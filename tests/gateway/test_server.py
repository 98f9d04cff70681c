"""The gateway as its clients see it: real ones, and bad ones."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
import uuid
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import sparklog.gateway
from sparklog import Admin, Consumer, NewTopic, Producer
from sparklog._native import CORE
from sparklog.gateway.connection import Connection
from sparklog.gateway.records import batch_headers, decode_batches, encode_batches
from sparklog.gateway.server import parse_address
from sparklog.gateway.wire import message
from sparklog.log.data.schema import HEADERS


@pytest.fixture
def cluster():
    root = f"memory://gateway-{uuid.uuid4().hex}"
    Admin(root).create_topics([NewTopic("jobs", 2)])
    return root


@pytest.fixture
def servers(cluster):
    with sparklog.gateway.serve(cluster) as bootstrap_servers:
        yield bootstrap_servers


class Wire:
    """A client that says exactly what it is told."""

    def __init__(self, servers, client_id="wire"):
        self.client_id = client_id
        self.socket = socket.create_connection(parse_address(servers), timeout=60)
        self.sent = 0

    def send(self, name, version, body):
        self.sent += 1
        request = message(f"{name}Request")
        header = message("RequestHeader").encode(
            {
                "request_api_key": request.api_key,
                "request_api_version": version,
                "correlation_id": self.sent,
                "client_id": self.client_id,
            },
            2 if version in request.flexible else 1,
        )
        data = bytes(header) + bytes(request.encode(body, version))
        self.socket.sendall(len(data).to_bytes(4, "big") + data)
        return self.sent

    def receive(self):
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def _exactly(self, size):
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def call(self, name, version, body):
        number = self.send(name, version, body)
        data = self.receive()
        assert int.from_bytes(data[:4], "big") == number
        response = message(f"{name}Response")
        flexible = version in response.flexible and name != "ApiVersions"
        return response.decode(data[5 if flexible else 4 :], version)

    def is_closed(self):
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self):
        self.socket.close()


@pytest.fixture
def wire(servers):
    client = Wire(servers)
    yield client
    client.close()


def batch(*values, codec=None, first=0):
    count = len(values)
    table = pa.table(
        {
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array([1_000 + n for n in range(count)], pa.int64()),
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.nulls(count, HEADERS),
        }
    )
    return b"".join(encode_batches(table, codec=codec))


def produce(records, topic="jobs", partition=0, acks=-1):
    parts = [{"index": partition, "records": records}]
    return {"acks": acks, "timeout_ms": 10_000, "topic_data": [{"name": topic, "partition_data": parts}]}


def produced(answer):
    return answer["responses"][0]["partition_responses"][0]


def fetching(offset, *, topic="jobs", partition=0, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topic_id=None):
    part = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes}
    name = {"topic": topic} if topic_id is None else {"topic_id": topic_id}
    topics = [{**name, "partitions": [part]}]
    return {"max_wait_ms": max_wait_ms, "min_bytes": min_bytes, "max_bytes": max_bytes, "topics": topics}


def fetched(answer):
    return answer["responses"][0]["partitions"][0]


def values(records):
    return decode_batches([*batch_headers(records)], limit_bytes=1 << 24)["value"].to_pylist()


def test_confluents_producer_writes_what_sparklog_reads(cluster, servers):
    confluent = pytest.importorskip("confluent_kafka")
    results = []
    producer = confluent.Producer({"bootstrap.servers": servers, "compression.type": "lz4"})
    for number in range(100):
        producer.produce(
            "jobs",
            f"value {number}",
            key=f"key {number}",
            headers={"a": b"b"},
            on_delivery=lambda error, found: results.append((error, found.partition(), found.offset())),
        )
    assert producer.flush(60) == 0
    assert [error for error, _, _ in results if error] == []
    with Consumer("jobs", cluster=cluster, auto_offset_reset="earliest", consumer_timeout_ms=60_000) as consumer:
        found = [next(consumer) for _ in range(100)]
    assert {r.value for r in found} == {f"value {n}".encode() for n in range(100)}
    assert {(r.partition, r.offset) for r in found} == {(p, o) for _, p, o in results}
    assert found[0].headers == [("a", b"b")]


def test_confluents_consumer_reads_what_sparklog_wrote(cluster, servers):
    confluent = pytest.importorskip("confluent_kafka")
    with Producer(cluster) as producer:
        for number in range(100):
            producer.send("jobs", b"value %d" % number, partition=number % 2, headers=[("a", None)])
    consumer = confluent.Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False})
    ends = [consumer.get_watermark_offsets(confluent.TopicPartition("jobs", p), timeout=60) for p in (0, 1)]
    assert ends == [(0, 50), (0, 50)]
    consumer.assign([confluent.TopicPartition("jobs", 0, 0), confluent.TopicPartition("jobs", 1, 40)])
    found: list[Any] = []
    until = time.monotonic() + 60
    while len(found) < 60 and time.monotonic() < until:
        found += consumer.consume(100, 0.2)
    assert [one.error() for one in found if one.error()] == []
    assert sorted((one.partition(), one.offset()) for one in found) == [
        *((0, offset) for offset in range(50)),
        *((1, offset) for offset in range(40, 50)),
    ]
    consumer.close()


def test_kafka_pythons_clients_produce_and_consume(servers):
    kafka = pytest.importorskip("kafka")
    producer = kafka.KafkaProducer(bootstrap_servers=servers, enable_idempotence=False, compression_type="gzip")
    sent = [producer.send("jobs", b"%d" % number, key=b"k").get(60) for number in range(10)]
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, consumer_timeout_ms=60_000)
    at = kafka.TopicPartition("jobs", sent[0].partition)
    consumer.assign([at])
    consumer.seek_to_beginning(at)
    assert [next(consumer).value for _ in range(10)] == [b"%d" % number for number in range(10)]
    consumer.close()


def test_aiokafkas_clients_produce_and_consume(servers):
    aiokafka = pytest.importorskip("aiokafka")

    async def play():
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers) as producer:
            sent = [await producer.send_and_wait("jobs", b"%d" % number, partition=1) for number in range(10)]
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        async with consumer:
            consumer.assign([aiokafka.TopicPartition("jobs", 1)])
            found = [await asyncio.wait_for(consumer.getone(), 60) for _ in range(10)]
        return [one.offset for one in sent], [one.value for one in found]

    assert asyncio.run(play()) == ([*range(10)], [b"%d" % number for number in range(10)])


def test_confluents_admin_creates_describes_and_deletes_topics(cluster, servers):
    confluent = pytest.importorskip("confluent_kafka")
    admin = pytest.importorskip("confluent_kafka.admin")
    client = admin.AdminClient({"bootstrap.servers": servers})
    new = admin.NewTopic("made", num_partitions=3, config={"retention.ms": "1000"})
    client.create_topics([new])["made"].result(60)
    assert len(client.list_topics(timeout=60).topics["made"].partitions) == 3
    (described,) = client.describe_configs([admin.ConfigResource(confluent.admin.RESOURCE_TOPIC, "made")]).values()
    assert described.result(60)["retention.ms"].value == "1000"
    with pytest.raises(confluent.KafkaException, match="TOPIC_ALREADY_EXISTS"):
        client.create_topics([new])["made"].result(60)
    client.delete_topics(["made"])["made"].result(60)
    assert Admin(cluster).list_topics() == ["jobs"]


def test_pipelined_requests_are_answered_in_order(wire):
    sent = [wire.send("Produce", 9, produce(batch(b"%d" % number))) for number in range(20)]
    answers = [wire.receive() for _ in sent]
    assert [int.from_bytes(data[:4], "big") for data in answers] == sent
    decoded = [message("ProduceResponse").decode(data[5:], 9) for data in answers]
    assert [produced(one)["base_offset"] for one in decoded] == [*range(20)]


def test_answers_that_are_ready_together_go_by_one_write_in_their_order(wire, monkeypatch):
    written = []

    async def write(connection, data, original=Connection._write):
        written.append(len(data))
        await original(connection, data)

    monkeypatch.setattr(Connection, "_write", write)

    def together(*asked):
        """Send requests in one packet; their answers."""
        connected = wire.socket
        with BytesIO() as packet:
            monkeypatch.setattr(wire, "socket", SimpleNamespace(sendall=packet.write))
            sent = [wire.send(name, 9, body) for name, body in asked]
            monkeypatch.setattr(wire, "socket", connected)
            wire.socket.sendall(packet.getvalue())
        wanted = [(number, name) for number, (name, body) in zip(sent, asked, strict=True) if body.get("acks", -1)]
        answers = [wire.receive() for _ in wanted]
        assert [int.from_bytes(data[:4], "big") for data in answers] == [number for number, _ in wanted]
        decoded = [
            message(f"{name}Response").decode(data[5:], 9) for data, (_, name) in zip(answers, wanted, strict=True)
        ]
        return [produced(one) for one in decoded if "responses" in one]

    good = [("Produce", produce(batch(b"%d" % number))) for number in range(3)]
    assert [one["base_offset"] for one in together(*good)] == [0, 1, 2]
    assert len(written) < 3 or CORE is None  # without a compiled core each request is sent alone
    unheard = ("Produce", produce(batch(b"unheard"), acks=0))
    refused = ("Produce", produce(batch(b"refused"), partition=77))
    found = together(*good, unheard, refused, ("Metadata", {"topics": []}), good[0])
    assert [one["error_code"] for one in found] == [0, 0, 0, 3, 0]


@pytest.mark.parametrize("version", range(3, 12))
def test_produce_in_all_versions(wire, version):
    answer = produced(wire.call("Produce", version, produce(batch(b"a", b"b"))))
    assert (answer["error_code"], answer["base_offset"]) == (0, 0)
    assert produced(wire.call("Produce", version, produce(batch(b"c"))))["base_offset"] == 2


@pytest.mark.parametrize("version", range(4, 17))
def test_fetch_in_all_versions_from_inside_a_batch(wire, version):
    wire.call("Produce", 9, produce(batch(b"a", b"b", b"c")))
    (topic,) = wire.call("Metadata", 12, {"topics": [{"name": "jobs"}]})["topics"]
    by = {"topic_id": topic["topic_id"]} if version >= 13 else {}
    found = fetched(wire.call("Fetch", version, fetching(1, **by)))
    assert (found["error_code"], found["high_watermark"]) == (0, 3)
    assert values(found["records"])[-2:] == [b"b", b"c"]
    assert fetched(wire.call("Fetch", version, fetching(3, **by)))["records"] in (b"", None)
    assert fetched(wire.call("Fetch", version, fetching(4, **by)))["error_code"] == 1


def test_a_first_batch_comes_whatever_its_size_and_others_within_the_bound(wire):
    for _ in range(3):
        wire.call("Produce", 9, produce(batch(bytes(1_000))))
    assert values(fetched(wire.call("Fetch", 11, fetching(0, max_bytes=10)))["records"]) == [bytes(1_000)]
    assert len(values(fetched(wire.call("Fetch", 11, fetching(0, max_bytes=2_500)))["records"])) == 2


def test_a_fetch_waits_for_records(cluster, wire, servers):
    wire.send("Fetch", 11, fetching(0, max_wait_ms=20_000))
    with Producer(cluster) as producer:  # beside the gateway
        producer.send("jobs", b"late", partition=0).get(60)
    assert values(fetched(message("FetchResponse").decode(wire.receive()[4:], 11))["records"]) == [b"late"]


def test_a_fetch_that_finds_nothing_is_answered_in_time(wire):
    assert not fetched(wire.call("Fetch", 11, fetching(0, max_wait_ms=30)))["records"]


def test_acks_0_is_not_answered(wire, cluster):
    wire.send("Produce", 9, produce(batch(b"a"), acks=0))
    assert wire.call("ApiVersions", 0, {})["error_code"] == 0
    until = time.monotonic() + 60
    while not wire.call("ListOffsets", 7, ends())["topics"][0]["partitions"][0]["offset"]:
        assert time.monotonic() < until


def ends(timestamp=-1, topic="jobs", partition=0):
    return {"topics": [{"name": topic, "partitions": [{"partition_index": partition, "timestamp": timestamp}]}]}


@pytest.mark.parametrize(("timestamp", "offset"), [(-1, 3), (-2, 0), (-4, 0), (1_001, 1), (-3, 2), (9_999, -1)])
def test_offsets_by_time(wire, timestamp, offset):
    wire.call("Produce", 9, produce(batch(b"a", b"b", b"c")))
    (answer,) = wire.call("ListOffsets", 8, ends(timestamp))["topics"][0]["partitions"]
    assert (answer["error_code"], answer["offset"]) == (0, offset)


@pytest.mark.parametrize(
    ("request_body", "code"),
    [
        (produce(batch(b"a"), topic="nothing"), 3),
        (produce(batch(b"a"), topic=""), 3),
        (produce(batch(b"a"), partition=2), 3),
        (produce(batch(b"a"), topic="not/a/name"), 17),
        (produce(batch(b"a")[:-1] + b"x"), 2),
        (produce(batch(b"a")[:-1]), 2),
        (produce(b""), 87),
        (produce(batch(b"a"), acks=2), 21),
        (produce(struct.pack(">qiIbb", 0, 14, 0, 1, 0) + b"\xff" * 8), 43),
        (produce(batch(bytes(50 << 20), codec="zstd")), 10),
        ({**produce(batch(b"a")), "transactional_id": "t"}, 87),
    ],
)
def test_what_cannot_be_produced_has_kafkas_error(wire, request_body, code):
    answer = produced(wire.call("Produce", 9, request_body))
    assert (answer["error_code"], answer["base_offset"]) == (code, -1)
    assert produced(wire.call("Produce", 9, produce(batch(b"b"))))["base_offset"] == 0


def test_topics_are_created_where_the_setting_allows(cluster, wire):
    asked = {"topics": [{"name": "new"}], "allow_auto_topic_creation": False}
    assert wire.call("Metadata", 9, asked)["topics"][0]["error_code"] == 3
    (found,) = wire.call("Metadata", 9, {**asked, "allow_auto_topic_creation": True})["topics"]
    assert (found["error_code"], len(found["partitions"])) == (0, 1)
    with sparklog.gateway.serve(cluster, auto_create_topics=False) as servers:
        other = Wire(servers)
        asked = {"topics": [{"name": "other"}], "allow_auto_topic_creation": True}
        assert other.call("Metadata", 9, asked)["topics"][0]["error_code"] == 3
        other.close()


@pytest.mark.parametrize("version", range(14))
def test_metadata_in_all_versions(wire, servers, version):
    found = wire.call("Metadata", version, {"topics": [] if version == 0 else None})
    (broker,) = found["brokers"]
    assert f"{broker['host']}:{broker['port']}" == servers
    assert [(topic["name"], len(topic["partitions"])) for topic in found["topics"]] == [("jobs", 2)]


def test_an_unknown_topic_id_is_told(wire):
    unknown = uuid.uuid4()
    (found,) = wire.call("Metadata", 12, {"topics": [{"name": None, "topic_id": unknown}]})["topics"]
    assert (found["error_code"], found["topic_id"]) == (100, unknown)
    assert fetched(wire.call("Fetch", 13, fetching(0, topic_id=unknown)))["error_code"] == 100


def test_a_topic_without_a_name_is_unknown_to_fetch(wire):
    assert fetched(wire.call("Fetch", 11, fetching(0, topic="")))["error_code"] == 3


def test_a_topic_that_is_deleted_is_unknown_to_fetch(cluster, wire):
    wire.call("Produce", 9, produce(batch(b"a")))
    assert fetched(wire.call("Fetch", 11, fetching(0)))["error_code"] == 0
    Admin(cluster).delete_topics(["jobs"])
    assert fetched(wire.call("Fetch", 11, fetching(0)))["error_code"] == 3


@pytest.mark.parametrize("version", range(5))
def test_the_versions_that_are_served(wire, version):
    body = {"client_software_name": "test", "client_software_version": "1"}
    keys = {one["api_key"]: one for one in wire.call("ApiVersions", version, body)["api_keys"]}
    assert keys[0]["min_version"] == 0
    assert keys[18]["max_version"] == 4


def test_an_unknown_version_of_api_versions_is_answered_as_version_0(wire):
    wire.socket.sendall(struct.pack(">ihhih", 10, 18, 99, 7, -1))
    found = message("ApiVersionsResponse").decode(wire.receive()[4:], 0)
    assert found["error_code"] == 35
    assert any(one["api_key"] == 18 for one in found["api_keys"])


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -1),
        struct.pack(">i", 3),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 99, 1, -1),
        struct.pack(">ihhihi", 14, 3, 4, 1, -1, 2**31 - 1),
        struct.pack(">ihhi", 50_000_000, 3, 4, 1),
        struct.pack(">i", 8) + b"\xff" * 8,
    ],
    ids=["2 GiB", "negative", "short", "unknown key", "unknown version", "huge array", "large metadata", "noise"],
)
def test_a_bad_frame_ends_its_connection_alone(wire, servers, data):
    other = Wire(servers)
    wire.socket.sendall(data)
    assert wire.is_closed()
    assert other.call("ApiVersions", 0, {})["error_code"] == 0
    other.close()


def test_half_a_frame_harms_nobody(wire, servers):
    wire.socket.sendall(b"\x00\x00\x10\x00\x00\x03")
    other = Wire(servers)
    assert other.call("ApiVersions", 0, {})["error_code"] == 0
    other.close()


def test_an_idle_client_is_disconnected(cluster):
    with sparklog.gateway.serve(cluster, max_idle_ms=50) as servers:
        client = Wire(servers)
        assert client.is_closed()
        client.close()


def test_a_client_that_falls_silent_within_a_request_gives_its_room_back(cluster):
    with sparklog.gateway.serve(cluster, queued_bytes=100, max_stall_ms=50) as servers:
        silent, other = Wire(servers), Wire(servers)
        silent.socket.sendall(struct.pack(">ihhi", 100, 0, 9, 1))
        other.socket.settimeout(20)
        assert other.call("ApiVersions", 0, {})["error_code"] == 0
        assert silent.is_closed()
        other.close()
        silent.close()


def test_a_client_that_never_reads_is_disconnected_and_harms_nobody(cluster):
    with Producer(cluster) as producer:
        for _ in range(20):
            producer.send("jobs", bytes(100_000), partition=0)
    with sparklog.gateway.serve(cluster, max_idle_ms=500) as servers:
        lazy = Wire(servers)
        lazy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        assert sends_until_disconnected(lazy)
        reader = Wire(servers)
        assert fetched(reader.call("Fetch", 11, fetching(0)))["error_code"] == 0
        for client in (lazy, reader):
            client.close()


def sends_until_disconnected(client):
    try:
        for _ in range(100_000):
            client.send("Fetch", 11, fetching(0, max_bytes=1 << 24))
    except ConnectionError:
        return True
    return False


def test_more_connections_than_allowed_are_closed(cluster):
    with sparklog.gateway.serve(cluster, max_connections=1) as servers:
        first, second = Wire(servers), Wire(servers)
        assert second.is_closed()
        assert first.call("ApiVersions", 0, {})["error_code"] == 0
        first.close()
        second.close()


def test_closing_delivers_what_was_sent_without_acknowledgement(cluster):
    with sparklog.gateway.serve(cluster) as servers:
        client = Wire(servers)
        client.send("Produce", 9, produce(batch(b"a"), acks=0))
        client.call("ApiVersions", 0, {})
        client.close()
    assert Admin(cluster).end_offsets([sparklog.TopicPartition("jobs", 0)]).popitem()[1] == 1


@pytest.mark.parametrize("text", ["host", "host:", "host:x", "host:70000"])
def test_an_address_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        parse_address(text)
