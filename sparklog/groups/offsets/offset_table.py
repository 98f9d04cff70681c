"""A group's offset table: one small Delta table whose single live file holds all that the group has committed.

A commit reads nothing while nobody else commits: it uploads one file with all rows and creates the next version, which
removes the file before it and adds the new one. Whoever loses the race reads the winner's file, decides again and
uploads anew (rule L4). Names and sweeping: :mod:`sparklog.groups.offsets.offset_files`.

**Which answers are true.** A change is decided on rows of version v. If the create of v + 1 succeeds, v was the newest
version until then, so all that was decided with it is true: what was carried out, and what was refused beside it. If
nothing is to be written, there is no create to prove it. Then what is known may be old, and both "refused" and "done
already" could be wrong: what fences a commit may have been deleted, what is done already may have been undone. So
nothing is told but from rows that were read after the call began.

**Lost answers** are settled by who holds the name (rule L2). Where even that can't be found out, because the caller
slept until cleanup had deleted the version it stood on, rows don't tell whose they are; and to do a change again that
was done already could take back what others committed in between. So each commit carries a Delta ``txn`` action with
this table object's random id and a number: after the reload the number says whether the commit is in the table.
"""

from __future__ import annotations

import logging
import random
import secrets
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from sparklog._version import __version__
from sparklog.delta.actions import Action, AddFile, Entry, Metadata, Protocol, RemoveFile, SetTransaction, encode_entry
from sparklog.delta.checkpoint import checkpoint_due
from sparklog.delta.log import DeltaLog
from sparklog.delta.snapshot import READER_VERSION, WRITER_VERSION
from sparklog.errors import CommitStateUnknownError, KafkaTimeoutError, SparklogError, StoreError
from sparklog.groups.offsets.changes import Change
from sparklog.groups.offsets.offset_files import (
    FORMAT_VERSION,
    SCHEMA_STRING,
    encode_rows,
    new_offset_file,
    table_properties,
)
from sparklog.groups.offsets.offset_maintenance import maintain_offsets
from sparklog.groups.offsets.offset_state import (
    COMMITTED_INFO,
    FORMAT_INFO,
    NO_TABLE,
    LiveFile,
    OffsetState,
    catch_up,
    load_state,
    load_whole,
    offset_log,
    state_of,
)
from sparklog.groups.offsets.rows import Rows
from sparklog.log.background import Background
from sparklog.log.cluster import Cluster
from sparklog.log.data.record_reading import object_path
from sparklog.storage.entry_log import PositionLost, Taken
from sparklog.storage.position import advance, needs_verification
from sparklog.storage.retrying import retry

__all__ = ["Changed", "OffsetTable"]

_LOGGER = logging.getLogger(__name__)
_LOSSES_BEFORE_YIELDING = 2
_MAX_YIELD_ROUND_TRIPS = 16
_LONGEST_ROUND_TRIP_MS = 1_000.0
"""A commit that took longer was a stall, not a round trip: nobody is to wait for as long again."""
_WRITER_REMEMBERED_MS = 604_800_000
"""Seven days: for so long at least a ``txn`` action stays in the table (rule L7)."""
_ALREADY_EXPIRED_MS = 0
"""As a file's time of deletion. Delta's checkpoints carry the names of deleted files for a week, so that VACUUM keeps
the files; one for every commit of a week would make each checkpoint huge, and these files live for an hour. A VACUUM
may so delete a replaced file sooner, which readers bear; files that aren't committed yet it judges by their age."""

