"""What administrators' tools ask of a cluster as a whole."""

from __future__ import annotations

import uuid
from contextlib import closing
from typing import Any

import pytest

import sparklog.gateway
from sparklog import Admin, NewTopic, Producer
from sparklog.config import TopicConfig
from sparklog.gateway.apis import APIS
from sparklog.gateway.authorizer import refusal
from sparklog.gateway.backend import Request
from sparklog.gateway.cluster_requests import page_of_partitions
from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.users import Rules
from sparklog.gateway.wire import message
from sparklog.gateway.zones import Node, lead
from sparklog.log.cluster import open_cluster
from sparklog.log.topic import TopicDescription
from sparklog.storage import MemoryStore
from tests.gateway.test_groups import AwayStore
from tests.gateway.test_server import Wire


@pytest.fixture(scope="module")
def cluster():
    root = f"memory://gateway-{uuid.uuid4().hex}"
    Admin(root).create_topics([NewTopic("jobs", 2), NewTopic("news", 1)])
    with Producer(root) as producer:
        producer.send("jobs", b"one", partition=1)
    return root


@pytest.fixture(scope="module")
def wire(cluster):
    with sparklog.gateway.serve(cluster) as servers:
        client = Wire(servers)
        yield client
        client.socket.close()


@pytest.mark.parametrize("version", range(3))
def test_a_cluster_has_this_gateway_as_its_only_broker(wire, version):
    body = {"include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": False}
    answer = wire.call("DescribeCluster", version, body)
    assert [(one["host"], one["port"]) for one in answer["brokers"]] == [wire.socket.getpeername()]
    assert answer["controller_id"] == answer["brokers"][0]["broker_id"]
    assert answer["cluster_id"] == wire.call("Metadata", 8, {"topics": []})["cluster_id"]


def test_a_cluster_has_no_controllers_of_its_own(wire):
    body = {"include_cluster_authorized_operations": False, "endpoint_type": 2}
    assert wire.call("DescribeCluster", 1, body)["error_code"] == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


def test_topics_are_described_by_partitions(wire):
    body = {"topics": [{"name": "jobs"}, {"name": "none"}], "response_partition_limit": 2_000, "cursor": None}
    jobs, none = wire.call("DescribeTopicPartitions", 0, body)["topics"]
    assert [one["partition_index"] for one in jobs["partitions"]] == [0, 1]
    assert jobs["partitions"][0]["eligible_leader_replicas"] == []  # null ends Java's Admin
    assert none["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    every = wire.call("DescribeTopicPartitions", 0, {**body, "topics": []})
    assert [one["name"] for one in every["topics"]] == ["jobs", "news"]
    assert every["next_cursor"] is None
    first = wire.call("DescribeTopicPartitions", 0, {**body, "topics": [], "response_partition_limit": 1})
    assert first["next_cursor"] == {"topic_name": "jobs", "partition_index": 1}


def topic(name, count):
    zeros = (0,) * count
    return TopicDescription(
        name=name,
        topic_id=uuid.uuid4().hex,
        log_start_offsets=zeros,
        log_end_offsets=zeros,
        config=TopicConfig.parse({}),
        delta_version=0,
    )


@pytest.mark.parametrize("limit", range(1, 8))
def test_pages_of_partitions_hold_each_of_them_once(limit):
    topics = [topic("b", 3), topic("a", 2), ("c", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), topic("d", 1)]
    start, found = None, []
    while True:
        answers, start = page_of_partitions(topics, start, limit, lead((), Node("one", 1, None), None))
        counts = [len(one["partitions"]) for one in answers]
        assert 0 < sum(counts) <= limit
        found += [(one["name"], part["partition_index"]) for one in answers for part in one["partitions"]]
        if start is None:
            break
    assert found == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("d", 0)]


