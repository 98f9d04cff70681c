"""A thread that reads and changes a group's offset table: what waits is carried out in order, in one commit."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sparklog.clock import Clock, Deadline
from sparklog.errors import (
    CommitStateUnknownError,
    IllegalStateError,
    KafkaTimeoutError,
    SparklogError,
    UnstableOffsetCommitError,
)
from sparklog.groups.offsets.changes import Change, CommitUnowned, TakePartitions
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.pending import Deciding, pending_deciders, settle_pending, stable_rows
from sparklog.groups.offsets.rows import CommittedPartitions, Decider, Rows
from sparklog.interrupts import uninterrupted
from sparklog.log import Cluster
from sparklog.model import TopicPartition
from sparklog.storage.retrying import Patience
from sparklog.workers import Worker, error_for_another_thread

__all__ = ["OffsetCommitThread"]


Again = Callable[[SparklogError], "Change | None"]
"""Called in the commit thread with why a change was refused; may do I/O. Gives the change that is to be tried now, or
None where the refusal stands; may raise another error in place of the refusal. Gives up by itself some time."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Job:
    make: Callable[[], Change | None]
    """Called in the commit thread, may do I/O; None: the rows as of now are all that is wanted."""
    again: Again = lambda _: None
    deadline: Deadline
    partitions: Collection[TopicPartition] = ()
    """Offsets of these that transactions left pending are settled, or looked into."""
    waits: bool = False
    """Does a reader fail where a transaction may still change a row?"""
    future: Future[Rows] = field(default_factory=Future)


class _Refused(NamedTuple):
    job: _Job
    change: Change
    refusal: SparklogError


