"""Finishing transactions of producers that died, by consumers that read (rule T4, open sessions)."""

from __future__ import annotations

import logging
import os
import random
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sparklog.clock import Clock, Deadline
from sparklog.log.cluster import Cluster
from sparklog.logs import about
from sparklog.storage.position import Position
from sparklog.storage.retrying import Patience
from sparklog.txn.entries import TransactionEntry, TransactionLog, open_transaction_log
from sparklog.txn.forward import finish
from sparklog.txn.overview import SessionMarker, markers_by_id, newest_number

__all__ = ["Helper", "helper_of"]

_LOGGER = logging.getLogger("sparklog.txn")


class Helper:
    """Finishes decisions that are left lying; the consumers of a process that read one cluster share it.

    Only ids whose sessions may have a transaction open are looked at (rule T4, open sessions): what a producer left
    that closed is found by :func:`~sparklog.txn.recovery.recover_transactions`. An id is looked at at once when it is
    new or its marker was refreshed, then after 30 s, one minute, two, …: up to two minutes while its producer goes on,
    and up to half an hour once it has rested for so long that its producer will refresh the marker before it decides
    anything.

    A look costs a LIST for each 1,000 markers, and for each id that is due, 32 at most, a LIST, and a GET where it
    went on. It takes about ten seconds at most, unless the store is slower.
    """

    LOOK_MS = 30_000.0
    """Between two looks of a process."""
    UNCHANGED_MS = 5_000.0
    """A decision that was seen for so long is left lying: its producer carries it out within that."""
    LIVELY_MS = 120_000.0
    """Between two looks at an id whose producer went on in between, at most."""
    QUIET_MS = 1_800_000.0
    """Between two looks at an id that rests, or can't be helped, at most."""
    MOST_IDS = 32
    """Looked at in one look; others that are due in the next."""
    MOST_FINISHED = 5
    """In one look."""
    PATIENCE_MS = 10_000.0
    """The time limit of the calls of one look, and of carrying out one decision in each topic and group."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_looking = False
        self._due_ticks_ms = 0.0
        self._watched: dict[str, _Watched] = {}
        self._last: str | None = None
        """The last id that was looked at."""
        self._told: dict[str, str] = {}
        """Errors that were logged already."""

    def is_due(self, now_ticks_ms: float) -> bool:
        """Might :meth:`begin_look` say so? From any thread."""
        return not self._is_looking and now_ticks_ms >= self._due_ticks_ms

    def begin_look(self, now_ticks_ms: float) -> bool:
        """May the caller look now? At most one thread of the process, and every 30 s. From any thread.

        A caller that may look calls :meth:`end_look` afterwards.
        """
        with self._lock:
            if self._is_looking or now_ticks_ms < self._due_ticks_ms:
                return False
            self._is_looking, self._due_ticks_ms = True, now_ticks_ms + self.LOOK_MS
            return True

    def end_look(self) -> None:
        """End the look that :meth:`begin_look` began, whatever its result."""
        with self._lock:
            self._is_looking = False

    def look(
        self, cluster: Cluster, now_ticks_ms: float, *, is_stopped: Callable[[], bool] = lambda: False
    ) -> list[str]:
        """Look once; by one thread at a time, and never by a thread whose result a caller waits for.

        Args:
            now_ticks_ms: of the cluster's clock.
            is_stopped: asked between two ids; true: the look ends.
        Returns:
            The ids whose decision was carried out. Raises nothing: errors are logged.
        """
        finished: list[str] = []
        deadline = Deadline(cluster.clock, now_ticks_ms + self.PATIENCE_MS)
        try:
            with cluster.store.patience(Patience(deadline=deadline)):
                for transactional_id in self._choose(markers_by_id(cluster), now_ticks_ms):
                    is_late = cluster.clock.ticks_ms() > deadline.ticks_ms
                    if is_stopped() or is_late or len(finished) >= self.MOST_FINISHED:
                        break
                    self._last = transactional_id
                    if self._help(cluster, transactional_id, now_ticks_ms):
                        finished.append(transactional_id)
            self._told.pop("", None)
        except Exception as error:  # no caller waits for this: any error is logged, and tried again later
            self._tell("", error)
        return finished

    def _choose(self, markers: Mapping[str, Sequence[SessionMarker]], now_ticks_ms: float) -> list[str]:
        """The ids that are due, in turn; the first turn begins anywhere, so that processes begin with different ids."""
        for gone in self._watched.keys() - markers.keys():
            del self._watched[gone]
            self._told.pop(gone, None)
        for name, of_id in markers.items():
            watched = self._watched.setdefault(name, _Watched(marker=of_id[-1], due_ticks_ms=now_ticks_ms))
            if watched.marker != of_id[-1]:
                watched.marker, watched.due_ticks_ms, watched.wait_ms = of_id[-1], now_ticks_ms, 0.0
        due = sorted(name for name, watched in self._watched.items() if watched.due_ticks_ms <= now_ticks_ms)
        if self._last is None and due:
            self._last = random.choice(due)  # noqa: S311 - spreads processes, no secret
        later = [name for name in due if self._last is not None and name > self._last]
        return [*later, *due[: len(due) - len(later)]][: self.MOST_IDS]

    def _help(self, cluster: Cluster, transactional_id: str, now_ticks_ms: float) -> bool:
        """Was a decision carried out?"""
        watched = self._watched[transactional_id]
        try:
            log = open_transaction_log(cluster, transactional_id)
            is_changed = self._follow(log, watched, now_ticks_ms)
            newest, position = watched.newest, watched.position
            if newest is None or position is None or not newest.state.is_prepared:
                self._rest(watched, now_ticks_ms, is_changed=is_changed)
                return False
            if now_ticks_ms - watched.since_ticks_ms < self.UNCHANGED_MS:
                if watched.wait_ms:  # its producer went on before: it is looked at again soon enough
                    self._rest(watched, now_ticks_ms, is_changed=is_changed)
                return False
            finish(cluster, log, newest, position, timeout_ms=self.PATIENCE_MS)
        except Exception as error:  # one that can't be helped hinders no other
            self._tell(transactional_id, error)
            watched.rest(now_ticks_ms, first_ms=self.LOOK_MS, most_ms=self.QUIET_MS)
            return False
        watched.newest = None
        self._told.pop(transactional_id, None)
        extra = about(transactional_id=transactional_id)
        _LOGGER.info("finished what the producer of transactional id %r had left", transactional_id, extra=extra)
        return True

    def _rest(self, watched: _Watched, now_ticks_ms: float, *, is_changed: bool) -> None:
        """Let a transactional id rest in which nothing is left to do: look again later, and ever later as long as
        nothing happens."""
        newest = watched.newest
        rested_ms = now_ticks_ms - watched.since_ticks_ms
        is_quiet = newest is None or (not is_changed and rested_ms > newest.header.abort_after_ms)
        watched.rest(now_ticks_ms, first_ms=self.LOOK_MS, most_ms=self.QUIET_MS if is_quiet else self.LIVELY_MS)

    def _follow(self, log: TransactionLog, watched: _Watched, now_ticks_ms: float) -> bool:
        """Learn what is newest now. Did the log go on since it was known?"""
        began = log.clock.ticks_ms()
        if watched.newest is None:
            watched.newest, watched.position = log.open_newest()
        else:
            number = newest_number(log, after=watched.newest.version)
            if number == 0:  # the newest entry is never deleted, so this is certain
                return False
            watched.newest = log.read_entry(number)
            if log.clock.ticks_ms() - began > log.tail_trust_ms:  # what was read may be a stray by now (rule L1, trust)
                watched.newest = None
            token = watched.newest.token if watched.newest is not None else ""
            watched.position = Position(version=number, token=token, anchor_ticks_ms=began)
        watched.since_ticks_ms = now_ticks_ms
        return True

    def _tell(self, transactional_id: str, error: Exception) -> None:
        """Once, not at every look."""
        text = f"{type(error).__name__}: {error}"
        if self._told.get(transactional_id) != text:
            what = f"transactional id {transactional_id!r}" if transactional_id else "unfinished transactions"
            _LOGGER.warning("looking after %s failed: %s", what, text, extra=about(transactional_id=transactional_id))
        self._told[transactional_id] = text


@dataclass(slots=True, kw_only=True)
class _Watched:
    """A transactional id, as a helper saw it."""

    marker: SessionMarker
    """The marker of its newest session."""
    due_ticks_ms: float
    """When it is to be looked at next."""
    wait_ms: float = 0.0
    """Since the last look, when it was made."""
    newest: TransactionEntry | None = None
    """The newest entry of its log; None: not known."""
    position: Position | None = None
    since_ticks_ms: float = 0.0
    """When ``newest`` was seen first."""

    def rest(self, now_ticks_ms: float, *, first_ms: float, most_ms: float) -> None:
        """Look again after twice as long as the last time."""
        self.wait_ms = min(max(first_ms, 2 * self.wait_ms), most_ms)
        self.due_ticks_ms = now_ticks_ms + self.wait_ms


_HELPERS: weakref.WeakValueDictionary[tuple[int, str, str, Clock], Helper] = weakref.WeakValueDictionary()
_HELPERS_LOCK = threading.Lock()


def helper_of(cluster: Cluster) -> Helper:
    """The helper of this process for a cluster, made at first use and kept while it is referenced."""
    key = (os.getpid(), cluster.cluster_id, cluster.store.uri, cluster.clock)  # ticks of two clocks can't be compared
    with _HELPERS_LOCK:
        helper = _HELPERS.get(key)
        if helper is None:
            helper = _HELPERS[key] = Helper()
        return helper
