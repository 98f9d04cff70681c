"""Carrying out a decision: in every topic, every group, then the entry that records this. Any process may repeat it.

The topics come first: an offset counts only once its transaction's records are in their topics, so that whoever goes on
behind the offset writes behind the records (rule T2, hand-over). A topic or a group that refuses for good hinders no
other.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sparklog.clock import Deadline
from sparklog.delta.log import DeltaLog
from sparklog.errors import KafkaTimeoutError, SparklogError, StoreReplacedError, UnknownTopicOrPartitionError
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.pending import settled_in
from sparklog.groups.offsets.rows import CommittedPartitions, Decider
from sparklog.log.cluster import Cluster
from sparklog.log.publishing import Marker, publish_transaction
from sparklog.log.state import load_state
from sparklog.parallel import parallel_results
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.position import Position
from sparklog.txn.entries import TopicFiles, TransactionEntry, TransactionLog, append_entry
from sparklog.txn.states import TransactionState

__all__ = [
    "PublishedTopics",
    "complete",
    "decider_of",
    "finish",
    "is_refusal",
    "marker_of",
    "publish_topics",
    "roll_forward",
    "settle_group",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTopics:
    """The topics that don't have the records of a transaction, though they were published wherever that is possible."""

    skipped: Collection[str]
    """They were deleted since: the records meant for them are nowhere (rule L8, one log)."""
    refused: Mapping[str, SparklogError]
    """They can't be written to, and why: of a newer format, damaged, or write access is denied. Whoever tries again
    once that was mended publishes the records."""


def is_refusal(error: BaseException | None) -> bool:
    """Would the same call fail again until an operator fixes what the error names?

    False for temporary errors: a store that can't be reached, a time-out, an answer that was lost.
    """
    return isinstance(error, SparklogError) and not error.retriable and not isinstance(error, KafkaTimeoutError)


def marker_of(log: TransactionLog, entry: TransactionEntry) -> Marker:
    """The marker by which topics remember the transaction that ``entry`` decided."""
    return Marker(transactional_id=log.transactional_id, number=entry.version)


def decider_of(log: TransactionLog, entry: TransactionEntry) -> Decider:
    """The decider by which groups name the transaction that ``entry`` decided."""
    return Decider(log.transactional_id, entry.header.producer_epoch, entry.version)


def publish_topics(
    cluster: Cluster, log: TransactionLog, entry: TransactionEntry, *, timeout_ms: float
) -> PublishedTopics:
    """Publish the records of a committed transaction in each of its topics, once, whichever other processes do so.

    Each topic is loaded whole: a marker may lie far back (rule L5, opening). All topics are tried, side by side,
    whatever one of them says.

    Args:
        entry: a PrepareCommit that survives a power loss.
        timeout_ms: for each topic.
    Raises:
        KafkaTimeoutError, CommitStateUnknownError, StoreError: of the first topic that failed in a way which passes;
            repeat it.
    """
    topics, marker = entry.contents.topics, marker_of(log, entry)

    def publish_in(topic: str) -> bool:
        return _publish(cluster.topic_log(topic), topics[topic], marker, timeout_ms=timeout_ms)

    results = dict(zip(topics, parallel_results(publish_in, topics), strict=True))
    refused = {topic: result for topic, result in results.items() if isinstance(result, SparklogError)}
    for result in results.values():
        if isinstance(result, Exception) and not is_refusal(result):
            raise result
    return PublishedTopics(skipped=frozenset(topic for topic in topics if results[topic] is False), refused=refused)


