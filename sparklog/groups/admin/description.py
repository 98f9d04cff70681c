"""A group as an administrator sees it: its state by Kafka's names, its members, how far it has read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from sparklog.errors import SparklogError
from sparklog.groups.membership.generations import Generation
from sparklog.groups.membership.member_state import MemberState
from sparklog.groups.membership.proposals import need_of
from sparklog.groups.offsets.rows import Rows
from sparklog.model import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from sparklog.log import TopicDescription

__all__ = [
    "GroupDescription",
    "GroupListing",
    "GroupPartition",
    "GroupState",
    "MemberDescription",
    "actual_members",
    "current_offsets",
    "describe",
    "group_exists",
    "protocol_of",
    "topics_of",
    "undescribed",
]

CONSUMER_PROTOCOL = "consumer"
"""Source: Kafka ``ConsumerProtocol.PROTOCOL_TYPE``."""


class GroupState(str, Enum):
    """States of a group. Source: Kafka ``ClassicGroupState``."""

    EMPTY = "Empty"
    """No member lives; there are offsets, or there were members."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """The members, or what they subscribe to, are no longer those of the newest generation."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The newest generation holds, and some partitions have not yet changed hands."""
    STABLE = "Stable"
    """Every member has exactly what the newest generation gives it."""
    DEAD = "Dead"
    """There is no such group."""
    UNKNOWN = "Unknown"
    """The content of its folders, or a topic that it reads, can't be read. Source: Kafka ``GroupState``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """A member that lives, as it described itself last."""

    member_id: str
    group_instance_id: str | None
    """The instance id of a static member."""
    client_id: str
    host: str
    topics: tuple[str, ...]
    """Subscribed to, sorted; those found by a pattern."""
    assignment: frozenset[TopicPartition]
    """The partitions that it owns: it has taken them, and no other member can commit them."""
    target_assignment: frozenset[TopicPartition]
    """The partitions that the newest generation gives it; the same as ``assignment`` in a stable group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """How far a group has read one partition. Offsets are 0 … 2**63 - 1."""

    partition: TopicPartition
    committed: OffsetAndMetadata | None
    """None where the group has committed nothing for it."""
    log_start_offset: int
    log_end_offset: int
    member_id: str | None
    """Its owner; None without an owner."""

    @property
    def lag(self) -> int | None:
        """``log_end_offset`` minus the committed offset; None where nothing is committed. Source: Kafka
        ``ConsumerGroupCommand``: offsets that were deleted from the log count, too."""
        return None if self.committed is None else self.log_end_offset - self.committed.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group, and where it stands. Source: Kafka ``GroupListing``."""

    group_id: str
    state: GroupState
    protocol_type: str
    """The protocol type, as of :class:`GroupDescription`."""
    error: SparklogError | None = None
    """The error for which its state is ``Unknown``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """The state, members and offsets of a consumer group at one moment."""

    group_id: str
    state: GroupState
    generation_id: int
    """The number of the newest generation; 0 before the first."""
    protocol_type: str
    """``consumer``; empty for a group that has no members and never had any since it was created."""
    assignor: str
    """Kafka's name of the assignor that the newest generation was computed by; empty without members."""
    members: tuple[MemberDescription, ...]
    """By member id."""
    partitions: tuple[GroupPartition, ...]
    """Sorted: those with a committed offset, and all of the topics that a member subscribes to. Only those that
    exist."""
    error: SparklogError | None = None
    """The error for which its state is ``Unknown``, and nothing else is known."""

    @property
    def exists(self) -> bool:
        """Is there such a group?"""
        return self.state is not GroupState.DEAD

    @property
    def is_simple_consumer_group(self) -> bool:
        """Does it hold nothing but offsets, of consumers that assign partitions themselves or of an administrator?"""
        return self.state is GroupState.EMPTY and not self.protocol_type


def group_exists(newest: Generation | None, members: Mapping[str, MemberState], rows: Rows) -> bool:
    """Is there such a group? One that was deleted is a group again once it has members or offsets."""
    if newest is not None and not newest.plan.deleted:
        return True
    return bool(members) or any(row.committed is not None for row in rows.values())


def protocol_of(newest: Generation | None, members: Mapping[str, MemberState]) -> str:
    """``consumer``; empty for a group that has no members and never had any since it was created."""
    return CONSUMER_PROTOCOL if members or (newest is not None and not newest.plan.deleted) else ""


