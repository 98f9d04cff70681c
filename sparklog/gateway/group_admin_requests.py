"""DescribeGroups, ListGroups, DeleteGroups: groups of Kafka's clients and of sparklog's alike."""

from __future__ import annotations

from functools import partial
from typing import Any

from sparklog.errors import SparklogError
from sparklog.gateway.authorized_operations import group_operations
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.coordination.classic_group import ClassicGroup, ClassicState
from sparklog.gateway.coordination.consumer_protocol import (
    CONSUMER,
    MOST_TOPICS,
    assigned_topics,
    encode_assignment,
    encode_subscription,
    named_topics,
)
from sparklog.gateway.error_codes import ErrorCode, code_of, coordinator_code_of
from sparklog.gateway.group_coordinator import coordinators
from sparklog.gateway.group_requests import check_group_id
from sparklog.gateway.group_stay import ASSIGNOR
from sparklog.gateway.users import Rules
from sparklog.groups.admin.description import GroupDescription, GroupState

__all__ = ["delete_groups", "describe_groups", "list_groups"]

_CLASSIC = "classic"
_TELLS_OF_MISSING = 6
"""From this version of DescribeGroups on a group that isn't there is an error. Source: KIP-1043."""


async def describe_groups(backend: Backend, request: Request) -> dict[str, Any]:
    """Groups with their members and what is assigned to them."""
    served = coordinators(backend)
    groups = []
    described: dict[str, Any]
    for group in dict.fromkeys(request.body["groups"]):
        code = check_group_id(group)
        if group not in served.groups:
            await served.end(group)  # one that this gateway is leaving would be answered NOT_COORDINATOR
        if code is not ErrorCode.NONE:
            described = {"error_code": code, "group_state": ""}
        elif group in served.groups and served.groups[group].consumer.is_unused:
            described = _described_here(served.groups[group].classic)
        elif group in served.groups:
            message = f"group {group} is of the protocol consumer"
            described = {"error_code": ErrorCode.GROUP_ID_NOT_FOUND, "error_message": message, "group_state": ""}
        else:
            described = await backend.run_for_group(partial(_described_elsewhere, backend, group, request.api_version))
        if request.rules is not None and described.get("protocol_type") == CONSUMER:
            described["members"] = [_as_seen_by(request.rules, member) for member in described["members"]]
        groups.append({"group_id": group, "protocol_type": "", "protocol_data": "", "members": [], **described})
        if request.body.get("include_authorized_operations", False) and not described.get("error_code"):
            groups[-1]["authorized_operations"] = group_operations(request.rules, group)
    return {"groups": groups}


def _as_seen_by(rules: Rules, member: dict[str, Any]) -> dict[str, Any]:
    """A member, without its subscription and assignment if one of them has a topic that the user may not see."""
    try:
        topics = named_topics(member["member_metadata"], MOST_TOPICS) if member["member_metadata"] else []
        topics += assigned_topics(member["member_assignment"]) if member["member_assignment"] else []
    except ValueError:  # whatever it is
        topics = [""]
    if all(map(rules.may_see, topics)):
        return member
    return {**member, "member_metadata": b"", "member_assignment": b""}


def _described_here(group: ClassicGroup) -> dict[str, Any]:
    is_stable = group.state is ClassicState.STABLE
    return {
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": (group.protocol or "") if is_stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(group.protocol) if is_stable else b"",
                "member_assignment": member.assignment if is_stable else b"",
            }
            for member in group.members.values()
        ],
    }


def _described_elsewhere(backend: Backend, group: str, version: int) -> dict[str, Any]:
    try:
        (described,) = backend.admin.describe_groups([group])
    except SparklogError as error:
        return {"error_code": coordinator_code_of(error), "group_state": ""}
    if described.error is not None:
        return {"error_code": code_of(described.error), "group_state": ""}
    if described.state is GroupState.DEAD:
        code = ErrorCode.GROUP_ID_NOT_FOUND if version >= _TELLS_OF_MISSING else ErrorCode.NONE
        message = f"group {group} isn't there"
        return {"error_code": code, "error_message": message, "group_state": described.state.value}
    if described.assignor == ASSIGNOR:
        return {"error_code": ErrorCode.NOT_COORDINATOR, "group_state": ""}
    return _of_consumers(described)


def _of_consumers(group: GroupDescription) -> dict[str, Any]:
    """A group of sparklog's own consumers, as Kafka's tools read it."""
    return {
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": group.assignor,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.host,
                "member_metadata": encode_subscription(member.topics),
                "member_assignment": encode_assignment(member.assignment),
            }
            for member in group.members
        ],
    }


async def list_groups(backend: Backend, request: Request) -> dict[str, Any]:
    """All groups of the cluster, whoever coordinates them."""
    served = coordinators(backend)
    states = {state.lower() for state in request.body.get("states_filter", ())}
    types = {kind.lower() for kind in request.body.get("types_filter", ())}
    try:
        listed = await backend.run_for_group(backend.admin.list_group_states)
    except SparklogError as error:
        return {"error_code": coordinator_code_of(error), "groups": []}
    groups = {listing.group_id: (listing.protocol_type, listing.state.value, _CLASSIC) for listing in listed}
    for group, coordinated in served.groups.items():
        classic = coordinated.classic
        groups[group] = (classic.protocol_type or CONSUMER, classic.state.value, _CLASSIC)
        if not coordinated.consumer.is_unused:
            groups[group] = (CONSUMER, coordinated.consumer.state, CONSUMER)
    return {
        "groups": [
            {"group_id": group, "protocol_type": kind, "group_state": state, "group_type": of_type}
            for group, (kind, state, of_type) in sorted(groups.items())
            if (not states or state.lower() in states) and (not types or of_type in types)
        ]
    }


async def delete_groups(backend: Backend, request: Request) -> dict[str, Any]:
    """Delete groups without members, each whatever becomes of the others."""
    served = coordinators(backend)

    def delete(group: str) -> ErrorCode:
        try:
            backend.admin.delete_groups([group])
        except SparklogError as error:
            return code_of(error)
        return ErrorCode.NONE

    results = []
    for group in request.body["groups_names"]:
        code = check_group_id(group)
        if code is ErrorCode.NONE:
            await served.end_unused(group)
            code = ErrorCode.NON_EMPTY_GROUP if group in served.groups else code
        if code is ErrorCode.NONE:
            code = await backend.run_for_group(partial(delete, group))
        results.append({"group_id": group, "error_code": code})
    return {"results": results}
