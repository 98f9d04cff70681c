"""Metadata, CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords: topics by sparklog's own admin client."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from sparklog.admin.values import NewPartitions, NewTopic, config_entries
from sparklog.errors import (
    InvalidArgumentError,
    SparklogError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from sparklog.gateway.authorized_operations import cluster_operations, topic_operations
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.config_requests import config_of
from sparklog.gateway.distinct import distinct
from sparklog.gateway.error_codes import ErrorCode, code_of
from sparklog.gateway.leader_epochs import leader_epoch
from sparklog.gateway.pieces import Pieces
from sparklog.gateway.topic_directory import TopicFacts
from sparklog.gateway.users import Rules
from sparklog.gateway.zones import Route
from sparklog.log.topic import TopicDescription, first_offset_kept
from sparklog.model import TopicPartition

__all__ = ["create_partitions", "create_topics", "delete_records", "delete_topics", "described_partitions", "metadata"]

_IDS_WITHOUT_USE = (10, 11)
"""Versions of Metadata that have a field for topics' ids, by which nothing can be asked for yet."""
_NO_ID = uuid.UUID(int=0)
_LOGGER = logging.getLogger("sparklog.gateway")


async def metadata(backend: Backend, request: Request) -> dict[str, Any]:
    """Topics with the gateways of the client's zone as their leaders, or this one."""
    route = backend.route(request)
    operations = {}
    if request.body.get("include_cluster_authorized_operations", False):
        operations["cluster_authorized_operations"] = cluster_operations(request.rules)
    return {
        **operations,
        "brokers": [
            {"node_id": broker.node_id, "host": broker.host, "port": broker.port, "rack": broker.zone}
            for broker in route.brokers
        ],
        "cluster_id": backend.cluster.cluster_id or None,
        "controller_id": route.own.node_id,
        "topics": await _answered_topics(backend, request, route),
    }


async def _answered_topics(backend: Backend, request: Request, route: Route) -> Sequence[dict[str, Any]]:
    wanted = request.body["topics"]
    if wanted is not None and (wanted or request.api_version):
        topics = await backend.run_look(partial(_named_topics, backend, request, route))
        return [_with_operations(topic, request) for topic in topics]
    found = await backend.run_look(backend.describe_all)
    await backend.follow_topics()
    rules = request.rules
    seen = [(name, topic) for name, topic in found.items() if rules is None or rules.may_see(name)]
    for name, topic in seen:
        if isinstance(topic, Exception):
            _LOGGER.warning("topic %r can't be described: %s", name, topic)
    codes = [code_of(topic) for _, topic in seen if isinstance(topic, Exception)]
    return Pieces(seen, lambda one: _with_operations(_described_or_code(*one, route), request), codes)


def _with_operations(topic: dict[str, Any], request: Request) -> dict[str, Any]:
    """A topic of an answer, and what the client may do with it where the request asks for that."""
    if not request.body.get("include_topic_authorized_operations", False) or topic.get("error_code"):
        return topic
    return {**topic, "topic_authorized_operations": topic_operations(request.rules, topic["name"])}


def _named_topics(backend: Backend, request: Request, route: Route) -> list[dict[str, Any]]:
    wanted = distinct(request.body["topics"], "name", "topic_id")
    if request.api_version in _IDS_WITHOUT_USE and any(
        asked["name"] is None or asked["topic_id"] != _NO_ID for asked in wanted
    ):
        # Source: Kafka ``KafkaApis.handleTopicMetadataRequest``, ``MetadataRequest.getErrorResponse``.
        return [{**asked, "name": asked["name"] or "", "error_code": ErrorCode.INVALID_REQUEST} for asked in wanted]
    may_create = backend.settings.auto_create_topics and request.body.get("allow_auto_topic_creation", True)
    return [_one_topic(backend, asked, request.rules, route, may_create=may_create) for asked in wanted]


