"""The sticky assignment of members that don't all subscribe to the same topics."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence

from sparklog.groups.assignors.base import partitions_of
from sparklog.groups.assignors.hash_order import HashedPartitions
from sparklog.model import TopicPartition

__all__ = ["UnevenAssignment"]

Topics = Mapping[str, frozenset[str]]
"""The topics of each member."""


class UnevenAssignment:
    """Members keep what they own; the rest is given out; then partitions move from those with many to those with few.

    Topics with few subscribers come first: there is the least choice. At each step the member with the fewest
    partitions that subscribes to the topic is served (of equals, the first by its id).

    Source: Kafka ``AbstractStickyAssignor.GeneralAssignmentBuilder``. Kafka looks before each step whether all is
    balanced; then no step would change anything, so we don't look.
    """

    def __init__(
        self, counts: Mapping[str, int], topics: Topics, owned: Mapping[str, Sequence[TopicPartition]]
    ) -> None:
        """
        Args:
            counts: the partitions of each topic that exists and has subscribers.
            topics: of these, the ones each member subscribes to.
            owned: what each member had of them, each partition once.
        """
        subscribers: dict[str, list[str]] = {topic: [] for topic in counts}
        for member, its_topics in topics.items():
            for topic in its_topics:
                subscribers[topic].append(member)
        self._subscribers = subscribers
        self._topics = topics
        self._partitions = partitions_of(
            {topic: counts[topic] for topic in sorted(counts, key=lambda topic: (len(subscribers[topic]), topic))}
        )
        self._holdings: dict[str, dict[TopicPartition, None]] = {
            member: dict.fromkeys(partition for partition in its_owned if partition.topic in topics[member])
            for member, its_owned in owned.items()
        }
        self._must_revoke = any(len(self._holdings[member]) < len(its_owned) for member, its_owned in owned.items())
        self._holder = {partition: member for member, held in self._holdings.items() for partition in held}
        self._ranks = _Ranks(topics, {member: len(held) for member, held in self._holdings.items()})
        self._movements = _Movements()

    def balanced(self) -> dict[str, list[TopicPartition]]:
        """The partitions of each member."""
        is_fresh = not self._holder
        unassigned = [partition for partition in self._partitions if partition not in self._holder]
        for partition in unassigned:
            self._give(partition, self._ranks.least(partition.topic)[1])
        before = {member: list(held) for member, held in self._holdings.items()}
        if not self._must_revoke:
            self._even_out(unassigned)  # at first by what nobody had
        changed = self._even_out(self._partitions)
        after = {member: list(held) for member, held in self._holdings.items()}
        return before if changed and not is_fresh and self._score(after) >= self._score(before) else after

    def _even_out(self, partitions: Iterable[TopicPartition]) -> bool:
        """Move partitions until none of these can make it more even; was any moved?"""
        movable = [partition for partition in partitions if len(self._subscribers[partition.topic]) > 1]
        any_moved = False
        for _ in movable:  # a bound of the rounds, never met: a few do
            again = False
            for partition in movable:
                holder = self._holder[partition]
                count, least = self._ranks.least(partition.topic)
                if len(self._holdings[holder]) > count + 1:
                    self._give(self._movements.instead_of(partition, holder, least), least)
                    any_moved = again = True
            if not again:
                break
        return any_moved

    def _give(self, partition: TopicPartition, member: str) -> None:
        holder = self._holder.get(partition)
        if holder is not None:
            self._movements.record(partition, holder, member)
            del self._holdings[holder][partition]
            self._ranks.change(holder, len(self._holdings[holder]))
        self._holder[partition] = member
        self._holdings[member][partition] = None
        self._ranks.change(member, len(self._holdings[member]))

    def _score(self, holdings: Mapping[str, Sequence[TopicPartition]]) -> int:
        """The unevenness of an assignment: the differences of all pairs of members that share a topic with somebody,
        added up."""
        sizes = sorted(
            len(held)
            for member, held in holdings.items()
            if any(len(self._subscribers[topic]) > 1 for topic in self._topics[member])
        )
        return sum((2 * rank + 1 - len(sizes)) * size for rank, size in enumerate(sizes))


class _Ranks:
    """The ranking of a topic's subscribers by the number of partitions that they hold; members of the same topics are
    ranked together."""

    def __init__(self, topics: Topics, sizes: Mapping[str, int]) -> None:
        ranks: dict[frozenset[str], list[tuple[int, str]]] = {}
        self._sizes = dict(sizes)
        self._ranks_of_member = {member: ranks.setdefault(topics[member], []) for member in topics}
        for member, size in sizes.items():
            self._ranks_of_member[member].append((size, member))
        self._ranks_of_topic: dict[str, list[list[tuple[int, str]]]] = {}
        for its_topics, members in ranks.items():
            members.sort()
            for topic in its_topics:
                self._ranks_of_topic.setdefault(topic, []).append(members)

    def least(self, topic: str) -> tuple[int, str]:
        """The subscriber of a topic that holds the fewest partitions: their number, and its id; of equals, the first by
        its id."""
        return min(members[0] for members in self._ranks_of_topic[topic])

    def change(self, member: str, size: int) -> None:
        """A member holds ``size`` partitions now."""
        members = self._ranks_of_member[member]
        del members[bisect_left(members, (self._sizes[member], member))]
        insort(members, (size, member))
        self._sizes[member] = size


class _Movements:
    """The partitions that moved from whom to whom: rather than one back against another of its topic, that one returns.

    Source: Kafka ``AbstractStickyAssignor.PartitionMovements``.
    """

    def __init__(self) -> None:
        self._pairs: dict[TopicPartition, tuple[str, str]] = {}
        self._moved: dict[tuple[str, str, str], HashedPartitions] = {}

    def instead_of(self, partition: TopicPartition, holder: str, to: str) -> TopicPartition:
        """The partition to move so that ``to`` gets one of the topic: one that left it before, or ``partition``."""
        source = self._pairs[partition][0] if partition in self._pairs else holder
        left_before = self._moved.get((partition.topic, to, source))
        return left_before.first() if left_before else partition

    def record(self, partition: TopicPartition, holder: str, to: str) -> None:
        """A partition moves; from where it was at first, whatever way it took."""
        source = holder
        if partition in self._pairs:
            source, last = self._pairs.pop(partition)
            moved = self._moved[partition.topic, source, last]
            moved.remove(partition)
            if not moved:
                del self._moved[partition.topic, source, last]
        if source != to:
            self._pairs[partition] = source, to
            self._moved.setdefault((partition.topic, source, to), HashedPartitions()).add(partition)
