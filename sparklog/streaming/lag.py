"""How far a streaming query is behind the ends of its topics, by what Spark reports of its progress. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sparklog.errors import CorruptLogError
from sparklog.model import TopicPartition
from sparklog.streaming.positions import Positions

__all__ = ["SourceLag", "source_lag"]


@dataclass(frozen=True, slots=True)
class SourceLag:
    """The offsets between the end of a micro-batch and the ends of the logs."""

    by_partition: Mapping[TopicPartition, int]
    """At least one; 0 or more each."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are read, in the order of their names."""
        return tuple(sorted({topic for topic, _ in self.by_partition}))

    @property
    def total(self) -> int:
        """The sum over all partitions."""
        return sum(self.by_partition.values())

    @property
    def metrics(self) -> dict[str, float]:
        """The figures of Spark's Kafka source, by its names. Source: Spark ``KafkaMicroBatchStream.metrics``."""
        behind = self.by_partition.values()
        return {
            "minOffsetsBehindLatest": float(min(behind)),
            "maxOffsetsBehindLatest": float(max(behind)),
            "avgOffsetsBehindLatest": sum(behind) / len(behind),
        }


def source_lag(end: str | None, latest: str | None) -> SourceLag | None:
    """The lag of one source of a query; None where the source isn't sparklog's, or nothing is known of it yet.

    Args:
        end: the ``endOffset`` of a ``SourceProgress``.
        latest: its ``latestOffset``.
    """
    read, newest = _positions(end), _positions(latest)
    if read is None or newest is None:
        return None
    behind = {
        TopicPartition(topic, partition): max(0, end_offset - at.offsets[partition])
        for topic, at in read.topics.items()
        if topic in newest.topics and newest.topics[topic].topic_id == at.topic_id
        for partition, end_offset in newest.topics[topic].offsets.items()
        if partition in at.offsets
    }
    return SourceLag(behind) if behind else None


def _positions(text: str | None) -> Positions | None:
    try:
        return Positions.from_json(json.loads(text or "null"))
    except (ValueError, CorruptLogError):
        return None
