"""The rows of a group's offset table: one for each partition that a member took or an offset was committed for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sparklog.model import OffsetAndMetadata, TopicPartition

__all__ = ["CommittedPartitions", "Decider", "OffsetRow", "Pending", "Rows", "Stamp"]


class Stamp(NamedTuple):
    """The member that took a partition, and when: a commit counts only while the row holds exactly the committer's
    (rule G1, stamps)."""

    generation: int
    """0 … of the group as the partition was taken. With an empty member: of the empty generation that an
    administrator, or a consumer that assigns partitions itself, wrote under; 0 for a group that never had one."""
    member: str
    """Empty where no member owns the partition."""


class Decider(NamedTuple):
    """The entry that will decide, or has decided, a transaction: one of its transactional id's log (rule T1, deciding
    number)."""

    transactional_id: str
    producer_epoch: int
    number: int
    """The number of the entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """An offset that counts once its transaction is committed."""

    decider: Decider
    committed: OffsetAndMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRow:
    """One partition's row."""

    topic_id: str
    """The id of the topic that the offset is of; one of the same name that was created later has another."""
    stamp: Stamp
    committed: OffsetAndMetadata | None
    """None where the partition was taken but nothing was committed yet."""
    commit_timestamp_ms: int
    """When ``committed`` was changed last, or where it is None, when the partition was taken; ms since the epoch."""
    pending: Pending | None = None
    """Written by a transaction that may not be decided yet."""

    def committed_for(self, topic_id: str) -> OffsetAndMetadata | None:
        """The committed offset, if it was for the topic of this id, and not for one of the same name that was deleted
        before. A row that doesn't say of which topic it is, is taken to be of this one.

        Source: Kafka ``GroupCoordinatorService.onPartitionsDeleted``, which forgets a deleted topic's offsets.
        """
        return self.committed if self.topic_id in ("", topic_id) else None


Rows = Mapping[TopicPartition, OffsetRow]

CommittedPartitions = Mapping[str, frozenset[TopicPartition]]
"""The partitions whose offsets a transaction committed, by group, as its decision names them; empty where it was
aborted. A pending row of another partition is of an older transaction that had the same number: the entries of its id
were deleted by others, and the numbers began again (rule T1, deciding number)."""
