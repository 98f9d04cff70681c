"""Transactions by the wire: all or nothing, across gateways, and whoever dies."""

from __future__ import annotations

import random
import time
import uuid
from dataclasses import replace

import pytest

import sparklog.gateway
from sparklog import Admin, Consumer, NewTopic, Producer, TopicPartition
from sparklog.gateway.records import batch_headers
from sparklog.gateway.records.batches import batch_with_header
from sparklog.log.cluster import open_cluster
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore
from tests.gateway.test_server import Wire, batch, produce, produced

TRANSACTIONAL = 16


@pytest.fixture
def cluster():
    root = f"memory://gateway-{uuid.uuid4().hex}"
    Admin(root).create_topics([NewTopic("jobs", 2), NewTopic("bills", 1)])
    return root


@pytest.fixture
def servers(cluster):
    with sparklog.gateway.serve(cluster) as bootstrap_servers:
        yield bootstrap_servers


class Client:
    """A transactional producer that says exactly what it is told."""

    def __init__(self, servers, name="billing"):
        self.wire = Wire(servers)
        self.name = name
        self.number = (-1, -1)
        self.sequences = {}
        self.offsets = []

    def init(self, version=4, timeout_ms=60_000):
        number = {"producer_id": self.number[0], "producer_epoch": self.number[1]}
        body = {"transactional_id": self.name, "transaction_timeout_ms": timeout_ms, **number}
        found = self.wire.call("InitProducerId", version, body)
        if not found["error_code"]:
            self.number, self.sequences = (found["producer_id"], found["producer_epoch"]), {}
        return found["error_code"]

    def add(self, topic="jobs", partition=0, version=3):
        prefix = "v3_and_below_"
        body = {f"{prefix}transactional_id": self.name, f"{prefix}topics": [{"name": topic, "partitions": [partition]}]}
        body |= {f"{prefix}producer_id": self.number[0], f"{prefix}producer_epoch": self.number[1]}
        found = self.wire.call("AddPartitionsToTxn", version, body)
        return found["results_by_topic_v3_and_below"][0]["results_by_partition"][0]["partition_error_code"]

    def send(self, *values, topic="jobs", partition=0, sequence=None, version=9):
        sequence = self.sequences.get((topic, partition), 0) if sequence is None else sequence
        self.sequences[topic, partition] = sequence + len(values)
        (header,) = batch_headers(batch(*values))
        header = replace(header, attributes=TRANSACTIONAL, base_sequence=sequence)
        header = replace(header, producer_id=self.number[0], producer_epoch=self.number[1])
        body = {**produce(batch_with_header(header), topic, partition), "transactional_id": self.name}
        answer = produced(self.wire.call("Produce", version, body))
        assert (answer["base_offset"] < 0) == (answer["error_code"] != 0)
        self.offsets.append(answer["base_offset"])
        return answer["error_code"]

    def body(self):
        return {"transactional_id": self.name, "producer_id": self.number[0], "producer_epoch": self.number[1]}

    def end(self, *, commit=True, version=3):
        return self.wire.call("EndTxn", version, {**self.body(), "committed": commit})["error_code"]

    def send_offset(self, offset, group="readers", topic="jobs"):
        assert self.wire.call("AddOffsetsToTxn", 3, {**self.body(), "group_id": group})["error_code"] == 0
        at = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        body = {**self.body(), "group_id": group, "topics": [{"name": topic, "partitions": [at]}]}
        return self.wire.call("TxnOffsetCommit", 3, body)["topics"][0]["partitions"][0]["error_code"]


@pytest.fixture
def connect():
    clients = []

    def make(servers, name="billing"):
        clients.append(Client(servers, name))
        return clients[-1]

    yield make
    for client in clients:
        client.wire.close()


def ends(cluster):
    asked = [TopicPartition("jobs", 0), TopicPartition("jobs", 1), TopicPartition("bills", 0)]
    return tuple(Admin(cluster).end_offsets(asked).values())


