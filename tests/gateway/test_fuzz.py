"""Requests of every key and version with whatever their fields can hold, and captures of a real client's requests with
bytes changed: no crash, no connection without an answer, no memory by declared lengths, no way round the rules."""

from __future__ import annotations

import contextlib
import gc
import logging
import random
import time
import tracemalloc
import uuid
from collections import Counter
from typing import Any
from unittest import mock

import pytest

import sparklog.gateway
from sparklog import Admin, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from sparklog.gateway import users as users_module
from sparklog.gateway.apis import APIS, PRODUCE
from sparklog.gateway.connection import Connection
from sparklog.gateway.records import BatchError, batch_headers, decode_batches
from sparklog.gateway.users import Rules, new_user
from sparklog.gateway.wire import WireError
from sparklog.gateway.wire.frames import read_request_header, unversioned_header
from sparklog.log.cluster import open_cluster
from sparklog.storage import MemoryStore
from tests.depth import by_depth
from tests.gateway.test_group_noise import Noise
from tests.gateway.test_server import Wire, batch, fetching
from tests.gateway.test_server import produce as produce_body

pytestmark = pytest.mark.slow

SECRET = b"nobody may read this"
UNSEEN = "unseen-topic"
"""A name that no request says."""
TEXTS = ("", "g", "jobs", "hidden", "txn", "consumer", "range", "x" * 300, "\0", "é/..", "(", "SCRAM-SHA-256", "PLAIN")
FETCH, API_VERSIONS, SASL = 1, 18, (17, 36)
ROUNDS, WARM = 10, 3
OF_OTHERS = [
    tracemalloc.Filter(False, f"*/{path}")
    for path in ("sparklog/delta/*", "sparklog/checksums.py", "storage/memory.py", "tests/*")
]
"""What the store keeps, which is in this process, and what the test does."""
STORING = {PRODUCE, 22, 24, 25, 26, 28}
"""What grows a topic, or a log of transactions, in the store, which is in memory here."""
VERSIONS = [(key, version) for key, api in APIS.items() for version in range(api.first, api.last + 1)]
MAY_WAIT = {"Fetch", "JoinGroup", "SyncGroup", "Produce"}
"""Requests that may be answered late, or not at all (acks=0), as they ask for it."""
_SOON_S = 0.05
_LIMIT = 1 << 22


class Requests(Noise):
    """Of all keys; topics, groups and ids that are there are said often."""

    def __init__(self, seed, topic_ids=()):
        super().__init__(seed)
        self.topic_ids = [uuid.UUID(int=0), uuid.uuid4(), *topic_ids]
        self.sessions = [0]
        """Of Fetch: those that were given are said again."""

    def one(self, field, kind, version):
        choice = self.random.choice
        if field.name == "session_id":
            return choice((0, choice(self.sessions), self.sessions[-1]))
        if kind == "string":
            return choice(TEXTS)
        if kind == "uuid":
            return choice(self.topic_ids)
        if kind == "records":
            return choice((None, b"", b"\0" * 70, batch(b"a"), batch(b"a", codec="zstd")[:-3]))
        if kind.startswith("uint"):
            return choice((0, 1, 2 ** int(kind[4:]) - 1))
        if kind == "float64":
            return choice((0.0, -1.5))
        if "timeout" in field.name or "max_wait" in field.name:
            return choice((0, 1, 50))
        return super().one(field, kind, version)


def make_cluster():
    """A cluster with data that few may see; and the store, which tells all that is in it."""
    store = MemoryStore()
    cluster = open_cluster(store)
    admin = Admin(cluster)
    admin.create_topics([NewTopic("jobs", 1), NewTopic("hidden", 1), NewTopic(UNSEEN, 1)])
    with Producer(cluster) as producer:
        for topic in ("hidden", UNSEEN):
            producer.send(topic, SECRET, key=SECRET).get(60)
    at = TopicPartition("hidden", 0)
    admin.alter_group_offsets("g", {at: OffsetAndMetadata(1, SECRET.decode())})
    ids = [uuid.UUID(topic.topic_id) for topic in admin.describe_topics()]
    return cluster, store, ids


