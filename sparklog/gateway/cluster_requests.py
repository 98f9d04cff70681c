"""Requests of administrators' tools about a cluster as a whole: DescribeCluster, DescribeTopicPartitions,
DescribeLogDirs, ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments, DescribeClientQuotas, and ACLs.

Many have one answer here: the gateways are those of Metadata, and move no partition; there are no quotas, and
users' rights are in a file, or in the store in a form of our own.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sparklog.errors import SparklogError, StoreUnavailableError, UnknownTopicOrPartitionError
from sparklog.gateway.authorized_operations import cluster_operations, topic_operations
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.error_codes import ErrorCode, code_of
from sparklog.gateway.topic_directory import TopicFacts
from sparklog.gateway.topics import described_partitions
from sparklog.gateway.zones import Route
from sparklog.log.follow import TopicFollower
from sparklog.log.topic import TopicDescription
from sparklog.parallel import parallel_results

__all__ = [
    "alter_partition_reassignments",
    "create_acls",
    "delete_acls",
    "describe_acls",
    "describe_client_quotas",
    "describe_cluster",
    "describe_log_dirs",
    "describe_topic_partitions",
    "elect_leaders",
    "list_partition_reassignments",
    "page_of_partitions",
]

_LOGGER = logging.getLogger("sparklog.gateway")
_BROKERS = 1
"""Source: KIP-919, ``EndpointType``."""
_MOST_PARTITIONS = 2_000
"""Source: Kafka ``max.request.partition.size.limit``."""
_NO_AUTHORIZER = "there are no ACLs here: the users of `sparklog gateway --users` have their rights there"

_Answer = dict[str, Any]


async def describe_cluster(backend: Backend, request: Request) -> _Answer:
    """The cluster's id, and the brokers that Metadata has for the client."""
    kind = request.body.get("endpoint_type", _BROKERS)
    if kind != _BROKERS:
        message = f"endpoints of type {kind}: there are none but brokers ({_BROKERS})"
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return {"error_code": code, "error_message": message, "endpoint_type": kind, "cluster_id": "", "brokers": []}
    if not backend.cluster.cluster_id:
        message, code = "the cluster isn't open yet", ErrorCode.KAFKA_STORAGE_ERROR
        return {"error_code": code, "error_message": message, "endpoint_type": kind, "cluster_id": "", "brokers": []}
    route = backend.route(request)
    operations = {}
    if request.body["include_cluster_authorized_operations"]:
        operations["cluster_authorized_operations"] = cluster_operations(request.rules)
    return {
        **operations,
        "endpoint_type": _BROKERS,
        "cluster_id": backend.cluster.cluster_id,
        "controller_id": route.own.node_id,
        "brokers": [
            {
                "broker_id": broker.node_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.zone,
                "is_fenced": False,
            }
            for broker in route.brokers
        ],
    }


async def describe_topic_partitions(backend: Backend, request: Request) -> _Answer:
    """Topics in the order of their names, a bounded number of partitions at a time."""
    body, rules = request.body, request.rules
    route = backend.route(request)
    names = [topic["name"] for topic in body["topics"]]

    def asked_topics() -> Sequence[TopicDescription | TopicFacts | tuple[str, ErrorCode]]:
        if not names:
            every = backend.describe_all()
            return [_or_code(name, topic) for name, topic in every.items() if rules is None or rules.may_see(name)]
        return [described(name) for name in sorted(set(names))]

    def described(name: str) -> TopicDescription | tuple[str, ErrorCode]:
        if rules is not None and not rules.may_see(name):
            return name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        try:
            return backend.describe(name)
        except SparklogError as error:
            return name, code_of(error)

    limit = max(1, min(body["response_partition_limit"], _MOST_PARTITIONS))
    cursor = body["cursor"]
    start = None if cursor is None else (cursor["topic_name"], cursor["partition_index"])
    topics = await backend.run_look(asked_topics)
    answers, following = page_of_partitions(topics, start, limit, route)
    for answer in answers:
        if not answer.get("error_code"):
            answer["topic_authorized_operations"] = topic_operations(rules, answer["name"])
    cursor = None if following is None else {"topic_name": following[0], "partition_index": following[1]}
    return {"topics": answers, "next_cursor": cursor}


def _or_code(name: str, described: TopicFacts | Exception) -> TopicFacts | tuple[str, ErrorCode]:
    return described if isinstance(described, TopicFacts) else (name, code_of(described))


def page_of_partitions(
    topics: Iterable[TopicDescription | TopicFacts | tuple[str, ErrorCode]],
    start: tuple[str, int] | None,
    limit: int,
    route: Route,
) -> tuple[list[_Answer], tuple[str, int] | None]:
    """A page of topics, and where the next one begins; None: there is none.

    Args:
        topics: each as it is, or its name and the error why it isn't described.
        start: the name of a topic, and the partition of it that the page begins with; None: the first of all.
        limit: partitions of a page, at least one.
    Source: Kafka ``DescribeTopicPartitionsRequestHandler``: topics are in the order of their names; those before the
    topic of the cursor are left out.
    """
    answers: list[_Answer] = []
    left = limit
    by_name = sorted((topic[0] if isinstance(topic, tuple) else topic.name, topic) for topic in topics)
    for name, topic in by_name:
        if start is not None and name < start[0]:
            continue
        if not left:
            return answers, (name, 0)
        if isinstance(topic, tuple):
            answers.append({"error_code": topic[1], "name": name, "topic_id": uuid.UUID(int=0), "partitions": []})
            continue
        first = start[1] if start is not None and name == start[0] else 0
        # Java's Admin can't do with null for these, which the definition allows.
        none_eligible: _Answer = {"eligible_leader_replicas": [], "last_known_elr": []}
        partitions = [{**each, **none_eligible} for each in described_partitions(topic, route)[max(0, first) :]]
        answers.append({"name": name, "topic_id": uuid.UUID(topic.topic_id), "partitions": partitions[:left]})
        if len(partitions) > left:
            return answers, (name, max(0, first) + left)
        left -= len(partitions)
    return answers, None


