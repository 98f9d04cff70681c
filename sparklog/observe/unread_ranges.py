"""The times of a group's next records, as far as the parts of topics that were read have them."""

from __future__ import annotations

from sparklog.model import TopicPartition
from sparklog.observe.group_watch import GroupWatch, WatchedTopic
from sparklog.observe.packed_files import TimedRange
from sparklog.observe.topic_watch import NewestTopic, TopicWatch

__all__ = ["watched_topic"]


def watched_topic(group: GroupWatch, topic: TopicWatch | NewestTopic) -> WatchedTopic:
    """A topic with the times of what the group reads next, where it hasn't read everything."""
    return WatchedTopic(figures=topic.figures, ranges=_ranges(group, topic))


def _ranges(group: GroupWatch, topic: TopicWatch | NewestTopic) -> dict[TopicPartition, TimedRange]:
    found = {}
    partitions = topic.figures.partitions
    for partition, row in group.rows.items():
        if partition.topic != topic.name or row.committed is None or partition.partition >= len(partitions):
            continue
        one = partitions[partition.partition]
        unread = max(row.committed.offset, one.log_start_offset)
        timed = topic.range_at(partition.partition, unread) if unread < one.log_end_offset else None
        if timed is not None:
            found[partition] = timed
    return found
