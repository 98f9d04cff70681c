"""ListOffsets: start and end offsets of partitions, and offsets by time."""

from __future__ import annotations

from typing import Any

from sparklog.errors import SparklogError
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.defects import topic_defects
from sparklog.gateway.error_codes import ErrorCode, code_of
from sparklog.gateway.leader_epochs import code_of_epoch, leader_epoch
from sparklog.model import TopicPartition

__all__ = ["list_offsets"]

_EARLIEST, _EARLIEST_LOCAL = -2, -4
"""Nothing is tiered: the local log is the log. Source: Kafka ``ListOffsetsRequest``."""


async def list_offsets(backend: Backend, request: Request) -> dict[str, Any]:
    """Offsets by time, or the start and the end of partitions."""

    def look(topic: str, partition: dict[str, Any], known_epoch: int) -> dict[str, Any]:
        at, spec = TopicPartition(topic, partition["partition_index"]), partition["timestamp"]
        code = ErrorCode.NONE if known_epoch < 0 else code_of_epoch(partition, known_epoch)
        if code is not ErrorCode.NONE:
            return {"partition_index": at.partition, "error_code": code, "timestamp": -1, "offset": -1}
        try:
            spec = _EARLIEST if spec == _EARLIEST_LOCAL else spec
            with topic_defects(backend.log_repeats, topic):
                offset = backend.admin.list_offsets({at: spec})[at]
        except SparklogError as error:
            return {"partition_index": at.partition, "error_code": code_of(error), "timestamp": -1, "offset": -1}
        epoch = known_epoch if offset.offset >= 0 else -1
        return {
            "partition_index": at.partition,
            "timestamp": offset.timestamp,
            "offset": offset.offset,
            "leader_epoch": epoch,
        }

    def look_at(topic: str, partitions: list[dict[str, Any]]) -> dict[str, Any]:
        try:
            epoch = leader_epoch(backend.describe(topic).topic_id)  # before its offsets: at worst an older topic's
        except SparklogError:  # each partition says so
            epoch = -1
        return {"name": topic, "partitions": [look(topic, asked, epoch) for asked in partitions]}

    def topics() -> list[dict[str, Any]]:
        return [look_at(topic["name"], topic["partitions"]) for topic in request.body["topics"]]

    return {"topics": await backend.run_look(topics)}
