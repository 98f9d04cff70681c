"""kafka-python's structs: sparklog's own where it has them."""

from __future__ import annotations

from typing import NamedTuple

from sparklog.model import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, RecordMetadata, TopicPartition

__all__ = [
    "ConsumerGroupMetadata",
    "ConsumerRecord",
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
