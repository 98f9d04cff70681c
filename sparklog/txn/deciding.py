"""Deciding another's transaction: read what its entry says, or abort it by creating exactly that entry (rule T1,
deciding number).

Its offset counts only once its records are in their topics (rule T2, hand-over): whoever goes on behind the offset
writes behind the records.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import MappingProxyType

from sparklog.errors import (
    ConcurrentTransactionsError,
    CorruptLogError,
    SparklogError,
    UnstableOffsetCommitError,
)
from sparklog.groups.offsets.rows import CommittedPartitions, Decider
from sparklog.log.cluster import Cluster
from sparklog.logs import about
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.position import Position
from sparklog.txn.entries import (
    TransactionEntry,
    TransactionLog,
    append_entry,
    open_transaction_log,
)
from sparklog.txn.forward import publish_topics
from sparklog.txn.states import TransactionState

__all__ = ["Decision", "abort_if_open", "carry_out", "decide", "entry_in_place", "read_decision", "was_lost"]

_LOGGER = logging.getLogger("sparklog.txn")
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision of a transaction, and whether it is carried out."""

    is_committed: bool
    entry: TransactionEntry | None
    """The entry that decided it; None where it was cleaned away."""
    is_finished: bool
    """Is it carried out everywhere, as the entry after it says, or that it was cleaned away?"""

    @property
    def committed(self) -> CommittedPartitions:
        """The partitions whose offsets it committed, by group."""
        return self.entry.committed_partitions if self.is_committed and self.entry is not None else MappingProxyType({})


def read_decision(log: TransactionLog, decider: Decider) -> Decision | None:
    """The decision of a transaction. None: it isn't decided yet.

    Two GETs at once, whatever the age and length of the log; a LIST of one page more where the entry is the newest or
    isn't there; on a local folder a GET more where there is none yet.

    Raises:
        CorruptLogError: the log ends before the transaction began.
        ConcurrentTransactionsError: the log went on under every look.
        StoreError.
    """
    number = decider.number
    for _ in range(_ATTEMPTS):
        look = _look(log, number)
        if look is None:
            continue
        if look.entry is None and look.newest < number:
            if look.newest == number - 1 and not log.store.may_tear:  # no power loss takes anything there
                return None
            newest = log.read_entry(look.newest) if look.newest else None
            if newest is None and look.newest:  # the log went on meanwhile
                continue
            if newest is not None and _is_lost(decider, newest):
                return Decision(is_committed=False, entry=None, is_finished=True)
            if look.newest == number - 1:
                return None
            raise CorruptLogError(
                f"transactional id {decider.transactional_id!r}: entry {number} is to decide a transaction, but its "
                f"log ends at {look.newest}"
            )
        return _decision(decider, look.entry, is_finished=look.is_followed)
    raise _busy(log, number)


