"""What a client is told that it may do (KIP-430)."""

from __future__ import annotations

import pytest

import sparklog.gateway
from sparklog.gateway.authorized_operations import Operation, cluster_operations, group_operations, topic_operations
from sparklog.gateway.users import Rules
from tests.gateway.test_server import Wire

NOT_ASKED = -(2**31)
"""Source: Kafka ``MetadataResponse.AUTHORIZED_OPERATIONS_OMITTED``."""
LOOK = {Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS}
CHANGE = {Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS}


def named(bits):
    return {one for one in Operation if bits >> one & 1}


def test_without_users_all_may_do_everything():
    assert named(topic_operations(None, "jobs")) == {Operation.READ, Operation.WRITE} | LOOK | CHANGE
    assert named(cluster_operations(None)) == set(Operation) - {Operation.READ, Operation.WRITE, Operation.DELETE}
    assert named(group_operations(None, "g")) == {Operation.READ, Operation.DESCRIBE, Operation.DELETE}


def test_a_user_may_do_what_its_rules_say():
    reader, writer = Rules(read=("jobs",)), Rules(write=("jobs",), groups=("g",))
    assert named(topic_operations(reader, "jobs")) == {Operation.READ} | LOOK
    assert topic_operations(reader, "news") == group_operations(reader, "g") == 0
    assert named(topic_operations(writer, "jobs")) == {Operation.WRITE} | LOOK
    assert named(topic_operations(Rules(write=("*",), admin=True), "jobs")) == {Operation.WRITE} | LOOK | CHANGE
    assert named(group_operations(writer, "g")) == {Operation.READ, Operation.DESCRIBE}
    assert named(cluster_operations(writer)) == {Operation.IDEMPOTENT_WRITE}


@pytest.fixture(scope="module")
def wire():
    with sparklog.gateway.serve("memory://gateway-operations") as servers:
        client = Wire(servers)
        yield client
        client.socket.close()


@pytest.mark.parametrize("is_asked", [True, False])
def test_answers_tell_it_where_it_is_asked_for(wire, is_asked):
    def told(bits):
        return bits if is_asked else NOT_ASKED

    body = {"topics": [{"name": "jobs"}], "allow_auto_topic_creation": True}
    asked = ("include_cluster_authorized_operations", "include_topic_authorized_operations")
    answer = wire.call("Metadata", 8, {**body, **dict.fromkeys(asked, is_asked)})
    assert answer["cluster_authorized_operations"] == told(cluster_operations(None))
    assert answer["topics"][0]["topic_authorized_operations"] == told(topic_operations(None, "jobs"))
    answer = wire.call("DescribeCluster", 0, {"include_cluster_authorized_operations": is_asked})
    assert answer["cluster_authorized_operations"] == told(cluster_operations(None))
    (group,) = wire.call("DescribeGroups", 5, {"groups": ["g"], "include_authorized_operations": is_asked})["groups"]
    assert group["authorized_operations"] == told(group_operations(None, "g"))
