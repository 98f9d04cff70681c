"""Range: each member gets a contiguous range of the partitions of each topic."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.groups.assignors.base import Assignor, MemberSubscription, ranked_members, wanted_topics
from sparklog.model import TopicPartition

__all__ = ["RangeAssignor"]


class RangeAssignor(Assignor):
    """Each topic for itself: the first members get one partition more where the number doesn't divide.

    Topics with equally many partitions and the same subscribers are so divided alike: equal keys of two topics meet in
    one member, which a join needs.

    Source: Kafka ``RangeAssignor``, without its racks.
    """

    name = "range"

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
        subscribers: dict[str, list[str]] = {}
        for member in ranked_members(members):
            for topic in members[member].topics:
                subscribers.setdefault(topic, []).append(member)
        for topic, count in wanted_topics(partition_counts, members).items():
            fewest, one_more = divmod(count, len(subscribers[topic]))
            start = 0
            for rank, member in enumerate(subscribers[topic]):
                end = start + fewest + (rank < one_more)
                assigned[member] += [TopicPartition(topic, number) for number in range(start, end)]
                start = end
        return assigned
