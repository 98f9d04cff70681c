"""Questions about partitions, assigned or not; answered in the fetcher's thread."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sparklog.consumer.topics import FollowedTopics
from sparklog.errors import NotATopicError, UnknownTopicOrPartitionError
from sparklog.log.head import TopicHead
from sparklog.model import OffsetAndTimestamp, TopicPartition

__all__ = ["log_end_offsets", "log_start_offsets", "offsets_for_times", "partition_count", "topic_id"]


def log_start_offsets(topics: FollowedTopics, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The first offset of each partition. Raises ``UnknownTopicOrPartitionError``."""
    heads = _heads(topics, partitions)
    return {partition: heads[partition.topic].log_start_offsets[partition.partition] for partition in partitions}


def log_end_offsets(topics: FollowedTopics, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The next offset to be given in each partition. Raises ``UnknownTopicOrPartitionError``."""
    heads = _heads(topics, partitions)
    return {partition: heads[partition.topic].log_end_offsets[partition.partition] for partition in partitions}


def offsets_for_times(
    topics: FollowedTopics, timestamps_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """The first record of each partition that isn't older. Raises ``UnknownTopicOrPartitionError``."""
    followers = {topic: topics.current_follower(topic) for topic in dict.fromkeys(p.topic for p in timestamps_ms)}
    return {
        partition: followers[partition.topic].offset_for_time(partition.partition, timestamp_ms)
        for partition, timestamp_ms in timestamps_ms.items()
    }


def partition_count(topics: FollowedTopics, topic: str) -> int | None:
    """How many partitions a topic has; None without such a topic."""
    try:
        return topics.current_head(topic).partition_count
    except UnknownTopicOrPartitionError:
        return None


def topic_id(topics: FollowedTopics, partition: TopicPartition) -> str | None:
    """The id of a partition's topic, as it is now; None where there is no such topic, or no such partition."""
    try:
        head = topics.current_head(partition.topic)
    except (UnknownTopicOrPartitionError, NotATopicError):
        return None
    return head.topic_id if partition.partition < head.partition_count else None


def _heads(topics: FollowedTopics, partitions: Collection[TopicPartition]) -> dict[str, TopicHead]:
    heads = {topic: topics.current_head(topic) for topic in dict.fromkeys(p.topic for p in partitions)}
    for topic, partition in partitions:
        count = heads[topic].partition_count
        if partition >= count:
            raise UnknownTopicOrPartitionError(f"topic {topic!r} has no partition {partition}; it has 0 to {count - 1}")
    return heads