def entry_in_place(log: TransactionLog, number: int) -> TransactionEntry | None:
    """Entry ``number`` if it is the one that was created there first; None where that was cleaned away, whatever has
    the name now, and where there is none yet. Costs and raises as :func:`read_decision`."""
    for _ in range(_ATTEMPTS):
        look = _look(log, number)
        if look is not None:
            return look.entry
    raise _busy(log, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    entry: TransactionEntry | None
    """The entry in its place; None: there is none, or not any more."""
    is_followed: bool = False
    newest: int = 0
    """The newest number of the log, where there is no entry: at least so much."""


def _look(log: TransactionLog, number: int) -> _Look | None:
    """Look for the entry that has a number. None: the log went on meanwhile, look again.

    An entry counts only in its place: the one after it carries its token, or it is the newest of the log. What a
    stalled process created under a number that had been cleaned is followed by another's successor, or by a hole; and
    as the newest entries are never deleted, a listing shows something beyond it.
    """
    entry, after = log.read_entries(number, 2)
    if entry is not None and after is not None:
        return _Look(entry=entry if after.previous == entry.token else None, is_followed=True, newest=after.version)
    listed = log.numbers_from(number - 1, at_most=3)
    beyond = [listed_number for listed_number in listed if listed_number > number]
    if entry is not None:
        if not beyond:
            return _Look(entry=entry)
        return None if beyond[0] == number + 1 else _Look(entry=None, newest=beyond[0])
    if number in listed:
        return None
    if listed:
        return _Look(entry=None, newest=listed[-1])
    newest = max(log.numbers(), default=0)
    return _Look(entry=None, newest=newest) if newest < max(1, number - 1) else None


def was_lost(cluster: Cluster, decider: Decider) -> bool:
    """Did a power loss take a transaction, with the end of its id's log? One that is open, or decided, isn't lost.

    Raises ``CorruptLogError``, ``ConcurrentTransactionsError``, ``StoreError``."""
    decision = read_decision(open_transaction_log(cluster, decider.transactional_id), decider)
    return decision is not None and decision.entry is None and not decision.is_committed


def _is_lost(decider: Decider, newest: TransactionEntry) -> bool:
    """Does a log whose newest entry comes before a decider's number end there because a power loss took what the
    producer didn't fsync? Then what is missing wasn't decided, for good: whoever began is dead, and the first entry of
    each epoch is durable, so no other has its number.

    The entry right before the number was of the decider's epoch, so one of a later epoch took the place of what was
    lost, whether its own producer fsyncs or not.
    """
    if newest.header.producer_epoch > decider.producer_epoch:
        return True
    return newest.header.is_unsynced and newest.version < decider.number - 1


def _decision(decider: Decider, entry: TransactionEntry | None, *, is_finished: bool) -> Decision:
    """Read the decision from the entry that has the number. Whatever was cleaned was settled everywhere before (rule
    T6, an id's log), so a row that still waits for it is of a transaction that was never committed."""
    is_committed = (
        entry is not None
        and entry.state is TransactionState.PREPARE_COMMIT
        and entry.header.producer_epoch == decider.producer_epoch
    )
    return Decision(is_committed=is_committed, entry=entry, is_finished=is_finished or entry is None)


def _busy(log: TransactionLog, number: int) -> ConcurrentTransactionsError:
    return ConcurrentTransactionsError(
        f"transactional id {log.transactional_id!r}: entry {number} was neither there nor free in {_ATTEMPTS} attempts"
    )


def decide(cluster: Cluster, decider: Decider, *, reason: str, timeout_ms: float) -> CommittedPartitions:
    """The offsets that a transaction committed. One that isn't decided yet is aborted: its producer finds the reason.
    The records of one that is committed are in their topics afterwards, but in those that refuse them (rule T2,
    hand-over).

    Args:
        timeout_ms: for aborting it, and for each topic.
    Raises:
        UnstableOffsetCommitError: it is committed, and its records couldn't be published in time; try again.
        ConcurrentTransactionsError: others were faster again and again.
        KafkaTimeoutError, CommitStateUnknownError: not settled in time; asking again is safe.
        CorruptLogError, UnsupportedVersionError, StoreError: of the transactional id's log.
    """
    log = open_transaction_log(cluster, decider.transactional_id)
    decision = _have_decided(log, decider, reason=reason, timeout_ms=timeout_ms)
    log.make_durable(decider.number, decision.entry)  # its writer may have died before its fsync
    carry_out(cluster, log, decision, timeout_ms=timeout_ms)
    return decision.committed


def _have_decided(log: TransactionLog, decider: Decider, *, reason: str, timeout_ms: float) -> Decision:
    for _ in range(_ATTEMPTS):
        began = log.clock.ticks_ms()  # before the listing that shows the log's end: after a sleep the GET shows nothing
        decision = read_decision(log, decider)
        if decision is not None:
            return decision
        newest = log.read_entry(decider.number - 1)
        if newest is None:
            continue
        if newest.header.producer_epoch != decider.producer_epoch:
            raise CorruptLogError(
                f"{log.path_of(newest.version)} is of epoch {newest.header.producer_epoch}, but a transaction of epoch "
                f"{decider.producer_epoch} is to be decided by the next entry"
            )
        entry = abort_if_open(log, newest, ticks_ms=began, reason=reason, timeout_ms=timeout_ms)
        if entry is not None:
            return _decision(decider, entry, is_finished=False)
    raise _busy(log, decider.number)


def carry_out(cluster: Cluster, log: TransactionLog, decision: Decision, *, timeout_ms: float) -> None:
    """Have the records of a committed transaction in their topics, unless they are known to be.

    Raises ``UnstableOffsetCommitError``: not in all of them yet."""
    entry = decision.entry
    if entry is None or not decision.is_committed or decision.is_finished:
        return
    try:
        published = publish_topics(cluster, log, entry, timeout_ms=timeout_ms)
    except SparklogError as error:
        raise UnstableOffsetCommitError(
            f"transaction {entry.version} of transactional id {log.transactional_id!r} is committed, but its records "
            f"aren't in all of its topics yet, so its offsets don't count yet: {error}"
        ) from error
    for topic, refusal in published.refused.items():
        _LOGGER.warning(
            "transaction %d of transactional id %r is committed, and topic %s refuses its records, which may come "
            "behind those of later transactions: %s",
            entry.version,
            log.transactional_id,
            topic,
            refusal,
            extra=about(transactional_id=log.transactional_id, topic=topic),
        )


def abort_if_open(
    log: TransactionLog, newest: TransactionEntry, *, ticks_ms: float, reason: str, timeout_ms: float
) -> TransactionEntry | None:
    """Take the number after ``newest`` for an abort; whatever transaction it was to decide can't be committed any more.

    Args:
        newest: of the log, as a listing showed that began at ``ticks_ms`` or later.
        reason: for the producer.
    Returns:
        The entry that has the number now; None where the log went on long ago.
    Raises:
        InvalidTxnStateError: ``newest`` is a decision that isn't carried out yet.
        KafkaTimeoutError, CommitStateUnknownError, StoreError.
    """
    entry = newest.follow(TransactionState.PREPARE_ABORT, reason=reason, now_ms=log.clock.now_ms())
    position = Position(version=newest.version, token=newest.token, anchor_ticks_ms=ticks_ms)
    deadline = log.clock.deadline_in(timeout_ms)
    try:
        return append_entry(log, position, entry, tokens=set(), deadline=deadline)[0]
    except PositionLost:
        return None