def test_a_transaction_is_visible_in_all_topics_once_it_is_committed(cluster, servers, connect):
    client = connect(servers)
    assert client.init() == 0
    for topic, partition in (("jobs", 0), ("jobs", 1), ("bills", 0)):
        assert client.add(topic, partition) == 0
        assert client.send(b"a", b"b", topic=topic, partition=partition) == 0
    assert ends(cluster) == (0, 0, 0)
    assert client.end() == 0
    assert ends(cluster) == (2, 2, 2)
    assert client.add() == client.send(b"c") == client.end(commit=False) == 0
    assert ends(cluster) == (2, 2, 2)
    assert client.add() == client.send(b"d") == client.end() == 0
    assert ends(cluster) == (3, 2, 2)


@pytest.mark.parametrize("version", range(4))
def test_all_versions_of_the_requests(cluster, servers, connect, version):
    client = connect(servers)
    assert client.init(version=version + 1) == 0
    assert client.add(version=version) == client.send(b"a", version=3 + version) == client.end(version=version) == 0
    assert ends(cluster)[0] == 1


@pytest.mark.parametrize("number", [(0, 0), (4711, 3)])
def test_an_id_without_entries_is_begun_whatever_number_its_client_had(cluster, servers, connect, number):
    client = connect(servers)
    client.number = number
    assert client.init() == 0
    assert client.number[0] >= 0
    assert client.add() == client.send(b"a") == client.end() == 0
    assert ends(cluster)[0] == 1


def test_answered_offsets_are_the_records_own_where_nobody_else_writes(cluster, servers, connect):
    client = connect(servers)
    client.init()
    for _ in range(3):
        assert client.add() == client.send(b"a", b"b") == client.send(b"c") == client.end() == 0
    assert client.offsets == [0, 2, 3, 5, 6, 8]
    assert client.add() == client.send(b"d") == client.send(b"d", sequence=9) == client.end(commit=False) == 0
    assert client.add() == client.send(b"e") == client.end() == 0
    assert client.offsets[6:] == [9, 9, 9]
    Admin(cluster).delete_topics(["jobs"])
    Admin(cluster).create_topics([NewTopic("jobs", 2)])
    again = connect(servers)
    again.init()
    assert again.add() == again.send(b"f") == again.end() == 0
    assert again.offsets == [0]


def test_answered_offsets_are_never_below_what_the_gateway_has_committed(cluster, servers, connect, monkeypatch):
    monkeypatch.setattr("sparklog.producer.writable_topic._REFRESH_MS", 600_000)  # no look in between
    first, second = connect(servers, "a"), connect(servers, "b")
    for client in (first, second):
        client.init()
        assert client.add() == client.send(b"a") == client.end() == 0
    assert first.add() == first.send(b"b", b"c", b"d") == first.end() == 0
    assert second.add() == second.send(b"e") == second.end() == 0
    assert first.add() == first.send(b"f") == first.end() == 0
    assert (first.offsets, second.offsets) == ([0, 2, 6], [1, 5])


@pytest.mark.parametrize("seed", range(3))
def test_answered_offsets_are_never_above_the_records_own(cluster, servers, connect, seed):
    rng, clients = random.Random(seed), [connect(servers, name) for name in ("a", "b")]
    answered: dict[bytes, int] = {}
    lasting: dict[bytes, int] = {}
    for client in clients:
        client.init()
    with Producer(cluster, linger_ms=0) as other:
        for turn in range(12):
            for client in clients:
                assert client.add() == 0
            for step in range(rng.randint(1, 6)):
                client = rng.choice(clients)
                value = f"{client.name} {turn} {step}".encode()
                if rng.random() < 0.3:
                    other.send("jobs", b"other", partition=0).get(10)
                assert client.send(value) == 0
                answered[value] = client.offsets[-1]
            for client in rng.sample(clients, 2):
                is_committed = rng.random() < 0.8
                assert client.end(commit=is_committed) == 0
                mine = {value: offset for value, offset in answered.items() if value.startswith(client.name.encode())}
                assert [*mine.values()] == sorted(mine.values()) or not is_committed
                if is_committed:
                    lasting |= mine
                answered = {value: offset for value, offset in answered.items() if value not in mine}
    with Consumer(cluster=cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("jobs", 0)])
        found: dict[bytes, int] = {}
        while consumer.position(TopicPartition("jobs", 0)) < ends(cluster)[0]:
            for records in consumer.poll(1_000).values():
                found |= {record.value: record.offset for record in records}
    assert lasting
    assert all(offset <= found[value] for value, offset in lasting.items())
    of_each = [[o for v, o in lasting.items() if v.startswith(client.name.encode())] for client in clients]
    assert all(len({*offsets}) == len(offsets) for offsets in of_each)


