"""Finishing what producers left: decisions that nobody carried out, sessions that are past their time-out (rule T4).

Everything here may be done by anybody, at any time and twice: what is decided stays so, and a transaction that isn't is
aborted by taking the number that would have decided it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from sparklog.errors import (
    ConcurrentTransactionsError,
    InvalidTxnStateError,
    SparklogError,
    StoreError,
    TransactionalIdNotFoundError,
)
from sparklog.log.cluster import Cluster
from sparklog.paths import transaction_marker
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.position import Position
from sparklog.storage.retrying import DEFAULT_RETRY_MS, Patience
from sparklog.txn.deciding import abort_if_open
from sparklog.txn.entries import (
    EXPIRED,
    TransactionEntry,
    TransactionLog,
    append_entry,
    clean_transaction_log,
    next_header,
    open_transaction_log,
)
from sparklog.txn.forward import finish
from sparklog.txn.overview import (
    age_ms,
    at_once,
    markers_by_id,
    may_be_open,
    newest_number,
    store_time_ms,
    transactional_ids,
)
from sparklog.txn.session import TIMED_OUT
from sparklog.txn.states import TransactionState

__all__ = [
    "BY_ADMINISTRATOR",
    "EXPIRATION_MS",
    "Helper",
    "Recovered",
    "RecoveryAction",
    "abort_transaction",
    "recover_transactions",
]

_LOGGER = logging.getLogger("sparklog.txn")

BY_ADMINISTRATOR = "an administrator aborted it"
"""The reason that a producer is told."""
_ATTEMPTS = 5
EXPIRATION_MS = 7 * 86_400_000
"""Source: Kafka ``transactional.id.expiration.ms``."""


class RecoveryAction(str, Enum):
    """What was done about a transactional id."""

    NOTHING = "nothing"
    """Nothing is unfinished; or a transaction may be open, and is within its time-out."""
    COMMITTED = "committed"
    """Its last transaction was decided: it is visible everywhere now."""
    ABORTED = "aborted"
    """Its last transaction was aborted: its offsets are forgotten everywhere now."""
    TIMED_OUT = "timed out"
    """Whatever transaction was open is aborted."""
    EXPIRED = "expired"
    """Nobody has used it for so long that its producer, if there is one, has lost it."""
    FAILED = "failed"
    """See :attr:`Recovered.error`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What became of one transactional id."""

    transactional_id: str
    state: TransactionState | None
    """Of its newest entry, before; None where there is none, or where it can't be read."""
    action: RecoveryAction
    error: SparklogError | None = None
    """Why it couldn't be finished; trying again is safe."""


def recover_transactions(
    cluster: Cluster,
    *,
    timeout_ms: float = DEFAULT_RETRY_MS,
    again_after_ms: float | None = None,
    expire_after_ms: float | None = None,
) -> list[Recovered]:
    """Finish all that is decided, and abort the sessions that are past their ``transaction_timeout_ms``.

    Lists ``transactions/`` itself (rule T4). A session is judged by the store's own times, by the age of its newest
    entry: nobody can tell when its transaction began, or whether there is one. A producer that was idle all the time
    notices nothing. Markers of earlier epochs are removed.

    Costs two listings; a LIST and a GET for each id, 32 ids at a time; a LIST and perhaps a GET more for one that may
    have a transaction open.

    Args:
        timeout_ms: for each entry, each topic and each group.
        again_after_ms: abort a session again whose abort is that old; by default never.
        expire_after_ms: take an id away whose newest entry is that old, and older than its time-out: by an entry that
            begins an epoch which is nobody's. Its log shrinks to two entries, its numbers go on. By default never.
    Returns:
        What became of each id, sorted; one that can't be finished hinders no other.
    Raises:
        StoreError: the listings.
    """
    markers = markers_by_id(cluster)
    now_ms = store_time_ms(cluster) if markers or expire_after_ms is not None else 0
    ages = _Ages(now_ms=now_ms, again_after_ms=again_after_ms, expire_after_ms=expire_after_ms)

    def recover(transactional_id: str) -> Recovered:
        return _Recovery(cluster, transactional_id, timeout_ms).run(markers.get(transactional_id, ()), ages)

    return at_once(recover, transactional_ids(cluster))


def abort_transaction(cluster: Cluster, transactional_id: str, *, timeout_ms: float = DEFAULT_RETRY_MS) -> None:
    """Abort whatever transaction is open: none that was open when this was called can be committed afterwards.

    Its producer is told that an administrator did it. Whether one is open nobody can tell: where none is, the next one
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
    """What one goes by to call something old."""

    now_ms: int
    """The store's time."""
    again_after_ms: float | None
    expire_after_ms: float | None


