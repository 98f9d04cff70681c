"""kafka-python's structs: sparklog's own where it has them."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparklog.model import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, RecordMetadata, TopicPartition

__all__ = [
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "GroupInformation",
    "MemberAssignment",
    "MemberInformation",
    "MemberMetadata",
    "MemberState",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "TopicPartition",
    "TopicPartitionReplica",
]


class TopicPartitionReplica(NamedTuple):
    """A replica of a partition. There are none: nothing in sparklog takes or gives one."""

    topic: str
    partition: int
    broker_id: int


class MemberState:
    """States of a consumer that joins its group."""

    UNJOINED = "<unjoined>"
    REBALANCING = "<rebalancing>"
    STABLE = "<stable>"


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's membership in its group, as ``KafkaConsumer.group_metadata`` gives it."""

    group_id: str | None = None
    """None: it is in no group."""
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = MemberState.UNJOINED
    """One of :class:`MemberState`."""


class MemberMetadata(NamedTuple):
    """The subscription of a member of a group, as kafka-python 2 gives it."""

    version: int
    subscription: list[str]
    """Topics."""
    user_data: bytes


class MemberAssignment(NamedTuple):
    """The partitions that a member of a group owns, as kafka-python 2 gives them."""

    version: int
    assignment: list[tuple[str, list[int]]]
    """The numbers of partitions, by topic."""
    user_data: bytes

    def partitions(self) -> list[TopicPartition]:
        """The partitions."""
        return [TopicPartition(topic, number) for topic, numbers in self.assignment for number in numbers]


class MemberInformation(NamedTuple):
    """A member of a group, as ``describe_consumer_groups`` returns it."""

    member_id: str
    client_id: str
    client_host: str
    member_metadata: MemberMetadata
    member_assignment: MemberAssignment


class GroupInformation(NamedTuple):
    """A group, as ``describe_consumer_groups`` returns it."""

    error_code: int
    """0, or that of ``UnknownError`` for a group that can't be understood."""
    group: str
    state: str
    """``Dead`` if there is no such group."""
    protocol_type: str
    protocol: str
    members: list[MemberInformation]
    authorized_operations: Any