def contents(store):
    return {found.path: store.read(found.path) for found in store.list("")}


def frame_of(key, version, body, correlation_id=7):
    """A request as a client sends it, without its length."""
    api = APIS[key]
    header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + correlation_id.to_bytes(4, "big") + b"\xff\xff"
    if version in api.request.flexible:
        header += b"\0"
    return header + bytes(api.request.encode(body, version))


def sized(frame):
    return len(frame).to_bytes(4, "big") + frame


def answer_of(client, frame, *, may_wait):
    """The answer to a frame; empty where the connection was ended, None where there is none yet and may be none."""
    client.socket.settimeout(_SOON_S if may_wait else 20)
    try:
        client.socket.sendall(sized(frame))
        return client.receive()
    except (EOFError, ConnectionError):
        return b""
    except TimeoutError:
        assert may_wait, f"no answer to {frame[:60]!r}"
        return None


class Fuzzed:
    """A gateway that is sent frames, one connection after the other where it ends one."""

    def __init__(self, servers, enter=lambda client: None):
        self._servers = servers
        self._enter = enter
        self._client = None
        self.answered = self.ended = 0

    def send(self, frame, *, may_wait):
        """The answer to a frame; empty where the connection was ended instead."""
        if self._client is None:
            self._client = Wire(self._servers)
            self._enter(self._client)
        found = answer_of(self._client, frame, may_wait=may_wait)
        if found:
            self.answered += 1
        else:
            self.ended += found == b""
            self.close()
        return found or b""

    def close(self):
        if self._client is not None:
            self._client.close()
            self._client = None


def errors(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def session_of(answer, version):
    """The session that an answer to Fetch tells, 0 where it is none."""
    response = APIS[FETCH].response
    found = response.decode(answer[5 if version in response.flexible else 4 :], version)
    return found.get("session_id", 0)


def lives(servers):
    client = Wire(servers)
    assert client.call("ApiVersions", 0, {})["error_code"] == 0
    client.close()


@pytest.mark.timeout(900)
def test_every_key_and_version_is_answered_whatever_it_holds(caplog):
    cluster, _, ids = make_cluster()
    noise = Requests(0, ids)
    settings: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0, "group_max_session_timeout_ms": 2_000}
    with sparklog.gateway.serve(cluster, **settings) as servers:
        fuzzed, sessioned = Fuzzed(servers), 0
        for _ in range(by_depth(gate=1, nightly=40)):
            for key, version in VERSIONS:
                if key not in SASL:
                    body = noise.message(APIS[key].request.fields, version)
                    found = fuzzed.send(frame_of(key, version, body), may_wait=APIS[key].name in MAY_WAIT)
                    if key == FETCH and found:
                        noise.sessions.append(session_of(found, version))
        # Requests of one session after the other, with whatever they add and forget.
        for _ in range(by_depth(gate=30, nightly=1_000)):
            session, first = 0, noise.random.choice((7, 12, 13, 16))
            for epoch in range(5):
                body = noise.message(APIS[FETCH].request.fields, first)
                body |= {"session_id": session, "session_epoch": epoch, "max_wait_ms": 0}
                found = fuzzed.send(frame_of(FETCH, first, body), may_wait=True)
                session = session_of(found, first) if found else 0
                sessioned += session > 0
                if not session:
                    break
        assert sessioned > 20
        fuzzed.close()
        lives(servers)
    assert errors(caplog) == []
    assert fuzzed.answered > 100