class _Recovery:
    """Of one id."""

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: float) -> None:
        self._cluster = cluster
        self._log = open_transaction_log(cluster, transactional_id)
        self._timeout_ms = timeout_ms
        self._before: TransactionState | None = None

    def run(self, markers: Collection[int], ages: _Ages) -> Recovered:
        error: SparklogError | None = None
        try:
            action = self._recover(markers, ages)
        except SparklogError as failed:
            action, error = RecoveryAction.FAILED, failed.with_traceback(None)
        return Recovered(transactional_id=self._log.transactional_id, state=self._before, action=action, error=error)

    def _recover(self, markers: Collection[int], ages: _Ages) -> RecoveryAction:
        for _ in range(_ATTEMPTS):
            newest, position = self._log.open_newest()
            if newest is None:
                return RecoveryAction.NOTHING
            self._before = self._before or newest.state
            if newest.state.is_prepared:
                return self._finish(newest, position)
            is_open = self._is_open(newest, markers)
            reason = self._why_to_abort(newest, ages) if is_open else None
            if reason is not None:
                decided = _abort(self._log, newest, position, reason=reason, timeout_ms=self._timeout_ms)
                if decided is None:
                    continue
                if not decided.state.is_prepared:  # another producer has just begun an epoch
                    return RecoveryAction.NOTHING
                done = self._finish(decided, _at(decided, position))
                return RecoveryAction.TIMED_OUT if decided.is_forced else done
            if newest.is_expired and ages.expire_after_ms is not None:
                self._clean(newest)  # whoever took it may have died before
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

    def _is_open(self, newest: TransactionEntry, markers: Collection[int]) -> bool:
        """May a transaction be open? Removes the markers of earlier epochs."""
        known = [marker for marker in markers if marker <= newest.version]
        stale = [marker for marker in known if not may_be_open(self._log, newest, marker)]
        if stale:
            self._cluster.store.delete([transaction_marker(self._log.transactional_id, one) for one in stale])
        return len(stale) < len(known)

    def _why_to_abort(self, newest: TransactionEntry, ages: _Ages) -> str | None:
        if newest.is_forced and ages.again_after_ms is None:
            return None
        age = age_ms(self._log, newest, now_ms=ages.now_ms)
        bound_ms = newest.header.timeout_ms
        if newest.is_forced and ages.again_after_ms is not None:
            bound_ms = max(bound_ms, int(ages.again_after_ms))
        if age <= bound_ms:
            return None
        return f"{TIMED_OUT} after {age} ms without a decision, transaction_timeout_ms={newest.header.timeout_ms}"

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

    def _expire(self, newest: TransactionEntry, position: Position, reason: str, markers: Collection[int]) -> bool:
        """Begin an epoch that is nobody's: whoever holds the id is fenced off, and whoever takes it goes on from there.

        False: somebody used the id meanwhile.
        """
        entry = newest.follow(
            TransactionState.EMPTY, header=next_header(newest.header), reason=reason, now_ms=self._log.clock.now_ms()
        )
        deadline = self._log.clock.ticks_ms() + self._timeout_ms
        try:
            found, _, is_ours = append_entry(self._log, position, entry, tokens=set(), deadline_ticks_ms=deadline)
        except PositionLost:
            return False
        if is_ours:
            self._is_open(found, markers)  # removes them
            self._clean(found)
        return is_ours

    def _clean(self, newest: TransactionEntry) -> None:
        try:
            clean_transaction_log(self._log, newest)
        except StoreError as error:  # it costs room; whoever comes next tries again
            _LOGGER.warning("cleaning the log of transactional id %s failed: %s", self._log.transactional_id, error)


