"""Deciding another's transaction: read what its entry says, or abort it by creating exactly that entry (rule T1)."""

from __future__ import annotations

from sparklog.errors import ConcurrentTransactionsError, CorruptLogError
from sparklog.groups.pending import Deciding
from sparklog.groups.rows import Decider
from sparklog.log.cluster import Cluster
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.position import Position
from sparklog.txn.entries import (
    TransactionEntry,
    TransactionLog,
    append_entry,
    open_transaction_log,
)
from sparklog.txn.states import TransactionState

__all__ = ["abort_if_open", "decide", "deciding_for", "entry_in_place", "read_decision"]

_ATTEMPTS = 5


def read_decision(log: TransactionLog, decider: Decider) -> bool | None:
    """Was a transaction committed? None: it isn't decided yet. A LIST and up to three GETs.

    An entry counts only in its place: the entry after it, or where it is the newest the one before it, must carry the
    fitting token. What a stalled process created under a cleaned number doesn't. Whatever was cleaned was settled
    everywhere before (rule T6), so a row that still waits for it is of a transaction that was never committed.

    Raises:
        CorruptLogError: the log ends before the transaction began.
        StoreError.
    """
    number = decider.number
    newest = max(log.numbers(), default=0)
    if newest == number - 1:
        return None
    if newest < number:
        raise CorruptLogError(
            f"transactional id {decider.transactional_id!r}: entry {number} is to decide a transaction, but its log "
            f"ends at {newest}"
        )
    entry = entry_in_place(log, number)
    if entry is None:
        return False
    return entry.state is TransactionState.PREPARE_COMMIT and entry.header.producer_epoch == decider.producer_epoch


def entry_in_place(log: TransactionLog, number: int) -> TransactionEntry | None:
    """Entry ``number`` if its neighbours fit to it; None where it was cleaned away, whatever has the name now.

    The one before is read last: if it is still there then, the entry was there, too, when it was read (rule L3). What a
    stalled process created fits to the one before, which may be cleaned between two reads.
    """
    entry, after = log.read_entries(number, 2)
    if entry is None:
        return None
    if after is not None:
        return entry if after.previous == entry.token else None
    if number == 1:
        return entry
    before = log.read_entry(number - 1)
    return entry if before is not None and entry.previous == before.token else None  # the newest two always stay


def decide(cluster: Cluster, decider: Decider, *, reason: str, timeout_ms: float) -> bool:
    """Was a transaction committed? One that isn't decided yet is aborted: its producer finds the reason.

    Raises:
        ConcurrentTransactionsError: others were faster again and again.
        KafkaTimeoutError, CommitStateUnknownError: not settled in time; asking again is safe.
        CorruptLogError, UnsupportedVersionError, StoreError.
    """
    log = open_transaction_log(cluster, decider.transactional_id)
    for _ in range(_ATTEMPTS):
        decided = read_decision(log, decider)
        if decided is not None:
            log.flush(decider.number)
            return decided
        began = log.clock.ticks_ms()
        newest = log.read_entry(decider.number - 1)
        if newest is not None and newest.header.producer_epoch != decider.producer_epoch:
            raise CorruptLogError(
                f"{log.path_of(newest.version)} is of epoch {newest.header.producer_epoch}, but a transaction of epoch "
                f"{decider.producer_epoch} is to be decided by the next entry"
            )
        if newest is not None:
            abort_if_open(log, newest, ticks_ms=began, reason=reason, timeout_ms=timeout_ms)
    raise ConcurrentTransactionsError(
        f"transactional id {decider.transactional_id!r}: entry {decider.number} was neither there nor free in "
        f"{_ATTEMPTS} attempts"
    )


def deciding_for(cluster: Cluster, *, reason: str, timeout_ms: float) -> Deciding:
    """What groups need to know of transactions.

    Args:
        reason: as the producer of a transaction is told that is aborted.
        timeout_ms: for aborting one.
    """

    def look(decider: Decider) -> bool | None:
        return read_decision(open_transaction_log(cluster, decider.transactional_id), decider)

    return Deciding(decide=lambda decider: decide(cluster, decider, reason=reason, timeout_ms=timeout_ms), look=look)


def abort_if_open(
    log: TransactionLog, newest: TransactionEntry, *, ticks_ms: float, reason: str, timeout_ms: float
) -> TransactionEntry | None:
    """Take the number after ``newest`` for an abort; whatever transaction it was to decide can't be committed any more.

    Args:
        newest: as it was read by a request that began at ``ticks_ms``.
        reason: as the producer will be told.
    Returns:
        The entry that has the number now; None where the log went on long ago.
    Raises:
        InvalidTxnStateError: ``newest`` is a decision that isn't carried out yet.
        KafkaTimeoutError, CommitStateUnknownError, StoreError.
    """
    entry = newest.follow(TransactionState.PREPARE_ABORT, reason=reason, now_ms=log.clock.now_ms())
    position = Position(version=newest.version, token=newest.token, anchor_ticks_ms=ticks_ms)
    deadline = log.clock.ticks_ms() + timeout_ms
    try:
        return append_entry(log, position, entry, tokens=set(), deadline_ticks_ms=deadline)[0]
    except PositionLost:
        return None
