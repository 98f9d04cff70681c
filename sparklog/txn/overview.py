"""A cluster's transactional ids as seen from outside: names, markers, ages. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparklog.errors import InvalidArgumentError
from sparklog.log import store_time
from sparklog.log.cluster import Cluster
from sparklog.paths import (
    OPEN_TRANSACTIONS_FOLDER,
    TRANSACTIONS_FOLDER,
    decode_id,
    encode_id,
    new_probe,
    open_transactions,
    transaction_log,
)
from sparklog.storage import ObjectInfo
from sparklog.storage.each_alone import list_each_folder
from sparklog.txn.entries import TransactionEntry, TransactionLog
from sparklog.txn.states import TransactionState

__all__ = [
    "SessionMarker",
    "age_ms",
    "markers_by_id",
    "markers_of",
    "may_be_open",
    "newest_number",
    "readable_markers",
    "store_time_ms",
    "transactional_ids",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMarker:
    """The marker of a session that may have a transaction open (rule T4, open sessions), as it was listed."""

    number: int
    """The number of the entry that began the session's epoch."""
    modified_ms: int
    """When it was written or refreshed last, by the store's time."""
    etag: str
    """Changes when it is refreshed."""


def transactional_ids(cluster: Cluster) -> list[str]:
    """Every id that a producer ever took, sorted. One listing."""
    names = (_id_of(folder) for folder in cluster.store.list_names(TRANSACTIONS_FOLDER))
    return sorted(name for name in names if name is not None)


def markers_by_id(cluster: Cluster) -> dict[str, list[SessionMarker]]:
    """The markers of sessions that may have a transaction open, by transactional id, each id's sorted by number. One
    listing (rule T4, open sessions). Raises ``StoreError``: not all can be listed."""
    return _by_id(cluster.store.list(OPEN_TRANSACTIONS_FOLDER))


def readable_markers(cluster: Cluster) -> tuple[dict[str, list[SessionMarker]], dict[str, Exception]]:
    """The same where it isn't fatal that some can't be listed, and by id why that is: then one listing for each id.

    Raises:
        StoreError: the store can't be read.
    """
    errors: dict[str, Exception] = {}
    markers = _by_id(list_each_folder(cluster.store, OPEN_TRANSACTIONS_FOLDER, errors))
    return markers, {decode_id(folder): error for folder, error in errors.items()}


def markers_of(cluster: Cluster, transactional_id: str) -> list[SessionMarker]:
    """The same for one id."""
    return _by_id(cluster.store.list(open_transactions(transactional_id))).get(transactional_id, [])


def _by_id(objects: Iterable[ObjectInfo]) -> dict[str, list[SessionMarker]]:
    markers: dict[str, list[SessionMarker]] = {}
    for listed in objects:
        id_folder, _, number = listed.path[len(OPEN_TRANSACTIONS_FOLDER) :].partition("/")
        name = _id_of(id_folder)
        if name is not None and number.isdecimal():
            marker = SessionMarker(number=int(number), modified_ms=listed.modified_ms, etag=listed.etag)
            markers.setdefault(name, []).append(marker)
    return markers


def may_be_open(log: TransactionLog, newest: TransactionEntry, marker: SessionMarker) -> bool:
    """Is a marker one of the epoch that ``newest`` is of? At most one GET.

    Args:
        marker: not beyond ``newest``.
    """
    if marker.number == newest.version:
        return True
    if newest.state is TransactionState.EMPTY:
        return False
    began = log.read_entry(marker.number)
    return began is None or began.header == newest.header  # cleaned: it isn't known, so it may be


def store_time_ms(cluster: Cluster) -> int:
    """The store's own time, milliseconds since the epoch. A PUT, a LIST and a DELETE."""
    return store_time.store_time_ms(cluster, new_probe())


def newest_number(log: TransactionLog, *, after: int) -> int:
    """The number of the newest entry beyond ``after``; 0 where there is none. A LIST for each 1,000 of these."""
    names = (
        file.path.rpartition("/")[2].removesuffix(".json")
        for file in log.store.list(transaction_log(log.transactional_id), after=log.path_of(after))
    )
    return max((int(name) for name in names if name.isdecimal()), default=0)


def age_ms(log: TransactionLog, entry: TransactionEntry, *, now_ms: int) -> int:
    """The age of an entry, by the store's own times. A LIST.

    Args:
        now_ms: of :func:`store_time_ms`; may lie before the entry.
    """
    path = log.path_of(entry.version)
    for listed in log.store.list(transaction_log(log.transactional_id), after=log.path_of(entry.version - 1)):
        if listed.path == path:
            return now_ms - listed.modified_ms
    return 0  # cleaned meanwhile: the log went on


def _id_of(folder: str) -> str | None:
    """The id to which a folder belongs; None for a folder that isn't sparklog's."""
    name = decode_id(folder)
    try:
        return name if encode_id(name) == folder else None
    except InvalidArgumentError:
        return None
