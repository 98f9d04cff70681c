"""The partitions from which each member of a share group acquires records. Pure.

Nothing that must be right depends on it: any member may acquire from any partition, since the partition's log decides.
So there are no generations: each member computes this from the members that it sees, and two that see others are only
slower. A partition's log serialises its members, so they are spread.
"""

from __future__ import annotations

from collections.abc import Mapping
from zlib import crc32

from sparklog.model import TopicPartition

__all__ = ["spread"]


def spread(
    subscriptions: Mapping[str, frozenset[str]], partition_counts: Mapping[str, int]
) -> dict[str, frozenset[TopicPartition]]:
    """The partitions of each member: every partition has a member, and every member one, if its topics have any.

    Args:
        subscriptions: the topics of each living member, by member id.
        partition_counts: of the topics that exist.
    """
    spread_partitions: dict[str, set[TopicPartition]] = {member: set() for member in subscriptions}
    for topic, count in partition_counts.items():
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        if not members or not count:
            continue
        shift = crc32(topic.encode())  # that the first members don't get the first partition of every topic
        for turn in range(max(count, len(members))):
            spread_partitions[members[(turn + shift) % len(members)]].add(TopicPartition(topic, turn % count))
    return {member: frozenset(partitions) for member, partitions in spread_partitions.items()}
