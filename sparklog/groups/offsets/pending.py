"""Offsets that a transaction commits: written as pending, and settled once the transaction is decided (rules T1,
deciding number; T2, hand-over).

The rows themselves are the transaction's marker in the group: what is settled is pending no more, so settling twice
does nothing, and a row that was taken away is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparklog.clock import Deadline
from sparklog.errors import CommitFailedError
from sparklog.groups.offsets.changes import check_nothing_pending, check_offset, member_since
from sparklog.groups.offsets.rows import CommittedPartitions, Decider, OffsetRow, Pending, Rows, Stamp
from sparklog.model import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from sparklog.groups.offsets.offset_table import OffsetTable

__all__ = [
    "Deciding",
    "PendOffsets",
    "SettlePending",
    "pending_deciders",
    "settle_pending",
    "settled_in",
    "stable_rows",
]


_ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """The functions by which groups learn of transactions: they don't know transactions themselves.

    The first three raise ``StoreError``, …; the two of them that write also ``UnstableOffsetCommitError``: it is
    committed, and its records couldn't be published everywhere yet."""

    decide: Callable[[Decider], CommittedPartitions]
    """The offsets that it committed. One that isn't decided yet is aborted; the records of one that is committed are in
    their topics afterwards."""
    look: Callable[[Decider], CommittedPartitions | None]
    """The offsets that it committed; None: it isn't decided yet. Writes nothing."""
    finish: Callable[[Decider], CommittedPartitions | None]
    """Looks, as ``look``, and publishes: the records of a committed transaction are in their topics afterwards."""
    end_overdue: Callable[[Decider], bool] = lambda _: False
    """Aborts a transaction that isn't decided and whose session is past its time-out by a half (rule T4, open
    sessions); True: it is decided now. Looks at each only every two seconds. Raises nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendOffsets:
    """A transaction is to move the committed offsets of partitions that a member owns.

    Writing again in the same transaction replaces; what an older one of the same transactional id left is dead: the id
    has gone on, so everything it committed was settled.

    Raises:
        CommitFailedError: a partition belongs to another member by now, or was taken anew since the caller's
            generation (rule G1, stamps); or no member was given, but the group has some. Source: Kafka
            ``TransactionManager.TxnOffsetCommitHandler``.
        UnstableOffsetCommitError: another transaction has left one pending: have it decided first.
        OffsetMetadataTooLargeError, InvalidArgumentError.
    """

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    decider: Decider
    owner: Stamp
    """The member, and the newest generation that it knew; the empty one, without a member, for a consumer that assigns
    partitions itself."""
    topic_ids: Mapping[TopicPartition, str]
    """The ids of the topics that the offsets are of, for rows that aren't there; empty where it isn't known."""

    def apply(self, rows: Rows, now_ms: int) -> Rows:
        """The rows with this change carried out. Raises as the class says."""
        if not self.owner.member:
            self._check_empty(rows)
        after: dict[TopicPartition, OffsetRow] = {}
        for partition, committed in self.offsets.items():
            check_offset(partition, committed)
            row = self._owned(partition, rows.get(partition), now_ms)
            if row.pending is not None and not self._is_dead(row.pending.decider):
                check_nothing_pending(partition, row)
            pending = Pending(decider=self.decider, committed=committed)
            if row.pending != pending:
                after[partition] = replace(row, pending=pending)
        return {**rows, **after} if after else rows

    def _owned(self, partition: TopicPartition, row: OffsetRow | None, now_ms: int) -> OffsetRow:
        if not self.owner.member:
            if row is not None:
                return replace(row, stamp=self.owner)
            topic_id = self.topic_ids.get(partition, "")
            return OffsetRow(topic_id=topic_id, stamp=self.owner, committed=None, commit_timestamp_ms=now_ms)
        if row is None or row.stamp.member != self.owner.member or row.stamp.generation > self.owner.generation:
            owner = "nobody" if row is None else f"member {row.stamp.member!r} since generation {row.stamp.generation}"
            raise CommitFailedError(
                f"the offset of {partition.topic}-{partition.partition} can't be part of the transaction: the "
                f"partition is owned by {owner}, expected member {self.owner.member!r} of generation "
                f"{self.owner.generation}"
            )
        return row

    def _check_empty(self, rows: Rows) -> None:
        member = member_since(rows, self.owner.generation)
        if member is not None:
            raise CommitFailedError(
                f"offsets can't be part of a transaction without a member: the group has members: {member} is owned by "
                f"{rows[member].stamp}"
            )

    def _is_dead(self, other: Decider) -> bool:
        same_id = other.transactional_id == self.decider.transactional_id
        return same_id and other.number <= self.decider.number


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlePending:
    """A transaction is decided: its pending offsets count, or are forgotten."""

    decider: Decider
    committed: frozenset[TopicPartition]
    """The partitions of the group whose offsets it committed; empty: it was aborted."""

    def apply(self, rows: Rows, now_ms: int) -> Rows:
        """The rows with this change carried out."""
        after: dict[TopicPartition, OffsetRow] = {}
        for partition, row in rows.items():
            if row.pending is None or row.pending.decider != self.decider:
                continue
            if partition in self.committed:
                after[partition] = replace(
                    row, committed=row.pending.committed, commit_timestamp_ms=now_ms, pending=None
                )
            else:
                after[partition] = replace(row, pending=None)
        return {**rows, **after} if after else rows


def pending_deciders(rows: Rows, partitions: Iterable[TopicPartition]) -> set[Decider]:
    """The transactions that have left offsets of these partitions pending."""
    transactions = (rows[partition].pending for partition in partitions if partition in rows)
    return {pending.decider for pending in transactions if pending is not None}


def settle_pending(
    table: OffsetTable,
    rows: Rows,
    partitions: Collection[TopicPartition],
    decide: Callable[[Decider], CommittedPartitions],
    *,
    deadline: Deadline,
) -> Rows:
    """Have every transaction decided that left offsets of these partitions pending, and settle them. Doesn't wait.

    Args:
        decide: :attr:`Deciding.decide`: an offset counts only once its transaction's records are in their topics.
    Returns:
        The rows afterwards, which have nothing pending for these partitions.
    Raises:
        UnstableOffsetCommitError: new ones kept coming; or one is committed whose records can't be published now.
        KafkaTimeoutError, CommitStateUnknownError, StoreError, …: see :meth:`OffsetTable.change`.
    """
    for _ in range(_ROUNDS):
        deciders = pending_deciders(rows, partitions)
        if not deciders:
            return rows
        changes = [settled_in(table.group, decider, decide(decider)) for decider in sorted(deciders)]
        rows = table.change(changes, deadline=deadline).rows
    for partition in partitions:
        check_nothing_pending(partition, rows.get(partition))
    return rows


def settled_in(group: str, decider: Decider, committed: CommittedPartitions) -> SettlePending:
    """The change by which a decision is carried out in a group."""
    return SettlePending(decider=decider, committed=committed.get(group, frozenset()))


def stable_rows(
    group: str,
    rows: Rows,
    partitions: Collection[TopicPartition],
    look: Callable[[Decider], CommittedPartitions | None],
    *,
    now_ms: int,
    waits: bool,
) -> Rows:
    """The rows, with what is decided of these partitions settled. Writes no row, aborts nobody: for whoever reads.

    Args:
        look: :attr:`Deciding.look`, or :attr:`Deciding.finish` for whoever goes on behind the offsets.
        waits: an offset that may still change isn't returned.
    Raises:
        UnstableOffsetCommitError: one may still change, and ``waits``.
    """
    for decider in sorted(pending_deciders(rows, partitions)):
        committed = look(decider)
        if committed is not None:
            rows = settled_in(group, decider, committed).apply(rows, now_ms)
    if waits:
        for partition in partitions:
            check_nothing_pending(partition, rows.get(partition))
    return rows
