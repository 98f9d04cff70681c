"""Answers to requests about partitions that all have one error code. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparklog.gateway.error_codes import ErrorCode

__all__ = ["added_partitions", "committed_partitions"]


def committed_partitions(body: dict[str, Any], code: ErrorCode) -> dict[str, Any]:
    """The answer to OffsetCommit or TxnOffsetCommit."""
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {"partition_index": partition["partition_index"], "error_code": code}
                    for partition in topic["partitions"]
                ],
            }
            for topic in body["topics"]
        ]
    }


def added_partitions(topics: Sequence[dict[str, Any]], code: ErrorCode) -> dict[str, Any]:
    """The answer to AddPartitionsToTxn, up to version 3."""
    return {
        "results_by_topic_v3_and_below": [
            {
                "name": topic["name"],
                "results_by_partition": [
                    {"partition_index": number, "partition_error_code": code} for number in topic["partitions"]
                ],
            }
            for topic in topics
        ]
    }
