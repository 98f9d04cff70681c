"""Round robin: the partitions of all topics are assigned to the members in turn."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.groups.assignors.base import Assignor, MemberSubscription, partitions_of, ranked_members, wanted_topics
from sparklog.model import TopicPartition

__all__ = ["RoundRobinAssignor"]


class RoundRobinAssignor(Assignor):
    """One partition after the other goes to the next member in turn that subscribes to its topic.

    Where all subscribe to the same topics, no member has more than one partition more than another.

    Source: Kafka ``RoundRobinAssignor``.
    """

    name = "roundrobin"

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
        ring = ranked_members(members)
        topics = {member: frozenset(members[member].topics) for member in members}
        turn = 0
        for partition in partitions_of(wanted_topics(partition_counts, members)):
            while partition.topic not in topics[ring[turn]]:
                turn = (turn + 1) % len(ring)
            assigned[ring[turn]].append(partition)
            turn = (turn + 1) % len(ring)
        return assigned
