"""The context that all topics of one maintenance run share: the store's time, the cluster's transactional ids."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparklog.log import Cluster
from sparklog.txn.barrier import IdSeen, TransactionBarrier, look_at_ids, set_barrier
from sparklog.txn.overview import store_time_ms
from sparklog.txn.recovery import Recovered

__all__ = ["MaintenanceRun", "RunFacts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """The facts of a run that other processes need to do a part of it."""

    began_ms: int
    """The store's time as the run began, milliseconds since the epoch."""
    ids: Mapping[str, IdSeen] | None
    """The transactional ids that expired, or can't be understood; None where it isn't needed."""
    barrier: TransactionBarrier | None
    """None where it isn't needed."""


class MaintenanceRun:
    """One run over the topics of a cluster. May be used from several threads.

    The store is asked for its time once; from then on a clock carries it that no administrator sets. The transactional
    ids are looked at once for all topics, when the first of them needs it.
    """

    def __init__(self, cluster: Cluster, *, timeout_ms: float, dry_run: bool = False) -> None:
        """Asks for nothing yet.

        Args:
            timeout_ms: for each entry, each topic and each group of transactions that are to be finished.
            dry_run: write nothing; times are those of this machine, since to ask for the store's takes a write.
        """
        self.cluster = cluster
        self._timeout_ms = timeout_ms
        self._dry_run = dry_run
        self._time_lock = threading.Lock()
        self._ids_lock = threading.RLock()
        self._began: tuple[int, float] | None = None
        self._recovered: Sequence[Recovered] | None = None
        self._ids: Mapping[str, IdSeen] | None = None
        self._barrier: TransactionBarrier | None = None
        self._stopped = threading.Event()
        self.rewrite_lock = threading.RLock()
        """Held while files are copied or rewritten, and while a topic is dealt with that takes much memory."""

    def stop(self) -> None:
        """Let :meth:`check_stopped` raise from now on, in every thread."""
        self._stopped.set()

    def check_stopped(self) -> None:
        """Raise ``KeyboardInterrupt`` where the run was stopped: between two commits, so that each is whole."""
        if self._stopped.is_set():
            raise KeyboardInterrupt

    @classmethod
    def of(cls, cluster: Cluster, facts: RunFacts, *, timeout_ms: float, dry_run: bool = False) -> MaintenanceRun:
        """A part of a run that another process began. Its time lags by as long as the part waited to be begun, so that
        things look younger than they are."""
        run = cls(cluster, timeout_ms=timeout_ms, dry_run=dry_run)
        run._began = (facts.began_ms, cluster.clock.ticks_ms())
        run._ids, run._barrier = facts.ids, facts.barrier
        return run

    def facts(self, *, with_transactions: bool) -> RunFacts:
        """The facts that other processes need to do a part of the run.

        Args:
            with_transactions: some of the topics will be vacuumed; else nothing is asked of transactional ids.
        Raises:
            StoreError.
        """
        began_ms = self.began_ms
        if not with_transactions:
            return RunFacts(began_ms=began_ms, ids=None, barrier=None)
        barrier = None if self._dry_run else self.barrier()
        ids = {name: seen for name, seen in self.ids().items() if seen.expired_for_ms is not None or seen.error}
        return RunFacts(began_ms=began_ms, ids=ids, barrier=barrier)

    @property
    def began_ms(self) -> int:
        """The store's time when it was asked for first, milliseconds since the epoch; later things count as younger."""
        return self._begin()[0]

    def now_ms(self) -> int:
        """The store's time now, or a little earlier."""
        began_ms, ticks_ms = self._begin()
        return began_ms + int(self.cluster.clock.ticks_ms() - ticks_ms)

    def records_now_ms(self) -> int:
        """The time by which retention judges records, whose timestamps are their producers': the earlier of the store's
        and this machine's. So no record goes early because one of these clocks is ahead."""
        return min(self.now_ms(), self.cluster.clock.now_ms())

    def _begin(self) -> tuple[int, float]:
        """The store's time when it was asked for first, and the clock's ticks right after that."""
        with self._time_lock:
            if self._began is None:
                began_ms = self.fresh_ms()
                self._began = (began_ms, self.cluster.clock.ticks_ms())
            return self._began

    def fresh_ms(self) -> int:
        """The store's time now. A PUT, a LIST and a DELETE; none in a dry run."""
        return self.cluster.clock.now_ms() if self._dry_run else store_time_ms(self.cluster)

    def recovered(self, recovered: Sequence[Recovered]) -> None:
        """Note that all transactions were just recovered, after :attr:`began_ms` was learned: once is enough."""
        with self._ids_lock:
            self._recovered = recovered

    def ids(self) -> Mapping[str, IdSeen]:
        """The transactional ids, by what their newest entries say. Raises ``StoreError``: the listings."""
        with self._ids_lock:
            if self._ids is None and self._recovered is not None:
                self._ids = self.barrier().ids  # costs the same, and a later step may need it
            elif self._ids is None:
                self._ids = look_at_ids(self.cluster, now_ms=self.began_ms)
            return self._ids

    def barrier(self) -> TransactionBarrier:
        """The barrier that every sweep of this run relies on (rule L10, orphans). Raises ``StoreError``: the
        listings."""
        with self._ids_lock:
            if self._barrier is None:
                self._barrier = set_barrier(
                    self.cluster,
                    before_ms=self.began_ms,
                    recovered=self._recovered,
                    timeout_ms=self._timeout_ms,
                )
                self._ids = self._barrier.ids
            return self._barrier
