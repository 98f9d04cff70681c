"""Metadata, CreateTopics, DeleteTopics, DescribeConfigs: topics by sparklog's own admin client."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from sparklog.admin.values import NewTopic, config_entries
from sparklog.errors import SparklogError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from sparklog.gateway.backend import Backend, Request, node_id_of
from sparklog.gateway.error_codes import ErrorCode, code_of
from sparklog.gateway.users import Rules
from sparklog.log.topic import TopicDescription

__all__ = ["create_topics", "delete_topics", "describe_configs", "metadata"]

_TOPIC, _BROKER = 2, 4
"""Kinds of ``ConfigResource``. Source: Kafka ``ConfigResource.Type``."""
_DYNAMIC_TOPIC_CONFIG, _DEFAULT_CONFIG = 1, 5
_TYPES = {bool: 1, str: 2, int: 3, float: 6}
"""Source: Kafka ``DescribeConfigsResponse.ConfigType``: boolean, string, int, …, double."""


async def metadata(backend: Backend, request: Request) -> dict[str, Any]:
    """Topics with this gateway as their leader."""
    host, port = backend.address(request)
    node_id = node_id_of(host, port)
    return {
        "brokers": [{"node_id": node_id, "host": host, "port": port, "rack": None}],
        "cluster_id": backend.cluster.cluster_id,
        "controller_id": node_id,
        "topics": await backend.run(lambda: _topics(backend, request, node_id)),
    }


def _topics(backend: Backend, request: Request, node_id: int) -> list[dict[str, Any]]:
    wanted = request.body["topics"]
    if wanted is None or (request.api_version == 0 and not wanted):
        rules = request.rules
        return [_described(one, node_id) for one in backend.describe_all() if rules is None or rules.may_see(one.name)]
    may_create = backend.settings.auto_create_topics and request.body.get("allow_auto_topic_creation", True)
    return [_one_topic(backend, one, request.rules, node_id, may_create=may_create) for one in wanted]


def _one_topic(
    backend: Backend, wanted: dict[str, Any], rules: Rules | None, node_id: int, *, may_create: bool
) -> dict[str, Any]:
    name, topic_id = wanted["name"], wanted.get("topic_id", uuid.UUID(int=0))
    try:
        known = backend.name_of(topic_id) if name is None else name
        if rules is not None and not rules.may_see(known):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return {"error_code": code, "name": name, "topic_id": topic_id, "partitions": []}
        if name is None:
            return _described(backend.describe(known), node_id)
        may_create = may_create and (rules is None or rules.may_write(name))
        return _described(_existing(backend, name, may_create=may_create), node_id)
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
    return backend.describe(name)


def _described(topic: TopicDescription, node_id: int) -> dict[str, Any]:
    partitions = [
        {
            "partition_index": number,
            "leader_id": node_id,
            "leader_epoch": 0,
            "replica_nodes": [node_id],
            "isr_nodes": [node_id],
            "offline_replicas": [],
        }
        for number in range(topic.partition_count)
    ]
    return {"name": topic.name, "topic_id": uuid.UUID(topic.topic_id), "partitions": partitions}


async def create_topics(backend: Backend, request: Request) -> dict[str, Any]:
    """Create each topic, whatever becomes of the others."""

    def create(wanted: dict[str, Any]) -> dict[str, Any]:
        count = wanted["num_partitions"]
        assignments = {one["partition_index"]: one["broker_ids"] for one in wanted["assignments"]}
        new = NewTopic(
            wanted["name"],
            backend.settings.num_partitions if count == -1 and not assignments else count,
            replica_assignments=assignments or None,
            configs={one["name"]: one["value"] for one in wanted["configs"]},
        )
        backend.admin.create_topics([new], validate_only=request.body.get("validate_only", False))
        if request.body.get("validate_only", False):
            return {"num_partitions": new.partition_count(), "replication_factor": 1}
        topic = backend.describe(new.name)
        return {
            "topic_id": uuid.UUID(topic.topic_id),
            "num_partitions": topic.partition_count,
            "replication_factor": 1,
            "configs": [_config(name, entry) for name, entry in config_entries(topic.config).items()],
        }

    return {"topics": await backend.run(lambda: [_tried(create, one, one["name"]) for one in request.body["topics"]])}


async def delete_topics(backend: Backend, request: Request) -> dict[str, Any]:
    """Delete each topic, by name or by id."""
    by_name = [{"name": name, "topic_id": uuid.UUID(int=0)} for name in request.body.get("topic_names", ())]

    def delete(wanted: dict[str, Any]) -> dict[str, Any]:
        name = wanted["name"] if wanted["name"] is not None else backend.name_of(wanted["topic_id"])
        backend.admin.delete_topics([name])
        backend.forget_topic(name)
        return {"name": name, "topic_id": wanted["topic_id"]}

    wanted = [*by_name, *request.body.get("topics", ())]
    return {"responses": await backend.run(lambda: [_tried(delete, one, one["name"]) for one in wanted])}


def _tried(
    call: Callable[[dict[str, Any]], dict[str, Any]], wanted: dict[str, Any], name: str | None
) -> dict[str, Any]:
    try:
        return {"name": name, **call(wanted)}
    except SparklogError as error:
        return {"name": name, "error_code": code_of(error), "error_message": str(error)}


async def describe_configs(backend: Backend, request: Request) -> dict[str, Any]:
    """The settings of topics; brokers have none."""

    def describe(wanted: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {"resource_type": wanted["resource_type"], "resource_name": wanted["resource_name"]}
        if wanted["resource_type"] == _BROKER:
            return {**found, "configs": []}
        if wanted["resource_type"] != _TOPIC:
            message = f"resources of type {wanted['resource_type']} have no settings here"
            return {**found, "error_code": ErrorCode.INVALID_REQUEST, "error_message": message, "configs": []}
        names = wanted["configuration_keys"]
        try:
            entries = config_entries(backend.describe(wanted["resource_name"]).config)
        except SparklogError as error:
            return {**found, "error_code": code_of(error), "error_message": str(error), "configs": []}
        configs = [_config(name, entry) for name, entry in entries.items() if names is None or name in names]
        return {**found, "configs": configs}

    return {"results": await backend.run(lambda: [describe(one) for one in request.body["resources"]])}


def _config(name: str, entry: Any) -> dict[str, Any]:
    value = entry.value
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return {
        "name": name,
        "value": None if value is None else text,
        "read_only": False,
        "config_source": _DEFAULT_CONFIG if entry.is_default else _DYNAMIC_TOPIC_CONFIG,
        "is_sensitive": False,
        "synonyms": [],
        "config_type": _TYPES.get(type(value), 2),
        "documentation": None,
    }