_MAX_DELAY_MS = 500.0
"""Before maintenance, so that several writers don't do it at once."""
_SWEEP_EVERY_MS = 600_000
"""Between two sweeps by one object: each lists all that is left of an hour's commits."""
_MAINTENANCE_REST = 20
"""After maintenance an object rests for so many times as long as it took: it takes a small part of the time …"""
_MAX_LATE_VERSIONS = 1_000
"""… but for no more than so many versions."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """How changes ended."""

    errors: tuple[SparklogError | None, ...]
    """Of each change, in their order: why it was refused; None where it was carried out or was done already."""
    rows: Rows
    """All rows, with what was carried out."""


class OffsetTable:
    """The offsets of one group, as one thread reads and changes them. Several, anywhere, may be at work on one group.

    Costs, whatever the table's age: a change is one PUT and one create while nobody else commits; ``fetch`` is one GET
    where nothing is new.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        """Reads nothing yet. Raises ``InvalidArgumentError`` for a name that no group may have."""
        self.group = group
        self._writer = f"sparklog.writer.{secrets.token_hex(8)}"
        """The appId of this object's ``txn`` actions."""
        self._log = offset_log(cluster, group)
        self._state: OffsetState | None = None
        self._commit_number = 0
        self._pause_until_ticks_ms = 0.0
        self._checkpoint_version = -1
        self._maintenance_due_at: int | None = None
        self._background = Background("sparklog-maintenance")
        self._rest_until_ticks_ms = 0.0
        self._swept_ticks_ms: float | None = None

    @property
    def log(self) -> DeltaLog:
        """The table's log."""
        return self._log

    def fetch(self) -> Rows:
        """The rows as of now. A table that isn't there has none, and isn't created.

        Raises:
            CorruptLogError: what is there, perhaps by another engine, makes no sense; the message says what.
            UnsupportedVersionError, StoreError.
        """
        self._state = self._as_of_now(self._state)
        return self._state.rows

    def change(
        self,
        changes: Sequence[Change],
        *,
        deadline_ticks_ms: float,
        before_commit: Callable[[], object] = lambda: None,
    ) -> Changed:
        """Carry out ``changes``, one after the other, in one commit that is durable when this returns.

        One that is refused doesn't hinder the others. The table is created when it isn't there. Where nothing is to be
        written, nothing is.

        Args:
            deadline_ticks_ms: on the cluster's clock; a commit that won is success however late.
            before_commit: called between the upload and the create that makes it count, before each attempt; may wait.
                What it raises is raised, and nothing was changed unless by an earlier attempt.
        Raises:
            KafkaTimeoutError: the deadline passed; nothing was and nothing will be changed.
            CommitStateUnknownError: not settled in time; the changes may be carried out, together and once.
            CorruptLogError, UnsupportedVersionError, StoreError: as :meth:`fetch`; nothing was changed.
        """
        clock = self._log.clock
        self._commit_number += 1  # a number is never given to other changes, whatever became of these (rule L2)
        work = _Work(
            self._log,
            deadline_ticks_ms=deadline_ticks_ms,
            writer=self._writer,
            number=self._commit_number,
            before_commit=before_commit,
        )
        pause_ms = min(self._pause_until_ticks_ms, deadline_ticks_ms) - clock.ticks_ms()
        if pause_ms > 0:  # rule L11: others may have the next version
            clock.sleep_ms(pause_ms)
        state, is_current = self._state, False
        if state is None or _is_stale(self._log, state):
            state, is_current = work.patiently(partial(self._as_of_now, state)), True
        while work.errors is None:
            decided = _decide(state.rows, changes, now_ms=clock.now_ms())
            if decided.rows is not state.rows:
                state, is_current = work.commit(state, decided), False
            elif is_current:
                self._state = _made_durable(self._log, state) if None in decided.errors else state
                return decided
            else:
                state, is_current = work.patiently(partial(self._as_of_now, state)), True
        self._state = state
        self._after_commit(work, state)
        return Changed(errors=work.errors, rows=state.rows)

    @property
    def maintenance_due(self) -> bool:
        """Did a commit of this object make a checkpoint due? Then somebody should call :meth:`maintain`."""
        return self._maintenance_due_at is not None

    def maintain(self) -> None:
        """Write a checkpoint, delete what was replaced an hour ago and log entries older than a day, if still due.

        May run in another thread, beside the owner's calls. An error is logged, and all of it done when it is due the
        next time: until then, opening the table behind another engine's commit is slower, and space is wasted.
        """
        version, self._maintenance_due_at = self._maintenance_due_at, None
        if version is None:
            return
        clock = self._log.clock
        clock.sleep_ms(random.uniform(0, _MAX_DELAY_MS))  # noqa: S311 - spreads writers (rule L11), no secret
        began = clock.ticks_ms()
        sweeps = self._swept_ticks_ms is None or began - self._swept_ticks_ms >= _SWEEP_EVERY_MS
        try:
            done = maintain_offsets(self._log, version, sweeps=sweeps)
            self._checkpoint_version = max(self._checkpoint_version, done)
            if sweeps:
                self._swept_ticks_ms = clock.ticks_ms()
        except Exception as error:  # also deltalake's, which have no common class: commits don't depend on any of it
            _LOGGER.warning("maintenance of %s failed, it is tried again later: %s", self._log.table, error)
        ended = clock.ticks_ms()
        self._rest_until_ticks_ms = max(self._rest_until_ticks_ms, ended + _MAINTENANCE_REST * (ended - began))
        self._maintenance_due_at = None  # what commits beside it found due by the older checkpoint, the next one judges

    def maintain_aside(self) -> None:
        """As :meth:`maintain`, if it is due, in a thread of its own, one at a time: no commit waits for it;
        :meth:`close` waits for it."""
        if self.maintenance_due:
            self._background.start(self.maintain)

    def close(self, timeout_ms: float = 60_000) -> bool:
        """Wait for maintenance that is under way: a process that exits in the middle of it may crash. True: it has
        ended, or there is none."""
        return self._background.close(timeout_ms)

    def _as_of_now(self, state: OffsetState | None) -> OffsetState:
        return load_state(self._log) if state is None else catch_up(self._log, state)

    def _after_commit(self, work: _Work, state: OffsetState) -> None:
        if work.lost_races:
            self._pause_until_ticks_ms = self._log.clock.ticks_ms() + work.round_trip_ms
        self._checkpoint_version = max(self._checkpoint_version, state.checkpoint_version)
        version = state.position.version
        is_resting = self._log.clock.ticks_ms() < self._rest_until_ticks_ms
        if is_resting and version - self._checkpoint_version < _MAX_LATE_VERSIONS:
            return
        if checkpoint_due(version=version, checkpoint_version=self._checkpoint_version, live_file_count=1):
            self._maintenance_due_at = version


