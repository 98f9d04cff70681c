"""Watching the transactional ids of a cluster: two listings, and a request for each id that may have something open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sparklog.errors import CorruptLogError, SparklogError, UnsupportedVersionError, as_sparklog_error
from sparklog.log.cluster import Cluster
from sparklog.observe.figures import TransactionFigures
from sparklog.storage.each_alone import each_alone
from sparklog.txn.entries import TransactionEntry, TransactionLog, open_transaction_log
from sparklog.txn.overview import SessionMarker, may_be_open, readable_markers, transactional_ids
from sparklog.txn.states import TransactionState

__all__ = ["TransactionWatch", "transaction_figures"]

_TRUSTS = 5
"""Times the trust of others (rule L1, trust): entries stay for ten times it."""


@dataclass(slots=True)
class _Known:
    log: TransactionLog
    newest: TransactionEntry
    seen_ticks_ms: float
    """When nothing lay beyond it."""
    open_by_marker: dict[int, bool] = field(default_factory=dict)
    """By the number of a marker: is it of the newest entry's epoch?"""


class TransactionWatch:
    """The transactional ids of a cluster, looked at again and again. Not for several threads at once."""

    def __init__(self, cluster: Cluster, *, is_ours: Callable[[str], bool], at_once: int) -> None:
        """Reads nothing.

        Args:
            is_ours: whether an id is to be looked at.
            at_once: requests side by side.
        """
        self._cluster = cluster
        self._is_ours = is_ours
        self._at_once = at_once
        self._known: dict[str, _Known] = {}

    def look(self) -> tuple[list[TransactionFigures], dict[str, SparklogError]]:
        """The ids as of now, sorted, and why some of them can't be read.

        Two LISTs; a GET for each id with a marker of an open session, or whose newest transaction is decided and not
        carried out; a LIST and two GETs more for one that went on, and for one that wasn't known.

        Raises:
            StoreError: the listings, or the store can't be read.
        """
        markers, unlisted = readable_markers(self._cluster)
        names = [name for name in transactional_ids(self._cluster) if self._is_ours(name)]
        there = {*names}
        self._known = {name: one for name, one in self._known.items() if name in there}
        asked = [name for name in names if self._must_ask(name, markers.get(name, ()))]
        found = each_alone(
            self._cluster.store,
            lambda name: self._refresh(name, markers.get(name, ())),
            asked,
            at_once=self._at_once,
        )
        errors = {name: as_sparklog_error(unlisted[name]) for name in names if name in unlisted}
        for name, error in zip(asked, found, strict=True):
            if isinstance(error, SparklogError):
                errors[name] = error.with_traceback(None)
            elif error is not None:
                raise error
        figures = [
            transaction_figures(name, self._known[name].newest, self._open_markers(name, markers.get(name, ())))
            for name in names
            if name in self._known and not isinstance(errors.get(name), (CorruptLogError, UnsupportedVersionError))
        ]
        return figures, errors

    def _must_ask(self, name: str, markers: Sequence[SessionMarker]) -> bool:
        known = self._known.get(name)
        return known is None or bool(markers) or known.newest.state.is_prepared

    def _refresh(self, name: str, markers: Sequence[SessionMarker]) -> None:
        known = self._known.get(name)
        if known is None or not self._is_newest(known):
            known = self._open(name)
        if known is None:
            self._known.pop(name, None)
            return
        self._known[name] = known
        for marker in markers:
            if marker.number <= known.newest.version and marker.number not in known.open_by_marker:
                known.open_by_marker[marker.number] = may_be_open(known.log, known.newest, marker)

    def _is_newest(self, known: _Known) -> bool:
        """Is the known entry still the newest? A GET; no, where the last look was long ago."""
        began = self._cluster.clock.ticks_ms()
        if began - known.seen_ticks_ms > _TRUSTS * self._cluster.tail_trust_ms:
            return False
        if known.log.store.read_many([known.log.path_of(known.newest.version + 1)])[0] is not None:
            return False
        known.seen_ticks_ms = began
        return True

    def _open(self, name: str) -> _Known | None:
        log, began = open_transaction_log(self._cluster, name), self._cluster.clock.ticks_ms()
        newest, _ = log.open_newest()
        return None if newest is None else _Known(log, newest, began)

    def _open_markers(self, name: str, markers: Sequence[SessionMarker]) -> list[SessionMarker]:
        known = self._known[name].open_by_marker
        return [marker for marker in markers if known.get(marker.number)]


def transaction_figures(name: str, newest: TransactionEntry, markers: Sequence[SessionMarker]) -> TransactionFigures:
    """The figures of a transactional id. Pure.

    Args:
        newest: the newest entry of its log.
        markers: of its epoch, of sessions that may have a transaction open.
    """
    is_open = newest.state.is_open and not newest.is_forced and bool(markers)
    return TransactionFigures(
        transactional_id=name,
        state=TransactionState.ONGOING if is_open else newest.state,
        producer_id=newest.header.producer_id,
        producer_epoch=newest.header.producer_epoch,
        since_ms=max([newest.written_ms, *(marker.modified_ms for marker in markers if is_open)]),
        timeout_ms=newest.header.timeout_ms,
    )