def test_a_transaction_whose_client_died_is_aborted_at_its_time_out(cluster, servers, connect):
    client, reader = connect(servers), connect(servers)
    assert client.init(timeout_ms=1_000) == client.add() == client.send(b"a") == client.send_offset(5) == 0
    wanted = {"group_id": "readers", "topics": [{"name": "jobs", "partition_indexes": [0]}]}
    codes = set()
    for _ in range(100):
        (found,) = reader.wire.call("OffsetFetch", 9, {"groups": [wanted], "require_stable": True})["groups"]
        (at,) = found["topics"][0]["partitions"]
        codes.add(at["error_code"])
        if not at["error_code"]:
            break
        time.sleep(0.1)
    assert (codes, at["committed_offset"]) == ({88, 0}, -1)
    assert client.end() == 49
    assert client.init(timeout_ms=1_000) == client.add() == client.send(b"b") == client.end() == 0
    time.sleep(1.2)
    assert client.add() == client.send(b"c") == client.end() == 0
    assert ends(cluster)[0] == 2


def test_the_end_of_a_transaction_may_be_asked_for_again(cluster, servers, connect):
    client, again = connect(servers), connect(servers)
    client.init()
    again.number = client.number
    assert client.end() == 48
    assert client.add() == client.send(b"a") == client.end() == 0
    assert again.end() == 0
    assert again.end(commit=False) == 48
    assert ends(cluster)[0] == 1


def test_a_batch_that_comes_again_is_stored_once(cluster, servers, connect):
    client = connect(servers)
    client.init()
    client.add()
    assert client.send(b"a", b"b") == client.send(b"a", b"b", sequence=0) == client.send(b"c") == 0
    assert client.send(b"x", sequence=7) == 45
    assert client.end() == 0
    assert ends(cluster)[0] == 3


def test_a_partition_that_is_added_within_a_transaction_is_known(cluster, servers, connect):
    client = connect(servers)
    client.init()
    client.add()
    assert client.send(b"a") == 0
    Admin(cluster).create_partitions({"jobs": 3})
    client.add(partition=2)
    assert client.send(b"b", partition=2) == 0
    assert client.end() == 0
    new = TopicPartition("jobs", 2)
    assert Admin(cluster).end_offsets([new]) == {new: 1}


def test_after_an_abort_sequences_may_leave_out_what_was_not_sent(cluster, servers, connect):
    client = connect(servers)
    client.init()
    assert client.add() == client.send(b"a") == client.end(commit=False) == 0
    client.add()
    assert client.send(b"b", sequence=5) == 0
    assert client.send(b"a", sequence=3) == 45
    assert client.end() == 0
    assert ends(cluster)[0] == 1


def test_only_what_the_transaction_was_told_of_is_taken(servers, connect):
    client = connect(servers)
    client.init()
    assert client.send(b"a") == 48
    client.add()
    assert client.send(b"a", partition=1) == 48
    assert client.send(b"a", sequence=0) == 0


def test_a_newer_producer_fences_the_older_off_in_its_gateway_and_in_another(cluster, servers, connect):
    first = connect(servers)
    first.init()
    assert first.add() == first.send(b"lost") == 0
    second = connect(servers)
    assert second.init() == 0
    assert second.number == (first.number[0], first.number[1] + 1)
    assert (first.send(b"x"), first.add(), first.add(version=0), first.end()) == (47, 90, 47, 90)
    with sparklog.gateway.serve(cluster) as other:
        third = connect(other)
        assert third.init() == 0
        assert second.add() == second.send(b"lost") == 0
        assert (second.end(), second.end(), second.end(commit=False)) == (90, 90, 49)
        assert third.add() == third.send(b"a") == third.end() == 0
    assert ends(cluster)[0] == 1


def test_sparklogs_producer_and_a_client_fence_each_other_off(cluster, servers, connect):
    client = connect(servers)
    client.init()
    assert client.add() == client.send(b"lost") == 0
    with Producer(cluster, transactional_id="billing") as producer:
        producer.init_transactions()
        assert client.end() == 90
        assert client.init() == 90
        client.number = (-1, -1)
        assert client.init() == 0
        producer.begin_transaction()
        producer.send("jobs", b"lost")
        with pytest.raises(sparklog.errors.ProducerFencedError):
            producer.commit_transaction()
    assert ends(cluster)[:2] == (0, 0)