class Helper:
    """What an idle consumer does for others: it finishes decisions that are left lying. Owned by one thread.

    Only ids whose sessions may have a transaction open are looked at (rule T4): what a producer left that closed is
    found by :func:`recover_transactions`. A look costs one listing, a GET for each such id, and for one that went on
    since the last look a LIST and a GET more; it takes about ten seconds at most, unless the store is slower.
    """

    UNCHANGED_MS = 5_000.0
    """A decision that was seen for so long is left lying: its producer carries it out within that."""
    MOST_IDS = 100
    """Looked at in one look; the others in the next."""
    MOST_FINISHED = 5
    """In one look."""
    PATIENCE_MS = 10_000.0
    """Of the calls of one look, and of carrying out one decision in each topic and group."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen: dict[str, _Seen] = {}
        self._last = ""
        """The last id that was looked at."""
        self._told: dict[str, str] = {}
        """Errors that were logged already."""

    def look(self, now_ticks_ms: float) -> list[str]:
        """Look once; meant to be called every 30 s or when there is nothing else to do, never by a consumer's caller.

        Args:
            now_ticks_ms: of the cluster's clock.
        Returns:
            The ids whose decision was carried out. Raises nothing: errors are logged.
        """
        finished: list[str] = []
        deadline = now_ticks_ms + self.PATIENCE_MS
        try:
            with self._cluster.store.patience(Patience(deadline_ticks_ms=deadline)):
                for transactional_id in self._choose(markers_by_id(self._cluster)):
                    if len(finished) >= self.MOST_FINISHED or self._cluster.clock.ticks_ms() > deadline:
                        break
                    self._last = transactional_id
                    if self._help(transactional_id, now_ticks_ms):
                        finished.append(transactional_id)
        except Exception as error:  # nobody waits for this: whatever it is, it is told and tried again later
            self._tell("", error)
        return finished

    def _choose(self, markers: Mapping[str, Collection[int]]) -> Iterable[str]:
        """The ids that come next, in turn."""
        for gone in self._seen.keys() - markers.keys():
            del self._seen[gone]
        names = sorted(markers)
        later = [name for name in names if name > self._last]
        return [*later, *names[: len(names) - len(later)]][: self.MOST_IDS]

    def _help(self, transactional_id: str, now_ticks_ms: float) -> bool:
        """Was a decision carried out?"""
        try:
            log = open_transaction_log(self._cluster, transactional_id)
            seen = self._follow(log, self._seen.get(transactional_id), now_ticks_ms)
            if seen is None:
                self._seen.pop(transactional_id, None)
                return False
            self._seen[transactional_id] = seen
            if not seen.newest.state.is_prepared or now_ticks_ms - seen.since_ticks_ms < self.UNCHANGED_MS:
                return False
            finish(self._cluster, log, seen.newest, seen.position, timeout_ms=self.PATIENCE_MS)
        except Exception as error:  # one that can't be helped hinders no other
            self._seen.pop(transactional_id, None)
            self._tell(transactional_id, error)
            return False
        del self._seen[transactional_id]
        self._told.pop(transactional_id, None)
        _LOGGER.info("finished what the producer of transactional id %r had left", transactional_id)
        return True

    def _follow(self, log: TransactionLog, seen: _Seen | None, now_ticks_ms: float) -> _Seen | None:
        """What is newest now, and since when it is known to be."""
        if seen is None:
            return _Seen.of(*log.open_newest(), since_ticks_ms=now_ticks_ms)
        try:
            look = log.look(seen.position)
        except PositionLost:
            return _Seen.of(*log.open_newest(), since_ticks_ms=now_ticks_ms)
        if not look.entries:
            return _Seen(newest=seen.newest, position=look.position, since_ticks_ms=seen.since_ticks_ms)
        # It may have gone on by thousands: what lies behind the last known is less than all that is kept.
        began = self._cluster.clock.ticks_ms()
        number = newest_number(log, after=seen.position.version)
        newest = log.read_entry(number) if number else None
        if self._cluster.clock.ticks_ms() - began > log.tail_trust_ms:  # what was read may be a stray by now (rule L1)
            newest = None
        position = Position(version=number, token=newest.token if newest else "", anchor_ticks_ms=began)
        return _Seen.of(newest, position, since_ticks_ms=now_ticks_ms)

    def _tell(self, transactional_id: str, error: Exception) -> None:
        """Once, not at every look."""
        told = f"{type(error).__name__}: {error}"
        if self._told.get(transactional_id) != told:
            what = f"transactional id {transactional_id!r}" if transactional_id else "unfinished transactions"
            _LOGGER.warning("looking after %s failed: %s", what, told)
        self._told[transactional_id] = told


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A log's newest entry, as a helper saw it."""

    newest: TransactionEntry
    position: Position
    since_ticks_ms: float
    """When it was seen first."""

    @classmethod
    def of(cls, newest: TransactionEntry | None, position: Position, *, since_ticks_ms: float) -> _Seen | None:
        return None if newest is None else cls(newest=newest, position=position, since_ticks_ms=since_ticks_ms)


def _abort(
    log: TransactionLog, newest: TransactionEntry, position: Position, *, reason: str, timeout_ms: float
) -> TransactionEntry | None:
    return abort_if_open(log, newest, ticks_ms=position.anchor_ticks_ms, reason=reason, timeout_ms=timeout_ms)


def _at(entry: TransactionEntry, position: Position) -> Position:
    """The position after an entry that follows ``position``, or is the one there."""
    return Position(version=entry.version, token=entry.token, anchor_ticks_ms=position.anchor_ticks_ms)