def _one_topic(
    backend: Backend, wanted: Mapping[str, Any], rules: Rules | None, route: Route, *, may_create: bool
) -> dict[str, Any]:
    name, topic_id = wanted["name"], wanted.get("topic_id", uuid.UUID(int=0))
    try:
        topic = backend.describe_by_id(topic_id) if name is None else None
        known = topic.name if topic is not None else name
        if rules is not None and not rules.may_see(known):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return {"error_code": code, "name": name, "topic_id": topic_id, "partitions": []}
        if topic is not None:
            return _described(topic, route)
        may_create = may_create and (rules is None or rules.may_write(name))
        return _described(_existing(backend, name, may_create=may_create), route)
    except SparklogError as error:
        code = code_of(error)
        if name is None and code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        return {"error_code": code, "name": name, "topic_id": topic_id, "partitions": []}


def _existing(backend: Backend, name: str, *, may_create: bool) -> TopicDescription:
    try:
        return backend.describe(name)
    except UnknownTopicOrPartitionError:
        if not may_create:
            raise
    try:
        backend.admin.create_topics([NewTopic(name, backend.settings.num_partitions)])
    except TopicAlreadyExistsError:  # by another client meanwhile
        return backend.describe(name)
    backend.topics_changed()
    return backend.describe(name)


def _described_or_code(name: str, described: TopicFacts | Exception, route: Route) -> dict[str, Any]:
    if isinstance(described, TopicFacts):
        return _described(described, route)
    return {"error_code": code_of(described), "name": name, "topic_id": uuid.UUID(int=0), "partitions": []}


def _described(topic: TopicDescription | TopicFacts, route: Route) -> dict[str, Any]:
    partitions = described_partitions(topic, route)
    topic_id = topic.uuid if isinstance(topic, TopicFacts) else uuid.UUID(topic.topic_id)
    return {"name": topic.name, "topic_id": topic_id, "partitions": partitions}


def described_partitions(topic: TopicDescription | TopicFacts, route: Route) -> list[dict[str, Any]]:
    """The partitions of a topic, led by the gateways of a route."""
    if isinstance(topic, TopicFacts):
        ids, epoch = route.leader_ids(topic.uuid.bytes), topic.leader_epoch
    else:
        ids, epoch = route.leader_ids(bytes.fromhex(topic.topic_id)), leader_epoch(topic.topic_id)
    return [
        {
            "partition_index": number,
            "leader_id": ids[number % len(ids)],
            "leader_epoch": epoch,
            "replica_nodes": [ids[number % len(ids)]],
            "isr_nodes": [ids[number % len(ids)]],
            "offline_replicas": [],
        }
        for number in range(topic.partition_count)
    ]


async def create_topics(backend: Backend, request: Request) -> dict[str, Any]:
    """Create each topic, whatever becomes of the others."""

    def create(wanted: dict[str, Any]) -> dict[str, Any]:
        count = wanted["num_partitions"]
        assignments = {assignment["partition_index"]: assignment["broker_ids"] for assignment in wanted["assignments"]}
        new = NewTopic(
            wanted["name"],
            backend.settings.num_partitions if count == -1 and not assignments else count,
            replica_assignments=assignments or None,
            configs={setting["name"]: setting["value"] for setting in wanted["configs"]},
        )
        backend.admin.create_topics([new], validate_only=request.body.get("validate_only", False))
        backend.topics_changed()
        if request.body.get("validate_only", False):
            return {"num_partitions": new.partition_count(), "replication_factor": 1}
        topic = backend.describe(new.name)
        return {
            "topic_id": uuid.UUID(topic.topic_id),
            "num_partitions": topic.partition_count,
            "replication_factor": 1,
            "configs": [config_of(name, entry) for name, entry in config_entries(topic.config).items()],
        }

    return {
        "topics": await backend.run(lambda: [_tried(create, asked, asked["name"]) for asked in request.body["topics"]])
    }


