"""A transactional id's log as the holder of an epoch writes it: one entry after the other, until another epoch begins.

After each store call here the process may die or sleep for an hour; whoever comes next finds in the log what was
decided.
"""

from __future__ import annotations

import math
from dataclasses import replace

from sparklog.clock import Deadline
from sparklog.errors import (
    CommitStateUnknownError,
    ConcurrentTransactionsError,
    IllegalStateError,
    KafkaTimeoutError,
    ProducerFencedError,
    StoreError,
)
from sparklog.log.cluster import Cluster
from sparklog.log.producer_state import new_producer_id
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.log_ground import no_log
from sparklog.storage.position import Position, needs_verification
from sparklog.txn.cleaning import LogCleaner
from sparklog.txn.deciding import entry_in_place
from sparklog.txn.entries import (
    Header,
    TransactionEntry,
    append_entry,
    first_entry,
    next_header,
    open_transaction_log,
)
from sparklog.txn.forward import complete, finish
from sparklog.txn.states import TransactionState

__all__ = ["EpochLog"]

_COMPLETION_ATTEMPTS = 5


class EpochLog:
    """Begins an epoch, then creates its entries. Owned by one thread at a time.

    Entries that other processes created meanwhile are detected: those of the epoch count, a newer epoch is an error.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, *, sync: bool, holder: str) -> None:
        """Reads nothing yet. Raises ``InvalidArgumentError`` for an id that none may have."""
        self.transactional_id = transactional_id
        self.is_unsettled = False
        """An attempt at the decision under way may have been carried out."""
        self._cluster = cluster
        self._clock = cluster.clock
        self._sync = sync
        self._holder = holder
        self._log = open_transaction_log(cluster, transactional_id)
        self._newest: TransactionEntry | None = None
        self._position: Position | None = None
        self._tokens: set[str] = set()
        """The tokens of all attempts at the decision under way."""
        self._cleaner = LogCleaner(self._log)

    @property
    def has_begun(self) -> bool:
        """Has :meth:`begin_epoch` succeeded?"""
        return self._newest is not None

    @property
    def newest(self) -> TransactionEntry:
        """The newest entry that is known. Raises ``IllegalStateError`` before :meth:`begin_epoch`."""
        return self._require_newest()[0]

    @property
    def known_since_ticks_ms(self) -> float:
        """The time at which the newest entry was certainly the newest. Raises ``IllegalStateError`` before
        :meth:`begin_epoch`."""
        return self._require_newest()[1].anchor_ticks_ms

    def begin_epoch(self, *, timeout_ms: int, deadline: Deadline) -> TransactionEntry:
        """Finish what an earlier producer left, and fence it off by a new epoch. May be repeated after an error.

        Args:
            timeout_ms: ``transaction_timeout_ms``, which entries contain for others.
        Returns:
            The epoch's first entry.
        Raises:
            KafkaTimeoutError, ConcurrentTransactionsError, CommitStateUnknownError, CorruptLogError,
            UnsupportedVersionError, StoreError: see :meth:`TransactionSession.begin_epoch`.
        """
        while True:
            newest, position = self._log.open_newest()
            if newest is not None and newest.state.is_prepared:
                finish(self._cluster, self._log, newest, position, timeout_ms=deadline.left_ms)
            else:
                if newest is not None:  # what comes now may be durable, so what lies before it is
                    self._log.make_durable(newest.version, newest)
                header, now_ms = self._next_header(newest, timeout_ms), self._clock.now_ms()
                entry = (
                    first_entry(header, now_ms=now_ms)
                    if newest is None
                    else newest.follow(TransactionState.EMPTY, header=header, now_ms=now_ms)
                )
                try:
                    created, position, is_ours = append_entry(
                        self._log,
                        position,
                        entry,
                        tokens=set(),
                        deadline=deadline,
                        sync=True,  # also with acks=1: after a power loss no other epoch has this one's number
                    )
                except PositionLost:
                    is_ours = False
                if is_ours:
                    break
            if deadline.has_passed:
                raise ConcurrentTransactionsError(
                    f"transactional id {self.transactional_id!r}: producers with the same id were faster, or "
                    "their transactions could not be finished in time"
                )
        self._newest, self._position = created, position
        return created

    def _next_header(self, newest: TransactionEntry | None, timeout_ms: int) -> Header:
        before = (
            Header(producer_id=new_producer_id(), producer_epoch=0, timeout_ms=timeout_ms)
            if newest is None
            else next_header(newest.header)
        )
        return replace(before, timeout_ms=timeout_ms, holder=self._holder, is_unsynced=not self._sync)

    def begin_decision(self) -> None:
        """Forget the attempts at an earlier decision."""
        self._tokens = set()
        self.is_unsettled = False

    def find_next(self) -> TransactionEntry | None:
        """The entry that another process has created after the newest one, which is the newest from now on; None: there
        is none, as of now.

        Raises ``ProducerFencedError`` if it is of a newer epoch, ``StoreError``."""
        try:
            look = self._log.look(self._require_newest()[1])
            if not look.entries:
                self._position = look.position
                return None
            [entry], position = look.entries, look.position
            self._check_holder(entry)
        except PositionLost:  # it was created, and carried out
            entry, position = self._reopen(self.newest)
        self._newest, self._position = entry, position
        return entry

    def append(self, entry: TransactionEntry, *, deadline: Deadline) -> TransactionEntry:
        """Have the next number decided, by ``entry`` or by a faster process; returns the entry that has it.

        Once an attempt's outcome isn't known, that is all that may be said until it is: "it wasn't created" of a later
        attempt says nothing about the earlier one.
        """
        position = self._require_newest()[1]
        was_unsettled = self.is_unsettled
        if not was_unsettled and self._is_lost(position):
            self._newest, self._position = self._reopen(entry)
            return self._newest
        self.is_unsettled = True
        try:
            decided, after, _ = append_entry(
                self._log,
                position,
                entry,
                tokens=self._tokens,
                deadline=deadline,
                sync=self._sync,
            )
        except PositionLost as lost:
            if lost.nothing_tried and not was_unsettled:
                self.is_unsettled = False
                self._newest, self._position = self._reopen(entry)
                return self._newest
            decided, after = self._decided_long_ago(entry)
        except (KafkaTimeoutError, StoreError) as error:
            if isinstance(error, CommitStateUnknownError):
                raise
            if was_unsettled:
                raise CommitStateUnknownError(
                    f"whether an earlier attempt created {self._log.path_of(entry.version)} is still unknown: {error}"
                ) from error
            self.is_unsettled = False
            self._tokens.clear()
            raise
        self.is_unsettled = False
        self._check_holder(decided)
        self._newest, self._position = decided, after
        return decided

    def complete(self, *, deadline: Deadline) -> None:
        """Say that the newest decision is carried out everywhere, if no entry says so yet. May be repeated. Now and
        then old entries are deleted beside it.

        Raises ``ProducerFencedError``, ``KafkaTimeoutError``, ``CommitStateUnknownError``, ``StoreError``."""
        attempts = 0
        while not self.newest.state.is_open:  # others may have aborted the next number, of no transaction
            attempts += 1
            if attempts > _COMPLETION_ATTEMPTS:
                raise ConcurrentTransactionsError(
                    f"transactional id {self.transactional_id!r}: others took {_COMPLETION_ATTEMPTS} numbers in a row: "
                    "try again"
                )
            newest, position = self._require_newest()
            try:
                self._newest, self._position = complete(self._log, newest, position, deadline=deadline, sync=self._sync)
            except PositionLost:
                self._newest, self._position = self._reopen(newest)
            self._tokens.clear()
            self._cleaner.completed(self.newest)

    def close(self) -> None:
        """Wait for a cleaning that is under way, for a minute at most."""
        self._cleaner.close()

    def _is_lost(self, position: Position) -> bool:
        """Is it certain, before anything was tried, that others decided the number after ``position`` long ago?"""
        now = self._clock.ticks_ms()
        if not needs_verification(position, learned_ticks_ms=now, tail_trust_ms=self._log.tail_trust_ms):
            return False
        try:
            self._log.verify(position)
        except PositionLost:
            return True
        except StoreError:  # the create finds out
            return False
        return False

    def _decided_long_ago(self, entry: TransactionEntry) -> tuple[TransactionEntry, Position]:
        """The log went on without us for longer than entries are kept: a process, perhaps this, decided the number."""
        decided = entry_in_place(self._log, entry.version)
        if decided is not None:
            return decided, Position(version=decided.version, token=decided.token, anchor_ticks_ms=-math.inf)
        if entry.state is TransactionState.PREPARE_ABORT:  # in this epoch we alone could have committed
            return self._reopen(entry)
        raise CommitStateUnknownError(
            f"{self._log.path_of(entry.version)} was decided and cleaned while this process slept: read the topics "
            "back before anything else"
        )

    def _reopen(self, entry: TransactionEntry) -> tuple[TransactionEntry, Position]:
        """The log as it is, ``entry``'s number being decided. Raises ``StoreReplacedError`` where it doesn't go on from
        what is known (rule L17, ground)."""
        known = self._require_newest()[1]
        newest, position = self._log.open_again(known)
        if newest is None:
            raise no_log(self._log, known)
        self._check_holder(newest)
        if newest.version < entry.version:
            raise KafkaTimeoutError(f"{self._log.path_of(entry.version)} couldn't be created: try again")
        return newest, position

    def _check_holder(self, entry: TransactionEntry) -> None:
        """Raise ``ProducerFencedError`` for an entry of another epoch (rule T5, epochs)."""
        ours = self.newest.header
        if (entry.header.producer_id, entry.header.producer_epoch) != (ours.producer_id, ours.producer_epoch):
            if entry.is_expired:
                raise ProducerFencedError(f"transactional_id {self.transactional_id!r} {entry.reason}: start anew")
            raise ProducerFencedError(
                f"another producer with transactional_id {self.transactional_id!r} began epoch "
                f"{entry.header.producer_epoch} of producer {entry.header.producer_id}; this one has epoch "
                f"{ours.producer_epoch} of {ours.producer_id}"
            )

    def _require_newest(self) -> tuple[TransactionEntry, Position]:
        if self._newest is None or self._position is None:
            raise IllegalStateError(f"transactional id {self.transactional_id!r}: init_transactions wasn't called")
        return self._newest, self._position
