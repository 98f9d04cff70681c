"""The values that everything speaks of: frozen, without I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["OffsetAndMetadata", "OffsetAndTimestamp", "TopicPartition"]


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int
    """0 … number of partitions - 1."""


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset."""

    offset: int
    """The next offset to read after a restart: last processed + 1."""
    metadata: str = ""
    """Free text of the committer, at most 4,096 bytes as UTF-8."""
    leader_epoch: int = -1
    """Kafka's; sparklog has no leaders and only keeps it."""


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """What a search by time found."""

    offset: int
    timestamp: int
    """Of the record at ``offset``, milliseconds since the epoch."""
    leader_epoch: int = -1
