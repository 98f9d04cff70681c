"""Calls that wait for the store hold up no others: each kind has threads of its own; a topic is opened once for all."""

from __future__ import annotations

import threading
import uuid
from contextlib import ExitStack

import pytest

import sparklog.gateway
from sparklog import Admin, NewTopic, TopicPartition
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.gateway import users as users_module
from sparklog.gateway.backend import Backend
from sparklog.gateway.settings import GatewaySettings
from sparklog.gateway.users import Rules, new_user
from sparklog.gateway.wire import message
from sparklog.log.cluster import open_cluster
from sparklog.storage import MemoryStore
from sparklog.testing import WrappedStore
from tests.gateway.test_groups import AwayStore
from tests.gateway.test_server import Wire, batch, ends, fetched, fetching, produce, produced

MANY = 24
"""More than there are threads for Produce."""
THREADS = 16


class HangingStore(WrappedStore):
    """A store whose calls for some topics hang until they are let go."""

    def __init__(self, store):
        super().__init__(store)
        self._changed = threading.Condition()
        self._hangs = False
        self._waiting = 0

    def hang(self, hangs):
        with self._changed:
            self._hangs = hangs
            self._changed.notify_all()

    def wait_for(self, count):
        """Wait until so many calls hang."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._waiting >= count, 60)

    @property
    def waiting(self):
        return self._waiting

    def _call(self, kind, path, call):
        if "slow" in path:
            with self._changed:
                self._waiting += 1
                self._changed.notify_all()
                assert self._changed.wait_for(lambda: not self._hangs, 120)
                self._waiting -= 1
        return call()


@pytest.fixture
def store():
    store = HangingStore(MemoryStore(f"memory://waiting-{uuid.uuid4().hex}"))
    names = ["jobs", *(f"slow-{number}" for number in range(MANY))]
    Admin(open_cluster(store)).create_topics([NewTopic(name, 1) for name in names])
    return store


@pytest.fixture
def closing():
    with ExitStack() as stack:
        yield stack


def client(closing, servers):
    found = Wire(servers)
    closing.callback(found.close)
    return found


def received(waiting, version=9):
    response = message("ProduceResponse")
    return produced(response.decode(waiting.receive()[5:], version))["error_code"]


@pytest.mark.slow
def test_calls_of_produce_that_wait_hold_up_no_other_kind_of_requests(store, closing, tmp_path, monkeypatch):
    monkeypatch.setattr(users_module, "_ITERATIONS", 4_096)
    everything = Rules(("*",), ("*",), ("*",), ("*",), admin=True)
    path = tmp_path / "users"
    path.write_text(new_user("ann", "pencil", everything).to_json() + "\n")

    def entered(servers):
        found = client(closing, servers)
        assert found.call("SaslHandshake", 1, {"mechanism": "PLAIN"})["error_code"] == 0
        assert found.call("SaslAuthenticate", 1, {"auth_bytes": b"\0ann\0pencil"})["error_code"] == 0
        return found

    with sparklog.gateway.serve(open_cluster(store), users=path, allow_plain_without_tls=True) as servers:
        before = entered(servers)
        assert produced(before.call("Produce", 9, produce(batch(b"a"))))["error_code"] == 0
        store.hang(True)
        waiting = [entered(servers) for _ in range(MANY)]
        for number, one in enumerate(waiting):
            one.send("Produce", 9, produce(batch(b"x"), topic=f"slow-{number}"))
        store.wait_for(THREADS)
        other = entered(servers)
        assert other.call("Metadata", 9, {"topics": [{"name": "jobs"}]})["topics"][0]["error_code"] == 0
        assert fetched(other.call("Fetch", 11, fetching(0)))["high_watermark"] == 1
        assert other.call("ListOffsets", 7, ends())["topics"][0]["partitions"][0]["offset"] == 1
        committed = {"topics": [{"name": "jobs", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]}
        found = other.call("OffsetCommit", 8, {"group_id": "g", **committed})
        assert found["topics"][0]["partitions"][0]["error_code"] == 0
        new = {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        assert other.call("CreateTopics", 7, {"topics": [new], "timeout_ms": 20_000})["topics"][0]["error_code"] == 0
        assert (
            other.call("InitProducerId", 4, {"transactional_id": "t", "transaction_timeout_ms": 60_000})["error_code"]
            == 0
        )
        assert produced(before.call("Produce", 9, produce(batch(b"b"))))["error_code"] == 0  # of an open topic
        store.hang(False)
        assert [received(one) for one in waiting] == [0] * MANY
    for number in range(MANY):
        at = TopicPartition(f"slow-{number}", 0)
        assert Admin(open_cluster(store)).end_offsets([at]) == {at: 1}


@pytest.mark.slow
def test_a_topic_is_opened_once_for_all_who_produce_to_it(store, closing):
    with sparklog.gateway.serve(open_cluster(store)) as servers:
        waiting = [client(closing, servers) for _ in range(MANY)]
        store.hang(True)
        for one in waiting:
            one.send("Produce", 9, produce(batch(b"x"), topic="slow-0"))
        store.wait_for(1)
        other = client(closing, servers)
        assert produced(other.call("Produce", 9, produce(batch(b"a"))))["error_code"] == 0
        assert store.waiting == 1
        store.hang(False)
        assert [received(one) for one in waiting] == [0] * MANY
    at = TopicPartition("slow-0", 0)
    assert Admin(open_cluster(store)).end_offsets([at]) == {at: MANY}


@pytest.mark.slow
def test_whoever_waits_for_a_thread_of_produce_is_answered_in_time(closing):
    away = AwayStore(MemoryStore(f"memory://waiting-{uuid.uuid4().hex}"))
    cluster = open_cluster(away)
    Admin(cluster).create_topics([NewTopic(f"t{number}", 1) for number in range(2 * MANY)])
    with sparklog.gateway.serve(open_cluster(away), delivery_timeout_ms=1_000) as servers:
        waiting = [client(closing, servers) for _ in range(2 * MANY)]
        away.is_away = True
        for number, one in enumerate(waiting):
            one.send("Produce", 9, produce(batch(b"x"), topic=f"t{number}"))
        codes = {received(one) for one in waiting}
        assert codes <= {7, 56}  # which clients repeat
        assert 7 in codes  # and who had no thread
        away.is_away = False
    places = [TopicPartition(f"t{number}", 0) for number in range(2 * MANY)]
    assert set(Admin(cluster).end_offsets(places).values()) == {0}


class CountingStore(WrappedStore):
    """Counts calls."""

    def __init__(self, store):
        super().__init__(store)
        self.calls = 0

    def _call(self, kind, path, call):
        self.calls += 1
        return call()


def test_ids_that_are_unknown_are_not_looked_for_each_time():
    store = CountingStore(MemoryStore(f"memory://ids-{uuid.uuid4().hex}"))
    cluster = open_cluster(store)
    admin = Admin(cluster)
    admin.create_topics([NewTopic(f"t{number}", 1) for number in range(5)])
    backend = Backend(cluster, GatewaySettings(), None)
    try:
        ids = [uuid.UUID(topic.topic_id) for topic in admin.describe_topics()]
        assert [backend.name_of(one) for one in ids] == [f"t{number}" for number in range(5)]
        backend._next_look_ms = float("-inf")
        with pytest.raises(UnknownTopicOrPartitionError):
            backend.name_of(uuid.uuid4())
        store.calls = 0
        for _ in range(10):
            with pytest.raises(UnknownTopicOrPartitionError):
                backend.name_of(uuid.uuid4())
        assert store.calls == 0
        admin.create_topics([NewTopic("new", 1)])
        (new,) = admin.describe_topics(["new"])
        with pytest.raises(UnknownTopicOrPartitionError):
            backend.name_of(uuid.UUID(new.topic_id))  # within the second
        assert backend.name_of(uuid.UUID(new.topic_id), is_sure=True) == "new"
    finally:
        backend._threads["look"].shutdown()


def test_an_id_is_looked_for_among_the_new_topics_first(monkeypatch):
    cluster = open_cluster(f"memory://ids-{uuid.uuid4().hex}")
    admin = Admin(cluster)
    admin.create_topics([NewTopic("old", 1)])
    backend = Backend(cluster, GatewaySettings(), None)
    backend.describe_all()
    admin.create_topics([NewTopic("new", 1)])
    (new,) = admin.describe_topics(["new"])
    monkeypatch.setattr(Backend, "describe_all", lambda _: pytest.fail("all were looked at"))
    assert backend.name_of(uuid.UUID(new.topic_id)) == "new"
    assert backend.name_of(uuid.UUID(admin.describe_topics(["old"])[0].topic_id)) == "old"


def test_a_look_for_ids_that_takes_long_makes_others_wait_a_second_at_most():
    cluster = open_cluster(f"memory://ids-{uuid.uuid4().hex}")
    backend = Backend(cluster, GatewaySettings(), None)
    with backend._looking_for_ids, pytest.raises(UnknownTopicOrPartitionError):
        backend.name_of(uuid.uuid4())
