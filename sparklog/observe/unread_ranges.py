"""The times of a group's next records, as far as the parts of topics that were read have them."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.model import TopicPartition
from sparklog.observe.group_watch import GroupWatch, WatchedTopic
from sparklog.observe.packed_files import TimedRange
from sparklog.observe.topic_watch import NewestTopic, TopicWatch

__all__ = ["watched_topics"]


def watched_topics(group: GroupWatch, topics: Mapping[str, TopicWatch | NewestTopic]) -> dict[str, WatchedTopic]:
    """The topics in which a group has offsets, by name, with the times of what it reads next where it hasn't read
    everything.

    Args:
        topics: those that were looked at, by name; others are left out.
    """
    ranges: dict[str, dict[TopicPartition, TimedRange]] = {}
    for partition, row in group.rows.items():
        topic = topics.get(partition.topic)
        if topic is None:
            continue
        found = ranges.setdefault(partition.topic, {})
        partitions = topic.figures.partitions
        if row.committed is None or partition.partition >= len(partitions):
            continue
        one = partitions[partition.partition]
        unread = max(row.committed.offset, one.log_start_offset)
        timed = topic.range_at(partition.partition, unread) if unread < one.log_end_offset else None
        if timed is not None:
            found[partition] = timed
    return {name: WatchedTopic(figures=topics[name].figures, ranges=found) for name, found in ranges.items()}
