"""Carrying out what was decided: every topic, every group, then the entry that says so. Safe to repeat, by anybody."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from sparklog.delta.log import DeltaLog
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.groups.offset_table import OffsetTable
from sparklog.groups.pending import SettlePending
from sparklog.groups.rows import Decider
from sparklog.log.cluster import Cluster
from sparklog.log.publishing import Marker, publish
from sparklog.log.state import load_state
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.position import Position
from sparklog.txn.entries import TopicFiles, TransactionEntry, TransactionLog, append_entry
from sparklog.txn.states import TransactionState

__all__ = ["Forwarded", "complete", "decider_of", "finish", "marker_of", "roll_forward", "settle_group"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarded:
    """What a roll-forward found."""

    skipped: Collection[str] = field(default_factory=frozenset)
    """Topics that were deleted since: their records are nowhere (rule L8)."""


def marker_of(log: TransactionLog, entry: TransactionEntry) -> Marker:
    """How topics remember the transaction that ``entry`` decided."""
    return Marker(transactional_id=log.transactional_id, number=entry.version)


def decider_of(log: TransactionLog, entry: TransactionEntry) -> Decider:
    """How groups name the transaction that ``entry`` decided."""
    return Decider(log.transactional_id, entry.header.producer_epoch, entry.version)


def roll_forward(cluster: Cluster, log: TransactionLog, entry: TransactionEntry, *, timeout_ms: float) -> Forwarded:
    """Carry out a decision: publish its files in every topic and settle its offsets in every group.

    Each topic is loaded whole: a marker may lie far back (rule L5).

    Args:
        entry: a PrepareCommit or a PrepareAbort.
        timeout_ms: for each topic and each group.
    Raises:
        KafkaTimeoutError, CommitStateUnknownError, CorruptLogError, StoreError: not all is carried out; repeat it.
    """
    log.flush(entry.version)  # whose writer may have died before its fsync: nothing is carried out that may be lost
    is_committed = entry.state is TransactionState.PREPARE_COMMIT
    skipped = {
        topic
        for topic, named in (entry.contents.topics.items() if is_committed else ())
        if not _publish(cluster.topic_log(topic), named, marker_of(log, entry), timeout_ms=timeout_ms)
    }
    for group in entry.contents.groups:
        table = OffsetTable(cluster, group)
        settle_group(table, decider_of(log, entry), is_committed=is_committed, timeout_ms=timeout_ms)
    return Forwarded(skipped=frozenset(skipped))


def settle_group(table: OffsetTable, decider: Decider, *, is_committed: bool, timeout_ms: float) -> None:
    """Let the pending offsets of a transaction count, or forget them. Raises as :meth:`OffsetTable.change`."""
    deadline = table.log.clock.ticks_ms() + timeout_ms
    table.change([SettlePending(decider=decider, is_committed=is_committed)], deadline_ticks_ms=deadline)
    if table.maintenance_due:
        table.maintain()


def complete(
    log: TransactionLog, entry: TransactionEntry, position: Position, *, timeout_ms: float, sync: bool = True
) -> tuple[TransactionEntry, Position]:
    """Say that a decision is carried out everywhere. Whoever was faster said the same.

    Returns:
        The entry after ``entry``, and the position after it.
    Raises:
        PositionLost: the log went on long ago: somebody has said so.
        KafkaTimeoutError, CommitStateUnknownError, StoreError: repeat it.
    """
    is_committed = entry.state is TransactionState.PREPARE_COMMIT
    state = TransactionState.COMPLETE_COMMIT if is_committed else TransactionState.COMPLETE_ABORT
    completed = entry.follow(state, reason=entry.reason, now_ms=log.clock.now_ms())
    deadline = log.clock.ticks_ms() + timeout_ms
    found, after, _ = append_entry(log, position, completed, tokens=set(), deadline_ticks_ms=deadline, sync=sync)
    return found, after


def finish(
    cluster: Cluster, log: TransactionLog, entry: TransactionEntry, position: Position, *, timeout_ms: float
) -> TransactionEntry | None:
    """Carry out what ``entry`` decided and say so. Returns the entry after it; None where the log went on long ago.

    Raises as :func:`roll_forward`.
    """
    roll_forward(cluster, log, entry, timeout_ms=timeout_ms)
    try:
        return complete(log, entry, position, timeout_ms=timeout_ms)[0]
    except PositionLost:
        return None


def _publish(topic_log: DeltaLog, named: TopicFiles, marker: Marker, *, timeout_ms: float) -> bool:
    """False: the topic is gone."""
    deadline = topic_log.clock.ticks_ms() + timeout_ms
    try:
        state = load_state(topic_log)
    except UnknownTopicOrPartitionError:
        return False
    published, _ = publish(state, named.topic_id, named.files, marker, deadline_ticks_ms=deadline, sync=True)
    return not published.is_skipped
