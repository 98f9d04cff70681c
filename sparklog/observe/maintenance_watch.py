"""Watching what runs of maintenance leave for others to see: a listing, and a request more where it has changed."""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.compaction.last_runs import FailedRuns, RunHistory, RunSummary, read_history
from sparklog.errors import SparklogError
from sparklog.log.cluster import Cluster
from sparklog.paths import MAINTENANCE_FOLDER, MAINTENANCE_NOTES, MAINTENANCE_RUNS
from sparklog.storage import ObjectInfo

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

    def look(self) -> MaintenanceSeen:
        """A LIST; a GET where a run was noted since. Raises ``StoreError``: the listing."""
        listed = {found.path: found for found in self._cluster.store.list(MAINTENANCE_FOLDER)}
        runs, notes = listed.get(MAINTENANCE_RUNS), listed.get(MAINTENANCE_NOTES)
        if runs is None:
            self._read, self._history, self._error = None, RunHistory(), ""
        elif runs != self._read:
            self._look_at_runs(runs)
        noted_ms = None if notes is None else notes.modified_ms
        history = self._history
        return MaintenanceSeen(noted_ms=noted_ms, runs=history.runs, error=self._error, failed=history.failed)

    def _look_at_runs(self, listed: ObjectInfo) -> None:
        try:
            self._history, self._error, self._read = read_history(self._cluster), "", listed
        except ValueError as error:
            self._history, self._error, self._read = RunHistory(), str(error), listed
        except SparklogError as error:  # the next look tries again
            self._error = str(error)