async def describe_log_dirs(backend: Backend, request: Request) -> _Answer:
    """How many bytes the files of each partition have: the cluster's root is the one folder that there is. A topic that
    can't be read is left out, since the answer has an error for a whole folder alone."""
    wanted, rules = request.body["topics"], request.rules

    def sizes(asked: tuple[str, Collection[int] | None]) -> _Answer:
        name, numbers = asked
        follower = TopicFollower(backend.cluster.topic_log(name), name)
        partitions = []
        for number, start in enumerate(follower.head.log_start_offsets):
            if numbers is None or number in numbers:
                size = sum(segment.size_bytes for segment in follower.segments(number, start))
                partition = {"partition_index": number, "partition_size": size, "offset_lag": 0}
                partitions.append({**partition, "is_future_key": False})
        return {"name": name, "partitions": partitions}

    def topics() -> list[_Answer]:
        if wanted is None:
            asked: list[tuple[str, Collection[int] | None]] = [(name, None) for name in backend.admin.list_topics()]
        else:
            numbers: dict[str, set[int]] = {}
            for topic in wanted:
                numbers.setdefault(topic["topic"], set()).update(topic["partitions"])
            asked = [*numbers.items()]
        visible = [topic for topic in asked if rules is None or rules.may_see(topic[0])]
        answers = []
        for (name, _), result in zip(visible, parallel_results(sizes, visible), strict=True):
            if not isinstance(result, Exception):
                answers.append(result)
            elif isinstance(result, StoreUnavailableError):  # which is true of all topics
                raise result
            elif not isinstance(result, UnknownTopicOrPartitionError):
                _LOGGER.warning("topic %r can't be measured: %s", name, result)
        return answers

    try:
        measured = await backend.run_look(topics)
    except SparklogError as error:
        return {"error_code": code_of(error), "results": []}
    return {"results": [{"log_dir": backend.cluster.store.uri, "topics": measured}]}


async def elect_leaders(backend: Backend, request: Request) -> _Answer:
    """No partition needs another leader: the gateway leads all of them."""
    wanted = request.body["topic_partitions"]

    def answer(topic: _Answer) -> _Answer:
        try:
            count = backend.describe(topic["topic"]).partition_count
        except SparklogError as error:
            code, message = code_of(error), str(error)
            results = [
                {"partition_id": partition_id, "error_code": code, "error_message": message}
                for partition_id in topic["partitions"]
            ]
            return {"topic": topic["topic"], "partition_result": results}
        results = []
        for number in topic["partitions"]:
            is_known = 0 <= number < count
            code = ErrorCode.ELECTION_NOT_NEEDED if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.append({"partition_id": number, "error_code": code, "error_message": None})
        return {"topic": topic["topic"], "partition_result": results}

    return {"replica_election_results": await backend.run_look(lambda: [answer(asked) for asked in wanted or ()])}


async def alter_partition_reassignments(backend: Backend, request: Request) -> _Answer:
    """A partition stays where it is: at its leader. Source of the codes: Kafka ``ReplicationControlManager``."""
    wanted, route = request.body["topics"], backend.route(request)

    def answer(topic: _Answer) -> _Answer:
        try:
            described, failure = described_partitions(backend.describe(topic["name"]), route), None
        except SparklogError as error:
            described, failure = [], (code_of(error), str(error))
        partitions = []
        for asked in topic["partitions"]:
            number = asked["partition_index"]
            code, message = failure or _reassigned(number, asked["replicas"], described)
            partitions.append({"partition_index": number, "error_code": code, "error_message": message})
        return {"name": topic["name"], "partitions": partitions}

    responses = await backend.run_look(lambda: [answer(topic) for topic in wanted])
    return {"error_message": None, "responses": responses}


def _reassigned(
    number: int, replicas: Sequence[int] | None, partitions: Sequence[_Answer]
) -> tuple[ErrorCode, str | None]:
    """The answer for a partition of a topic that has these."""
    if not 0 <= number < len(partitions):
        message = f"there is no partition {number}, expected one below {len(partitions)}"
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message
    if replicas is None:  # cancels one that is under way
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    if list(replicas) != partitions[number]["replica_nodes"]:
        only = partitions[number]["leader_id"]
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"replicas {list(replicas)}: the only one is {only}"
    return ErrorCode.NONE, None


async def list_partition_reassignments(_backend: Backend, _request: Request) -> _Answer:
    """None is ever under way."""
    return {"error_message": None, "topics": []}


async def describe_client_quotas(_backend: Backend, _request: Request) -> _Answer:
    """There are none."""
    return {"error_message": None, "entries": []}


async def describe_acls(_backend: Backend, _request: Request) -> _Answer:
    """There are none. Source of the code: Kafka's brokers without an authorizer."""
    return {"error_code": ErrorCode.SECURITY_DISABLED, "error_message": _NO_AUTHORIZER, "resources": []}


async def create_acls(_backend: Backend, request: Request) -> _Answer:
    """None can be made."""
    refused = {"error_code": ErrorCode.SECURITY_DISABLED, "error_message": _NO_AUTHORIZER}
    return {"results": [refused for _ in request.body["creations"]]}


async def delete_acls(_backend: Backend, request: Request) -> _Answer:
    """There are none."""
    refused = {"error_code": ErrorCode.SECURITY_DISABLED, "error_message": _NO_AUTHORIZER, "matching_acls": []}
    return {"filter_results": [refused for _ in request.body["filters"]]}
