"""What administrators' tools ask of producers, users, reassignments and resources."""

from __future__ import annotations

import re
import time
import uuid
from contextlib import closing
from pathlib import Path

import pytest

import sparklog.gateway
from sparklog import Admin, NewTopic
from sparklog.gateway import users as users_module
from sparklog.gateway.apis import APIS
from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.expressions import matching
from sparklog.gateway.users import Rules, new_user
from sparklog.log.cluster import open_cluster
from sparklog.log.numbering_producers import NumberingProducer, numbering_producers
from sparklog.log.state import load_state
from tests.gateway.test_idempotence import numbered
from tests.gateway.test_server import Wire, batch, produce, produced

FORBIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def cluster():
    cluster = open_cluster(f"memory://admin-{uuid.uuid4().hex}")
    Admin(cluster).create_topics([NewTopic("jobs", 2)])
    return cluster


@pytest.fixture
def wire(cluster):
    with sparklog.gateway.serve(cluster) as servers, closing(Wire(servers)) as client:
        yield client


@pytest.fixture
def users(tmp_path, monkeypatch):
    monkeypatch.setattr(users_module, "_ITERATIONS", 4_096)
    path = tmp_path / "users"
    found = [
        new_user("ann", "pencil", Rules(("*",), ("*",), admin=True)),
        new_user("bob", "apple", Rules(read=("news",))),
    ]
    path.write_text("".join(one.to_json() + "\n" for one in found))
    return path


@pytest.fixture
def with_users(cluster, users):
    with sparklog.gateway.serve(cluster, users=users, allow_plain_without_tls=True) as servers:
        yield servers


def entered(servers, credentials):
    client = Wire(servers)
    assert client.call("SaslHandshake", 1, {"mechanism": "PLAIN"})["error_code"] == 0
    assert client.call("SaslAuthenticate", 1, {"auth_bytes": credentials})["error_code"] == 0
    return closing(client)


def producers_of(client, *asked):
    topics = [{"name": name, "partition_indexes": list(numbers)} for name, *numbers in asked]
    return {
        (topic["name"], one["partition_index"]): one["error_code"] or one["active_producers"]
        for topic in client.call("DescribeProducers", 0, {"topics": topics})["topics"]
        for one in topic["partitions"]
    }


def send(client, *values, partition=0, **numbers):
    answer = client.call("Produce", 9, produce(numbered(*values, **numbers), partition=partition))
    assert produced(answer)["error_code"] == 0


def test_a_partition_tells_of_the_producers_that_it_remembers(wire, cluster):
    began_ms = time.time() * 1_000
    send(wire, b"a", b"b", sequence=0)
    send(wire, b"c", sequence=2)
    send(wire, b"d", sequence=0, producer_id=3, epoch=7)
    assert produced(wire.call("Produce", 9, produce(batch(b"x"), partition=1)))["error_code"] == 0
    found = producers_of(wire, ("jobs", 0, 1, 2, -1), ("none", 0))
    assert found["jobs", 1] == []  # one that isn't idempotent isn't remembered
    assert [found["jobs", 2], found["jobs", -1], found["none", 0]] == [UNKNOWN] * 3
    third, fifth = found["jobs", 0]
    assert (third["producer_id"], third["producer_epoch"], third["last_sequence"]) == (3, 7, 0)
    assert (fifth["producer_id"], fifth["producer_epoch"], fifth["last_sequence"]) == (5, 0, 2)
    assert began_ms - 1_000 <= fifth["last_timestamp"] <= time.time() * 1_000 + 1_000
    assert {one["current_txn_start_offset"] for one in (third, fifth)} == {-1}


def test_producers_of_a_topic_that_was_deleted_are_not_those_of_the_next(wire, cluster):
    send(wire, b"a", sequence=0)
    Admin(cluster).delete_topics(["jobs"])
    assert producers_of(wire, ("jobs", 0))["jobs", 0] == UNKNOWN
    Admin(cluster).create_topics([NewTopic("jobs", 1)])
    assert producers_of(wire, ("jobs", 0))["jobs", 0] == []
    state = load_state(cluster.topic_log("jobs"))
    assert numbering_producers(state) == {}