def test_a_transaction_of_a_gateway_that_is_gone_is_aborted_and_its_client_goes_on(cluster, connect):
    with sparklog.gateway.serve(cluster) as first, sparklog.gateway.serve(cluster) as second:
        client = connect(first)
        client.init()
        assert client.add() == client.send(b"lost") == 0
        moved = connect(second)
        moved.number, moved.sequences = client.number, dict(client.sequences)
        assert (moved.send(b"lost"), moved.add(), moved.end()) == (49, 49, 49)
        assert moved.init() == 0
        assert client.end() == 90
        assert moved.add() == moved.send(b"a") == moved.end() == 0
        assert client.init() == 90
    assert ends(cluster)[0] == 1


def test_a_commit_whose_gateway_is_gone_is_never_taken_for_aborted(cluster, connect):
    with sparklog.gateway.serve(cluster) as first, sparklog.gateway.serve(cluster) as second:
        client = connect(first)
        client.init()
        assert client.add() == client.send(b"a") == client.end() == 0  # and the answer is lost
        moved = connect(second)
        moved.number = client.number
        assert (moved.end(), moved.end(version=0)) == (90, 47)  # it must not send "a" again
        assert client.add() == client.send(b"lost") == 0
        assert client.end() == 90
        anew = connect(second)
        assert anew.init() == 0
        assert anew.add() == anew.send(b"b") == anew.end() == 0
    assert ends(cluster)[0] == 2


def test_a_gateway_asked_to_commit_for_another_fences_that_off_first(cluster, connect):
    with sparklog.gateway.serve(cluster) as first, sparklog.gateway.serve(cluster) as second:
        client = connect(first)
        client.init()
        assert client.add() == client.send(b"a") == 0
        moved = connect(second)
        moved.number = client.number
        assert moved.end() == 49  # upon which it is aborted
        assert client.end() == 90  # for the gateway that was slow, too
        assert (moved.end(), moved.end(commit=False), moved.add()) == (49, 49, 49)
        assert moved.init() == 0
        assert moved.add() == moved.send(b"b") == moved.end() == 0
    assert ends(cluster)[0] == 1


def test_a_commit_behind_which_a_time_out_was_aborted_is_not_told_as_aborted(cluster, connect):
    with sparklog.gateway.serve(cluster) as first, sparklog.gateway.serve(cluster) as second:
        client = connect(first)
        client.init(timeout_ms=1_000)
        assert client.add() == client.send(b"a") == client.end() == 0  # the answer is lost, and the gateway gone
        Admin(cluster).recover_transactions()  # so that its completion is in the log, too
        Admin(cluster).abort_transaction("billing")  # as maintenance does, once it has taken too long
        (state,) = Admin(cluster).describe_transactions(["billing"])
        assert state.state is not None
        assert (state.state.value, (state.producer_id, state.producer_epoch)) == ("CompleteAbort", client.number)
        moved = connect(second)
        moved.number = client.number
        assert moved.end() == 90
    assert ends(cluster)[0] == 1


def test_closing_a_gateway_aborts_what_is_open(cluster, connect):
    with sparklog.gateway.serve(cluster) as servers:
        client = connect(servers)
        client.init()
        assert client.add() == client.send(b"lost") == 0
    (state,) = Admin(cluster).describe_transactions(["billing"])
    assert state.state is not None
    assert state.state.value in ("CompleteAbort", "PrepareAbort")
    assert ends(cluster)[0] == 0


def test_a_commit_whose_answer_is_lost_is_told_by_the_next(connect):
    store = MemoryStore()
    Admin(open_cluster(store)).create_topics([NewTopic("jobs", 2), NewTopic("bills", 1)])
    is_on: list[bool] = []
    lost = Fault(
        kind=FaultKind.LOST_ANSWER, ops=("create",), path="transactions/", times=None, when=lambda call: bool(is_on)
    )
    with sparklog.gateway.serve(open_cluster(FaultyStore(store, lost)), delivery_timeout_ms=3_000) as servers:
        client = connect(servers)
        client.init()
        assert client.add() == client.send(b"a") == 0
        is_on.append(True)
        assert client.end() == 15
        is_on.clear()
        while (code := client.end()) == 15:  # a busy machine may take longer than the bound
            pass
        assert code == 0
    assert ends(open_cluster(store))[0] == 1


