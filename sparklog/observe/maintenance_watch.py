"""Watching what runs of maintenance leave for others to see: a listing, and a request more where it has changed."""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.compaction.last_runs import FailedRuns, RunHistory, RunSummary, read_history
from sparklog.errors import SparklogError
from sparklog.log.cluster import Cluster
from sparklog.paths import MAINTENANCE_FOLDER, MAINTENANCE_NOTES, MAINTENANCE_RUNS
from sparklog.storage import ObjectInfo
from sparklog.storage.each_alone import one_alone

__all__ = ["MaintenanceSeen", "MaintenanceWatch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSeen:
    """The traces of runs of maintenance."""

    noted_ms: int | None
    """When the notes changed last, by the store's time, ms since the epoch; None: never."""
    runs: tuple[RunSummary, ...]
    """Newest first."""
    error: str
    """Why it is unknown what runs did; empty where it is known."""
    failed: FailedRuns


class MaintenanceWatch:
    """The traces of maintenance, looked at again and again. Not for several threads at once."""

    def __init__(self, cluster: Cluster) -> None:
        """Reads nothing."""
        self._cluster = cluster
        self._read: ObjectInfo | None = None
        """The object that was read last, as it was listed."""
        self._history = RunHistory()
        self._error = ""
        self._noted_ms: int | None = None

    def look(self) -> MaintenanceSeen:
        """A LIST; a GET where a run was noted since. Raises ``StoreError``: the store can't be read."""
        found = one_alone(self._cluster.store, lambda: [*self._cluster.store.list(MAINTENANCE_FOLDER)])
        if isinstance(found, Exception):
            return self._seen(str(found))
        listed = {one.path: one for one in found}
        runs, notes = listed.get(MAINTENANCE_RUNS), listed.get(MAINTENANCE_NOTES)
        if runs is None:
            self._read, self._history, self._error = None, RunHistory(), ""
        elif runs != self._read:
            self._look_at_runs(runs)
        self._noted_ms = None if notes is None else notes.modified_ms
        return self._seen(self._error)

    def _seen(self, error: str) -> MaintenanceSeen:
        history = self._history
        return MaintenanceSeen(noted_ms=self._noted_ms, runs=history.runs, error=error, failed=history.failed)

    def _look_at_runs(self, listed: ObjectInfo) -> None:
        try:
            self._history, self._error, self._read = read_history(self._cluster), "", listed
        except ValueError as error:
            self._history, self._error, self._read = RunHistory(), str(error), listed
        except SparklogError as error:  # the next look tries again
            self._error = str(error)