class _Work:
    """One call of ``change`` on its way."""

    def __init__(
        self,
        log: DeltaLog,
        *,
        deadline_ticks_ms: float,
        writer: str,
        number: int,
        before_commit: Callable[[], object],
    ) -> None:
        self.lost_races = 0
        self.round_trip_ms = 0.0
        """How long the last upload and create took."""
        self.errors: tuple[SparklogError | None, ...] | None = None
        """How the changes ended, once they are in the table."""
        self._log = log
        self._writer = writer
        self._number = number
        self._deadline = deadline_ticks_ms
        self._before_commit = before_commit
        self._began = log.clock.ticks_ms()
        self._tokens: set[str] = set()

    def commit(self, state: OffsetState, decided: Changed) -> OffsetState:
        """Try to commit what was decided on ``state``; ``errors`` tells whether it is in the table. Returns what is
        known afterwards."""
        log, clock = self._log, self._log.clock
        if state.unwritable is not None:
            raise state.unwritable.with_traceback(None)
        if self.lost_races and clock.ticks_ms() >= self._deadline:
            raise KafkaTimeoutError(
                f"timed out after losing {self.lost_races} races for the next version of {log.table}"
            )
        state = _made_durable(log, state)
        began = clock.ticks_ms()
        version, data = state.position.version + 1, encode_rows(decided.rows)
        file = LiveFile(path=new_offset_file(version), size_bytes=len(data))
        self.patiently(lambda: log.store.put(object_path(log.table, file.path), data, sync=True))
        waits_since = clock.ticks_ms()
        self._before_commit()
        began += clock.ticks_ms() - waits_since  # for others' commits no round trip took so long
        entry = _Entry(state, file, decided.rows, log=log, writer=self._writer, number=self._number)
        try:
            outcome = log.create_next(
                state.position, entry.encode, tokens=self._tokens, deadline_ticks_ms=self._deadline, sync=True
            )
        except PositionLost as lost:
            self.lost_races += 1
            return self._settle(lost, decided)
        self.round_trip_ms = min(clock.ticks_ms() - began, _LONGEST_ROUND_TRIP_MS)
        if isinstance(outcome, Taken):
            self.lost_races += 1
            return self._after_loss(state, outcome.entry)
        self.errors = decided.errors
        return replace(state, position=outcome.position, rows=decided.rows, live=(file,))

    def _after_loss(self, state: OffsetState, winner: Entry) -> OffsetState:
        log, clock = self._log, self._log.clock
        if self.lost_races < _LOSSES_BEFORE_YIELDING:
            position = advance(state.position, version=winner.version, token=winner.token)
            return self.patiently(partial(state_of, log, winner, position, checkpoint_version=state.checkpoint_version))
        # Several writers that all try again at once lose as often as there are others (rule L11).
        patient_ms = max(0.0, self._deadline - clock.ticks_ms())
        wait_ms = min(self.round_trip_ms * min(self.lost_races, _MAX_YIELD_ROUND_TRIPS), patient_ms)
        clock.sleep_ms(random.uniform(0, wait_ms))  # noqa: S311 - spreads writers, no secret
        return self.patiently(partial(catch_up, log, state, beyond=winner))

    def patiently(self, call: Callable[[], T]) -> T:
        """Repeat ``call`` on retriable store errors until the deadline: no entry of ours is under way meanwhile."""
        try:
            return retry(call, clock=self._log.clock, deadline_ticks_ms=self._deadline)
        except StoreError as error:
            if not error.retriable:
                raise
            raise KafkaTimeoutError(f"timed out while reading or writing {self._log.table}: {error}") from error

    def _settle(self, lost: PositionLost, decided: Changed) -> OffsetState:
        """Find out whether a commit whose base is gone is in the table. Its name was taken when we last looked, so if
        it isn't there by now, it won't be."""
        log = self._log
        stalled_ms = log.clock.ticks_ms() - self._began
        if stalled_ms >= _WRITER_REMEMBERED_MS:  # its absence would prove nothing any more
            raise CommitStateUnknownError(
                f"whether {lost} was created is unknown: the commit stalled for {stalled_ms / 86_400_000:.1f} days"
            )
        try:
            state, transactions = retry(lambda: load_whole(log), clock=log.clock, deadline_ticks_ms=self._deadline)
            own = transactions.get(self._writer)
            if own is None or own.version != self._number:
                return state
            self.errors = decided.errors
            return _made_durable(log, state)
        except SparklogError as error:
            raise CommitStateUnknownError(
                f"whether {lost} was created, and would survive a power loss, is unknown: {error}"
            ) from error


