"""ListOffsets: start and end offsets of partitions, and offsets by time."""

from __future__ import annotations

from typing import Any

from sparklog.errors import SparklogError
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.defects import topic_defects
from sparklog.gateway.error_codes import code_of
from sparklog.model import TopicPartition

__all__ = ["list_offsets"]

_EARLIEST, _EARLIEST_LOCAL = -2, -4
"""Nothing is tiered: the local log is the log. Source: Kafka ``ListOffsetsRequest``."""


async def list_offsets(backend: Backend, request: Request) -> dict[str, Any]:
    """Offsets by time, or the start and the end of partitions."""

    def look(topic: str, partition: dict[str, Any]) -> dict[str, Any]:
        at, spec = TopicPartition(topic, partition["partition_index"]), partition["timestamp"]
        try:
            spec = _EARLIEST if spec == _EARLIEST_LOCAL else spec
            with topic_defects(backend.log_repeats, topic):
                offset = backend.admin.list_offsets({at: spec})[at]
        except SparklogError as error:
            return {"partition_index": at.partition, "error_code": code_of(error), "timestamp": -1, "offset": -1}
        epoch = 0 if offset.offset >= 0 else -1
        return {
            "partition_index": at.partition,
            "timestamp": offset.timestamp,
            "offset": offset.offset,
            "leader_epoch": epoch,
        }

    def topics() -> list[dict[str, Any]]:
        return [
            {"name": topic["name"], "partitions": [look(topic["name"], asked) for asked in topic["partitions"]]}
            for topic in request.body["topics"]
        ]

    return {"topics": await backend.run_look(topics)}