def test_offsets_are_committed_with_the_transaction(cluster, servers, connect):
    client = connect(servers)
    client.init()
    assert client.add("bills") == client.send(b"a", topic="bills") == client.send_offset(3) == 0
    client.end(commit=False)
    assert committed(cluster) is None
    assert client.add("bills") == client.send(b"a", topic="bills") == client.send_offset(5) == client.end() == 0
    assert committed(cluster) == 5


def committed(cluster):
    found = Admin(cluster).list_group_offsets("readers").get(TopicPartition("jobs", 0))
    return None if found is None else found.offset


def test_what_cannot_be_stored_makes_the_transaction_one_that_is_to_be_aborted(cluster, servers, connect):
    client = connect(servers)
    client.init()
    assert client.add() == client.send(b"lost") == client.add("nothing") == 0
    assert client.send(b"a", topic="nothing") == 48
    assert client.send(b"b", topic="nothing", version=11) == 120
    assert (client.end(version=3), client.end(version=4)) == (49, 120)
    assert client.end(commit=False) == 0
    assert client.add() == client.send(b"b") == client.end() == 0
    assert ends(cluster)[0] == 1


def test_a_time_out_that_is_too_long_is_refused(servers, connect):
    assert connect(servers).init(timeout_ms=2**31 - 1) == 50


def test_transactions_are_listed_and_described(servers, connect):
    client = connect(servers)
    client.init()
    found = client.wire.call("DescribeTransactions", 0, {"transactional_ids": ["billing", "none"]})
    first, second = found["transaction_states"]
    assert (first["transaction_state"], first["producer_id"]) == ("Ongoing", client.number[0])
    assert second["error_code"] == 105
    body = {"state_filters": ["Ongoing", "Odd"], "producer_id_filters": [], "duration_filter": -1}
    listed = client.wire.call("ListTransactions", 1, body)
    assert [one["transactional_id"] for one in listed["transaction_states"]] == ["billing"]
    assert listed["unknown_state_filters"] == ["Odd"]


def test_transactions_are_listed_by_the_time_since_their_ids_newest_entry(cluster, servers, connect):
    client = connect(servers)
    client.init()
    (known,) = Admin(cluster).describe_transactions()
    age_ms = int(time.time() * 1_000) - known.written_ms

    def listed(duration_ms, producer_ids=()):
        body = {"state_filters": [], "producer_id_filters": [*producer_ids], "duration_filter": duration_ms}
        return [one["transactional_id"] for one in client.wire.call("ListTransactions", 1, body)["transaction_states"]]

    assert listed(-1) == listed(age_ms - 1) == ["billing"]
    assert listed(age_ms + 3_600_000) == listed(-1, [client.number[0] + 1]) == []
    assert listed(-1, [client.number[0]]) == ["billing"]


def test_confluents_transactional_producer_commits_aborts_and_is_fenced(cluster, servers):
    confluent = pytest.importorskip("confluent_kafka")
    settings = {"bootstrap.servers": servers, "transactional.id": "confluent"}
    producer = confluent.Producer(settings)
    producer.init_transactions(60)
    for number in range(4):
        producer.begin_transaction()
        for value in range(10):
            producer.produce("jobs", b"%d" % value, partition=value % 2)
        (producer.abort_transaction if number == 1 else producer.commit_transaction)(20)
    assert ends(cluster)[:2] == (15, 15)
    other = confluent.Producer(settings)
    other.init_transactions(60)
    producer.begin_transaction()
    producer.produce("jobs", b"lost")
    with pytest.raises(confluent.KafkaException, match=r"FENCED|EPOCH"):
        producer.commit_transaction(60)
    assert ends(cluster)[:2] == (15, 15)


def test_kafka_pythons_transactional_producer_commits_and_aborts(cluster, servers):
    kafka = pytest.importorskip("kafka")
    producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id="python")
    producer.init_transactions()
    for number in range(3):
        producer.begin_transaction()
        for value in range(10):
            producer.send("jobs", b"%d" % value, partition=0)
        if number == 1:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    assert ends(cluster)[0] == 20