def test_log_dirs_have_the_bytes_of_each_partition(wire):
    (folder,) = wire.call("DescribeLogDirs", 4, {"topics": None})["results"]
    sizes = {one["name"]: [part["partition_size"] for part in one["partitions"]] for one in folder["topics"]}
    assert sizes["jobs"][0] == 0 < sizes["jobs"][1]
    assert sizes["news"] == [0]
    asked = {"topics": [{"topic": "jobs", "partitions": [1]}, {"topic": "none", "partitions": [0]}]}
    (folder,) = wire.call("DescribeLogDirs", 1, asked)["results"]
    assert [part["partition_index"] for one in folder["topics"] for part in one["partitions"]] == [1]


def test_a_topic_that_cannot_be_read_hides_no_other_from_log_dirs():
    cluster = open_cluster(f"memory://gateway-{uuid.uuid4().hex}")
    Admin(cluster).create_topics([NewTopic("broken", 1), NewTopic("news", 1)])
    cluster.store.create(f"{cluster.topic_log('broken').table}/_delta_log/{1:020}.json", b"{}\nnot JSON\n")
    with sparklog.gateway.serve(cluster) as servers, closing(Wire(servers)) as client:
        for asked in (None, [{"topic": name, "partitions": [0]} for name in ("broken", "news")]):
            (folder,) = client.call("DescribeLogDirs", 4, {"topics": asked})["results"]
            assert (folder["error_code"], [one["name"] for one in folder["topics"]]) == (0, ["news"])


def test_log_dirs_of_a_store_that_is_away_have_an_error():
    store = AwayStore(MemoryStore(f"memory://gateway-{uuid.uuid4().hex}"))
    cluster = open_cluster(store)
    Admin(cluster).create_topics([NewTopic("news", 1)])
    with sparklog.gateway.serve(cluster, look_timeout_ms=50) as servers, closing(Wire(servers)) as client:
        store.is_away = True
        for asked in (None, [{"topic": "news", "partitions": [0]}]):
            answer = client.call("DescribeLogDirs", 4, {"topics": asked})
            assert (answer["error_code"], answer["results"]) == (ErrorCode.KAFKA_STORAGE_ERROR, [])


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_topic_ids_is_refused_where_kafka_refuses_it(wire, version):
    """The fields are there, and nothing can be asked by them before version 12."""
    (jobs,) = wire.call("Metadata", 12, {"topics": [{"name": "jobs"}]})["topics"]
    for asked in (
        {"name": None},
        {"name": None, "topic_id": jobs["topic_id"]},
        {"name": "jobs", "topic_id": uuid.uuid4()},
    ):
        found = wire.call("Metadata", version, {"topics": [asked, {"name": "news"}]})["topics"]
        assert [one["error_code"] for one in found] == [ErrorCode.INVALID_REQUEST] * 2
        assert [one["name"] for one in found] == [asked["name"] or "", "news"]
    (found,) = wire.call("Metadata", version, {"topics": [{"name": "jobs"}]})["topics"]
    assert (found["error_code"], found["topic_id"]) == (0, jobs["topic_id"])


def test_no_partition_needs_another_leader(wire):
    topics = [{"topic": "jobs", "partitions": [0, 9]}, {"topic": "none", "partitions": [0]}]
    answer = wire.call("ElectLeaders", 2, {"election_type": 0, "topic_partitions": topics, "timeout_ms": 1_000})
    codes = [part["error_code"] for one in answer["replica_election_results"] for part in one["partition_result"]]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [ErrorCode.ELECTION_NOT_NEEDED, unknown, unknown]
    every = wire.call("ElectLeaders", 2, {"election_type": 0, "topic_partitions": None, "timeout_ms": 1_000})
    assert every["replica_election_results"] == []


def test_there_are_no_reassignments_and_no_quotas(wire):
    assert wire.call("ListPartitionReassignments", 0, {"timeout_ms": 1_000, "topics": None})["topics"] == []
    assert wire.call("DescribeClientQuotas", 1, {"components": [], "strict": False})["entries"] == []


