"""Commits to a group's offset table: what the commit loop of :mod:`sparklog.delta.commit` needs to know of it.

A commit uploads one file with all rows and creates the next version, which removes the file before it and adds the new
one. Whoever loses the race reads the winner's file, decides again and uploads anew (rule L4, decide again).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sparklog._version import __version__
from sparklog.clock import Deadline
from sparklog.delta.actions import Action, AddFile, Entry, Metadata, Protocol, RemoveFile, SetTransaction, encode_entry
from sparklog.delta.commit import CommitTarget, Draft, UploadsGoneError, sync_committed, sync_unsynced
from sparklog.delta.features import READER_VERSION, WRITER_VERSION
from sparklog.delta.log import DeltaLog
from sparklog.errors import CommitStateUnknownError, SparklogError
from sparklog.groups.offsets.changes import Change
from sparklog.groups.offsets.offset_files import (
    FORMAT_VERSION,
    SCHEMA_STRING,
    encode_rows,
    new_offset_file,
    table_properties,
)
from sparklog.groups.offsets.offset_state import (
    COMMITTED_INFO,
    FORMAT_INFO,
    NO_TABLE,
    UNSYNCED_INFO,
    LiveFile,
    OffsetState,
    catch_up,
    follow,
    load_again,
    load_state,
    load_whole,
)
from sparklog.groups.offsets.rows import Rows
from sparklog.log.confirming import Confirmation
from sparklog.log.data.object_paths import object_path
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.log_ground import check_follows
from sparklog.storage.position import Position, advance

__all__ = ["Changed", "OffsetTarget", "synced"]

_WRITER_REMEMBERED_MS = 604_800_000
"""Seven days: for so long at least a ``txn`` action stays in the table (rule L7, producer state)."""
_LOSSES_BEFORE_SYNCING_LATE = 4
"""A writer that fsyncs before it creates loses to one that doesn't, as in a topic."""
_ALREADY_EXPIRED_MS = 0
"""The time of deletion that a replaced file gets. Delta's checkpoints carry the names of deleted files for a week, so
that VACUUM keeps the files; one for every commit of a week would make each checkpoint huge, and these files live for an
hour. A VACUUM may so delete a replaced file sooner, which readers bear; files that aren't committed yet it judges by
their age."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The result of changes."""

    errors: tuple[SparklogError | None, ...]
    """By change, in their order: why it was refused; None where it was carried out or was done already."""
    rows: Rows
    """All rows, with what was carried out."""


