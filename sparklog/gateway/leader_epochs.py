"""Leader epochs: a topic's partitions have one, by which Kafka's clients notice that the topic was made anew under its
name (KIP-320), and OffsetForLeaderEpoch, which says where an epoch ends."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from sparklog.errors import SparklogError
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.error_codes import ErrorCode, code_of
from sparklog.log.topic_ids import incarnation_of

__all__ = ["code_of_epoch", "leader_epoch", "offset_for_leader_epoch"]

_UNDEFINED = {"leader_epoch": -1, "end_offset": -1}


@lru_cache(maxsize=10_000)
def leader_epoch(topic_id: str | uuid.UUID) -> int:
    """The epoch of a topic's partitions: how many topics had its name before."""
    return incarnation_of(topic_id if isinstance(topic_id, str) else topic_id.hex)


def code_of_epoch(partition: Mapping[str, Any], epoch: int) -> ErrorCode:
    """The answer to a client that says which epoch it knows; -1, or none: it doesn't. Source: Kafka
    ``Partition.checkCurrentLeaderEpoch``."""
    known = partition.get("current_leader_epoch", -1)
    if known < 0 or known == epoch:
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if known < epoch else ErrorCode.UNKNOWN_LEADER_EPOCH


async def offset_for_leader_epoch(backend: Backend, request: Request) -> dict[str, Any]:
    """The end of each partition, by which a client learns that its position lies beyond it: the topic was made anew."""

    def topic(wanted: dict[str, Any]) -> dict[str, Any]:
        name, partitions = wanted["topic"], wanted["partitions"]
        if request.rules is not None and not request.rules.may_see(name):
            return _refused(wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        try:
            described = backend.describe(name)
        except SparklogError as error:
            return _refused(wanted, code_of(error))
        epoch, ends = leader_epoch(described.topic_id), described.log_end_offsets
        return {"topic": name, "partitions": [_partition(partition, epoch, ends) for partition in partitions]}

    return {"topics": await backend.run_look(lambda: [topic(topic_body) for topic_body in request.body["topics"]])}


def _partition(wanted: dict[str, Any], epoch: int, ends: tuple[int, ...]) -> dict[str, Any]:
    """The answer for one partition. Of an earlier epoch, an earlier topic's, nothing is left: it ends where the log
    begins. Source: Kafka ``Partition.lastOffsetForLeaderEpoch``, ``LeaderEpochFileCache.endOffsetFor``."""
    number, asked = wanted["partition"], wanted["leader_epoch"]
    if not 0 <= number < len(ends):
        return {"partition": number, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, **_UNDEFINED}
    code = code_of_epoch(wanted, epoch)
    if code is not ErrorCode.NONE:
        return {"partition": number, "error_code": code, **_UNDEFINED}
    if not 0 <= asked <= epoch:
        return {"partition": number, **_UNDEFINED}
    return {"partition": number, "leader_epoch": asked, "end_offset": ends[number] if asked == epoch else 0}


def _refused(topic: dict[str, Any], code: ErrorCode) -> dict[str, Any]:
    answers = [
        {"partition": partition["partition"], "error_code": code, **_UNDEFINED} for partition in topic["partitions"]
    ]
    return {"topic": topic["topic"], "partitions": answers}
