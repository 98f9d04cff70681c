"""A producer's hold of its transactional id: epochs, decisions and what becomes of them (rules T1, deciding number, to
T5, epochs).

After each store call here the process may die or sleep for an hour; whoever comes next finds in the id's log what was
decided, and carries it out. Nothing is said to be committed before the entry is there that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sparklog.clock import Deadline
from sparklog.errors import (
    IllegalStateError,
    InvalidTxnStateError,
    TransactionAbortableError,
    TransactionTimedOutError,
)
from sparklog.groups.offsets.rows import Decider
from sparklog.log.cluster import Cluster
from sparklog.log.key_lengths import check_transactional_id_length
from sparklog.log.publishing import Marker
from sparklog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from sparklog.txn.batches import with_batch
from sparklog.txn.entries import Contents, Header, QueryBatch, TopicFiles, TransactionEntry
from sparklog.txn.epoch_log import EpochLog
from sparklog.txn.session_marker import OwnSessionMarker
from sparklog.txn.states import TransactionState
from sparklog.txn.transaction_offsets import TransactionOffsets

__all__ = ["TIMED_OUT", "TransactionSession"]

TIMED_OUT = "timed out"
"""How the reason of a forced abort begins, where the transaction was open for too long."""


class TransactionSession:
    """One producer's use of a transactional id. Owned by one thread at a time.

    Costs: a transaction is one create for its decision and one for saying that it is carried out, beside what its
    topics and groups take; the second may run while the next transaction is being filled.
    """

    def __init__(
        self, cluster: Cluster, transactional_id: str, *, timeout_ms: int, sync: bool = True, holder: str = ""
    ) -> None:
        """Reads nothing yet. Raises ``InvalidArgumentError`` for an id that none may have, or that is too long here.

        Args:
            sync: fsync every decision, and the offsets of groups (``acks=all`` on a local file system).
            holder: whom entries name as the one that began their epoch.
        """
        check_transactional_id_length(cluster.store, transactional_id)
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._clock = cluster.clock
        self._timeout_ms = timeout_ms
        self._log = EpochLog(cluster, transactional_id, sync=sync, holder=holder)
        self._offsets = TransactionOffsets(cluster, transactional_id, timeout_ms=timeout_ms, sync=sync)
        self._session_marker: OwnSessionMarker | None = None
        """The sign that a transaction of this epoch may be open (rule T4, open sessions)."""
        self._committed: Marker | None = None
        """The open transaction as topics are to remember it, once it is committed."""
        self._aborted = False
        self._began_ticks_ms = 0.0
        self._used = 0
        """The greatest number by which a topic remembers a transaction of this id, as far as is known."""

    # Epochs.

    def begin_epoch(self, *, deadline: Deadline) -> None:
        """Finish what an earlier producer left, and fence it off by a new epoch. May be repeated after an error.

        Raises:
            KafkaTimeoutError: not done in time.
            ConcurrentTransactionsError: other producers with the same id began at the same time, again and again.
            CommitStateUnknownError, CorruptLogError, UnsupportedVersionError, StoreError.
        """
        entry = self._log.begin_epoch(timeout_ms=self._timeout_ms, deadline=deadline)
        self._forget_transaction()
        self._session_marker = OwnSessionMarker(self._cluster, self.transactional_id, entry.version)
        self._session_marker.write()
        self._session_marker.replace_earlier()

    def is_marker_old(self) -> bool:
        """Should a transaction that begins now be preceded by :meth:`refresh_marker`? Costs nothing.

        The session's age counts from the newest of its entries and its marker: one that idled for long would be taken
        for one whose transaction is past its time-out."""
        marked = self._session_marker.written_ticks_ms if self._session_marker is not None else 0.0
        written = max(self._log.known_since_ticks_ms, marked)
        return self._clock.ticks_ms() - written > self.header.refresh_after_ms

    def refresh_marker(self) -> None:
        """Let the session's age count from now on (rule T4, open sessions). One PUT; where it fails that is logged."""
        if self._session_marker is not None:
            self._session_marker.refresh()

    def close(self) -> None:
        """Say that no transaction is open, once that is so."""
        if self._session_marker is not None and self._log.has_begun and self._log.newest.state.is_open:
            self._session_marker.remove()

    def wait_for_maintenance(self) -> None:
        """Wait for what was begun beside transactions, for a minute at most."""
        self._log.close()
        self._offsets.close()

    # One transaction.

    @property
    def header(self) -> Header:
        """Producer id and epoch. Raises ``IllegalStateError`` before :meth:`begin_epoch`."""
        return self._log.newest.header

    @property
    def batches(self) -> tuple[QueryBatch, ...]:
        """The newest micro-batch of each query that is committed. Raises ``IllegalStateError`` before
        :meth:`begin_epoch`."""
        return self._log.newest.batches

    @property
    def has_begun(self) -> bool:
        """Has :meth:`begin_epoch` succeeded?"""
        return self._log.has_begun

    @property
    def has_offsets(self) -> bool:
        """Has the open transaction written offsets to a group, or may have?"""
        return not self._offsets.is_empty

    @property
    def may_be_committed(self) -> bool:
        """Is the open transaction committed, or perhaps so? Then its files must stay."""
        return self._committed is not None or self._log.is_unsettled

    def begin(self, *, ticks_ms: float) -> None:
        """A transaction is open since then. Costs nothing; see :meth:`is_marker_old`."""
        self._forget_transaction()
        self._began_ticks_ms = ticks_ms

    @property
    def decider(self) -> Decider:
        """The entry that will decide the open transaction (rule T1, deciding number): nothing before it may be
        unfinished."""
        newest = self._log.newest
        if not newest.state.is_open:
            raise IllegalStateError(f"entry {newest.version} of {self.transactional_id!r} isn't carried out yet")
        return Decider(self.transactional_id, newest.header.producer_epoch, newest.version + 1)

    def add_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        metadata: ConsumerGroupMetadata,
        *,
        deadline: Deadline,
    ) -> None:
        """Make a group's offsets part of the open transaction: written as pending, for the owner alone (rule G1,
        stamps).

        Raises:
            CommitFailedError: a partition belongs to another member by now; or no member was given, and the group has
                some since this call began.
            TransactionAbortableError: no member was given, but the group has some.
            UnstableOffsetCommitError, OffsetMetadataTooLargeError, InvalidArgumentError.
            KafkaTimeoutError, CommitStateUnknownError, StoreError.
        """
        self._offsets.open_table(metadata.group_id)
        self._learn_of_abort_while_idle(deadline=deadline)
        self._pass_used_numbers(deadline=deadline)
        self._offsets.add_pending(offsets, metadata, self.decider, deadline=deadline)

    def _learn_of_abort_while_idle(self, *, deadline: Deadline) -> None:
        """Look, before rows of a group name our next number, for an abort by others: while nothing was decided for
        longer than the time-out, another process may have used it for an abort, and no transaction was open."""
        while self._offsets.is_empty and self._clock.ticks_ms() - self._log.known_since_ticks_ms > self._timeout_ms:
            entry = self._log.find_next()
            if entry is None:
                return
            if entry.state is TransactionState.PREPARE_ABORT:
                self._after_forced_abort(entry, deadline=deadline)

    def _pass_used_numbers(self, *, deadline: Deadline) -> None:
        """Abort nothing, again and again, until the next decision has a number that no topic remembers: topics would
        take a transaction of a used number for one that they have. Numbers restart where the id's entries were deleted
        by others than sparklog (rule L8, one log)."""
        while self._used >= self.decider.number and not self._log.is_unsettled:
            entry = self._log.find_next()  # as a rule another producer has taken the id, and used these numbers
            if entry is not None:
                self._after_forced_abort(entry, deadline=deadline)
                continue
            if not self._offsets.is_empty:
                raise TransactionAbortableError(
                    f"the transaction of {self.transactional_id!r} would be number {self.decider.number}, and a topic "
                    f"has transaction {self._used} of this id: entries of its log were deleted by others than "
                    "sparklog; abort it, and the next ones have greater numbers"
                )
            reason = f"a topic has transaction {self._used}: numbers are passed"
            nothing = self._log.newest.follow(
                TransactionState.PREPARE_ABORT, contents=Contents(), reason=reason, now_ms=self._clock.now_ms()
            )
            self._log.append(nothing, deadline=deadline)
            self._log.complete(deadline=deadline)
            self._log.begin_decision()

    def commit(
        self,
        topics: Mapping[str, TopicFiles],
        *,
        deadline: Deadline,
        batch: QueryBatch | None = None,
        used: Iterable[int] = (),
    ) -> Marker:
        """The commit point: one create. May be repeated until it says something else than that it doesn't know.

        Args:
            batch: of a streaming query: the same create decides that it is committed, and every entry says so
                from here on (rule T7, micro-batches). Whether it was committed before, the caller has looked.
            used: the numbers of the newest transactions of this id that the topics have, as far as is known.
        Returns:
            How topics are to remember the transaction; it is to be carried out now.
        Raises:
            TransactionTimedOutError, TransactionAbortableError: another process aborted it, or it is too late.
            ProducerFencedError: a newer producer has taken the id.
            KafkaTimeoutError: not decided, and it won't be unless this is called again.
            CommitStateUnknownError: perhaps decided: repeating this call settles it.
            StoreError.
        """
        contents = Contents(topics=dict(topics), groups=self._offsets.groups())
        if self._committed is not None:  # by an earlier call
            return self._committed
        self._used = max(self._used, *used, 0)
        self._pass_used_numbers(deadline=deadline)
        while True:
            newest = self._log.newest
            self._check_time()
            entry = newest.follow(
                TransactionState.PREPARE_COMMIT,
                contents=contents,
                batches=newest.batches if batch is None else with_batch(newest.batches, batch),
                now_ms=self._clock.now_ms(),
            )
            decided = self._log.append(entry, deadline=deadline)
            if decided.state is TransactionState.PREPARE_COMMIT:  # no other process writes one in this epoch
                self._committed = Marker(transactional_id=self.transactional_id, number=decided.version)
                return self._committed
            self._after_forced_abort(decided, deadline=deadline)

    def _check_time(self) -> None:
        open_ms = self._clock.ticks_ms() - self._began_ticks_ms
        may_have_won = self._log.is_unsettled  # an attempt to commit, and nothing undoes that
        if open_ms > self._timeout_ms and not may_have_won:
            raise TransactionTimedOutError(
                f"the transaction of {self.transactional_id!r} was open for {open_ms:.0f} ms, longer than "
                f"transaction_timeout_ms={self._timeout_ms}: abort it"
            )

    def _after_forced_abort(self, aborted: TransactionEntry, *, deadline: Deadline) -> None:
        """Continue after another process aborted by this number. If that was for the time before this transaction
        began, and no group knows the number, the next one decides as well."""
        is_young = self._clock.ticks_ms() - self._began_ticks_ms <= self._timeout_ms
        if aborted.reason.startswith(TIMED_OUT) and is_young and self._offsets.is_empty:
            self.complete(deadline=deadline)
            return
        self._aborted = True
        kind = TransactionTimedOutError if aborted.reason.startswith(TIMED_OUT) else TransactionAbortableError
        raise kind(f"the transaction of {self.transactional_id!r} was aborted by another: {aborted.reason}")

    def settle_groups(
        self, *, is_committed: bool, deadline: Deadline, when_published: Callable[[], object] = lambda: None
    ) -> None:
        """Let the transaction's offsets count in its groups, or forget them. May be repeated. A group that fails stops
        no other.

        Args:
            when_published: called before any offset counts; returns once the transaction's records are in all of their
                topics but those that refuse them (rule T2, hand-over), or raises. Meanwhile the groups' files are
                uploaded.
        Raises:
            As :meth:`OffsetTable.change`, and ``when_published``: the first error, once all groups were tried.
        """
        self._offsets.settle(is_committed=is_committed, deadline=deadline, when_published=when_published)

    def abort(self, *, deadline: Deadline) -> None:
        """Decide that nothing of the open transaction counts. May be repeated.

        Raises:
            ProducerFencedError: a newer producer has taken the id; it has decided the same.
            KafkaTimeoutError, CommitStateUnknownError, StoreError: repeat it.
        """
        if not self._aborted:
            contents = Contents(groups=self._offsets.groups())
            entry = self._log.newest.follow(
                TransactionState.PREPARE_ABORT, contents=contents, now_ms=self._clock.now_ms()
            )
            decided = self._log.append(entry, deadline=deadline)
            if decided.state is TransactionState.PREPARE_COMMIT:
                raise InvalidTxnStateError(f"the transaction of {self.transactional_id!r} is committed")
            self._aborted = True
        self.settle_groups(is_committed=False, deadline=deadline)

    def complete(self, *, deadline: Deadline) -> None:
        """Say that the decision is carried out everywhere, if no entry says so yet. May be repeated. Now and then old
        entries are deleted beside it.

        Raises ``ProducerFencedError``, ``KafkaTimeoutError``, ``CommitStateUnknownError``, ``StoreError``."""
        self._log.complete(deadline=deadline)

    def _forget_transaction(self) -> None:
        self._offsets.begin_transaction()
        self._log.begin_decision()
        self._committed = None
        self._aborted = False
