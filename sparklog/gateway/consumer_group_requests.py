"""ConsumerGroupHeartbeat, ConsumerGroupDescribe: groups to which the gateway itself assigns partitions (KIP-848)."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import Any

from sparklog.errors import SparklogError
from sparklog.gateway.authorized_operations import group_operations
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.coordination.consumer_group import ConsumerGroup
from sparklog.gateway.coordination.consumer_members import (
    LEAVES,
    LEAVES_FOR_A_WHILE,
    ConsumerHeartbeat,
    ConsumerMember,
    Partitions,
    TopicFacts,
)
from sparklog.gateway.error_codes import ErrorCode, coordinator_code_of
from sparklog.gateway.group_coordinated import Coordinated
from sparklog.gateway.group_coordinator import coordinators
from sparklog.gateway.group_requests import check_group_id
from sparklog.model import TopicPartition

__all__ = ["consumer_group_describe", "consumer_group_heartbeat"]

_LOGGER = logging.getLogger("sparklog.gateway")
_OF_THIS_PROTOCOL = 1
"""Source: Kafka ``ConsumerGroupDescribeResponse.Member.MemberType``."""
_UNSEEN = "The described group uses topics that the client is not authorized to describe."
"""Source: Kafka ``KafkaApis.handleConsumerGroupDescribe``, also of the rule."""
_NOT_FOR_A_MEMBER = (LEAVES, LEAVES_FOR_A_WHILE)


async def consumer_group_heartbeat(backend: Backend, request: Request) -> dict[str, Any]:
    """Process a member's heartbeat and answer its assignment."""
    body, served = request.body, coordinators(backend)
    group, epoch = body["group_id"], body["member_epoch"]
    code = check_group_id(group)
    if code is ErrorCode.NONE and epoch == 0:
        host, port = backend.address(request)
        code = await served.begin(group, f"{host}:{port}")
    if code is ErrorCode.NONE and group not in served.groups:
        code = await served.absent(group)
    if code is not ErrorCode.NONE:
        return _refused(code, f"group {group}: {code.name}")
    coordinated = served.groups[group]
    if not coordinated.classic.is_unused:
        _LOGGER.warning("a client was refused: group %s has members of the classic protocol", group)
        return _refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"group {group} has members of the classic protocol")
    topics = None if body["subscribed_topic_names"] is None else frozenset(body["subscribed_topic_names"])
    if epoch not in _NOT_FOR_A_MEMBER:
        code = await coordinated.look(topics or frozenset(), body.get("subscribed_topic_regex") or "")
        if (
            code is not ErrorCode.NONE
            or served.groups.get(group) is not coordinated
            or not coordinated.classic.is_unused
        ):
            code = code if code is not ErrorCode.NONE else ErrorCode.NOT_COORDINATOR
            return _refused(code, f"group {group}: {code.name}")
    heard = coordinated.consumer.heartbeat(_said(request, topics, coordinated.consumer.facts))
    await served.end_unused(group)
    if heard.code is not ErrorCode.NONE:
        return _refused(heard.code, heard.message or heard.code.name)
    return {
        "member_id": heard.member_id,
        "member_epoch": heard.epoch,
        "heartbeat_interval_ms": backend.settings.group_consumer_heartbeat_interval_ms,
        "assignment": None
        if heard.assigned is None
        else {"topic_partitions": _by_topic(heard.assigned, coordinated.consumer.facts)},
    }


def _refused(code: ErrorCode, message: str) -> dict[str, Any]:
    return {"error_code": code, "error_message": message}


def _said(request: Request, topics: frozenset[str] | None, facts: Mapping[str, TopicFacts]) -> ConsumerHeartbeat:
    body = request.body
    names = {uuid.UUID(known.topic_id): topic for topic, known in facts.items()}
    owned: Partitions | None = None
    if body["topic_partitions"] is not None:
        owned = frozenset(
            TopicPartition(names[of_topic["topic_id"]], number)
            for of_topic in body["topic_partitions"]
            if of_topic["topic_id"] in names
            for number in of_topic["partitions"]
        )
    return ConsumerHeartbeat(
        member_id=body["member_id"],
        epoch=body["member_epoch"],
        instance_id=body["instance_id"],
        client_id=request.client_id,
        client_host=f"/{request.client_host}",
        rebalance_timeout_ms=body["rebalance_timeout_ms"],
        topics=topics,
        pattern=body.get("subscribed_topic_regex"),
        assignor=body["server_assignor"],
        owned=owned,
    )


def _by_topic(partitions: Partitions, facts: Mapping[str, TopicFacts]) -> list[dict[str, Any]]:
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return [
        {"topic_id": uuid.UUID(facts[topic].topic_id), "topic_name": topic, "partitions": of_topic}
        for topic, of_topic in numbers.items()
        if topic in facts
    ]


async def consumer_group_describe(backend: Backend, request: Request) -> dict[str, Any]:
    """Groups of this protocol with what each member has and is to have; of others Kafka's tools ask DescribeGroups."""
    served = coordinators(backend)
    groups = []
    for group in dict.fromkeys(request.body["group_ids"]):
        code, coordinated = check_group_id(group), served.groups.get(group)
        if code is ErrorCode.NONE and coordinated is None:
            code = await _elsewhere(backend, group)
        elif code is ErrorCode.NONE and coordinated is not None and coordinated.consumer.is_unused:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        if code is not ErrorCode.NONE or coordinated is None:
            message = f"group {group} isn't of the protocol consumer, or isn't here"
            described = {"error_code": code, "error_message": message, "group_state": "", "assignor_name": ""}
            groups.append({"group_id": group, "members": [], **described})
        elif request.rules is not None and not all(map(request.rules.may_see, _topics_of(coordinated.consumer))):
            described = {"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "error_message": _UNSEEN}
            groups.append({"group_id": group, "members": [], "group_state": "", "assignor_name": "", **described})
        else:
            groups.append(_described(coordinated))
    if request.body["include_authorized_operations"]:
        for answer in groups:
            if not answer.get("error_code"):
                answer["authorized_operations"] = group_operations(request.rules, answer["group_id"])
    return {"groups": groups}


async def _elsewhere(backend: Backend, group: str) -> ErrorCode:
    try:
        code = await coordinators(backend).absent(group)
    except SparklogError as error:
        return coordinator_code_of(error)
    return code if code is ErrorCode.NOT_COORDINATOR else ErrorCode.GROUP_ID_NOT_FOUND


def _topics_of(group: ConsumerGroup) -> frozenset[str]:
    """All topics that the members of a group subscribe to, have, or are to have."""
    partitions = (at for member in group.members.values() for at in (*member.holds, *member.target))
    return group.topics().union(at.topic for at in partitions)


def _described(coordinated: Coordinated) -> dict[str, Any]:
    group: ConsumerGroup = coordinated.consumer
    return {
        "group_id": coordinated.group_id,
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.assignor,
        "members": [_described_member(member, group.facts) for member in group.members.values()],
    }


def _described_member(member: ConsumerMember, facts: Mapping[str, TopicFacts]) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topics),
        "subscribed_topic_regex": member.pattern or None,
        "member_type": _OF_THIS_PROTOCOL,
        "assignment": {"topic_partitions": _by_topic(member.holds, facts)},
        "target_assignment": {"topic_partitions": _by_topic(member.target, facts)},
    }
