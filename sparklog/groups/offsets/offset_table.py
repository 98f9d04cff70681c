"""A group's offset table: one small Delta table whose single live file holds all that the group has committed.

A commit reads nothing while nobody else commits: it uploads one file with all rows and creates the next version, which
removes the file before it and adds the new one. Whoever loses the race reads the winner's file, decides again and
uploads anew (rule L4, decide again). Names and sweeping: :mod:`sparklog.groups.offsets.offset_files`.

**Which answers are true.** A change is decided on rows of version v. If the create of v + 1 succeeds, v was the newest
version until then, so all that was decided with it is true: what was carried out, and what was refused beside it. If
nothing is to be written, there is no create to prove it. Then what is known may be old, and both "refused" and "done
already" could be wrong: what fences a commit may have been deleted, what is done already may have been undone. So
answers come only from rows that were read after the call began.

**Lost answers** are settled by who holds the name (rule L2, unknown). Where even that can't be found out, because the
caller slept until cleanup had deleted the version it stood on, rows don't show whose they are; and to do a change again
that was done already could take back what others committed in between. So each commit carries a Delta ``txn`` action
with this table object's random id and a number: after the reload the number says whether the commit is in the table.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from sparklog.clock import Deadline
from sparklog.delta.checkpoint import checkpoint_due, found_cut
from sparklog.delta.commit import CommitResult, run_commit_loop
from sparklog.delta.log import DeltaLog
from sparklog.groups.offsets.changes import Change
from sparklog.groups.offsets.offset_commit import Changed, OffsetTarget
from sparklog.groups.offsets.offset_maintenance import maintain_offsets
from sparklog.groups.offsets.offset_state import OffsetState, catch_up, load_again, load_state, offset_log
from sparklog.groups.offsets.rows import Rows
from sparklog.log.cluster import Cluster
from sparklog.storage.position import needs_verification
from sparklog.workers import Background

__all__ = ["OffsetTable"]

_LOGGER = logging.getLogger(__name__)
_MAX_DELAY_MS = 500.0
"""Before maintenance, so that several writers don't do it at once."""
_SWEEP_EVERY_MS = 600_000
"""Between two sweeps by one object: each lists all that is left of an hour's commits."""
_MAINTENANCE_REST = 20
"""After maintenance an object rests for so many times as long as it took: it takes a small part of the time …"""
_MAX_LATE_VERSIONS = 1_000
"""… but for no more than so many versions."""


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
        self._background = Background("maintenance")
        self._closing = threading.Event()
        """Ends the wait before maintenance."""
        self._rest_until_ticks_ms = 0.0
        self._swept_ticks_ms: float | None = None
        self._is_cut = False
        """Did the newest maintenance find that nobody can open the table, and no look since that it is whole again?"""

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
        self._state = load_state(self._log) if self._state is None else catch_up(self._log, self._state)
        return self._state.rows

    def change(
        self,
        changes: Sequence[Change],
        *,
        deadline: Deadline,
        before_commit: Callable[[], object] = lambda: None,
        sync: bool = True,
    ) -> Changed:
        """Carry out ``changes``, one after the other, in one commit that is durable when this returns, unless ``sync``
        says otherwise.

        One that is refused doesn't hinder the others. The table is created when it isn't there. Where nothing is to be
        written, nothing is.

        Args:
            deadline: on the cluster's clock; a commit that won is success however late.
            before_commit: called between the upload and the create that makes it count, before each attempt; may wait.
                What it raises is raised, and nothing was changed unless by an earlier attempt.
            sync: False: a power loss may take the commit. Whoever commits behind it with fsync flushes it before (rule
                L9, fsync).
        Raises:
            KafkaTimeoutError: the deadline passed; nothing was and nothing will be changed.
            CommitStateUnknownError: not settled in time; the changes may be carried out, together and once.
            CorruptLogError, UnsupportedVersionError, StoreError: as :meth:`fetch`; nothing was changed.
        """
        clock = self._log.clock
        self._commit_number += 1  # a number is never given to other changes, whatever became of them (rule L2, unknown)
        target = OffsetTarget(
            self._log,
            changes,
            deadline=deadline,
            writer=self._writer,
            number=self._commit_number,
            before_commit=before_commit,
            sync=sync,
        )
        pause_ms = min(self._pause_until_ticks_ms, deadline.ticks_ms) - clock.ticks_ms()
        if pause_ms > 0:  # rule L11, fairness: others may have the next version
            clock.sleep_ms(pause_ms)
        state = self._state
        if state is not None and self._is_cut:
            state = self._state = target.retry_until_deadline(partial(load_again, self._log, state.position))
            self._is_cut = False
        if state is None or _is_stale(self._log, state):
            state = target.read_current(state)
        done = run_commit_loop(target, state)
        self._state = done.state
        if done.commit is None:
            return target.decided
        self._after_commit(done)
        return replace(done.commit, rows=done.state.rows)

    @property
    def maintenance_due(self) -> bool:
        """Did a commit of this object make a checkpoint due? Then somebody should call :meth:`maintain`."""
        return self._maintenance_due_at is not None

    def maintain(self, *, is_aside: bool = False) -> None:
        """Write a checkpoint, delete what was replaced an hour ago and log entries older than a day, if still due.

        May run in another thread, beside the owner's calls. An error is logged, and all of it done when it is due the
        next time: until then, opening the table behind another engine's commit is slower, and space is wasted.

        Args:
            is_aside: whoever waits for it is :meth:`close`, which lets it begin at once.
        """
        version, self._maintenance_due_at = self._maintenance_due_at, None
        if version is None:
            return
        clock = self._log.clock
        delay_ms = random.uniform(0, _MAX_DELAY_MS)  # noqa: S311 - spreads writers (rule L11, fairness), no secret
        if is_aside:
            self._closing.wait(delay_ms / 1000)
        else:
            clock.sleep_ms(delay_ms)
        began = clock.ticks_ms()
        sweeps = self._swept_ticks_ms is None or began - self._swept_ticks_ms >= _SWEEP_EVERY_MS
        try:
            done = maintain_offsets(self._log, version, sweeps=sweeps)
            self._checkpoint_version = max(self._checkpoint_version, done)
            if sweeps:
                self._swept_ticks_ms = clock.ticks_ms()
        except Exception as error:  # also deltalake's, which have no common class: commits don't depend on any of it
            self._is_cut = self._is_cut or found_cut(self._log, version, error)
            _LOGGER.warning("maintenance of %s failed, it is tried again later: %s", self._log.table, error)
        ended = clock.ticks_ms()
        self._rest_until_ticks_ms = max(self._rest_until_ticks_ms, ended + _MAINTENANCE_REST * (ended - began))
        self._maintenance_due_at = None  # what commits beside it found due by the older checkpoint, the next one judges

    def maintain_aside(self) -> None:
        """Run :meth:`maintain`, if it is due, in a thread of its own, one at a time: no commit waits for it;
        :meth:`close` waits for it."""
        if self.maintenance_due:
            self._background.start(partial(self.maintain, is_aside=True))

    def close(self, timeout_ms: float = 60_000) -> bool:
        """Wait for maintenance that is under way: a process that exits in the middle of it may crash. True: it has
        ended, or there is none."""
        self._closing.set()
        return self._background.close(timeout_ms)

    def _after_commit(self, done: CommitResult[OffsetState, Changed]) -> None:
        state = done.state
        if done.lost_races:
            self._pause_until_ticks_ms = self._log.clock.ticks_ms() + done.round_trip_ms
        self._checkpoint_version = max(self._checkpoint_version, state.checkpoint_version)
        version = state.position.version
        is_resting = self._log.clock.ticks_ms() < self._rest_until_ticks_ms
        if is_resting and version - self._checkpoint_version < _MAX_LATE_VERSIONS:
            return
        if checkpoint_due(version=version, checkpoint_version=self._checkpoint_version, live_file_count=1):
            self._maintenance_due_at = version


def _is_stale(log: DeltaLog, state: OffsetState) -> bool:
    """Would a commit on this state have to verify it, and perhaps find that it was cleaned away (rule L1, trust)?"""
    return needs_verification(state.position, learned_ticks_ms=log.clock.ticks_ms(), tail_trust_ms=log.tail_trust_ms)