class _Entry:
    """A commit that waits for its token."""

    def __init__(
        self, state: OffsetState, file: LiveFile, rows: Rows, *, log: DeltaLog, writer: str, number: int
    ) -> None:
        self._committed_count = sum(row.committed is not None for row in rows.values())
        self._now_ms = now_ms = log.clock.now_ms()
        self._operation = "WRITE" if state.position.version != NO_TABLE else "CREATE OFFSET TABLE"
        self._actions: list[Action] = [
            *(_new_table(now_ms) if state.position.version == NO_TABLE else ()),
            SetTransaction(app_id=writer, version=number, last_updated_ms=now_ms),
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

    def encode(self, token: str) -> bytes:
        return encode_entry(
            actions=self._actions,
            token=token,
            info={FORMAT_INFO: FORMAT_VERSION, COMMITTED_INFO: self._committed_count},
            operation=self._operation,
            blind_append=False,
            timestamp_ms=self._now_ms,
            version=__version__,
        )


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


def _decide(rows: Rows, changes: Sequence[Change], *, now_ms: int) -> Changed:
    errors: list[SparklogError | None] = []
    for change in changes:
        try:
            rows = change.apply(rows, now_ms)
            errors.append(None)
        except SparklogError as error:  # the caller's to see, in its place
            errors.append(error)
    return Changed(errors=tuple(errors), rows=rows)


def _is_stale(log: DeltaLog, state: OffsetState) -> bool:
    """Would a commit on this state have to verify it, and perhaps find that it was cleaned away (rule L1)?"""
    return needs_verification(state.position, learned_ticks_ms=log.clock.ticks_ms(), tail_trust_ms=log.tail_trust_ms)


def _made_durable(log: DeltaLog, state: OffsetState) -> OffsetState:
    """Make what ``state`` was read from survive a power loss, before anything is built upon it or said of it (rule
    L9). Once: after a failed fsync the system may call the next one a success though the data is gone."""
    if state.unsynced is None:
        log.store.sync_all()
    elif state.unsynced:
        log.store.sync(state.unsynced)
    return replace(state, unsynced=())