def actual_members(newest: Generation | None, living: Mapping[str, MemberState]) -> dict[str, MemberState]:
    """The living members that the newest generation has, and newcomers.

    One that has acted upon a generation and isn't in the newest was put out of the group, or replaced by another with
    its instance id; it finds out soon, and joins under another member id.
    """
    known = newest.plan.members if newest is not None else {}
    return {i: state for i, state in living.items() if i in known or state.generation == 0 or newest is None}


def topics_of(members: Mapping[str, MemberState], rows: Rows) -> set[str]:
    """The topics that a description has to know of."""
    committed = {partition.topic for partition, row in rows.items() if row.committed is not None}
    return committed.union(*(state.topics for state in members.values()))


def current_offsets(rows: Rows, topics: Mapping[str, TopicDescription]) -> dict[TopicPartition, OffsetAndMetadata]:
    """The committed offsets of partitions that exist, sorted.

    What was committed for a topic that was deleted doesn't count, nor for the topic of the same name that was created
    later: see :meth:`OffsetRow.committed_for <sparklog.groups.offsets.rows.OffsetRow.committed_for>`.
    """
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    for partition, row in sorted(rows.items(), key=lambda item: item[0]):
        topic = topics.get(partition.topic)
        if topic is None or partition.partition >= topic.partition_count:
            continue
        committed = row.committed_for(topic.topic_id)
        if committed is not None:
            offsets[partition] = committed
    return offsets


def describe(
    group_id: str,
    newest: Generation | None,
    members: Mapping[str, MemberState],
    rows: Rows,
    topics: Mapping[str, TopicDescription],
) -> GroupDescription:
    """A description of what was seen.

    Args:
        newest: the newest generation, read after the members were.
        members: as :func:`actual_members` has them.
        topics: those of :func:`topics_of` that exist, read after the rows were.
    """
    owners = {
        partition: member_id
        for member_id, state in members.items()
        for partition in state.claims
        if partition in rows and rows[partition].stamp.member == member_id
    }
    described = tuple(_member(members[member_id], newest, owners) for member_id in sorted(members))
    return GroupDescription(
        group_id=group_id,
        state=_state(newest, members, rows, described),
        generation_id=newest.version if newest is not None else 0,
        protocol_type=protocol_of(newest, members),
        assignor=newest.plan.assignor if newest is not None and members else "",
        members=described,
        partitions=tuple(_partitions(members, rows, topics, owners)),
    )


def undescribed(group_id: str, error: SparklogError) -> GroupDescription:
    """The description of a group that can't be read."""
    return GroupDescription(
        group_id=group_id,
        state=GroupState.UNKNOWN,
        generation_id=0,
        protocol_type="",
        assignor="",
        members=(),
        partitions=(),
        error=error,
    )


def _state(
    newest: Generation | None,
    members: Mapping[str, MemberState],
    rows: Rows,
    described: tuple[MemberDescription, ...],
) -> GroupState:
    if not members:
        return GroupState.EMPTY if group_exists(newest, members, rows) else GroupState.DEAD
    if newest is None or need_of(newest, members, {}) is not None:
        return GroupState.PREPARING_REBALANCE
    is_settled = all(
        state.generation == newest.version and state.claims == member.target_assignment == member.assignment
        for state, member in ((members[member.member_id], member) for member in described)
    )
    return GroupState.STABLE if is_settled else GroupState.COMPLETING_REBALANCE


def _member(state: MemberState, newest: Generation | None, owners: Mapping[TopicPartition, str]) -> MemberDescription:
    target = newest.target_of(state.member_id) if newest is not None else None
    return MemberDescription(
        member_id=state.member_id,
        group_instance_id=state.instance_id,
        client_id=state.client_id,
        host=state.host,
        topics=state.topics,
        assignment=frozenset(p for p in state.claims if owners.get(p) == state.member_id),
        target_assignment=target or frozenset(),
    )


def _partitions(
    members: Mapping[str, MemberState],
    rows: Rows,
    topics: Mapping[str, TopicDescription],
    owners: Mapping[TopicPartition, str],
) -> list[GroupPartition]:
    committed = current_offsets(rows, topics)
    subscribed = {
        TopicPartition(topic, number)
        for state in members.values()
        for topic in state.topics
        if topic in topics
        for number in range(topics[topic].partition_count)
    }
    return [
        GroupPartition(
            partition=partition,
            committed=committed.get(partition),
            log_start_offset=topics[partition.topic].log_start_offsets[partition.partition],
            log_end_offset=topics[partition.topic].log_end_offsets[partition.partition],
            member_id=owners.get(partition),
        )
        for partition in sorted(subscribed | committed.keys())
    ]