def roll_forward(
    cluster: Cluster, log: TransactionLog, entry: TransactionEntry, *, timeout_ms: float
) -> PublishedTopics:
    """Carry out a decision: publish its files in every topic, then settle its offsets in every group.

    Args:
        entry: a PrepareCommit or a PrepareAbort.
        timeout_ms: for each topic and each group.
    Raises:
        KafkaTimeoutError, CommitStateUnknownError, StoreError: not all is carried out; repeat it.
        UnsupportedVersionError, CorruptLogError, StorePermissionError, …: a topic or a group refuses; all others have
            what was decided. The message names the transaction and what refuses.
    """
    log.make_durable(entry.version, entry)  # its writer may have died before its fsync
    is_committed = entry.state is TransactionState.PREPARE_COMMIT
    published = PublishedTopics(skipped=frozenset(), refused={})
    if is_committed:
        published = publish_topics(cluster, log, entry, timeout_ms=timeout_ms)
    refused = {f"topic {topic!r}": error for topic, error in published.refused.items()}
    passing: SparklogError | None = None
    for group in entry.contents.groups:
        try:
            table = OffsetTable(cluster, group)
            settle_group(table, decider_of(log, entry), entry.committed_partitions, timeout_ms=timeout_ms)
        except SparklogError as error:
            if is_refusal(error):
                refused[f"group {group!r}"] = error
            else:
                passing = passing or error
    if passing is not None:
        raise passing
    for name, refusal in refused.items():
        raise _refusal(log, entry, name, refusal) from refusal
    return published


def _refusal(log: TransactionLog, entry: TransactionEntry, name: str, error: SparklogError) -> SparklogError:
    """The same error, with a message that names the transaction."""
    refusal = copy.copy(error)
    what = "committed" if entry.state is TransactionState.PREPARE_COMMIT else "aborted"
    refusal.args = (
        f"transaction {entry.version} of transactional id {log.transactional_id!r} is {what}, and can't be carried out "
        f"in {name}: {error}. The id goes on once that is mended, or deleted",
    )
    return refusal


def settle_group(table: OffsetTable, decider: Decider, committed: CommittedPartitions, *, timeout_ms: float) -> None:
    """Let the pending offsets of a transaction count, or forget them. Raises as :meth:`OffsetTable.change`."""
    deadline = table.log.clock.deadline_in(timeout_ms)
    table.change([settled_in(table.group, decider, committed)], deadline=deadline)
    if table.maintenance_due:
        table.maintain()


def complete(
    log: TransactionLog, entry: TransactionEntry, position: Position, *, deadline: Deadline, sync: bool = True
) -> tuple[TransactionEntry, Position]:
    """Record that a decision is carried out everywhere. A faster process recorded the same.

    Returns:
        The entry after ``entry``, and the position after it.
    Raises:
        PositionLost: the log continued long ago: a later entry implies it.
        KafkaTimeoutError, CommitStateUnknownError, StoreError: repeat it.
    """
    is_committed = entry.state is TransactionState.PREPARE_COMMIT
    state = TransactionState.COMPLETE_COMMIT if is_committed else TransactionState.COMPLETE_ABORT
    completed = entry.follow(state, reason=entry.reason, now_ms=log.clock.now_ms())
    newest, after, _ = append_entry(log, position, completed, tokens=set(), deadline=deadline, sync=sync)
    return newest, after


def finish(
    cluster: Cluster, log: TransactionLog, entry: TransactionEntry, position: Position, *, timeout_ms: float
) -> TransactionEntry | None:
    """Carry out what ``entry`` decided and say so. Returns the entry after it; None where the log went on long ago.

    Raises as :func:`roll_forward`.
    """
    roll_forward(cluster, log, entry, timeout_ms=timeout_ms)
    try:
        return complete(log, entry, position, deadline=log.clock.deadline_in(timeout_ms))[0]
    except PositionLost:
        return None


def _publish(topic_log: DeltaLog, named: TopicFiles, marker: Marker, *, timeout_ms: float) -> bool:
    """False: the topic was deleted. Raises ``StoreReplacedError`` where there is no log: a deleted topic has one."""
    deadline = topic_log.clock.deadline_in(timeout_ms)
    try:
        state = load_state(topic_log)
    except UnknownTopicOrPartitionError as error:
        raise StoreReplacedError(
            f"the log of {topic_log.table} at {topic_log.store.uri} is gone, expected that of topic id "
            f"{named.topic_id}: put it back, or create the topic again if its folder was removed for good"
        ) from error
    published, _ = publish_transaction(state, named.topic_id, named.files, marker, deadline=deadline, sync=True)
    return not published.is_skipped
