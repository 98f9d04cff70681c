"""Finishing what producers left behind: unfinished decisions, sessions past their time-out (rule T4, open sessions).

Everything here may be done by anybody, at any time and twice: what is decided stays so, and a transaction that isn't is
aborted by taking the number that would have decided it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from sparklog.errors import (
    ConcurrentTransactionsError,
    InvalidTxnStateError,
    SparklogError,
    StoreError,
    TransactionalIdNotFoundError,
    as_sparklog_error,
)
from sparklog.log.cluster import Cluster
from sparklog.logs import about
from sparklog.paths import transaction_marker
from sparklog.storage.each_alone import check_of_one, each_alone
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.position import Position, advance
from sparklog.storage.retrying import DEFAULT_RETRY_MS
from sparklog.txn.cleaning import clean_transaction_log
from sparklog.txn.deciding import abort_if_open
from sparklog.txn.entries import (
    EXPIRED,
    TransactionEntry,
    TransactionLog,
    append_entry,
    next_header,
    open_transaction_log,
)
from sparklog.txn.forward import finish
from sparklog.txn.overview import (
    SessionMarker,
    age_ms,
    markers_of,
    may_be_open,
    readable_markers,
    store_time_ms,
    transactional_ids,
)
from sparklog.txn.session import TIMED_OUT
from sparklog.txn.states import TransactionState

__all__ = [
    "BY_ADMINISTRATOR",
    "EXPIRATION_MS",
    "Recovered",
    "RecoveryAction",
    "abort_if_overdue",
    "abort_transaction",
    "recover_transactions",
]

_LOGGER = logging.getLogger("sparklog.txn")

BY_ADMINISTRATOR = "an administrator aborted it"
"""The reason that the producer of an aborted transaction is given."""
_ATTEMPTS = 5
EXPIRATION_MS = 7 * 86_400_000
"""Source: Kafka ``transactional.id.expiration.ms``."""


class RecoveryAction(str, Enum):
    """Actions taken for a transactional id."""

    NOTHING = "nothing"
    """Nothing is unfinished; or a transaction may be open, and is within its time-out."""
    COMMITTED = "committed"
    """Its last transaction was decided: it is visible everywhere now."""
    ABORTED = "aborted"
    """Its last transaction was aborted: its offsets are forgotten everywhere now."""
    TIMED_OUT = "timed out"
    """Whatever transaction was open is aborted."""
    EXPIRED = "expired"
    """It expired, unused for so long that its producer, if there is one, has lost it."""
    FAILED = "failed"
    """See :attr:`Recovered.error`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The result of recovering one transactional id."""

    transactional_id: str
    state: TransactionState | None
    """The state of its newest entry before the recovery; None where there is none, or where it can't be read."""
    action: RecoveryAction
    error: SparklogError | None = None
    """The error for which it couldn't be finished; trying again is safe."""


def recover_transactions(
    cluster: Cluster,
    *,
    timeout_ms: float = DEFAULT_RETRY_MS,
    again_after_ms: float | None = None,
    expire_after_ms: float | None = None,
) -> list[Recovered]:
    """Finish all that is decided, and abort the sessions that are past their time-outs.

    Lists ``transactions/`` itself (rule T4, open sessions). A session is judged by the store's own times, by the age of
    its newest entry and of its marker, whichever is younger: a producer that idled refreshes the marker as it begins a
    transaction. It is past its time-out after one and a half times ``transaction_timeout_ms``, when a transaction that
    it has open is older than once that. A producer that was idle all the time notices nothing. Markers of earlier
    epochs are removed.

    Costs two listings; a LIST and a GET for each id, 32 ids at a time; a LIST and perhaps a GET more for one that may
    have a transaction open; two LISTs more for one that is aborted.

    Args:
        timeout_ms: for each entry, each topic and each group.
        again_after_ms: abort a session again whose abort is that old; by default never.
        expire_after_ms: take an id away whose newest entry is that old, and older than its time-out: by an entry that
            begins an epoch without an owner. Its log shrinks to two entries, its numbers go on. By default never.
    Returns:
        What became of each id, sorted; one that can't be finished hinders no other.
    Raises:
        StoreError: the listings, or the store can't be read.
    """
    markers, unlisted = readable_markers(cluster)
    now_ms = store_time_ms(cluster) if markers or expire_after_ms is not None else 0
    ages = _Ages(now_ms=now_ms, again_after_ms=again_after_ms, expire_after_ms=expire_after_ms)

    def recover(transactional_id: str) -> Recovered:
        recovery = _Recovery(cluster, transactional_id, timeout_ms)
        if transactional_id in unlisted:
            return recovery.failed(unlisted[transactional_id])
        return recovery.run(markers.get(transactional_id, ()), ages)

    ids = transactional_ids(cluster)
    recovered = each_alone(cluster.store, recover, ids)
    return [
        _Recovery(cluster, name, timeout_ms).failed(one) if isinstance(one, Exception) else one
        for name, one in zip(ids, recovered, strict=True)
    ]