class OffsetTarget(CommitTarget[OffsetState, Changed]):
    """One call of :meth:`~sparklog.groups.offsets.offset_table.OffsetTable.change` on its way."""

    def __init__(
        self,
        log: DeltaLog,
        changes: Sequence[Change],
        *,
        deadline: Deadline,
        writer: str,
        number: int,
        before_commit: Callable[[], object],
        sync: bool = True,
    ) -> None:
        """
        Args:
            sync: fsync what is written and all that lies before it, before this returns (rule L9, fsync).
            writer: the appId of the commit's ``txn`` action.
            number: of the call among those of its writer; the action's version.
            before_commit: called between the upload and the create that makes it count, before each attempt; may wait.
        """
        super().__init__(log, deadline=deadline)
        self.decided = Changed(errors=(), rows={})
        """The newest decision."""
        self._changes = changes
        self._writer = writer
        self._number = number
        self._before_commit = before_commit
        self._sync = sync
        self._began = log.clock.ticks_ms()
        self._is_current = False
        """Was the newest state read after the call began, and nothing attempted since?"""
        self._confirmation = Confirmation(log)
        self._known: Position | None = None
        """The newest state's."""
        self._winner: Entry | None = None
        """The entry that follows the newest state."""

    def read_current(self, state: OffsetState | None) -> OffsetState:
        """The table as of now, carried on from ``state``. Raises as :meth:`retry_until_deadline`."""
        call = partial(load_state, self.log) if state is None else partial(catch_up, self.log, state)
        state = self.retry_until_deadline(call)
        self._is_current = True
        return state

    def decide(self, state: OffsetState) -> Changed | None:
        self._known = state.position
        self.decided = _decide_changes(state.rows, self._changes, now_ms=self.log.clock.now_ms())
        return None if self.decided.rows is state.rows else self.decided

    def end_without_commit(self, state: OffsetState) -> tuple[OffsetState, bool]:
        """End where nothing is to be written. No create proves that the state is the newest then: decide on one that
        was read now."""
        if not self._is_current:
            return self.read_current(state), False
        return synced(self.log, state) if self._sync and None in self.decided.errors else state, True

    def prepare(self, state: OffsetState, decision: Changed, *, lost_races: int) -> _OffsetDraft:
        self._is_current = False
        log, clock = self.log, self.log.clock
        syncs_late = self._sync and lost_races >= _LOSSES_BEFORE_SYNCING_LATE and _is_unsynced(self._winner)
        sync = self._sync and not syncs_late
        if sync:
            state = synced(log, state)  # for the draft: the loop goes on with another one
        elif syncs_late:
            _check_nothing_is_torn(log, state)
        began = clock.ticks_ms()
        data = encode_rows(decision.rows)
        file = LiveFile(path=new_offset_file(state.position.version + 1), size_bytes=len(data))
        uploaded = clock.ticks_ms()
        self.retry_until_deadline(lambda: log.store.put(object_path(log.table, file.path), data, sync=sync))
        waits_since = clock.ticks_ms()
        self._before_commit()
        began += clock.ticks_ms() - waits_since  # for others' commits no round trip took so long
        transaction = SetTransaction(app_id=self._writer, version=self._number, last_updated_ms=clock.now_ms())
        return _OffsetDraft(
            log,
            state,
            file,
            decision.rows,
            transaction,
            began_ticks_ms=began,
            sync=sync,
            syncs_late=syncs_late,
            confirm=partial(self._confirmation.confirm, [file.path], lambda _: uploaded),
        )

    def replace_uploads(self, gone: UploadsGoneError) -> None:
        """Each attempt uploads a file of its own."""

    def settle(self, lost: PositionLost) -> tuple[OffsetState, bool]:
        """Rows don't name their writer: the number of this writer's ``txn`` action does."""
        stalled_ms = self.log.clock.ticks_ms() - self._began
        if stalled_ms >= _WRITER_REMEMBERED_MS:  # its absence would prove nothing any more
            raise CommitStateUnknownError(
                f"whether {lost} was created is unknown: the commit stalled for {stalled_ms / 86_400_000:.1f} days"
            )
        state, transactions = self.load_unsettled(lost, self._load_whole)
        own = transactions.get(self._writer)
        if own is None or own.version != self._number:
            return state, False
        return _synced_late(self.log, state) if self._sync else state, True

    def apply_winner(self, state: OffsetState, winner: Entry, *, catches_up: bool) -> OffsetState:
        self._winner = winner
        if catches_up:
            return state
        position = advance(state.position, version=winner.version, token=winner.token)
        return follow(self.log, state, winner, position)

    def catch_up(self, state: OffsetState) -> OffsetState:
        return catch_up(self.log, state, beyond=self._winner)

    def load(self) -> OffsetState:
        return load_state(self.log) if self._known is None else load_again(self.log, self._known)

    def _load_whole(self) -> tuple[OffsetState, Mapping[str, SetTransaction]]:
        state, transactions = load_whole(self.log)
        if self._known is not None:
            check_follows(self.log, self._known, state.position)
        return state, transactions