async def delete_topics(backend: Backend, request: Request) -> dict[str, Any]:
    """Delete each topic, by name or by id."""
    by_name = [{"name": name, "topic_id": uuid.UUID(int=0)} for name in request.body.get("topic_names", ())]

    def delete(wanted: dict[str, Any]) -> dict[str, Any]:
        name = (
            wanted["name"]
            if wanted["name"] is not None
            else backend.describe_by_id(wanted["topic_id"], is_sure=True).name
        )
        backend.admin.delete_topics([name])
        backend.topics_changed(deleted=name)
        return {"name": name, "topic_id": wanted["topic_id"]}

    wanted = [*by_name, *request.body.get("topics", ())]
    answers = await backend.run(lambda: [_tried(delete, topic, topic["name"]) for topic in wanted])
    for answer, asked in zip(answers, wanted, strict=True):
        if asked["name"] is None and answer.get("error_code") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            answer["error_code"] = ErrorCode.UNKNOWN_TOPIC_ID
    return {"responses": answers}


def _tried(
    call: Callable[[dict[str, Any]], dict[str, Any]], wanted: dict[str, Any], name: str | None
) -> dict[str, Any]:
    try:
        return {"name": name, **call(wanted)}
    except SparklogError as error:
        return {"name": name, "error_code": code_of(error), "error_message": str(error)}


async def create_partitions(backend: Backend, request: Request) -> dict[str, Any]:
    """Let each topic grow to a total number of partitions, whatever becomes of the others."""
    body = request.body
    times = Counter(topic["name"] for topic in body["topics"])

    def grow(wanted: dict[str, Any]) -> dict[str, Any]:
        name, count = wanted["name"], wanted["count"]
        if times[name] > 1:
            raise InvalidArgumentError(f"topic {name!r} is there {times[name]} times, expected once")
        if wanted["assignments"] is not None:
            added = count - backend.describe(name).partition_count
            if added > 0 and len(wanted["assignments"]) != added:
                assignment_count = len(wanted["assignments"])
                raise InvalidArgumentError(f"topic {name!r}: {assignment_count} assignments for {added} new partitions")
        backend.admin.create_partitions(
            {name: NewPartitions(count)}, timeout_ms=backend.bound_ms(request), validate_only=body["validate_only"]
        )
        backend.topics_changed()
        return {"error_code": ErrorCode.NONE, "error_message": None}

    return {"results": await backend.run(lambda: [_tried(grow, topic, topic["name"]) for topic in body["topics"]])}


async def delete_records(backend: Backend, request: Request) -> dict[str, Any]:
    """Delete the records of partitions below an offset: one commit for each topic, without the partitions that are
    refused."""

    def delete(name: str, offsets: dict[int, int]) -> dict[int, dict[str, Any]]:
        answers = {number: {"low_watermark": -1, "error_code": ErrorCode.NONE} for number in offsets}
        wanted = {}
        try:
            ends = backend.describe(name).log_end_offsets
            for number, offset in offsets.items():
                try:
                    first_offset_kept(name, ends, number, offset)
                    wanted[TopicPartition(name, number)] = offset
                except SparklogError as error:
                    answers[number]["error_code"] = code_of(error)
            deleted = backend.admin.delete_records(wanted, timeout_ms=backend.bound_ms(request)) if wanted else {}
        except SparklogError as error:
            for at in wanted or (TopicPartition(name, number) for number in offsets):
                answers[at.partition]["error_code"] = code_of(error)
            return answers
        for at, low_watermark in deleted.items():
            answers[at.partition]["low_watermark"] = low_watermark
        return answers

    def delete_all() -> list[dict[str, Any]]:
        answers = []
        for topic in request.body["topics"]:
            answer_by_number = delete(
                topic["name"], {partition["partition_index"]: partition["offset"] for partition in topic["partitions"]}
            )
            partitions = [{"partition_index": number, **answer} for number, answer in answer_by_number.items()]
            answers.append({"name": topic["name"], "partitions": partitions})
        return answers

    return {"topics": await backend.run(delete_all)}