@pytest.fixture(scope="module")
def captures():
    """Frames of librdkafka's clients, as they came."""
    confluent = pytest.importorskip("confluent_kafka")
    admin = pytest.importorskip("confluent_kafka.admin")
    frames = []
    begin = Connection._begin

    async def recording(self, frame):
        frames.append(bytes(frame))
        return await begin(self, frame)

    cluster, _, _ = make_cluster()
    with mock.patch.object(Connection, "_begin", recording), sparklog.gateway.serve(cluster) as servers:
        client = admin.AdminClient({"bootstrap.servers": servers})
        client.create_topics([admin.NewTopic("made", 2)])["made"].result(60)
        for number, codec in enumerate(("none", "gzip", "lz4", "zstd", "snappy")):
            settings = {"bootstrap.servers": servers, "compression.type": codec, "enable.idempotence": number % 2 == 0}
            producer = confluent.Producer(settings)
            for value in range(20):
                producer.produce("jobs", b"%d" % value * 20, key="k", headers={"h": b"v"})
            assert producer.flush(60) == 0
        producer = confluent.Producer({"bootstrap.servers": servers, "transactional.id": "txn"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("made", b"t")
        producer.send_offsets_to_transaction([confluent.TopicPartition("jobs", 0, 1)], group_of(confluent, servers), 20)
        producer.commit_transaction(60)
        for protocol in ("classic", "consumer"):
            consumer = confluent.Consumer(
                {
                    "bootstrap.servers": servers,
                    "group.id": f"captured-{protocol}",
                    "group.protocol": protocol,
                    "auto.offset.reset": "earliest",
                }
            )
            consumer.subscribe(["jobs"])
            until = time.monotonic() + 60
            while not consumer.consume(10, 0.2) and time.monotonic() < until:
                pass
            consumer.commit(asynchronous=False)
            consumer.close()
        (done,) = client.describe_configs([admin.ConfigResource(admin.RESOURCE_TOPIC, "jobs")]).values()
        done.result(60)
        client.list_consumer_groups().result(60)
        client.delete_topics(["made"])["made"].result(60)
    found = {unversioned_header(memoryview(frame))[:2]: frame for frame in frames}
    assert len(found) >= 18
    return [*found.values(), *[frame for frame in frames if frame[:2] == b"\0\0"][:6]]


def group_of(confluent, servers):
    return confluent.Consumer({"bootstrap.servers": servers, "group.id": "other"}).consumer_group_metadata()


def mutated(draw, captured):
    """A capture with some of its bytes changed: bits, lengths, cuts, pieces of others."""
    frame = bytearray(draw.choice(captured))
    for _ in range(draw.choice((1, 1, 2, 5))):
        at = draw.randrange(len(frame)) if draw.random() < 0.8 else draw.randrange(min(12, len(frame)))
        kind = draw.randrange(6)
        if kind == 0:
            frame[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            frame[at : at + 4] = draw.choice((b"\x7f\xff\xff\xff", b"\xff" * 4, b"\x80\0\0\0", b"\0" * 4))
        elif kind == 2:
            frame[at : at + 5] = b"\xff\xff\xff\xff\x07"  # as an unsigned varint, 2³¹ - 1
        elif kind == 3:
            del frame[max(at, 8) :]
        elif kind == 4:
            other = draw.choice(captured)
            frame[at:at] = other[draw.randrange(len(other)) :][: draw.randrange(64)]
        else:
            frame[at] = draw.randrange(256)
        if len(frame) < 8:
            frame += bytes(8)
    return bytes(frame[:_LIMIT])


@pytest.mark.timeout(900)
def test_changed_captures_are_answered_or_end_their_connection_alone(captures, caplog):
    cluster, _, _ = make_cluster()
    seed = by_depth(gate=1, nightly=random.SystemRandom().randrange(10**9))
    print(f"seed {seed}")  # shown where it fails
    draw = random.Random(seed)
    settings: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0, "group_max_session_timeout_ms": 2_000}
    with sparklog.gateway.serve(cluster, **settings) as servers:
        fuzzed = Fuzzed(servers)
        for _ in range(by_depth(gate=300, nightly=20_000)):
            frame = mutated(draw, captures)
            key = int.from_bytes(frame[:2], "big")
            fuzzed.send(frame, may_wait=key not in APIS or APIS[key].name in MAY_WAIT)
        fuzzed.close()
        lives(servers)
    assert errors(caplog) == []
    assert fuzzed.answered > 20
    assert fuzzed.ended > 20


def test_changed_captures_take_memory_for_what_came_alone(captures):
    """Lengths that are declared and not there take none."""
    draw = random.Random(2)
    for known in APIS.values():
        known.request.codec(known.last)  # made once
    tracemalloc.start()
    try:
        for _ in range(by_depth(gate=500, nightly=20_000)):
            frame = memoryview(mutated(draw, captures))
            key, version, _ = unversioned_header(frame)
            api = APIS.get(key)
            if api is None or not api.first <= version <= api.last:
                continue
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with contextlib.suppress(WireError, BatchError):
                decode(api, frame, version)
            taken = tracemalloc.get_traced_memory()[1] - before
            assert taken < 100 * len(frame) + 2 * _LIMIT, (key, version, taken, bytes(frame))
    finally:
        tracemalloc.stop()


def decode(api, frame, version):
    body = api.request.decode(read_request_header(frame, api.request).body, version, is_exact=False)
    if api is APIS[PRODUCE]:
        for topic in body["topic_data"]:
            for partition in topic["partition_data"]:
                decode_batches([*batch_headers(partition["records"] or b"")], limit_bytes=_LIMIT)


@pytest.fixture
def users(tmp_path, monkeypatch):
    monkeypatch.setattr(users_module, "_ITERATIONS", 4_096)
    path = tmp_path / "users"
    ann = new_user("ann", "pencil", Rules(read=("*",)))
    path.write_text(new_user("eve", "apple", Rules()).to_json() + "\n" + ann.to_json() + "\n")
    return path


def enter(client, credentials=b"\0eve\0apple"):
    assert client.call("SaslHandshake", 1, {"mechanism": "PLAIN"})["error_code"] == 0
    assert client.call("SaslAuthenticate", 1, {"auth_bytes": credentials})["error_code"] == 0


def sessions_of_ann(servers):
    """Sessions of Fetch that see everything."""
    client = Wire(servers)
    enter(client, b"\0ann\0pencil")
    body = {**fetching(0, topic=UNSEEN), "session_id": 0, "session_epoch": 0}
    found = [client.call("Fetch", 12, body)["session_id"] for _ in range(3)]
    client.close()
    assert all(found)
    return found


@pytest.mark.parametrize("is_known", [False, True], ids=["nobody", "a user without rules"])
@pytest.mark.timeout(900)
def test_who_has_no_rights_gets_nothing_and_changes_nothing(users, is_known, caplog):
    cluster, store, ids = make_cluster()
    before = contents(store)
    noise = Requests(3, ids)
    with sparklog.gateway.serve(cluster, users=users, allow_plain_without_tls=True) as servers:
        noise.sessions = sessions_of_ann(servers)
        fuzzed = Fuzzed(servers, enter if is_known else lambda client: None)
        for _ in range(by_depth(gate=1, nightly=40)):
            for key, version in VERSIONS:
                if key in SASL and is_known:
                    continue
                body = noise.message(APIS[key].request.fields, version)
                if key == PRODUCE:  # one that would be stored
                    body = produce_body(batch(b"a"), topic=noise.random.choice(("jobs", "hidden")))
                found = fuzzed.send(frame_of(key, version, body), may_wait=APIS[key].name in MAY_WAIT)
                assert SECRET not in found, (key, version, body)
                assert UNSEEN.encode() not in found, (key, version, body)
                if not is_known and key not in (*SASL, 18):
                    assert found == b"", (key, version)
        fuzzed.close()
        lives(servers)
    assert contents(store) == before
    assert errors(caplog) == []


@pytest.mark.parametrize("parts", [1, 3])
def test_a_client_that_goes_inside_a_produce_harms_nobody(parts):
    """Half of the frame is there; or all of it, and the client doesn't wait."""
    cluster, _, _ = make_cluster()
    with sparklog.gateway.serve(cluster) as servers:
        frame = sized(frame_of(PRODUCE, 9, produce_body(batch(b"a"))))
        client = Wire(servers)
        client.socket.sendall((frame * parts)[: -len(frame) // 2])
        client.close()
        other = Wire(servers)
        until = time.monotonic() + 60
        asked = {"topics": [{"name": "jobs", "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
        while other.call("ListOffsets", 7, asked)["topics"][0]["partitions"][0]["offset"] < parts - 1:
            assert time.monotonic() < until
        other.close()
    assert Admin(cluster).end_offsets([TopicPartition("jobs", 0)]).popitem()[1] == parts - 1


@pytest.mark.parametrize("is_known", [False, True], ids=["nobody", "a user without rules"])
@pytest.mark.timeout(900)
def test_changed_captures_of_who_has_no_rights_get_nothing_and_change_nothing(users, captures, is_known, caplog):
    """What a client with rights sends is no way round, whatever is changed in it."""
    cluster, store, _ = make_cluster()
    seed = by_depth(gate=5, nightly=random.SystemRandom().randrange(10**9))
    print(f"seed {seed}")  # shown where it fails
    draw = random.Random(seed)
    with sparklog.gateway.serve(cluster, users=users, allow_plain_without_tls=True) as servers:
        before = contents(store)
        fuzzed = Fuzzed(servers, enter if is_known else lambda client: None)
        whole = {unversioned_header(memoryview(frame))[0]: frame for frame in captures}.values()
        for number in range(by_depth(gate=300, nightly=20_000)):
            frame = [*whole][number] if number < len(whole) else mutated(draw, captures)
            key = int.from_bytes(frame[:2], "big")
            if is_known and key in SASL:  # the last one would be another user's
                continue
            found = fuzzed.send(frame, may_wait=key not in APIS or APIS[key].name in MAY_WAIT)
            assert SECRET not in found, frame
            assert UNSEEN.encode() not in found, frame
            if not is_known and key not in (*SASL, API_VERSIONS):
                assert found == b"", frame
        fuzzed.close()
        lives(servers)
    assert contents(store) == before
    assert errors(caplog) == []
    assert fuzzed.ended > 20


def kept():
    """What the server holds: bytes, and objects of its own classes by their names."""
    gc.collect()
    found = tracemalloc.take_snapshot().filter_traces([*OF_OTHERS, tracemalloc.Filter(False, tracemalloc.__file__)])
    kinds = (f"{kind.__module__}.{kind.__qualname__}" for kind in map(type, gc.get_objects()))
    live = Counter(kind for kind in kinds if kind.startswith(("sparklog.gateway", "asyncio")))
    return sum(trace.size for trace in found.traces), live


@pytest.mark.deep  # in each run test_broken_off.py, of each kind of request that breaks off
@pytest.mark.timeout(900)
def test_a_server_holds_no_more_after_many_changed_captures_than_after_few(captures, caplog):
    """Whatever is kept of connections, requests, sessions and names that clients give is bounded, or given back.

    The same captures are sent in each round, so what may be kept once, such as names of groups, is kept in the first.
    """
    cluster, _, _ = make_cluster()
    settings: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0, "group_max_session_timeout_ms": 2_000}
    settings |= {"max_fetch_sessions": 50, "cache_bytes": 1 << 16}
    frames = [mutated(random.Random(number), captures) for number in range(by_depth(gate=40, nightly=2_000))]
    frames = [frame for frame in frames if int.from_bytes(frame[:2], "big") not in STORING]
    caplog.set_level(logging.ERROR, "sparklog.gateway")  # else the test keeps each warning
    measured = []
    with sparklog.gateway.serve(cluster, **settings) as servers:
        tracemalloc.start()
        try:
            for _ in range(ROUNDS):
                fuzzed = Fuzzed(servers)
                for frame in frames:
                    key = int.from_bytes(frame[:2], "big")
                    fuzzed.send(frame, may_wait=key not in APIS or APIS[key].name in MAY_WAIT)
                fuzzed.close()
                settled(servers)
                measured.append(kept())
        finally:
            tracemalloc.stop()
    (first, objects), (last, later) = measured[WARM], measured[-1]
    sizes = [size for size, _ in measured]
    assert last - first < 65_536, sizes  # a hundred bytes for each request would be more
    more = {name: count - objects[name] for name, count in later.items() if count > objects[name] + 10}
    more.pop("asyncio.events.TimerHandle", None)  # the loop drops cancelled ones once they are more than half of all
    assert more == {}
    assert errors(caplog) == []


def settled(servers):
    """Wait until every connection but one's own has ended."""
    client = Wire(servers)
    until = time.monotonic() + 60
    while sum(isinstance(one, Connection) for one in gc.get_objects()) > 1:
        assert time.monotonic() < until
        client.call("ApiVersions", 0, {})
        gc.collect()
    client.close()