class _OffsetDraft(Draft[OffsetState]):
    """A commit to an offset table that waits for its token."""

    def __init__(
        self,
        log: DeltaLog,
        state: OffsetState,
        file: LiveFile,
        rows: Rows,
        transaction: SetTransaction,
        *,
        began_ticks_ms: float,
        sync: bool,
        syncs_late: bool,
        confirm: Callable[..., None],
    ) -> None:
        self._confirm = confirm
        self.began_ticks_ms = began_ticks_ms
        self.sync = sync
        self._log = log
        self._syncs_late = syncs_late
        self._unsynced_since = 0 if state.unsynced_since is None else state.unsynced_since
        self._file = file
        self._rows = rows
        self._now_ms = now_ms = transaction.last_updated_ms
        self._operation = "WRITE" if state.position.version != NO_TABLE else "CREATE OFFSET TABLE"
        self._actions: list[Action] = [
            *(_new_table(now_ms) if state.position.version == NO_TABLE else ()),
            transaction,
            *(
                RemoveFile(path=gone.path, deletion_ms=_ALREADY_EXPIRED_MS, size_bytes=gone.size_bytes)
                for gone in state.live
            ),
            AddFile(
                path=file.path,
                partition_values={},
                size_bytes=file.size_bytes,
                modification_ms=now_ms,
                stats={"numRecords": len(rows)},
            ),
        ]

    def confirm(self, checked_ticks_ms: float) -> None:
        self._confirm(checked_ticks_ms=checked_ticks_ms)

    def encode(self, token: str) -> bytes:
        committed_count = sum(row.committed is not None for row in self._rows.values())
        info = {FORMAT_INFO: FORMAT_VERSION, COMMITTED_INFO: committed_count}
        if not self.sync:
            info[UNSYNCED_INFO] = self._unsynced_since
        return encode_entry(
            actions=self._actions,
            token=token,
            info=info,
            operation=self._operation,
            blind_append=False,
            timestamp_ms=self._now_ms,
            version=__version__,
        )

    def apply_to(self, state: OffsetState, position: Position) -> OffsetState:
        since = position.version + 1 if self.sync else self._unsynced_since
        unread = range(0) if self.sync else state.unread
        state = replace(
            state, position=position, rows=self._rows, live=(self._file,), unsynced_since=since, unread=unread
        )
        return _synced_late(self._log, state) if self._syncs_late else state


def _new_table(now_ms: int) -> tuple[Action, ...]:
    return (
        Protocol(min_reader_version=READER_VERSION, min_writer_version=WRITER_VERSION),
        Metadata(
            table_id=str(uuid.uuid4()),
            schema_string=SCHEMA_STRING,
            partition_columns=(),
            configuration=table_properties(),
            created_ms=now_ms,
        ),
    )


def _decide_changes(rows: Rows, changes: Sequence[Change], *, now_ms: int) -> Changed:
    errors: list[SparklogError | None] = []
    for change in changes:
        try:
            rows = change.apply(rows, now_ms)
            errors.append(None)
        except SparklogError as error:  # the caller's to see, in its place
            errors.append(error)
    return Changed(errors=tuple(errors), rows=rows)


def _is_unsynced(entry: Entry | None) -> bool:
    return entry is not None and entry.info is not None and UNSYNCED_INFO in entry.info


def synced(log: DeltaLog, state: OffsetState) -> OffsetState:
    """The state, once what it was read from survives a power loss (rule L9, fsync).

    Raises:
        CorruptLogError: a power loss has left an entry in part; names it.
        StoreError.
    """
    _check_nothing_is_torn(log, state)
    sync_unsynced(log, state.unsynced(log))
    return replace(state, unsynced_since=state.position.version + 1, unread=range(0))


def _synced_late(log: DeltaLog, state: OffsetState) -> OffsetState:
    """The same of what is committed already. Raises ``CommitStateUnknownError``."""
    return sync_committed(log, state.position.version, partial(synced, log, state))


def _check_nothing_is_torn(log: DeltaLog, state: OffsetState) -> None:
    """A power loss may have left an entry that was created without fsync without its bytes: nothing is acknowledged
    behind it, or it would go with the entry as that is cleared away. What is cleaned meanwhile isn't missed.

    Raises:
        CorruptLogError: names the entry.
    """
    if state.unread and log.store.may_tear:
        log.read_raw_entries(state.unread)
