"""Consumer groups of Kafka's own clients: rebalances, static members, a gateway that is killed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import islice
from typing import Any

import pytest

import sparklog.gateway
from sparklog import Admin, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from sparklog.gateway.coordination.consumer_protocol import encode_assignment
from tests.gateway.test_groups import commit, fetch, joined, syncing, who
from tests.gateway.test_server import Wire

pytestmark = pytest.mark.slow

PARTITIONS = 4
PER_PARTITION = 10


def filled(root):
    Admin(root).create_topics([NewTopic("jobs", PARTITIONS)])
    fill(root)
    return root


def fill(root):
    with Producer(root) as producer:
        for number in range(PARTITIONS * PER_PARTITION):
            producer.send("jobs", b"%d" % number, partition=number % PARTITIONS)


@pytest.fixture
def cluster():
    return filled(f"memory://group-clients-{uuid.uuid4().hex}")


@pytest.fixture
def servers(cluster):
    with sparklog.gateway.serve(cluster) as bootstrap_servers:
        yield bootstrap_servers


def committed(cluster, group="g"):
    return {p.partition: found.offset for p, found in Admin(cluster).list_group_offsets(group).items()}


ALL_COMMITTED = dict.fromkeys(range(PARTITIONS), PER_PARTITION)


def confluent_consumer(servers, **settings):
    confluent = pytest.importorskip("confluent_kafka")
    given = {
        "bootstrap.servers": servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **settings,
    }
    if "group.protocol" not in given:
        given |= {"session.timeout.ms": 60_000, "heartbeat.interval.ms": 200}
    return confluent.Consumer(given)


def poll_until(consumers, found, is_done, seconds=60):
    """Poll consumers in turn until ``is_done``; each record is committed and noted."""
    until = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < until, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                found.append((message.partition(), message.offset()))
                consumer.commit(message, asynchronous=True)


def close(consumers):
    """Close consumers once what they began to commit is committed."""
    for consumer in consumers:
        for partition in consumer.committed(consumer.assignment(), timeout=60):  # behind what was asked for before
            assert partition.error is None
        consumer.close()


def commit_until(consumers, found, root, offsets):
    """Poll until these are committed, and commit again meanwhile: a gateway that was kept from its session refuses."""
    confluent = pytest.importorskip("confluent_kafka")

    def are_committed():
        for consumer in consumers:
            with suppress(confluent.KafkaException):  # there may be nothing to commit
                consumer.commit(asynchronous=True)
        return committed(root) == offsets

    poll_until(consumers, found, are_committed)


def test_confluents_standalone_consumer_commits_and_reads_back(servers, cluster):
    confluent = pytest.importorskip("confluent_kafka")
    at = confluent.TopicPartition("jobs", 1)
    consumer = confluent_consumer(servers)
    consumer.assign([at])
    assert consumer.committed([at], timeout=60)[0].offset == confluent.OFFSET_INVALID
    consumer.commit(offsets=[confluent.TopicPartition("jobs", 1, 7, metadata="here")], asynchronous=False)
    (found,) = consumer.committed([at], timeout=60)
    assert (found.offset, found.metadata) == (7, "here")
    consumer.close()
    assert committed(cluster) == {1: 7}


def test_kafka_pythons_standalone_consumer_commits_and_reads_back(servers, cluster):
    kafka = pytest.importorskip("kafka")
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, group_id="g", enable_auto_commit=False)
    at = kafka.TopicPartition("jobs", 1)
    consumer.assign([at])
    assert consumer.committed(at) is None
    consumer.commit({at: kafka.OffsetAndMetadata(7, "here", -1)})
    assert consumer.committed(at) == 7
    consumer.close()
    assert committed(cluster) == {1: 7}


def test_aiokafkas_standalone_consumer_commits_and_reads_back(servers, cluster):
    aiokafka = pytest.importorskip("aiokafka")

    async def play():
        at = aiokafka.TopicPartition("jobs", 1)
        async with aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, group_id="g", enable_auto_commit=False
        ) as consumer:
            consumer.assign([at])
            before = await consumer.committed(at)
            await consumer.commit({at: 7})
            return before, await consumer.committed(at)

    assert asyncio.run(play()) == (None, 7)
    assert committed(cluster) == {1: 7}


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky", "of the protocol consumer"])
def test_confluents_consumers_share_partitions_and_hand_them_over(servers, cluster, strategy):
    settings = {"partition.assignment.strategy": strategy}
    if strategy == "of the protocol consumer":
        settings = {"group.protocol": "consumer"}
    consumers = [confluent_consumer(servers, **settings) for _ in range(3)]
    for consumer in consumers:
        consumer.subscribe(["jobs"])
    found: list[tuple[int, int]] = []

    def is_shared(members):
        counts = [len(consumer.assignment()) for consumer in members]
        return sum(counts) == PARTITIONS and all(counts)

    poll_until(consumers, found, lambda: is_shared(consumers) and len(set(found)) == PARTITIONS * PER_PARTITION)
    consumers.pop().close()
    poll_until(consumers, found, lambda: is_shared(consumers))
    fill(cluster)
    poll_until(consumers, found, lambda: len(set(found)) == 2 * PARTITIONS * PER_PARTITION)
    close(consumers)
    assert committed(cluster) == dict.fromkeys(range(PARTITIONS), 2 * PER_PARTITION)
    assert Admin(cluster).describe_groups(["g"])[0].state.value == "Empty"


def test_a_static_member_of_confluents_comes_back_without_a_rebalance(servers, cluster):
    revoked = []
    other = confluent_consumer(servers, **{"group.instance.id": "other"})
    other.subscribe(["jobs"], on_revoke=lambda _, partitions: revoked.append(partitions))
    one = confluent_consumer(servers, **{"group.instance.id": "one"})
    one.subscribe(["jobs"])
    found: list[tuple[int, int]] = []
    poll_until([one, other], found, lambda: len(one.assignment()) == len(other.assignment()) == PARTITIONS // 2)
    before, revoked[:] = sorted(p.partition for p in one.assignment()), []
    one.close()  # a static member doesn't leave
    one = confluent_consumer(servers, **{"group.instance.id": "one"})
    one.subscribe(["jobs"])
    poll_until([one, other], found, lambda: len(one.assignment()) == PARTITIONS // 2)
    assert sorted(p.partition for p in one.assignment()) == before
    assert revoked == []
    one.close()
    other.close()


def test_kafka_pythons_consumers_share_partitions(servers, cluster):
    kafka = pytest.importorskip("kafka")
    settings = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumers = [
        kafka.KafkaConsumer("jobs", bootstrap_servers=servers, heartbeat_interval_ms=300, **settings) for _ in range(2)
    ]
    found: set[tuple[int, int]] = set()
    until = time.monotonic() + 60

    def is_enough():
        return committed(cluster) == ALL_COMMITTED and all(len(one.assignment()) == 2 for one in consumers)

    def read(consumer):
        while not is_enough() and time.monotonic() < until:
            for records in consumer.poll(timeout_ms=1_000).values():
                found.update((record.partition, record.offset) for record in records)
            with suppress(kafka.errors.CommitFailedError):  # a busy machine kept it from its heartbeats
                consumer.commit()

    with ThreadPoolExecutor(2) as threads:  # what joins while nobody polls it joins again
        list(threads.map(read, consumers))
    for consumer in consumers:
        consumer.close()
    assert len(found) == PARTITIONS * PER_PARTITION
    assert committed(cluster) == ALL_COMMITTED


def test_aiokafkas_consumers_share_partitions(servers, cluster):
    aiokafka = pytest.importorskip("aiokafka")
    settings = {"group_id": "g", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 300}

    async def read(consumer, found, is_enough):
        while not is_enough():
            for records in (await consumer.getmany(timeout_ms=100)).values():
                found.update((record.partition, record.offset) for record in records)
            await asyncio.sleep(0)

    async def play():
        found: set[tuple[int, int]] = set()
        consumers = [aiokafka.AIOKafkaConsumer("jobs", bootstrap_servers=servers, **settings) for _ in range(2)]
        await asyncio.gather(*(consumer.start() for consumer in consumers))

        def is_enough():
            return len(found) == PARTITIONS * PER_PARTITION and all(len(one.assignment()) == 2 for one in consumers)

        await asyncio.wait_for(asyncio.gather(*(read(one, found, is_enough) for one in consumers)), 60)
        await asyncio.gather(*(consumer.stop() for consumer in consumers))

    asyncio.run(play())
    assert committed(cluster) == ALL_COMMITTED


def test_what_clients_committed_sparklogs_consumer_goes_on_with(servers, cluster):
    consumer = confluent_consumer(servers)
    found: list[tuple[int, int]] = []
    consumer.subscribe(["jobs"])
    poll_until([consumer], found, lambda: len(found) == PARTITIONS * PER_PARTITION)
    close([consumer])
    fill(cluster)
    with Consumer("jobs", cluster=cluster, group_id="g", consumer_timeout_ms=60_000) as ours:
        offsets = [record.offset for record in islice(ours, PARTITIONS * PER_PARTITION)]
    assert sorted(offsets) == sorted([*range(PER_PARTITION, 2 * PER_PARTITION)] * PARTITIONS)


def test_confluents_admin_sees_groups(servers, cluster):
    admin = pytest.importorskip("confluent_kafka.admin")
    confluent = pytest.importorskip("confluent_kafka")
    consumer = confluent_consumer(servers)
    found: list[tuple[int, int]] = []
    consumer.subscribe(["jobs"])
    poll_until([consumer], found, lambda: len(consumer.assignment()) == PARTITIONS)
    client = admin.AdminClient({"bootstrap.servers": servers})
    assert [one.group_id for one in client.list_consumer_groups().result(60).valid] == ["g"]
    described = client.describe_consumer_groups(["g"])["g"].result(60)
    assert described.state == confluent.ConsumerGroupState.STABLE
    assert len(described.members[0].assignment.topic_partitions) == PARTITIONS
    consumer.close()
    wanted = confluent.ConsumerGroupTopicPartitions("g", [confluent.TopicPartition("jobs", 0, 3)])
    client.alter_consumer_group_offsets([wanted])["g"].result(60)
    (told,) = (
        client.list_consumer_group_offsets([confluent.ConsumerGroupTopicPartitions("g")])["g"]
        .result(60)
        .topic_partitions[:1]
    )
    assert (told.partition, told.offset) == (0, 3)
    client.delete_consumer_groups(["g"])["g"].result(60)
    assert Admin(cluster).list_groups() == []


GATEWAY = """
import sys
import sparklog.gateway

