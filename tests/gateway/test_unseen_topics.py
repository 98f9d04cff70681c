"""No answer that lists topics names one that the user may neither read nor write."""

from __future__ import annotations

import contextlib

import pytest

import sparklog.gateway
from sparklog import Admin, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from sparklog.gateway import users as users_module
from sparklog.gateway.apis import APIS
from sparklog.gateway.coordination.consumer_protocol import assigned_topics, encode_assignment
from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.users import Rules, new_user
from tests.gateway.test_server import Wire

ROOT = "memory://unseen-topics"
SEEN, UNSEEN = "orders", "secret-topic"
GROUP = "ann.g"
RESOURCE = {"resource_type": 2, "resource_name": SEEN}
LISTING = [
    ("Metadata", {"topics": None}),
    ("DescribeTopicPartitions", {"topics": [], "response_partition_limit": 100, "cursor": None}),
    ("ListConfigResources", {"resource_types": []}),
    ("DescribeLogDirs", {"topics": None}),
    ("OffsetFetch", {"groups": [{"group_id": GROUP, "topics": None}], "group_id": GROUP, "topics": None}),
    ("DescribeGroups", {"groups": [GROUP]}),
    ("ConsumerGroupDescribe", {"group_ids": [GROUP]}),
    ("ListGroups", {}),
    ("DescribeTransactions", {"transactional_ids": ["ann"]}),
    ("ListTransactions", {}),
    ("ListPartitionReassignments", {"topics": None}),
    ("ElectLeaders", {"topic_partitions": None}),
    ("DescribeAcls", {}),
    ("DescribeClientQuotas", {"components": [], "strict": False}),
]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setattr(users_module, "_ITERATIONS", 4_096)
    path = tmp_path_factory.mktemp("users") / "users"
    ann = Rules(read=("ord*",), write=("ord*",), groups=("ann.*",), transactional_ids=("ann",))
    chief = Rules(read=("ord*",), groups=("ann.*",), transactional_ids=("ann",), admin=True)
    users = [new_user("ann", "pencil", ann), new_user("chief", "pencil", chief)]
    path.write_text("".join(user.to_json() + "\n" for user in users))
    admin = Admin(ROOT)
    admin.create_topics([NewTopic(SEEN, 1), NewTopic(UNSEEN, 1)])
    offsets = {TopicPartition(topic, 0): OffsetAndMetadata(0) for topic in (SEEN, UNSEEN)}
    admin.alter_group_offsets(GROUP, offsets)
    with (
        sparklog.gateway.serve(ROOT, users=path, allow_plain_without_tls=True) as bootstrap_servers,
        Producer(ROOT, transactional_id="ann") as producer,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        for topic in (SEEN, UNSEEN):
            producer.send(topic, b"x")
        producer.commit_transaction()
        yield bootstrap_servers
    patch.undo()


@pytest.fixture(params=["ann", "chief"])
def client(request, servers):
    made = Wire(servers)
    assert made.call("SaslHandshake", 1, {"mechanism": "PLAIN"})["error_code"] == 0
    credentials = f"\0{request.param}\0pencil".encode()
    assert made.call("SaslAuthenticate", 1, {"auth_bytes": credentials})["error_code"] == 0
    yield made
    made.close()


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("name", "body"), LISTING, ids=[name for name, _ in LISTING])
def test_an_answer_that_lists_topics_has_none_that_its_user_may_not_see(client, name, body) -> None:
    """✗ OffsetFetch of all topics named every topic of the group."""
    api = next(api for api in APIS.values() if api.name == name)
    least = {"Metadata": 1, "OffsetFetch": 2}.get(name, api.first)  # the first ones that can ask for all
    for version in (least, api.last):
        client.send(name, version, body)
        assert UNSEEN.encode() not in client.receive()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("version", [5, 9])
def test_offsets_of_a_topic_that_is_named_and_may_not_be_seen_are_refused(client, version) -> None:
    """Source: Kafka ``KafkaApis.fetchOffsets``."""
    topics = [{"name": name, "partition_indexes": [0]} for name in (SEEN, UNSEEN)]
    answer = client.call(
        "OffsetFetch", version, {"group_id": GROUP, "topics": topics, "groups": [{"group_id": GROUP, "topics": topics}]}
    )
    found = answer["groups"][0]["topics"] if version >= 8 else answer["topics"]
    told = {topic["name"]: topic["partitions"][0] for topic in found}
    assert (told[SEEN]["committed_offset"], told[SEEN]["error_code"]) == (0, 0)
    refused = told[UNSEEN]["committed_offset"], told[UNSEEN]["error_code"]
    assert refused == (-1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["DescribeUserScramCredentials", "ListPartitionReassignments", "DescribeClientQuotas"])
def test_a_request_of_administrators_is_refused_with_a_message(servers, name) -> None:
    made = Wire(servers)
    with contextlib.closing(made):
        made.call("SaslHandshake", 1, {"mechanism": "PLAIN"})
        made.call("SaslAuthenticate", 1, {"auth_bytes": b"\0ann\0pencil"})
        body: dict[str, object] = {"users": None, "topics": None, "components": [], "strict": False}
        answer = made.call(name, 0, body)
        if name == "DescribeUserScramCredentials":
            (answer,) = answer["results"]
        assert answer["error_code"] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert answer["error_message"] == "Cluster authorization failed."


def test_the_topics_of_an_assignment_are_read_back() -> None:
    partitions = [TopicPartition("b", 1), TopicPartition("a", 0), TopicPartition("b", 7)]
    assert assigned_topics(encode_assignment(partitions)) == ["a", "b"]
    for data in (b"", b"\0\0\0\0\0\1", b"\0\0\0\0\0\1\0\1a\xff\xff\xff\xff", b"\0\0\x7f\xff\xff\xff"):
        with pytest.raises(ValueError, match=r".+"):
            assigned_topics(data)