@pytest.mark.parametrize("version", range(1, 4))
def test_acls_are_told_to_be_switched_off(wire, version):
    wanted = {"operation": 1, "permission_type": 1}
    names = ("resource_name_filter", "principal_filter", "host_filter")
    filters = {"resource_type_filter": 1, "pattern_type_filter": 1, **dict.fromkeys(names), **wanted}
    assert wire.call("DescribeAcls", version, filters)["error_code"] == ErrorCode.SECURITY_DISABLED
    (deleted,) = wire.call("DeleteAcls", version, {"filters": [filters]})["filter_results"]
    new = {
        "resource_type": 2,
        "resource_name": "jobs",
        "resource_pattern_type": 3,
        "principal": "User:ann",
        "host": "*",
    }
    (created,) = wire.call("CreateAcls", version, {"creations": [{**new, **wanted}]})["results"]
    assert deleted["error_code"] == created["error_code"] == ErrorCode.SECURITY_DISABLED


def epoch(number, *, partition=1, current=0, topic="jobs"):
    asked = {"partition": partition, "current_leader_epoch": current, "leader_epoch": number}
    return {"replica_id": -1, "topics": [{"topic": topic, "partitions": [asked]}]}


@pytest.mark.parametrize("version", range(2, 5))
def test_the_only_epoch_ends_where_the_partition_does(wire, version):
    def asked(body):
        (one,) = wire.call("OffsetForLeaderEpoch", version, body)["topics"]
        (found,) = one["partitions"]
        return found["error_code"], found["leader_epoch"], found["end_offset"]

    assert asked(epoch(0)) == (ErrorCode.NONE, 0, 1)
    assert asked(epoch(5)) == (ErrorCode.NONE, -1, -1)
    assert asked(epoch(0, current=1)) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert asked(epoch(0, partition=2)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert asked(epoch(0, topic="none")) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


NOBODY = Rules()
OF_ADMINS: dict[str, dict[str, Any]] = {
    "DescribeLogDirs": {"topics": None},
    "ElectLeaders": {"topic_partitions": None},
    "AlterPartitionReassignments": {"topics": []},
    "ListPartitionReassignments": {"topics": None},
    "DescribeUserScramCredentials": {"users": None},
    "AlterUserScramCredentials": {"deletions": [{"name": "ann", "mechanism": 1}], "upsertions": []},
    "DescribeClientQuotas": {"components": []},
    "DescribeAcls": {},
    "CreateAcls": {"creations": [{}]},
    "DeleteAcls": {"filters": [{}]},
}


@pytest.mark.parametrize("name", OF_ADMINS)
def test_only_admins_may_ask(name):
    request = Request(0, OF_ADMINS[name], "", ("localhost", 1))
    assert refusal(name, Rules(admin=True), request) is None
    refused = refusal(name, NOBODY, request) or {}
    assert str(int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)) in str(refused)
    api = next(one for one in APIS.values() if one.name == name)
    message(f"{name}Response").encode(refused, api.last)


def test_whoever_may_see_nothing_is_told_of_no_topic(tmp_path, cluster):
    from sparklog.gateway.users import new_user

    users = tmp_path / "users"
    users.write_text(new_user("eve", "pencil", NOBODY).to_json())
    with sparklog.gateway.serve(cluster, users=users, allow_plain_without_tls=True) as servers:
        client = Wire(servers)
        client.call("SaslHandshake", 1, {"mechanism": "PLAIN"})
        assert client.call("SaslAuthenticate", 2, {"auth_bytes": b"\0eve\0pencil"})["error_code"] == 0
        body = {"topics": [{"name": "jobs"}], "response_partition_limit": 1, "cursor": None}
        (jobs,) = client.call("DescribeTopicPartitions", 0, body)["topics"]
        assert jobs["error_code"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert client.call("DescribeTopicPartitions", 0, {**body, "topics": []})["topics"] == []
        (one,) = client.call("OffsetForLeaderEpoch", 4, epoch(0))["topics"]
        assert one["partitions"][0]["error_code"] == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        client.socket.close()