settings = {"coordinator_session_timeout_ms": int(sys.argv[2]), "coordinator_heartbeat_interval_ms": 200}
with sparklog.gateway.serve(sys.argv[1], **settings) as servers:
    print(servers, flush=True)
    sys.stdin.read()
"""


@contextmanager
def gateway_process(root, session_ms=1_500):
    with subprocess.Popen(
        [sys.executable, "-c", GATEWAY, root, str(session_ms)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.mark.parametrize("settings", [{}, {"group.protocol": "consumer"}], ids=["classic", "consumer"])
def test_clients_go_on_where_their_coordinator_is_killed(tmp_path, settings):
    root = filled(str(tmp_path))
    with gateway_process(root) as (one, first), gateway_process(root) as (two, second):
        consumers = [confluent_consumer(f"{first},{second}", **settings) for _ in range(2)]
        found: list[tuple[int, int]] = []
        for consumer in consumers:
            consumer.subscribe(["jobs"])
        total = PARTITIONS * PER_PARTITION
        poll_until(
            consumers, found, lambda: len(set(found)) == total and all(len(one.assignment()) == 2 for one in consumers)
        )
        commit_until(consumers, found, root, ALL_COMMITTED)
        coordinators: Sequence[Any] = []
        while len(coordinators) != 1:  # two while one takes over from one that was kept from its session
            coordinators = Admin(root).describe_groups(["g"])[0].members
        {first: one, second: two}[coordinators[0].host].kill()
        fill(root)
        commit_until(consumers, found, root, dict.fromkeys(range(PARTITIONS), 2 * PER_PARTITION))
        close(consumers)
        assert len(set(found)) == 2 * total


def test_a_coordinator_that_was_suspended_commits_no_more(tmp_path):
    root = filled(str(tmp_path))
    with ExitStack() as stack:
        one, first = stack.enter_context(gateway_process(root))
        # A member is judged by the session that it has told: however little time a busy machine gives the second
        # gateway, it keeps the group, and the first may not have it again.
        _, second = stack.enter_context(gateway_process(root, session_ms=120_000))
        before, after = (stack.enter_context(closing(Wire(servers))) for servers in (first, second))
        code, old = None, {}
        while code != 0:  # a first gateway that had no time for its session is out, and joins again
            old = joined(before)
            if old["error_code"] == 0:
                assigned = {old["member_id"]: encode_assignment([TopicPartition("jobs", 0)])}
                before.call("SyncGroup", 5, syncing(old, assignments=assigned))
                code = commit(before, 5, generation=old["generation_id"], member_id=old["member_id"])
        one.send_signal(signal.SIGSTOP)
        while coordinator(after) != second:
            pass
        new = joined(after)
        after.call("SyncGroup", 5, syncing(new))
        assert fetch(after) == [(5, "")]
        assert commit(after, 6, generation=new["generation_id"], member_id=new["member_id"]) == 0
        one.send_signal(signal.SIGCONT)
        assert commit(before, 7, generation=old["generation_id"], member_id=old["member_id"]) in (16, 25)
        while before.call("Heartbeat", 4, who(old))["error_code"] == 0:
            pass
        while coordinator(before) != second:  # the member may be out by its own session, before its gateway is
            pass
        assert coordinator(after) == second
        assert fetch(before) == fetch(after) == [(6, "")]


def coordinator(wire):
    (found,) = wire.call("FindCoordinator", 4, {"coordinator_keys": ["g"]})["coordinators"]
    return f"{found['host']}:{found['port']}"


def test_offsets_of_a_transaction_are_told_once_they_are_decided(cluster, servers):
    confluent = pytest.importorskip("confluent_kafka")
    at = TopicPartition("jobs", 0)
    with Producer(cluster, transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with Consumer(cluster=cluster, group_id="g") as reader:
            reader.assign([at])
            producer.send_offsets_to_transaction({at: OffsetAndMetadata(4)}, reader.group_metadata())
        producer.commit_transaction()
    consumer = confluent_consumer(servers)
    assert consumer.committed([confluent.TopicPartition("jobs", 0)], timeout=60)[0].offset == 4
    consumer.close()