def abort_if_overdue(cluster: Cluster, transactional_id: str, *, timeout_ms: float) -> bool:
    """Abort the transaction of an id that left offsets pending, if its session is past its time-out as
    :func:`recover_transactions` judges it. For a reader that waits for these offsets: nobody else may ever end it.

    Costs some ten requests where it is aborted, six where it isn't. Errors are logged: the reader asks again.

    Returns:
        Whether something was decided.
    """
    recovery = _Recovery(cluster, transactional_id, timeout_ms)
    try:
        # An open transaction left these offsets, so it is one that began after the newest abort, if there is one.
        ages = _Ages(now_ms=store_time_ms(cluster), again_after_ms=0, expire_after_ms=None)
        recovered = recovery.run(markers_of(cluster, transactional_id), ages)
    except SparklogError as error:
        recovered = recovery.failed(error)
    if recovered.error is not None:
        _LOGGER.warning(
            "transactional id %s: its transaction wasn't ended, for which readers of a group's offsets wait: %s",
            transactional_id,
            recovered.error,
            extra=about(transactional_id=transactional_id),
        )
    return recovered.action not in (RecoveryAction.NOTHING, RecoveryAction.FAILED)


def abort_transaction(cluster: Cluster, transactional_id: str, *, timeout_ms: float = DEFAULT_RETRY_MS) -> None:
    """Abort the open transaction, if any: none that was open when this was called can be committed afterwards.

    Its producer gets an error that names an administrator. Whether one is open is unknown: where none is, the next one
    of a producer that lives is aborted.

    Raises:
        TransactionalIdNotFoundError: no producer ever used the id.
        InvalidTxnStateError: the transaction is committed already.
        ConcurrentTransactionsError: the log went on again and again; try again.
        KafkaTimeoutError, CommitStateUnknownError, CorruptLogError, StoreError: call it again.
    """
    log = open_transaction_log(cluster, transactional_id)
    for _ in range(_ATTEMPTS):
        newest, position = log.open_newest()
        if newest is None:
            raise TransactionalIdNotFoundError(f"unknown transactional id: {transactional_id!r}")
        decided: TransactionEntry | None = newest
        if newest.state.is_open:
            decided = _abort(log, newest, position, reason=BY_ADMINISTRATOR, timeout_ms=timeout_ms)
        if decided is None:
            continue
        if decided.state is TransactionState.PREPARE_COMMIT:
            raise InvalidTxnStateError(
                f"the transaction of {transactional_id!r} is committed and can't be aborted; recover_transactions "
                "makes it visible everywhere"
            )
        if decided.state is TransactionState.PREPARE_ABORT:
            finish(cluster, log, decided, _at(decided, position), timeout_ms=timeout_ms)
        return  # or another producer has begun an epoch, which aborts what was open before
    raise ConcurrentTransactionsError(
        f"transactional id {transactional_id!r}: others were faster in {_ATTEMPTS} attempts to abort its transaction"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ages:
    """The ages from which on something counts as old."""

    now_ms: int
    """The store's time."""
    again_after_ms: float | None
    expire_after_ms: float | None


class _Recovery:
    """The recovery of one transactional id."""

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: float) -> None:
        self._cluster = cluster
        self._log = open_transaction_log(cluster, transactional_id)
        self._timeout_ms = timeout_ms
        self._before: TransactionState | None = None

    def run(self, markers: Collection[SessionMarker], ages: _Ages) -> Recovered:
        try:
            action = self._recover(markers, ages)
        except SparklogError as error:
            check_of_one(self._cluster.store, error)
            return self.failed(error)
        return Recovered(transactional_id=self._log.transactional_id, state=self._before, action=action)

    def failed(self, error: Exception) -> Recovered:
        """The result where it can't be finished."""
        return Recovered(
            transactional_id=self._log.transactional_id,
            state=self._before,
            action=RecoveryAction.FAILED,
            error=as_sparklog_error(error).with_traceback(None),
        )

    def _recover(self, markers: Collection[SessionMarker], ages: _Ages) -> RecoveryAction:
        for _ in range(_ATTEMPTS):
            newest, position = self._log.open_newest()
            if newest is None:
                return RecoveryAction.NOTHING
            self._before = self._before or newest.state
            if newest.state.is_prepared:
                return self._finish(newest, position)
            session = self._open_session(newest, markers)
            reason = self._why_to_abort(newest, session, ages) if session is not None else None
            if reason is not None:
                decided = _abort(self._log, newest, position, reason=reason, timeout_ms=self._timeout_ms)
                if decided is None:
                    continue
                if not decided.state.is_prepared:  # another producer has just begun an epoch
                    return RecoveryAction.NOTHING
                done = self._finish(decided, _at(decided, position))
                return RecoveryAction.TIMED_OUT if decided.is_forced else done
            if newest.is_expired and ages.expire_after_ms is not None:
                self._clean(newest)  # the process that expired it may have died before
            reason = self._why_to_expire(newest, ages)
            if reason is None:
                return RecoveryAction.NOTHING
            if self._expire(newest, position, reason, markers):
                return RecoveryAction.EXPIRED
        raise ConcurrentTransactionsError(
            f"transactional id {self._log.transactional_id!r}: others were faster in {_ATTEMPTS} attempts"
        )

    def _finish(self, decided: TransactionEntry, position: Position) -> RecoveryAction:
        completed = finish(self._cluster, self._log, decided, position, timeout_ms=self._timeout_ms)
        if completed is not None and decided.is_forced:
            self._clean(completed)  # its producer won't, if it is dead
        is_committed = decided.state is TransactionState.PREPARE_COMMIT
        return RecoveryAction.COMMITTED if is_committed else RecoveryAction.ABORTED

    def _open_session(self, newest: TransactionEntry, markers: Collection[SessionMarker]) -> SessionMarker | None:
        """The marker of a session that may have a transaction open. Removes the markers of earlier epochs."""
        known = [marker for marker in markers if marker.number <= newest.version]
        alive = [marker for marker in known if may_be_open(self._log, newest, marker)]
        stale = [transaction_marker(self._log.transactional_id, each.number) for each in known if each not in alive]
        if stale:
            self._log.check_cluster(is_doubtful=True)  # another cluster's markers have the same names
            self._cluster.store.delete(stale)
        return alive[-1] if alive else None

    def _why_to_abort(self, newest: TransactionEntry, session: SessionMarker, ages: _Ages) -> str | None:
        if newest.is_forced and ages.again_after_ms is None:
            return None
        bound_ms = newest.header.abort_after_ms
        if newest.is_forced and ages.again_after_ms is not None:
            bound_ms = max(bound_ms, int(ages.again_after_ms))
        if ages.now_ms - session.modified_ms <= bound_ms:  # spares a LIST
            return None
        age = age_ms(self._log, newest, now_ms=ages.now_ms)
        if age <= bound_ms or session not in markers_of(self._cluster, self._log.transactional_id):
            return None  # it was refreshed since it was listed, or its producer has closed
        idle = min(age, ages.now_ms - session.modified_ms)
        return f"{TIMED_OUT} after {idle} ms without a decision, transaction_timeout_ms={newest.header.timeout_ms}"

    def _why_to_expire(self, newest: TransactionEntry, ages: _Ages) -> str | None:
        if ages.expire_after_ms is None or newest.is_expired:
            return None
        bound_ms = max(int(ages.expire_after_ms), newest.header.timeout_ms)
        if ages.now_ms - newest.written_ms <= bound_ms:  # by its writer's clock, which may delay it: spares a LIST
            return None
        age = age_ms(self._log, newest, now_ms=ages.now_ms)
        return (
            None
            if age <= bound_ms
            else f"{EXPIRED} after {age} ms without use, transactional.id.expiration.ms={bound_ms}"
        )

    def _expire(
        self, newest: TransactionEntry, position: Position, reason: str, markers: Collection[SessionMarker]
    ) -> bool:
        """Begin an epoch without an owner: the id's producer is fenced off, and the next one continues from there.

        False: the id was used meanwhile.
        """
        entry = newest.follow(
            TransactionState.EMPTY, header=next_header(newest.header), reason=reason, now_ms=self._log.clock.now_ms()
        )
        self._log.make_durable(newest.version, newest)  # what comes now is durable, so what lies before it is
        deadline = self._log.clock.deadline_in(self._timeout_ms)
        try:
            created, _, is_ours = append_entry(self._log, position, entry, tokens=set(), deadline=deadline)
        except PositionLost:
            return False
        if is_ours:
            self._open_session(created, markers)  # removes them
            self._clean(created)
        return is_ours

    def _clean(self, newest: TransactionEntry) -> None:
        try:
            clean_transaction_log(self._log, newest)
        except StoreError as error:  # it costs space; the next run tries again
            _LOGGER.warning("cleaning the log of transactional id %s failed: %s", self._log.transactional_id, error)


def _abort(
    log: TransactionLog, newest: TransactionEntry, position: Position, *, reason: str, timeout_ms: float
) -> TransactionEntry | None:
    return abort_if_open(log, newest, ticks_ms=position.anchor_ticks_ms, reason=reason, timeout_ms=timeout_ms)


def _at(entry: TransactionEntry, position: Position) -> Position:
    """The position after an entry that follows ``position``, or is the one there."""
    return advance(position, version=entry.version, token=entry.token)
