"""A producer's hold of its transactional id: epochs, decisions and what becomes of them (rules T1, deciding number, to
T5, epochs).

After each store call here the process may die or sleep for an hour; whoever comes next finds in the id's log what was
decided, and carries it out. Nothing is said to be committed before the entry is there that says so.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from sparklog.errors import (
    CommitStateUnknownError,
    ConcurrentTransactionsError,
    IllegalStateError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    ProducerFencedError,
    SparklogError,
    StoreError,
    TransactionAbortableError,
    TransactionTimedOutError,
    UnstableOffsetCommitError,
)
from sparklog.groups.admin.emptiness import empty_generation
from sparklog.groups.membership.topic_catalog import TopicCatalog
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.pending import PendOffsets, SettlePending, settle_pending
from sparklog.groups.offsets.rows import Decider, Stamp
from sparklog.log.cluster import Cluster
from sparklog.log.producer_state import new_producer_id
from sparklog.log.publishing import Marker
from sparklog.model import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.position import Position, needs_verification
from sparklog.txn.batches import with_batch
from sparklog.txn.cleaning import LogCleaner
from sparklog.txn.deciding import decide, entry_in_place
from sparklog.txn.entries import (
    Contents,
    Header,
    QueryBatch,
    TopicFiles,
    TransactionEntry,
    append_entry,
    first_entry,
    next_header,
    open_transaction_log,
)
from sparklog.txn.forward import complete, finish
from sparklog.txn.session_marker import OwnMarker
from sparklog.txn.states import TransactionState

__all__ = ["TIMED_OUT", "TransactionSession"]

_LOGGER = logging.getLogger("sparklog.txn")
_ATTEMPTS = 5
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
        """Reads nothing yet. Raises ``InvalidArgumentError`` for an id that none may have.

        Args:
            sync: fsync every decision (``acks=all`` on a local file system).
            holder: whom entries name as the one that began their epoch.
        """
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._clock = cluster.clock
        self._timeout_ms = timeout_ms
        self._sync = sync
        self._holder = holder
        self._log = open_transaction_log(cluster, transactional_id)
        self._newest: TransactionEntry | None = None
        self._position: Position | None = None
        self._marker: OwnMarker | None = None
        """Of this epoch."""
        self._tables: dict[str, OffsetTable] = {}
        self._groups: dict[str, set[TopicPartition]] = {}
        """That the open transaction has written pending offsets to, or may have."""
        self._tokens: set[str] = set()
        """Of all attempts at the decision under way."""
        self._is_unsettled = False
        """One of them may have been carried out."""
        self._pended: Decider | None = None
        """As the rows in the groups name the open transaction."""
        self._committed: Marker | None = None
        """The open transaction is decided, and so."""
        self._aborted = False
        self._began_ticks_ms = 0.0
        self._cleaner = LogCleaner(self._log)

    # Epochs.

    def begin_epoch(self, *, deadline_ticks_ms: float) -> None:
        """Finish what an earlier producer left, and fence it off by a new epoch. May be repeated after an error.

        Raises:
            KafkaTimeoutError: not done in time.
            ConcurrentTransactionsError: other producers with the same id began at the same time, again and again.
            CommitStateUnknownError, CorruptLogError, UnsupportedVersionError, StoreError.
        """
        while True:
            newest, position = self._log.open_newest()
            if newest is not None and newest.state.is_prepared:
                finish(self._cluster, self._log, newest, position, timeout_ms=self._left_ms(deadline_ticks_ms))
            else:
                header, now_ms = self._next_header(newest), self._clock.now_ms()
                entry = (
                    first_entry(header, now_ms=now_ms)
                    if newest is None
                    else newest.follow(TransactionState.EMPTY, header=header, now_ms=now_ms)
                )
                try:
                    found, position, is_ours = append_entry(
                        self._log,
                        position,
                        entry,
                        tokens=set(),
                        deadline_ticks_ms=deadline_ticks_ms,
                        sync=self._sync,
                    )
                except PositionLost:
                    is_ours = False
                if is_ours:
                    break
            if self._clock.ticks_ms() >= deadline_ticks_ms:
                raise ConcurrentTransactionsError(
                    f"transactional id {self.transactional_id!r}: others with the same id were faster, or had left "
                    "more to be finished than there was time for"
                )
        self._newest, self._position = found, position
        self._forget_transaction()
        self._marker = OwnMarker(self._cluster, self.transactional_id, found.version)
        self._marker.write()
        self._marker.replace_earlier()

    def _next_header(self, newest: TransactionEntry | None) -> Header:
        own = Header(producer_id=new_producer_id(), producer_epoch=0, timeout_ms=self._timeout_ms, holder=self._holder)
        return (
            own if newest is None else replace(next_header(newest.header), timeout_ms=own.timeout_ms, holder=own.holder)
        )

    def is_marker_old(self) -> bool:
        """Should a transaction that begins now be preceded by :meth:`refresh_marker`? Costs nothing.

        The session's age counts from the newest of its entries and its marker: one that idled for long would be taken
        for one whose transaction is past its time-out."""
        _, position = self._require_newest()
        marked = self._marker.written_ticks_ms if self._marker is not None else 0.0
        written = max(position.anchor_ticks_ms, marked)
        return self._clock.ticks_ms() - written > self.header.refresh_after_ms

    def refresh_marker(self) -> None:
        """Let the session's age count from now on (rule T4, open sessions). One PUT; where it fails that is logged."""
        if self._marker is not None:
            self._marker.refresh()

    def close(self) -> None:
        """Say that no transaction is open, once that is so."""
        if self._marker is not None and self._newest is not None and self._newest.state.is_open:
            self._marker.remove()

    def wait_for_maintenance(self) -> None:
        """Wait for what was begun beside transactions, for a minute at most."""
        self._cleaner.close()
        for table in self._tables.values():
            table.close()

    # One transaction.

    @property
    def header(self) -> Header:
        """Producer id and epoch. Raises ``IllegalStateError`` before :meth:`begin_epoch`."""
        return self._require_newest()[0].header

    @property
    def batches(self) -> tuple[QueryBatch, ...]:
        """The newest micro-batch of each query that is committed. Raises ``IllegalStateError`` before
        :meth:`begin_epoch`."""
        return self._require_newest()[0].batches

    @property
    def has_begun(self) -> bool:
        """Has :meth:`begin_epoch` succeeded?"""
        return self._newest is not None

    @property
    def has_offsets(self) -> bool:
        """Has the open transaction written offsets to a group, or may have?"""
        return bool(self._groups)

    @property
    def may_be_committed(self) -> bool:
        """Is the open transaction committed, or can't that be told? Then its files must stay."""
        return self._committed is not None or self._is_unsettled

    def begin(self, *, ticks_ms: float) -> None:
        """A transaction is open since then. Costs nothing; see :meth:`is_marker_old`."""
        self._forget_transaction()
        self._began_ticks_ms = ticks_ms

    @property
    def decider(self) -> Decider:
        """The entry that will decide the open transaction (rule T1, deciding number): nothing before it may be
        unfinished."""
        newest, _ = self._require_newest()
        if not newest.state.is_open:
            raise IllegalStateError(f"entry {newest.version} of {self.transactional_id!r} isn't carried out yet")
        return Decider(self.transactional_id, newest.header.producer_epoch, newest.version + 1)

    def add_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        metadata: ConsumerGroupMetadata,
        *,
        deadline_ticks_ms: float,
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
        group = metadata.group_id
        table = self._table(group)
        self._learn_if_idle(deadline_ticks_ms=deadline_ticks_ms)
        decider = self._pended = self.decider
        change = PendOffsets(
            offsets=offsets,
            decider=decider,
            owner=self._owner(metadata, offsets),
            topic_ids=TopicCatalog(self._cluster).ids_of(offsets.keys()) if not metadata.member_id else {},
        )
        self._groups.setdefault(group, set()).update(offsets)
        changed = table.change([change], deadline_ticks_ms=deadline_ticks_ms)
        if isinstance(changed.errors[0], UnstableOffsetCommitError):
            # A producer with another id left them, and the partitions' owner is ours: it is to wait for nobody.
            settle_pending(table, changed.rows, offsets, self._decide_other, deadline_ticks_ms=deadline_ticks_ms)
            changed = table.change([change], deadline_ticks_ms=deadline_ticks_ms)
        table.maintain_aside()
        if changed.errors[0] is not None:
            raise changed.errors[0].with_traceback(None)

    def _learn_if_idle(self, *, deadline_ticks_ms: float) -> None:
        """Before a group is told our number: while nothing was decided for longer than the time-out, somebody may have
        taken it for an abort, and no transaction was open."""
        while True:
            position = self._require_newest()[1]
            if self._groups or self._clock.ticks_ms() - position.anchor_ticks_ms <= self._timeout_ms:
                return
            try:
                look = self._log.look(position)
                if not look.entries:
                    self._position = look.position
                    return
                [found], after = look.entries, look.position
                self._check_holder(found)
            except PositionLost:  # it was taken, and carried out
                found, after = self._reopen(self._require_newest()[0])
            self._newest, self._position = found, after
            if found.state is TransactionState.PREPARE_ABORT:
                self._after_forced_abort(found, deadline_ticks_ms=deadline_ticks_ms)

    def _decide_other(self, other: Decider) -> bool:
        if other.transactional_id == self.transactional_id:  # ours would be dead: it is of a newer producer
            raise ProducerFencedError(
                f"another producer with transactional_id {other.transactional_id!r} wrote {other}"
            )
        reason = f"transactional id {self.transactional_id!r} commits offsets of the same partitions"
        return decide(self._cluster, other, reason=reason, timeout_ms=self._timeout_ms)

    def _owner(self, metadata: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Stamp:
        if metadata.member_id:
            return Stamp(metadata.generation_id, metadata.member_id)
        refusal = TransactionAbortableError(
            f"group {metadata.group_id!r} has members: offsets of {len(offsets)} partitions can't be part of a "
            "transaction without a member; hand in the consumer's group_metadata()"
        )
        return Stamp(empty_generation(self._cluster, metadata.group_id, refusal), "")

    def commit(
        self, topics: Mapping[str, TopicFiles], *, deadline_ticks_ms: float, batch: QueryBatch | None = None
    ) -> Marker:
        """The commit point: one create. May be repeated until it says something else than that it doesn't know.

        Args:
            batch: of a streaming query: that it is committed is decided by the same create, and told by every entry
                from here on (rule T7, micro-batches). Whether it was committed before, the caller has looked.
        Returns:
            How topics are to remember the transaction; it is to be carried out now.
        Raises:
            TransactionTimedOutError, TransactionAbortableError: somebody has aborted it, or it is too late to commit.
            ProducerFencedError: a newer producer has taken the id.
            KafkaTimeoutError: not decided, and it won't be unless this is called again.
            CommitStateUnknownError: perhaps decided: only this call again can tell.
            StoreError.
        """
        groups = {group: frozenset(partitions) for group, partitions in self._groups.items()}
        contents = Contents(topics=dict(topics), groups=groups)
        if self._committed is not None:  # by an earlier call
            return self._committed
        while True:
            newest, position = self._require_newest()
            self._check_time()
            entry = newest.follow(
                TransactionState.PREPARE_COMMIT,
                contents=contents,
                batches=newest.batches if batch is None else with_batch(newest.batches, batch),
                now_ms=self._clock.now_ms(),
            )
            decided = self._append(position, entry, deadline_ticks_ms=deadline_ticks_ms)
            if decided.state is TransactionState.PREPARE_COMMIT:  # nobody else writes one in this epoch
                self._committed = Marker(transactional_id=self.transactional_id, number=decided.version)
                return self._committed
            self._after_forced_abort(decided, deadline_ticks_ms=deadline_ticks_ms)

    def _check_time(self) -> None:
        open_ms = self._clock.ticks_ms() - self._began_ticks_ms
        if open_ms > self._timeout_ms and not self._is_unsettled:  # an attempt may have won, and nothing undoes that
            raise TransactionTimedOutError(
                f"the transaction of {self.transactional_id!r} was open for {open_ms:.0f} ms, longer than "
                f"transaction_timeout_ms={self._timeout_ms}: abort it"
            )

    def _after_forced_abort(self, aborted: TransactionEntry, *, deadline_ticks_ms: float) -> None:
        """Somebody has taken our number for an abort. If that was for the time before this transaction began, and no
        group knows the number, the next one decides as well."""
        is_young = self._clock.ticks_ms() - self._began_ticks_ms <= self._timeout_ms
        if aborted.reason.startswith(TIMED_OUT) and is_young and not self._groups:
            self.complete(deadline_ticks_ms=deadline_ticks_ms)
            return
        self._aborted = True
        kind = TransactionTimedOutError if aborted.reason.startswith(TIMED_OUT) else TransactionAbortableError
        raise kind(f"the transaction of {self.transactional_id!r} was aborted by another: {aborted.reason}")

    def settle_groups(
        self, *, is_committed: bool, deadline_ticks_ms: float, when_published: Callable[[], object] = lambda: None
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
        failed: SparklogError | None = None
        for group in [*self._groups]:
            try:
                if self._pended is not None:
                    table = self._table(group)
                    change = SettlePending(decider=self._pended, is_committed=is_committed)
                    table.change([change], deadline_ticks_ms=deadline_ticks_ms, before_commit=when_published)
                    table.maintain_aside()
                del self._groups[group]
            except SparklogError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def abort(self, *, deadline_ticks_ms: float) -> None:
        """Decide that nothing of the open transaction counts. May be repeated.

        Raises:
            ProducerFencedError: a newer producer has taken the id; it has decided the same.
            KafkaTimeoutError, CommitStateUnknownError, StoreError: repeat it.
        """
        if not self._aborted:
            newest, position = self._require_newest()
            groups = {group: frozenset(partitions) for group, partitions in self._groups.items()}
            entry = newest.follow(
                TransactionState.PREPARE_ABORT, contents=Contents(groups=groups), now_ms=self._clock.now_ms()
            )
            decided = self._append(position, entry, deadline_ticks_ms=deadline_ticks_ms)
            if decided.state is TransactionState.PREPARE_COMMIT:
                raise InvalidTxnStateError(f"the transaction of {self.transactional_id!r} is committed")
            self._aborted = True
        self.settle_groups(is_committed=False, deadline_ticks_ms=deadline_ticks_ms)

    def complete(self, *, deadline_ticks_ms: float) -> None:
        """Say that the decision is carried out everywhere, if nobody has said so yet. May be repeated. Now and then old
        entries are deleted beside it.

        Raises ``ProducerFencedError``, ``KafkaTimeoutError``, ``CommitStateUnknownError``, ``StoreError``."""
        attempts = 0
        while not self._require_newest()[0].state.is_open:  # others may have aborted the next number, of no transaction
            attempts += 1
            if attempts > _ATTEMPTS:
                raise ConcurrentTransactionsError(
                    f"transactional id {self.transactional_id!r}: others took {_ATTEMPTS} numbers in a row: try again"
                )
            newest, position = self._require_newest()
            try:
                self._newest, self._position = complete(
                    self._log, newest, position, timeout_ms=self._left_ms(deadline_ticks_ms), sync=self._sync
                )
            except PositionLost:
                self._newest, self._position = self._reopen(newest)
            self._tokens.clear()
            self._cleaner.completed(self._require_newest()[0])

    # Inside.

    def _append(self, position: Position, entry: TransactionEntry, *, deadline_ticks_ms: float) -> TransactionEntry:
        """Have the next number decided, by ``entry`` or by whoever was faster; returns the entry that has it.

        Once an attempt's outcome isn't known, that is all that may be said until it is: "it wasn't created" of a later
        attempt tells nothing of the earlier one.
        """
        was_unsettled = self._is_unsettled
        if not was_unsettled and self._is_lost(position):
            self._newest, self._position = self._reopen(entry)
            return self._newest
        self._is_unsettled = True
        try:
            found, after, _ = append_entry(
                self._log,
                position,
                entry,
                tokens=self._tokens,
                deadline_ticks_ms=deadline_ticks_ms,
                sync=self._sync,
            )
        except PositionLost:
            found, after = self._decided_long_ago(entry)
        except (KafkaTimeoutError, StoreError) as error:
            if isinstance(error, CommitStateUnknownError):
                raise
            if was_unsettled:
                raise CommitStateUnknownError(
                    f"whether an earlier attempt created {self._log.path_of(entry.version)} is still unknown: {error}"
                ) from error
            self._is_unsettled = False
            self._tokens.clear()
            raise
        self._is_unsettled = False
        self._check_holder(found)
        self._newest, self._position = found, after
        return found

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
        """The log went on without us for longer than entries are kept: somebody, perhaps we, decided the number."""
        found = entry_in_place(self._log, entry.version)
        if found is not None:
            return found, Position(version=found.version, token=found.token, anchor_ticks_ms=-math.inf)
        if entry.state is TransactionState.PREPARE_ABORT:  # in this epoch we alone could have committed
            return self._reopen(entry)
        raise CommitStateUnknownError(
            f"{self._log.path_of(entry.version)} was decided and cleaned while this process slept: read the topics "
            "back before anything else"
        )

    def _reopen(self, entry: TransactionEntry) -> tuple[TransactionEntry, Position]:
        """The log as it is, ``entry``'s number being decided."""
        newest, position = self._log.open_newest()
        if newest is None:
            raise IllegalStateError(f"the log of transactional id {self.transactional_id!r} was deleted")
        self._check_holder(newest)
        if newest.version < entry.version:
            raise KafkaTimeoutError(f"{self._log.path_of(entry.version)} couldn't be created: try again")
        return newest, position

    def _check_holder(self, found: TransactionEntry) -> None:
        ours = self._require_newest()[0].header
        if (found.header.producer_id, found.header.producer_epoch) != (ours.producer_id, ours.producer_epoch):
            if found.is_expired:
                raise ProducerFencedError(f"transactional_id {self.transactional_id!r} {found.reason}: begin anew")
            raise ProducerFencedError(
                f"another producer with transactional_id {self.transactional_id!r} began epoch "
                f"{found.header.producer_epoch} of producer {found.header.producer_id}; this one has epoch "
                f"{ours.producer_epoch} of {ours.producer_id}"
            )

    def _table(self, group: str) -> OffsetTable:
        table = self._tables.get(group)
        if table is None:
            table = self._tables[group] = OffsetTable(self._cluster, group)
        return table

    def _forget_transaction(self) -> None:
        self._groups, self._tokens = {}, set()
        self._pended = self._committed = None
        self._aborted = self._is_unsettled = False

    def _require_newest(self) -> tuple[TransactionEntry, Position]:
        if self._newest is None or self._position is None:
            raise IllegalStateError(f"transactional id {self.transactional_id!r}: init_transactions wasn't called")
        return self._newest, self._position

    def _left_ms(self, deadline_ticks_ms: float) -> float:
        return max(0.0, deadline_ticks_ms - self._clock.ticks_ms())