def test_numbering_producers_are_known_from_a_checkpoint_too(wire, cluster):
    for number in range(120):
        send(wire, b"%d" % number, sequence=number)
    (found,) = numbering_producers(load_state(cluster.topic_log("jobs")))[0]
    assert found == NumberingProducer(5, 0, 119, found.updated_ms)
    assert producers_of(wire, ("jobs", 0))["jobs", 0][0]["last_sequence"] == 119


def test_who_may_not_read_a_topic_is_told_of_none_of_its_producers(with_users):
    with entered(with_users, b"\0ann\0pencil") as ann, entered(with_users, b"\0bob\0apple") as bob:
        send(ann, b"a", sequence=0)
        assert producers_of(bob, ("jobs", 0), ("none", 0)) == {("jobs", 0): FORBIDDEN, ("none", 0): FORBIDDEN}


def mechanisms(client, *names):
    asked = [{"name": name} for name in names] if names else None
    answer = client.call("DescribeUserScramCredentials", 0, {"users": asked})
    return answer["error_code"] or {
        one["user"]: one["error_code"] or {info["mechanism"]: info["iterations"] for info in one["credential_infos"]}
        for one in answer["results"]
    }


def test_users_are_told_to_admins_without_their_keys(with_users, users):
    both = {1: 4_096, 2: 4_096}
    with entered(with_users, b"\0ann\0pencil") as ann, entered(with_users, b"\0bob\0apple") as bob:
        assert mechanisms(ann) == {"ann": both, "bob": both}
        found = mechanisms(ann, "bob", "eve", "ann", "ann")
        assert found == {"bob": both, "eve": ErrorCode.RESOURCE_NOT_FOUND, "ann": ErrorCode.DUPLICATE_RESOURCE}
        # Not of the whole answer, by which librdkafka 2.16 ends its process.
        assert mechanisms(bob, "bob", "ann") == dict.fromkeys(("bob", "ann"), ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        assert mechanisms(bob) == {"": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        users.write_text("nonsense\n")
        assert mechanisms(ann) == ErrorCode.UNKNOWN_SERVER_ERROR


def test_without_users_there_are_none(wire):
    assert mechanisms(wire) == {}
    assert mechanisms(wire, "ann") == {"ann": ErrorCode.RESOURCE_NOT_FOUND}


@pytest.mark.parametrize("version", [0, 1])
def test_a_partition_stays_where_it_is(wire, version):
    node = wire.call("Metadata", 9, {"topics": []})["controller_id"]
    asked = {
        "jobs": [(0, [node]), (1, None), (2, [node])],
        "none": [(0, [node])],
    }

    def reassigned(topics):
        wanted = [
            {"name": name, "partitions": [{"partition_index": number, "replicas": to} for number, to in partitions]}
            for name, partitions in topics.items()
        ]
        answer = wire.call("AlterPartitionReassignments", version, {"timeout_ms": 1_000, "topics": wanted})
        assert answer["error_code"] == 0
        return [[one["error_code"] for one in topic["partitions"]] for topic in answer["responses"]]

    assert reassigned(asked) == [[0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, UNKNOWN], [UNKNOWN]]
    elsewhere = {"jobs": [(0, [node, node + 1]), (0, []), (1, [7])]}
    assert reassigned(elsewhere) == [[ErrorCode.INVALID_REPLICA_ASSIGNMENT] * 3]


def resources(client, version, *kinds):
    body = {"resource_types": list(kinds)} if version else {}
    answer = client.call("ListConfigResources", version, body)
    return answer["error_code"] or [
        (one.get("resource_type", 16), one["resource_name"]) for one in answer["config_resources"]
    ]


def test_resources_that_may_have_settings_are_listed(wire, with_users):
    node = str(wire.call("Metadata", 9, {"topics": []})["controller_id"])
    assert resources(wire, 0) == []
    assert resources(wire, 1) == [(4, node), (2, "jobs")]
    assert resources(wire, 1, 2) == [(2, "jobs")]
    assert resources(wire, 1, 8, 16, 32) == []
    assert resources(wire, 1, 2, 64) == ErrorCode.UNSUPPORTED_VERSION
    with entered(with_users, b"\0bob\0apple") as bob:
        assert resources(bob, 1, 2) == []


def test_transactions_are_listed_by_an_expression(wire):
    for name in ("bill-1", "bill-2", "rebill-1"):
        found = wire.call("InitProducerId", 4, {"transactional_id": name, "transaction_timeout_ms": 60_000})
        assert found["error_code"] == 0

    def listed(pattern):
        body = {
            "state_filters": [],
            "producer_id_filters": [],
            "duration_filter": -1,
            "transactional_id_pattern": pattern,
        }
        answer = wire.call("ListTransactions", 2, body)
        return answer["error_code"] or [one["transactional_id"] for one in answer["transaction_states"]]

    assert listed(None) == listed("") == ["bill-1", "bill-2", "rebill-1"]
    assert listed("bill-.*") == ["bill-1", "bill-2"]
    assert listed("bill") == []
    assert listed("(") == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_an_expression_is_matched_as_a_whole_and_must_be_one_by_itself():
    assert matching("a|b", ["a", "b", "ab", "a\n"]) == {"a", "b"}
    with pytest.raises(ValueError, match="Invalid regular expression"):
        matching("a)|(b", ["a"])


REQUESTS = """
Produce Fetch ListOffsets Metadata OffsetCommit OffsetFetch FindCoordinator JoinGroup Heartbeat LeaveGroup SyncGroup
DescribeGroups ListGroups SaslHandshake ApiVersions CreateTopics DeleteTopics DeleteRecords InitProducerId
OffsetForLeaderEpoch AddPartitionsToTxn AddOffsetsToTxn EndTxn WriteTxnMarkers TxnOffsetCommit DescribeAcls CreateAcls
DeleteAcls DescribeConfigs AlterConfigs AlterReplicaLogDirs DescribeLogDirs SaslAuthenticate CreatePartitions
CreateDelegationToken RenewDelegationToken ExpireDelegationToken DescribeDelegationToken DeleteGroups ElectLeaders
IncrementalAlterConfigs AlterPartitionReassignments ListPartitionReassignments OffsetDelete DescribeClientQuotas
AlterClientQuotas DescribeUserScramCredentials AlterUserScramCredentials DescribeQuorum UpdateFeatures DescribeCluster
DescribeProducers UnregisterBroker DescribeTransactions ListTransactions ConsumerGroupHeartbeat ConsumerGroupDescribe
GetTelemetrySubscriptions PushTelemetry ListConfigResources DescribeTopicPartitions ShareGroupHeartbeat
ShareGroupDescribe ShareFetch ShareAcknowledge AddRaftVoter RemoveRaftVoter InitializeShareGroupState
ReadShareGroupState WriteShareGroupState DeleteShareGroupState ReadShareGroupStateSummary StreamsGroupHeartbeat
StreamsGroupDescribe DescribeShareGroupOffsets AlterShareGroupOffsets DeleteShareGroupOffsets
"""
"""Source: the definitions in Kafka 4.3.1 whose listeners have ``broker``."""


def test_every_request_of_kafka_is_served_or_listed_with_a_reason():
    served = {api.name for api in APIS.values()}
    page = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text()
    beginning, _, end = page.partition("## What isn't served")
    for name in REQUESTS.split():
        assert (name in served) == bool(re.search(rf"^\|.*\b{name}\b.*\|.*\|.*\|$", beginning, re.MULTILINE)), name
        assert (name not in served) == bool(re.search(rf"^\|.*\b{name}\b.*\|.*\|$", end, re.MULTILINE)), name
    assert served <= {*REQUESTS.split()}
