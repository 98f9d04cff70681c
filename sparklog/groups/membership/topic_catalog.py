"""A member's knowledge of the topics that it subscribes to."""

from __future__ import annotations

import re
from collections.abc import Collection

from sparklog.errors import (
    CorruptLogError,
    InvalidTopicError,
    NotATopicError,
    TopicShrunkError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from sparklog.log import Cluster
from sparklog.log.state import open_state
from sparklog.model import TopicPartition
from sparklog.parallel import parallel_map
from sparklog.paths import TOPICS_FOLDER

__all__ = ["TopicCatalog"]


class TopicCatalog:
    """Topic ids and partition counts as they were seen last. Owned by one thread."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.seen: dict[str, tuple[str, int]] = {}
        """The topics that exist: name to topic id and partition count."""
        self.missing: set[str] = set()
        """The topics that didn't exist when they were looked at last."""

    def refresh(self, topics: Collection[str]) -> set[str]:
        """Look at topics anew; returns those that don't exist. A GET, a LIST and a GET each.

        Raises:
            StoreError, CorruptLogError, UnsupportedVersionError.
        """
        wanted = sorted(topics)
        described = parallel_map(self._describe, wanted)
        missing = {topic for topic, facts in zip(wanted, described, strict=True) if facts is None}
        for topic, facts in zip(wanted, described, strict=True):
            if facts is None:
                self.seen.pop(topic, None)
            else:
                self.seen[topic] = facts
        self.missing = self.missing.difference(wanted) | missing
        return missing

    def ids_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """The ids of the topics of partitions, as of now.

        Raises:
            UnknownTopicOrPartitionError: one doesn't exist. Source: Kafka, which refuses to commit offsets of it.
        """
        self.refresh({topic for topic, _ in partitions})
        for topic, number in sorted(partitions):
            if number >= self.seen.get(topic, ("", 0))[1]:
                raise UnknownTopicOrPartitionError(f"offset of {topic}-{number} wasn't committed: there is none")
        return {partition: self.seen[partition.topic][0] for partition in partitions}

    def update(self, topic: str, topic_id: str, partition_count: int) -> None:
        """Take over what another reader of the topic has seen, which is newer."""
        self.seen[topic] = (topic_id, partition_count)
        self.missing.discard(topic)

    def mark_missing(self, topic: str) -> None:
        """Take over that another reader looked for the topic, and it isn't there."""
        self.seen.pop(topic, None)
        self.missing.add(topic)

    def matching(self, pattern: re.Pattern[str]) -> set[str]:
        """The topics that exist and whose names match from their beginning on. One LIST, and a look at each match."""
        names = {name for name in self._cluster.store.list_names(TOPICS_FOLDER) if pattern.match(name)}
        return names - self.refresh(names)

    def _describe(self, topic: str) -> tuple[str, int] | None:
        try:
            head = open_state(self._cluster.topic_log(topic)).head
        except (CorruptLogError, TopicShrunkError, UnsupportedVersionError):
            if topic not in self.seen:
                raise
            return self.seen[topic]  # who reads it says what is wrong; the group's other topics go on
        except (UnknownTopicOrPartitionError, NotATopicError, InvalidTopicError):
            return None
        return None if head.deleted else (head.topic_id, head.partition_count)
