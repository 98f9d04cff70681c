"""The interface of assignors: arguments, results, and the rules that every assignor must obey."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparklog.errors import InvalidArgumentError
from sparklog.model import TopicPartition

__all__ = [
    "Assignments",
    "Assignor",
    "MemberSubscription",
    "check_assignment",
    "partitions_of",
    "ranked_members",
    "wanted_topics",
]

Assignments = Mapping[str, Sequence[TopicPartition]]
"""The partitions of each member, by its id; a member that gets none is a key, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """The topics to which a member of a group subscribes, and the partitions that it has."""

    topics: tuple[str, ...]
    """Sorted, each once. One that doesn't exist gives nothing."""
    instance_id: str | None = None
    """The ``group_instance_id`` of a static member."""
    owned: frozenset[TopicPartition] = frozenset()
    """The partitions that the previous generation gave to this member."""


class Assignor(ABC):
    """Divides the partitions of the subscribed topics among the members of a group. Users may write subclasses.

    It must be a pure function: any member may compute a generation, and all must get the same result.
    """

    name: str
    """The name by which members announce that they support this assignor; that of Kafka's protocol."""
    is_cooperative: bool = False
    """Do members keep what stays theirs while a rebalance is under way? An eager one's give up everything first."""

    @abstractmethod
    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """Assign each partition of each subscribed topic to exactly one member that subscribes to the topic.

        Args:
            partition_counts: of each topic that exists; there may be topics to which no member subscribes.
            members: their subscriptions by member id.
        Returns:
            The partitions of each member; every member is a key. See :func:`check_assignment`.
        """


def check_assignment(
    assignor: Assignor,
    partition_counts: Mapping[str, int],
    members: Mapping[str, MemberSubscription],
    assignments: Assignments,
) -> None:
    """Check an assignor's result before a group uses it.

    Raises:
        InvalidArgumentError: a member is missing or doesn't exist; or a partition is assigned to no member, to two, or
            to one that doesn't subscribe to its topic, or doesn't exist. Names the assignor and one such case.
    """
    name = f"assignor {assignor.name!r}"
    for member in sorted(members.keys() ^ assignments.keys()):
        problem = "is left out" if member in members else "is none of the group's"
        raise InvalidArgumentError(f"{name}: member {member!r} {problem}, expected a list for each member")
    owners: dict[TopicPartition, str] = {}
    for member, partitions in assignments.items():
        for partition in partitions:
            where = f"{name}: partition {_named(partition)} is given to {member!r}"
            topic, number = partition
            if not 0 <= number < partition_counts.get(topic, 0):
                raise InvalidArgumentError(f"{where}, but doesn't exist")
            if topic not in members[member].topics:
                raise InvalidArgumentError(f"{where}, which doesn't subscribe to its topic")
            if partition in owners:
                raise InvalidArgumentError(f"{where} and to {owners[partition]!r}, expected one member")
            owners[partition] = member
    for partition in partitions_of(wanted_topics(partition_counts, members)):
        if partition not in owners:
            raise InvalidArgumentError(
                f"{name}: partition {_named(partition)} is given to nobody, expected one of its topic's subscribers"
            )


def wanted_topics(partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> dict[str, int]:
    """The partition counts of the topics that exist and to which a member subscribes, sorted by name."""
    wanted = {topic for member in members.values() for topic in member.topics}
    return {topic: partition_counts[topic] for topic in sorted(wanted) if partition_counts.get(topic, 0) > 0}


def partitions_of(partition_counts: Mapping[str, int]) -> list[TopicPartition]:
    """All partitions of these topics, in their order."""
    return [TopicPartition(topic, number) for topic, count in partition_counts.items() for number in range(count)]


def ranked_members(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Member ids in the order in which they are served: static members by instance id, then the others by member id.

    So a static member keeps its rank when it returns with another member id.

    Source: Kafka ``AbstractPartitionAssignor.MemberInfo.compareTo``.
    """

    def rank(member: str) -> tuple[bool, str, str]:
        instance_id = members[member].instance_id
        return instance_id is None, instance_id or "", member

    return sorted(members, key=rank)


def _named(partition: TopicPartition) -> str:
    topic, number = partition
    return f"{topic}-{number}"
