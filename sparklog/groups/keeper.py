"""A consumer's offset table, kept by a thread of its own: what waits is carried out in order, in one commit."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from sparklog.clock import Clock
from sparklog.errors import IllegalStateError, KafkaTimeoutError
from sparklog.groups.changes import Change
from sparklog.groups.offset_table import OffsetTable
from sparklog.groups.rows import Rows
from sparklog.log import Cluster
from sparklog.storage.retrying import Patience

__all__ = ["OffsetKeeper"]

_LOGGER = logging.getLogger("sparklog.groups")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    make: Callable[[], Change | None]
    """Called in the keeper's thread, may do I/O; None: the rows as of now are all that is wanted."""
    deadline_ticks_ms: float
    future: Future[Rows] = field(default_factory=Future)


class OffsetKeeper:
    """Carries out changes of a group's offsets, first come, first served. Any thread may call it.

    A heartbeat never waits for an offset table, nor does an application that commits without waiting.

    Args:
        tell: called, without a lock, whenever something was done.
    """

    def __init__(self, cluster: Cluster, group: str, *, tell: Callable[[], None] = lambda: None) -> None:
        self._table = OffsetTable(cluster, group)
        self._store = cluster.store
        self._clock: Clock = cluster.clock
        self._tell = tell
        self._condition = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def change(self, change: Change | Callable[[], Change], *, timeout_ms: float) -> Future[Rows]:
        """Have ``change`` carried out; the future has the rows afterwards.

        Args:
            change: or a function that makes it, in the keeper's thread, when its turn has come.
            timeout_ms: after which it is given up; the future then has a ``KafkaTimeoutError``.
        """
        return self._submit(change if callable(change) else lambda: change, timeout_ms)

    def fetch(self, *, timeout_ms: float) -> Future[Rows]:
        """The rows as they are once all is done that was asked for before."""
        return self._submit(lambda: None, timeout_ms)

    def stop(self) -> None:
        """End once all that was asked for is done."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify()

    def join(self, timeout_s: float) -> bool:
        """Wait until the thread has ended after it was stopped. True: it has, or never began."""
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _submit(self, make: Callable[[], Change | None], timeout_ms: float) -> Future[Rows]:
        job = _Job(make=make, deadline_ticks_ms=self._clock.ticks_ms() + timeout_ms)
        job.future.set_running_or_notify_cancel()  # what others may have built upon can't be cancelled
        with self._condition:
            if self._is_stopped:
                raise IllegalStateError("this consumer is closed")
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="sparklog-offsets", daemon=True)
                self._thread.start()
            self._condition.notify()
        return job.future

    def _run(self) -> None:
        while True:
            with self._condition:
                while not (self._jobs or self._is_stopped):
                    self._condition.wait()
                if not self._jobs:
                    return
                jobs = [*self._jobs]
                self._jobs.clear()
            self._carry_out(jobs)
            self._tell()
            if self._table.maintenance_due:
                self._table.maintain()

    def _carry_out(self, jobs: Sequence[_Job]) -> None:
        # Together they take as long as the most patient of them; whoever waits for one knows its own bound.
        deadline = max(job.deadline_ticks_ms for job in jobs)
        with self._store.patience(Patience(deadline_ticks_ms=deadline)):
            made: list[tuple[_Job, Change]] = []
            readers: list[_Job] = []
            for job in jobs:
                try:
                    if self._clock.ticks_ms() > job.deadline_ticks_ms:
                        raise KafkaTimeoutError("timed out before it was its turn at the offset table")
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
                    job.future.set_result(self._table.fetch() if rows is None else rows)
                except Exception as error:
                    job.future.set_exception(error)

    def _change(self, made: Sequence[tuple[_Job, Change]], deadline: float) -> Rows | None:
        """The rows afterwards, if they are known to be of now."""
        try:
            changed = self._table.change([change for _, change in made], deadline_ticks_ms=deadline)
        except Exception as error:
            for job, _ in made:
                job.future.set_exception(error)
            return None
        for (job, _), refusal in zip(made, changed.errors, strict=True):
            if refusal is None:
                job.future.set_result(changed.rows)
            else:
                job.future.set_exception(refusal)
        return changed.rows
