"""Sticky: the assignment is as even as possible, and moves as few partitions as possible."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

from sparklog.groups.assignors.base import Assignor, MemberSubscription, partitions_of, wanted_topics
from sparklog.groups.assignors.hash_order import hash_order
from sparklog.groups.assignors.uneven import UnevenAssignment
from sparklog.model import TopicPartition

__all__ = ["StickyAssignor"]


class StickyAssignor(Assignor):
    """Members keep what they own as far as an even assignment allows.

    What a member owns but may not keep is as if nobody owned it: partitions that don't exist any more, those of a topic
    it doesn't subscribe to any more, and those that two members claim, which neither of them owns for sure.

    An eager one: its members give up everything at each rebalance, and mostly get it back.

    Source: Kafka ``StickyAssignor``, ``AbstractStickyAssignor`` without its racks; all that is owned is of one
    generation.
    """

    name = "sticky"

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        if not members:
            return {}
        counts = wanted_topics(partition_counts, members)
        owned = _surely_owned(counts, members)
        if len({frozenset(member.topics) for member in members.values()}) == 1:
            return _assign_evenly(counts, owned)
        topics = {
            name: frozenset(topic for topic in member.topics if topic in counts) for name, member in members.items()
        }
        return UnevenAssignment(counts, topics, owned).balanced()


def _surely_owned(
    counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
) -> dict[str, list[TopicPartition]]:
    """The existing partitions that each member owns, sorted, without those that another claims, too.

    Source: Kafka ``AbstractStickyAssignor.allSubscriptionsEqual``.
    """
    claims = Counter(partition for member in members.values() for partition in member.owned)
    return {
        name: [
            partition
            for partition in sorted(member.owned)
            if claims[partition] == 1 and 0 <= partition.partition < counts.get(partition.topic, 0)
        ]
        for name, member in members.items()
    }


def _assign_evenly(
    counts: Mapping[str, int], owned: Mapping[str, list[TopicPartition]]
) -> dict[str, list[TopicPartition]]:
    """All subscribe to the same topics: each member gets ``fewest`` partitions, and ``one_more`` of them one more.

    Nothing moves but what has to. Who may keep one more, where more members own that many, is the first in the order of
    Java's hashes, as in Kafka.

    Source: Kafka ``AbstractStickyAssignor.ConstrainedAssignmentBuilder``.
    """
    partitions = partitions_of(counts)
    fewest, one_more = divmod(len(partitions), len(owned))
    assigned: dict[str, list[TopicPartition]] = {}
    below: list[str] = []
    at_fewest: list[str] = []
    for member in hash_order(owned):
        mine = sorted(owned[member], key=lambda partition: (partition.partition, partition.topic))
        if len(mine) < fewest:
            below.append(member)
        elif len(mine) > fewest and one_more:
            mine = mine[: fewest + 1]
            one_more -= 1
        else:
            mine = mine[:fewest]
            at_fewest.append(member)
        assigned[member] = mine
    kept = {partition for mine in assigned.values() for partition in mine}
    hungry = deque(sorted(below))
    filled = deque(sorted(at_fewest))
    for partition in partitions:
        if partition in kept:
            continue
        member = hungry.popleft() if hungry else filled.popleft()
        assigned[member].append(partition)
        if len(assigned[member]) < fewest:
            hungry.append(member)
        elif len(assigned[member]) == fewest:
            filled.append(member)
    return assigned
