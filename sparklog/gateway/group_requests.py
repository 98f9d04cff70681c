"""FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup: clients in the groups that a gateway coordinates."""

from __future__ import annotations

import logging
from typing import Any

from sparklog.errors import InvalidArgumentError, SparklogError
from sparklog.gateway.backend import Backend, Request, node_id_of
from sparklog.gateway.coordination.classic_members import JoinRequest
from sparklog.gateway.error_codes import ErrorCode, coordinator_code_of
from sparklog.gateway.group_coordinator import coordinators
from sparklog.logs import short
from sparklog.paths import encode_id

__all__ = ["check_group_id", "find_coordinator", "heartbeat", "join_group", "leave_group", "sync_group"]

_LOGGER = logging.getLogger("sparklog.gateway")
_GROUP, _TRANSACTION = 0, 1
"""Kinds of coordinators. Source: Kafka ``FindCoordinatorRequest.CoordinatorType``."""
_NOWHERE = {"node_id": -1, "host": "", "port": -1}
_ASKS_FOR_MEMBER_ID = 4
"""From this version of JoinGroup on a client gets its member id before it is a member. Source: KIP-394."""
_MAY_SKIP_ASSIGNMENT = 9


def check_group_id(group: str) -> ErrorCode:
    """May a group be called so?"""
    try:
        encode_id(group)
    except InvalidArgumentError:
        return ErrorCode.INVALID_GROUP_ID
    return ErrorCode.NONE if group else ErrorCode.INVALID_GROUP_ID


async def find_coordinator(backend: Backend, request: Request) -> dict[str, Any]:
    """A group's: the gateway that is in it, else this one. A transactional id's: this gateway."""
    body = request.body
    keys = None if body.get("coordinator_keys") is None else [*dict.fromkeys(body["coordinator_keys"])]
    kind = body.get("key_type", _GROUP)
    asked = [body["key"]] if keys is None else keys
    if asked and kind == _TRANSACTION and backend.neighbours is not None and not backend.neighbours.stay(request):
        message = f"a client with transactions tells no zone by its client.id, but {short(request.client_id)!r} has one"
        _LOGGER.warning("transactional id %r: %s", short(asked[0]), message)  # of many, which a client chooses, one
        refused = {"error_code": ErrorCode.INVALID_REQUEST, "error_message": message, **_NOWHERE}
        answers = [refused for _ in asked]
    else:
        answers = [await _coordinator(backend, request, key, kind) for key in asked]
    if keys is None:
        return answers[0]
    return {"coordinators": [{"key": key, **answer} for key, answer in zip(keys, answers, strict=True)]}


async def _coordinator(backend: Backend, request: Request, key: str, kind: int) -> dict[str, Any]:
    host, port = backend.address(request)
    code = ErrorCode.INVALID_REQUEST if kind not in (_GROUP, _TRANSACTION) else ErrorCode.NONE
    if kind == _GROUP and code is ErrorCode.NONE:
        code = check_group_id(key)
    if kind == _GROUP and code is ErrorCode.NONE:
        try:
            address = await coordinators(backend).coordinator_of(key, f"{host}:{port}")
            host, _, text = address.rpartition(":")
            port = int(text)
        except (SparklogError, ValueError) as error:
            _LOGGER.warning("the coordinator of group %s could not be determined: %s", key, error)
            code = coordinator_code_of(error)
    if code is not ErrorCode.NONE:
        return {"error_code": code, "error_message": code.name, **_NOWHERE}
    return {"error_message": None, "node_id": node_id_of(host, port), "host": host, "port": port}


async def join_group(backend: Backend, request: Request) -> dict[str, Any]:
    """Join a group; the answer comes once the others have joined."""
    body, settings = request.body, backend.settings
    group, session_ms = body["group_id"], body["session_timeout_ms"]
    code = check_group_id(group)
    if not settings.group_min_session_timeout_ms <= session_ms <= settings.group_max_session_timeout_ms:
        code = ErrorCode.INVALID_SESSION_TIMEOUT
    served = coordinators(backend)
    if code is ErrorCode.NONE:
        host, port = backend.address(request)
        code = await served.begin(group, f"{host}:{port}")
    if code is not ErrorCode.NONE or group not in served.groups:
        code = code if code is not ErrorCode.NONE else ErrorCode.NOT_COORDINATOR
        return {"error_code": code, "member_id": body["member_id"], "protocol_name": ""}
    if not served.groups[group].consumer.is_unused:
        _LOGGER.warning("a client was refused: group %s has members of the protocol consumer", group)
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return {"error_code": code, "member_id": body["member_id"], "protocol_name": ""}
    rebalance_ms = body.get("rebalance_timeout_ms", -1)
    joining = JoinRequest(
        member_id=body["member_id"],
        instance_id=body.get("group_instance_id"),
        client_id=request.client_id,
        client_host=f"/{request.client_host}",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms if rebalance_ms >= 0 else session_ms,
        protocol_type=body["protocol_type"],
        protocols=tuple((protocol["name"], protocol["metadata"]) for protocol in body["protocols"]),
        needs_member_id=request.api_version >= _ASKS_FOR_MEMBER_ID,
        may_skip_assignment=request.api_version >= _MAY_SKIP_ASSIGNMENT,
    )
    return await served.groups[group].classic.join(joining, request.connection_end)


async def sync_group(backend: Backend, request: Request) -> dict[str, Any]:
    """Take the assignment, which the leader gives."""
    body, served = request.body, coordinators(backend)
    if body["group_id"] not in served.groups:
        return {"error_code": await served.absent(body["group_id"])}
    return await served.groups[body["group_id"]].classic.sync(
        member_id=body["member_id"],
        instance_id=body.get("group_instance_id"),
        generation=body["generation_id"],
        protocol_type=body.get("protocol_type"),
        protocol=body.get("protocol_name"),
        assignments={assignment["member_id"]: assignment["assignment"] for assignment in body["assignments"]},
    )


async def heartbeat(backend: Backend, request: Request) -> dict[str, Any]:
    """Show that a member lives; learn that the group rebalances."""
    body, served = request.body, coordinators(backend)
    if body["group_id"] not in served.groups:
        return {"error_code": await served.absent(body["group_id"])}
    classic = served.groups[body["group_id"]].classic
    return {"error_code": classic.heartbeat(body["member_id"], body.get("group_instance_id"), body["generation_id"])}


async def leave_group(backend: Backend, request: Request) -> dict[str, Any]:
    """Members leave; with the last of them this gateway does, before it answers."""
    body, served = request.body, coordinators(backend)
    group = body["group_id"]
    if group not in served.groups:
        return {"error_code": await served.absent(group), "members": []}
    classic = served.groups[group].classic
    if "members" not in body:
        code = classic.leave(body["member_id"], None)
        await served.end_unused(group)
        return {"error_code": code}
    members = [
        {
            "member_id": member["member_id"],
            "group_instance_id": member["group_instance_id"],
            "error_code": classic.leave(member["member_id"], member["group_instance_id"]),
        }
        for member in body["members"]
    ]
    await served.end_unused(group)
    return {"members": members}