class OffsetCommitThread:
    """Carries out changes of a group's offsets, first come, first served. Any thread may call it.

    A heartbeat never waits for an offset table, nor does an application that commits without waiting.

    Args:
        deciding: of transactions that left offsets pending.
        notify: called, without a lock, whenever something was done.
    """

    def __init__(
        self, cluster: Cluster, group: str, deciding: Deciding, *, notify: Callable[[], None] = lambda: None
    ) -> None:
        self._deciding = deciding
        self._table = OffsetTable(cluster, group)
        self._store = cluster.store
        self._clock: Clock = cluster.clock
        self._notify = notify
        self._lock = threading.RLock()
        """Taken as it is: ``with`` a condition, an interrupt could leave it held."""
        self._condition = threading.Condition(self._lock)
        self._jobs: deque[_Job] = deque()
        self._is_stopped = False
        self._worker: Worker | None = None

    def change(
        self, change: Change | Callable[[], Change], *, timeout_ms: float, again: Again = lambda _: None
    ) -> Future[Rows]:
        """Have ``change`` carried out; the future has the rows afterwards.

        Args:
            change: or a function that makes it, in the commit thread, when its turn has come.
            timeout_ms: if its turn hasn't come by then it is never carried out, and the future has a
                ``KafkaTimeoutError``. What has begun goes on for as long as the most patient of the changes that are
                carried out with it.
            again: what to try in place of a change that was refused.
        """
        return self._submit(change if callable(change) else lambda: change, timeout_ms, again=again)

    def take(self, change: TakePartitions, *, timeout_ms: float) -> Future[Rows]:
        """Take partitions as :meth:`change` does; then have every transaction decided that left offsets of these
        partitions pending, and its records put into their topics; only then the partitions can be read (rule T2,
        hand-over). May be repeated."""
        return self._submit(lambda: change, timeout_ms, partitions=change.topic_ids.keys())

    def fetch(self, partitions: Collection[TopicPartition], *, timeout_ms: float, waits: bool = False) -> Future[Rows]:
        """Read the rows as they are once all is done that was asked for before.

        Args:
            partitions: what is decided, but not settled yet, counts for these, once its records are in their topics.
            waits: where a transaction may still change one, the future has an ``UnstableOffsetCommitError``.
        """
        return self._submit(lambda: None, timeout_ms, partitions=partitions, waits=waits)

    def withdraw(self, future: Future[Rows]) -> bool:
        """Take back what was asked for, if its turn hasn't come. True: it will never be carried out, and its future has
        a ``KafkaTimeoutError``. False: it has begun, and may be done."""
        with self._lock:
            job = next((job for job in self._jobs if job.future is future), None)
            if job is None:
                return False
            self._jobs.remove(job)
        job.future.set_exception(self._given_up("it was withdrawn before its turn"))
        return True

    def stop(self) -> None:
        """End once all that was asked for is done."""
        with self._lock:
            self._is_stopped = True
            self._condition.notify()

    def join(self, timeout_s: float) -> bool:
        """Wait until the thread has ended after it was stopped, and maintenance that it began. True: they have."""
        if self._worker is None:
            return True
        deadline = time.monotonic() + timeout_s
        has_ended = self._worker.join(timeout_s)
        return has_ended and self._table.close(1_000 * max(0.0, deadline - time.monotonic()))

    def _submit(
        self,
        make: Callable[[], Change | None],
        timeout_ms: float,
        *,
        partitions: Collection[TopicPartition] = (),
        waits: bool = False,
        again: Again = lambda _: None,
    ) -> Future[Rows]:
        deadline = self._clock.deadline_in(timeout_ms)
        job = _Job(make=make, again=again, deadline=deadline, partitions=partitions, waits=waits)
        job.future.set_running_or_notify_cancel()  # what others may have built upon can't be cancelled
        if self._worker is None and not self._is_stopped:
            uninterrupted(self._start)
        with self._lock:
            if self._is_stopped:
                raise IllegalStateError("this consumer is closed")
            self._condition.notify()
            self._jobs.append(job)
        return job.future

    def _given_up(self, why: str) -> KafkaTimeoutError:
        return KafkaTimeoutError(
            f"offsets of group {self._table.group!r} were neither read nor changed, and won't be: {why}; others before "
            "it took longer"
        )

    def _start(self) -> None:
        with self._lock:
            if self._worker is None:
                worker = Worker("offsets", self._run)
                worker.start()
                self._worker = worker

    def _run(self) -> None:
        try:
            while jobs := self._next_jobs():
                try:
                    self._carry_out(jobs)
                except BaseException as error:  # a defect, or a library's panic: who waits for the others goes on
                    self._give_up(jobs, error)
                self._notify()
                self._table.maintain_aside()  # what waits here goes on at once
        except BaseException:
            self._worker = None  # the next call begins anew
            raise

    def _next_jobs(self) -> Sequence[_Job]:
        """Wait for what is asked for; empty: it was stopped."""
        with self._lock:
            while not (self._jobs or self._is_stopped):
                self._condition.wait()
            jobs = [*self._jobs]
            self._jobs.clear()
            return jobs

    def _give_up(self, jobs: Sequence[_Job], error: BaseException) -> None:
        """End jobs of which it isn't known how far they came."""
        for job in jobs:
            if not job.future.done():
                unknown = CommitStateUnknownError(
                    f"offsets of group {self._table.group!r}: it isn't known whether they were changed: {error!r}"
                )
                unknown.__cause__ = error_for_another_thread(error)
                job.future.set_exception(unknown)

    def _carry_out(self, jobs: Sequence[_Job]) -> None:
        # Together they take as long as the most patient of them; whoever waits for one knows its own bound.
        deadline = max((job.deadline for job in jobs), key=lambda deadline: deadline.ticks_ms)
        with self._store.patience(Patience(deadline=deadline)):
            made: list[tuple[_Job, Change]] = []
            readers: list[_Job] = []
            for job in jobs:
                try:
                    if self._clock.ticks_ms() > job.deadline.ticks_ms:
                        raise self._given_up("it wasn't its turn in time")
                    change = job.make()
                except Exception as error:
                    job.future.set_exception(error)
                    continue
                if change is None:
                    readers.append(job)
                else:
                    made.append((job, change))
            rows: Rows | None = None
            if made:
                rows = self._change(made, deadline)
            for job in readers:
                try:
                    job.future.set_result(self._read(job, self._table.fetch() if rows is None else rows))
                except Exception as error:
                    job.future.set_exception(error)

    def _read(self, job: _Job, rows: Rows) -> Rows:
        """The rows for a reader, which ends a transaction whose producer died: it would wait for it for ever."""

        def look(decider: Decider) -> CommittedPartitions | None:
            committed = self._deciding.finish(decider)
            if committed is None and job.waits and self._deciding.end_overdue(decider):
                committed = self._deciding.finish(decider)
            return committed

        now_ms = self._clock.now_ms()
        return stable_rows(self._table.group, rows, job.partitions, look, now_ms=now_ms, waits=job.waits)

    def _change(self, made: Sequence[tuple[_Job, Change]], deadline: Deadline) -> Rows | None:
        """Carry out changes, each of those refused once more as its ``again`` says, until none is left.

        Returns:
            The rows afterwards, if they are known to be of now.
        """
        refused, rows = self._try(made, deadline)
        final: list[_Refused] = []
        while refused:
            again: list[tuple[_Job, Change]] = []
            for each in refused:
                try:
                    other = each.job.again(each.refusal)
                except Exception as error:
                    each.job.future.set_exception(error)
                    continue
                if other is None:
                    final.append(each)
                else:
                    again.append((each.job, other))
            refused, rows = self._try(again, deadline) if again else ([], rows)
        unstable: list[_Refused] = []
        for each in final:
            if isinstance(each.refusal, UnstableOffsetCommitError):
                unstable.append(each)
            else:
                each.job.future.set_exception(each.refusal)
        return self._change_stable(unstable, made, rows, deadline) if unstable else rows

    def _try(self, made: Sequence[tuple[_Job, Change]], deadline: Deadline) -> tuple[list[_Refused], Rows | None]:
        """Carry out changes in one commit.

        The future of each that was carried out has its result at once, whatever becomes of the others.

        Returns:
            Those that were refused, and the rows afterwards, if they are known.
        """
        try:
            changed = self._table.change([change for _, change in made], deadline=deadline)
        except Exception as error:
            for job, _ in made:
                job.future.set_exception(error)
            return [], None
        refused: list[_Refused] = []
        for (job, change), refusal in zip(made, changed.errors, strict=True):
            if refusal is None:
                self._finish(job, changed.rows, deadline)
            else:
                refused.append(_Refused(job, change, refusal))
        return refused, changed.rows

    def _finish(self, job: _Job, rows: Rows, deadline: Deadline) -> None:
        try:
            if pending_deciders(rows, job.partitions):
                decide = self._deciding.decide
                rows = settle_pending(self._table, rows, job.partitions, decide, deadline=deadline)
            job.future.set_result(rows)
        except Exception as error:
            job.future.set_exception(error)

    def _change_stable(
        self, unstable: Sequence[_Refused], made: Sequence[tuple[_Job, Change]], rows: Rows | None, deadline: Deadline
    ) -> Rows | None:
        """Have transactions decided that may still change the rows of refused changes, and repeat these changes.

        Args:
            made: all that was tried together, in the order in which it was asked for.
        """
        changes = [each.change for each in unstable if isinstance(each.change, CommitUnowned)]
        partitions = {partition for change in changes for partition in change.offsets}
        try:
            now = self._table.fetch() if rows is None else rows
            settle_pending(self._table, now, partitions, self._deciding.decide, deadline=deadline)
        except Exception as error:
            for each in unstable:
                each.job.future.set_exception(error)
            return None
        refused, rows = self._try([(each.job, _not_overtaken(each, made)) for each in unstable], deadline)
        for each in refused:
            each.job.future.set_exception(each.refusal)
        return rows


def _not_overtaken(refused: _Refused, made: Sequence[tuple[_Job, Change]]) -> Change:
    """The part of a refused change that is to be repeated: a partition's offset that a later commit has set meanwhile
    stays."""
    change = refused.change
    if not isinstance(change, CommitUnowned):
        return change
    later = made[[job for job, _ in made].index(refused.job) + 1 :]
    overtaken = {
        partition
        for job, other in later
        if isinstance(other, CommitUnowned) and job.future.done() and job.future.exception() is None
        for partition in other.offsets
    }
    return replace(change, offsets={p: offset for p, offset in change.offsets.items() if p not in overtaken})
