"""OffsetForLeaderEpoch: the end of a leader's epoch. A partition has only one epoch here, 0."""

from __future__ import annotations

from typing import Any

from sparklog.errors import SparklogError
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.error_codes import ErrorCode, code_of

__all__ = ["offset_for_leader_epoch"]

_EPOCH = 0
_UNDEFINED = {"leader_epoch": -1, "end_offset": -1}


async def offset_for_leader_epoch(backend: Backend, request: Request) -> dict[str, Any]:
    """The end of each partition, by which a client learns that its position lies beyond it: the topic was made anew."""

    def topic(wanted: dict[str, Any]) -> dict[str, Any]:
        name, partitions = wanted["topic"], wanted["partitions"]
        if request.rules is not None and not request.rules.may_see(name):
            return _refused(wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        try:
            ends = backend.describe(name).log_end_offsets
        except SparklogError as error:
            return _refused(wanted, code_of(error))
        return {"topic": name, "partitions": [_partition(partition, ends) for partition in partitions]}

    return {"topics": await backend.run_look(lambda: [topic(topic_body) for topic_body in request.body["topics"]])}


def _partition(wanted: dict[str, Any], ends: tuple[int, ...]) -> dict[str, Any]:
    """The answer for one partition. Source: Kafka ``Partition.lastOffsetForLeaderEpoch``."""
    number = wanted["partition"]
    if not 0 <= number < len(ends):
        return {"partition": number, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, **_UNDEFINED}
    if wanted.get("current_leader_epoch", -1) > _EPOCH:
        return {"partition": number, "error_code": ErrorCode.UNKNOWN_LEADER_EPOCH, **_UNDEFINED}
    if wanted["leader_epoch"] != _EPOCH:
        return {"partition": number, **_UNDEFINED}
    return {"partition": number, "leader_epoch": _EPOCH, "end_offset": ends[number]}


def _refused(topic: dict[str, Any], code: ErrorCode) -> dict[str, Any]:
    answers = [
        {"partition": partition["partition"], "error_code": code, **_UNDEFINED} for partition in topic["partitions"]
    ]
    return {"topic": topic["topic"], "partitions": answers}
