"""Gateways that know each other by the store: where clients end up, and what becomes of them on bad days."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import Counter
from contextlib import ExitStack, closing

import pytest

import sparklog.gateway
from sparklog import Admin, NewTopic, Producer
from sparklog.gateway import inprocess
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.neighbours import Neighbours
from sparklog.gateway.server import Gateway, parse_address
from sparklog.gateway.settings import GatewaySettings
from sparklog.gateway.zones import Node, node_id_of
from sparklog.log.cluster import open_cluster
from sparklog.paths import GATEWAYS_FOLDER, gateway_mark
from sparklog.storage import MemoryStore
from sparklog.testing.counting_store import CountingStore
from sparklog.testing.faulty_store import Fault, FaultKind, FaultyStore
from sparklog.testing.manual_clock import ManualClock
from tests.gateway.test_groups import AwayStore
from tests.gateway.test_server import Wire, batch, fetched, fetching, produce, produced, values

PARTITIONS = 4


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


class Served:
    """Gateways of one cluster, each with its zone."""

    def __init__(self, stack, monkeypatch, root, *zones, **settings):
        self.gateways: list[Gateway] = []

        def recorded(*args, **security):
            self.gateways.append(Gateway(*args, **security))
            return self.gateways[-1]

        monkeypatch.setattr(inprocess, "Gateway", recorded)
        self.stacks = [stack.enter_context(ExitStack()) for _ in zones]
        self.servers = [
            one.enter_context(sparklog.gateway.serve(root, zone=zone, zone_heartbeat_interval_ms=20, **settings))
            for one, zone in zip(self.stacks, zones, strict=True)
        ]
        self.until_known(*(number for number, zone in enumerate(zones) if zone is not None))

    def until_known(self, *numbers):
        known = {self.servers[number] for number in numbers}
        neighbours = [self.gateways[number]._backend.neighbours for number in numbers]
        until(lambda: all({node.address for node in one.nodes} == known for one in neighbours))

    def node_id(self, number):
        return node_id_of(*parse_address(self.servers[number]))

    def requests(self, name):
        return [one._backend.figures.requests[name] for one in self.gateways]


@pytest.fixture
def root():
    root = f"memory://neighbours-{uuid.uuid4().hex}"
    Admin(root).create_topics([NewTopic("jobs", PARTITIONS)])
    return root


@pytest.fixture
def served(root, monkeypatch):
    with ExitStack() as stack:
        yield Served(stack, monkeypatch, root, "a", "b", "b", None)


def metadata(client):
    answer = client.call("Metadata", 12, {"topics": [{"topic_id": uuid.UUID(int=0), "name": "jobs"}]})
    brokers = {one["node_id"]: one["rack"] for one in answer["brokers"]}
    leaders = [
        one["leader_id"] for one in sorted(answer["topics"][0]["partitions"], key=lambda one: one["partition_index"])
    ]
    assert answer["controller_id"] in brokers
    return brokers, leaders


def asked(servers, client_id):
    with closing(Wire(servers, client_id)) as client:
        return metadata(client)


def test_metadata_has_the_leaders_of_the_clients_zone_whichever_gateway_is_asked(served):
    a, b1, b2, _ = (served.node_id(number) for number in range(4))
    found = [asked(servers, "app,zone=b") for servers in served.servers[:3]]
    assert found[0] == found[1] == found[2]
    brokers, leaders = found[0]
    assert brokers == {a: "a", b1: "b", b2: "b"}
    assert Counter(leaders) == {b1: 2, b2: 2}
    assert asked(served.servers[1], "zone=a") == (brokers, [a] * PARTITIONS)


def test_a_client_without_a_known_zone_is_led_to_the_gateway_that_it_asked(served):
    for number, zone in enumerate(["a", "b", "b", None]):
        own = served.node_id(number)
        for client_id in ("app", "app,zone=c"):
            assert asked(served.servers[number], client_id) == ({own: zone}, [own] * PARTITIONS)


def test_other_answers_about_brokers_are_those_of_metadata(served):
    with closing(Wire(served.servers[0], "zone=b")) as client:
        brokers, leaders = metadata(client)
        cluster = client.call(
            "DescribeCluster", 1, {"include_cluster_authorized_operations": False, "endpoint_type": 1}
        )
        assert {one["broker_id"]: one["rack"] for one in cluster["brokers"]} == brokers
        body = {"topics": [{"name": "jobs"}], "response_partition_limit": 9, "cursor": None}
        (topic,) = client.call("DescribeTopicPartitions", 0, body)["topics"]
        assert [one["leader_id"] for one in topic["partitions"]] == leaders
        moves = [{"partition_index": number, "replicas": [leaders[0]]} for number in range(2)]
        body = {"timeout_ms": 1_000, "topics": [{"name": "jobs", "partitions": moves}]}
        (answer,) = client.call("AlterPartitionReassignments", 0, body)["responses"]
        codes = [one["error_code"] for one in answer["partitions"]]
        assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REPLICA_ASSIGNMENT]
        group = client.call("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["g"]})["coordinators"][0]
        assert group["node_id"] in brokers


def test_a_request_for_many_transactional_ids_is_one_short_entry(served, caplog):
    body = {"key_type": 1, "coordinator_keys": [f"{n}" + "\x01" * 32_000 for n in range(10)]}
    with closing(Wire(served.servers[0], "zone=b")) as client:
        found = client.call("FindCoordinator", 4, body)["coordinators"]
    assert [one["error_code"] for one in found] == [ErrorCode.INVALID_REQUEST] * 10
    (entry,) = [one.getMessage() for one in caplog.records if "tells no zone" in one.getMessage()]
    assert len(entry) < 2_000


def test_a_transactional_client_that_tells_a_zone_is_refused(served):
    body = {"key_type": 1, "coordinator_keys": ["t"]}
    with closing(Wire(served.servers[0], "zone=b")) as client:
        (found,) = client.call("FindCoordinator", 4, body)["coordinators"]
        assert found["error_code"] == ErrorCode.INVALID_REQUEST
        assert "tells no zone" in found["error_message"]
    with closing(Wire(served.servers[0], "app")) as client:
        (found,) = client.call("FindCoordinator", 4, body)["coordinators"]
        assert (found["error_code"], found["node_id"]) == (0, served.node_id(0))
        assert answers_of(client, "b") == [(0, -1, [])] * PARTITIONS  # it shares its id with a consumer in a zone
        assert metadata(client) == ({served.node_id(0): "a"}, [served.node_id(0)] * PARTITIONS)
    with closing(Wire(served.servers[3], "zone=b")) as client:  # which knows of no zones
        (found,) = client.call("FindCoordinator", 4, body)["coordinators"]
        assert (found["error_code"], found["node_id"]) == (0, served.node_id(3))


def answers_of(client, rack, *, session=(0, -1), topic="jobs", partitions=range(PARTITIONS)):
    parts = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for number in partitions]
    body = {**fetching(0), "rack_id": rack, "topics": [{"topic": topic, "partitions": parts}]}
    body |= {"session_id": session[0], "session_epoch": session[1]}
    answer = client.call("Fetch", 12, body)
    return [
        (one["error_code"], one["preferred_read_replica"], values(one["records"]) if one["records"] else [])
        for one in answer["responses"][0]["partitions"]
    ]


def test_fetch_with_a_rack_names_the_replica_that_metadata_has_from_then_on(served, root):
    with Producer(root) as producer:
        for number in range(PARTITIONS):
            producer.send("jobs", b"%d" % number, partition=number).get(60)
    records = [(0, -1, [b"%d" % number]) for number in range(PARTITIONS)]
    with closing(Wire(served.servers[0], "app")) as client:
        assert answers_of(client, "") == records
        assert answers_of(client, "a") == records
        assert answers_of(client, "c") == records
        own = [served.node_id(0)] * PARTITIONS
        assert metadata(client)[1] == own
        found = answers_of(client, "b")
        brokers, leaders = metadata(client)
        assert found == [(0, leader, []) for leader in leaders]
        assert set(leaders) == {served.node_id(1), served.node_id(2)} < set(brokers)
        assert answers_of(client, "b", partitions=[9])[0][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answers_of(client, "b", topic="none", partitions=[0])[0][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for number in (1, 2):  # nobody is sent on from his zone
        with closing(Wire(served.servers[number], "app")) as client:
            assert answers_of(client, "b") == records
    with closing(Wire(served.servers[0], "other,zone=a")) as client:  # whom Metadata leads here
        assert answers_of(client, "b") == records
    with closing(Wire(served.servers[3], "app")) as client:  # which knows of no others
        assert answers_of(client, "b") == records


def test_who_does_not_go_where_it_is_sent_is_served_after_a_while(served, root, monkeypatch):
    with Producer(root) as producer:
        producer.send("jobs", b"x", partition=0).get(60)
    monkeypatch.setattr("sparklog.gateway.zones._REDIRECTED_MS", 0.0)
    with closing(Wire(served.servers[0], "app")) as client:
        assert answers_of(client, "b", partitions=[0]) == [(0, -1, [b"x"])]


def test_a_session_tells_of_a_partition_without_news_where_else_to_read_it(served):
    with closing(Wire(served.servers[0], "app")) as client:
        parts = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
        body = {**fetching(0), "topics": [{"topic": "jobs", "partitions": parts}], "session_id": 0, "session_epoch": 0}
        session = client.call("Fetch", 12, body)["session_id"]
        body |= {"topics": [], "session_id": session, "session_epoch": 1, "rack_id": "b"}
        assert fetched(client.call("Fetch", 12, body))["preferred_read_replica"] > 0


@pytest.mark.slow
def test_librdkafkas_producer_writes_to_the_gateways_of_its_zone(served, root):
    confluent = pytest.importorskip("confluent_kafka")
    producer = confluent.Producer({"bootstrap.servers": served.servers[0], "client.id": "app,zone=b"})
    for number in range(100):
        producer.produce("jobs", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    counts = served.requests("Produce")
    assert counts[0] == counts[3] == 0
    assert counts[1]
    assert counts[2]
    ends = Admin(root).describe_topics(["jobs"])[0].log_end_offsets
    assert tuple(ends) == (25,) * PARTITIONS


@pytest.mark.slow
def test_librdkafkas_consumer_reads_from_the_gateways_of_its_rack(served, root):
    confluent = pytest.importorskip("confluent_kafka")
    with Producer(root) as producer:
        for number in range(100):
            producer.send("jobs", b"%d" % number, partition=number % PARTITIONS)
    consumer = confluent.Consumer(
        {"bootstrap.servers": served.servers[0], "client.rack": "b", "group.id": "g", "auto.offset.reset": "earliest"}
    )
    with closing(consumer):
        consumer.subscribe(["jobs"])
        found = [consumer.poll(60) for _ in range(100)]
        assert sorted(int(one.value()) for one in found) == list(range(100))
        counts = served.requests("Fetch")
        assert counts[1] and counts[2]  # noqa: PT018
        assert served.gateways[3]._backend.figures.accepted == 0
        consumer.commit(asynchronous=False)
    committed = Admin(root).list_group_offsets("g")
    assert sorted(one.offset for one in committed.values()) == [25] * PARTITIONS


@pytest.mark.slow
def test_a_group_of_two_zones_has_one_coordinator_and_each_member_reads_in_its_zone(served, root):
    confluent = pytest.importorskip("confluent_kafka")
    with Producer(root) as producer:
        for number in range(100):
            producer.send("jobs", b"%d" % number, partition=number % PARTITIONS)
    common = {"group.id": "g", "auto.offset.reset": "earliest", "session.timeout.ms": 60_000}
    with ExitStack() as stack:
        consumers = []
        for servers, zone in ((served.servers[0], "a"), (served.servers[2], "b")):
            settings = {"bootstrap.servers": servers, "client.id": f"app,zone={zone}", **common}
            consumer = stack.enter_context(closing(confluent.Consumer(settings)))
            consumer.subscribe(["jobs"])
            consumers.append(consumer)
        seen = set()

        def is_shared():
            for consumer in consumers:
                message = consumer.poll(0.05)
                if message is not None and message.error() is None:
                    seen.add((message.partition(), message.offset()))
            return all(len(one.assignment()) == PARTITIONS // 2 for one in consumers) and len(seen) == 100

        until(is_shared, 60)


@pytest.mark.slow
def test_transactions_stay_in_a_gateway_beside_a_consumer_that_tells_a_rack(served, root):
    confluent = pytest.importorskip("confluent_kafka")
    settings = {"bootstrap.servers": served.servers[0]}  # both have librdkafka's own client.id
    producer = confluent.Producer({**settings, "transactional.id": "t"})
    producer.init_transactions(60)
    consumer = confluent.Consumer({**settings, "client.rack": "b", "group.id": "g", "auto.offset.reset": "earliest"})
    with closing(consumer):
        consumer.subscribe(["jobs"])
        for number in range(3):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce("jobs", b"%d" % number, partition=partition)
            producer.commit_transaction(60)
            found = [consumer.poll(60) for _ in range(PARTITIONS)]
            assert [one.value() for one in found] == [b"%d" % number] * PARTITIONS
    assert served.requests("Produce")[1:] == [0, 0, 0]
    assert served.requests("EndTxn") == [3, 0, 0, 0]


@pytest.mark.slow
def test_a_producer_whose_gateways_die_goes_on_at_another(root, monkeypatch):
    confluent = pytest.importorskip("confluent_kafka")
    with ExitStack() as stack:
        served = Served(stack, monkeypatch, root, "a", "b")
        producer = confluent.Producer({"bootstrap.servers": served.servers[0], "client.id": "app,zone=b"})
        producer.produce("jobs", b"x", partition=0)
        assert producer.flush(60) == 0
        assert served.requests("Produce") == [0, 1]

        async def die(self):
            self._beating.cancel()

        with monkeypatch.context() as killed:
            killed.setattr(Neighbours, "withdraw", die)
            served.stacks[1].close()
        # Not from the beginning: a busy machine may keep a gateway that lives silent for longer.
        object.__setattr__(served.gateways[0]._backend.settings, "zone_session_timeout_ms", 500)
        assert len([*open_cluster(root).store.list(GATEWAYS_FOLDER)]) == 2
        for number in range(PARTITIONS):
            producer.produce("jobs", b"y", partition=number)
        assert producer.flush(60) == 0
        assert sum(Admin(root).describe_topics(["jobs"])[0].log_end_offsets) == PARTITIONS + 1


def test_a_gateway_that_is_stopped_is_named_no_more_and_leaves_nothing(served, root):
    store = open_cluster(root).store
    assert len([*store.list(GATEWAYS_FOLDER)]) == 3
    served.stacks[2].close()
    served.until_known(0, 1)
    assert asked(served.servers[0], "zone=b")[1] == [served.node_id(1)] * PARTITIONS
    served.stacks[1].close()
    served.until_known(0)
    assert asked(served.servers[0], "zone=b")[1] == [served.node_id(0)] * PARTITIONS
    served.stacks[0].close()
    assert [*store.list(GATEWAYS_FOLDER)] == []


def test_any_gateway_takes_what_an_old_answer_leads_to_it(served):
    with closing(Wire(served.servers[0], "zone=b")) as client:
        assert produced(client.call("Produce", 9, produce(batch(b"x"))))["error_code"] == 0
        assert values(fetched(client.call("Fetch", 12, fetching(0)))["records"]) == [b"x"]


# What one gateway knows, step by step.


class Known:
    """A gateway that looks at others when it is told to, with a clock of its own."""

    def __init__(self, store, clock, zone="a", host="a"):
        self.backend = Backend(open_cluster(store, clock=clock), GatewaySettings(zone=zone), (host, 9092))
        self.one = Neighbours(self.backend, Node(host, 9092, zone))

    async def beat(self):
        await self.one._beat()
        return self.names()

    def names(self):
        return [node.host for node in self.one.nodes]

    def leaders(self, zone="b"):
        route = self.one.route(Request(12, {}, f"zone={zone}", ("a", 9092)))
        return [node.host for node in route.leaders]


def play(steps, store=None):
    async def run():
        clock = ManualClock()
        held = store or (lambda memory: memory)
        spoiled = held(MemoryStore(clock=clock))
        first, second = Known(spoiled, clock), Known(spoiled, clock, "b", "b")
        try:
            await steps(clock, spoiled, first, second)
        finally:
            for known in (first, second):
                await known.backend.close()

    asyncio.run(run())


def test_a_gateway_without_a_sign_of_life_is_named_until_its_session_ends():
    async def steps(clock, store, first, second):
        await second.beat()
        assert await first.beat() == ["a", "b"]
        assert first.leaders() == ["b"]
        clock.advance(30_000)
        assert await first.beat() == ["a", "b"]
        clock.advance(1)
        assert await first.beat() == ["a"]
        assert first.leaders() == ["a"]
        clock.advance(3_600_000)
        await first.beat()
        assert [one.path for one in store.list(GATEWAYS_FOLDER)] == [gateway_mark("a", "a:9092")]
        assert await second.beat() == ["a", "b"]  # it was only suspended

    play(steps)


def test_a_gateway_that_slept_for_an_hour_names_itself_until_it_has_looked_anew():
    async def steps(clock, _, first, second):
        await second.beat()
        await first.beat()
        clock.advance(60_001)
        assert first.leaders() == ["a"]
        await second.beat()
        await first.beat()
        assert first.leaders() == ["b"]

    play(steps)


def test_while_the_store_is_away_the_last_list_counts_for_a_while(caplog):
    async def steps(clock, store, first, second):
        await second.beat()
        await first.beat()
        store.is_away = True
        assert await first.beat() == ["a", "b"]  # which takes an interval of this clock
        assert "aren't known anew" in caplog.text
        clock.advance(50_000)
        assert await first.beat() == []
        assert first.leaders() == ["a"]
        store.is_away = False
        await second.beat()
        await first.beat()
        assert first.leaders() == ["b"]

    play(steps, AwayStore)


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.THROTTLED])
@pytest.mark.parametrize("op", ["put", "list"])
def test_a_call_without_an_answer_is_made_again(kind, op):
    async def steps(_, __, first, ___):
        assert await first.beat() == ["a"]

    play(steps, lambda memory: FaultyStore(memory, Fault(kind=kind, ops=(op,), path=GATEWAYS_FOLDER + "*")))


def test_a_gateway_that_may_not_write_names_itself_alone(caplog):
    async def steps(_, __, first, second):
        await second.beat()
        assert await first.beat() == []
        assert first.leaders() == ["a"]
        assert "aren't known anew" in caplog.text

    fault = Fault(kind=FaultKind.READ_ONLY, ops=("put",), path=gateway_mark("a", "a:9092"), times=None)
    play(steps, lambda memory: FaultyStore(memory, fault))


def test_gateways_that_are_gone_and_cannot_be_cleared_away_hinder_nobody():
    async def steps(clock, _, first, second):
        await second.beat()
        clock.advance(3_700_000)
        assert await first.beat() == ["a"]

    fault = Fault(kind=FaultKind.READ_ONLY, ops=("delete",), path=GATEWAYS_FOLDER + "*", times=None)
    play(steps, lambda memory: FaultyStore(memory, fault))


def test_odd_objects_are_told_of_once_and_no_more_are_listed_than_a_bound(caplog, monkeypatch):
    async def steps(_, store, first, __):
        for name in ("gateways/x", "gateways/a/\nb", "gateways/zz/zz%3A70000"):
            store.put(name, b"x" * 1_000_000)
        with caplog.at_level(logging.WARNING, "sparklog.gateway"):
            for _ in range(3):
                assert await first.beat() == ["a"]
        assert len(caplog.messages) == 3
        assert not any("\n" in message for message in caplog.messages)
        monkeypatch.setattr("sparklog.gateway.neighbours._MOST_LISTED", 2)
        await first.beat()
        assert "left out" in caplog.messages[-1]

    play(steps)


def test_a_beat_is_a_put_and_a_list_whatever_the_number_of_gateways():
    async def steps(_, store, first, __):
        for number in range(50):
            store.put(gateway_mark("a", f"h{number}:1"), b"")
        store.reset()
        assert len(await first.beat()) == 51
        assert {op: count for op, count in store.counts().items() if count} == {"put": 1, "list": 1}

    play(steps, CountingStore)


def test_a_store_that_is_away_when_a_gateway_ends_holds_it_up_for_seconds_at_most(caplog):
    async def steps(_, store, first, __):
        await first.one.begin()
        store.is_away = True
        await first.one.withdraw()
        assert "until its object is too old" in caplog.text
        store.is_away = False
        assert [one.path for one in store.list(GATEWAYS_FOLDER)] == [gateway_mark("a", "a:9092")]

    play(steps, AwayStore)


def test_a_gateway_without_a_zone_asks_the_store_for_nothing_more():
    store = CountingStore(MemoryStore())
    cluster = open_cluster(store)
    store.reset()
    with sparklog.gateway.serve(cluster):
        pass
    assert not any(store.counts().values())
