"""The barrier that a sweep of orphans relies on (rule L10, orphans): a look at all transactional ids, after which it is
known which files a transaction may still publish.

One barrier serves the sweeps of any number of topics. It is set in this order:

1. the store's time T is learned;
2. every decided transaction is finished, in all of its topics, and every session that is past its time-out has its
   next number taken (:func:`~sparklog.txn.recovery.recover_transactions`);
3. each transactional id's newest entry is read.

A transaction that was decided before step 2 came to its id has been published by the end of that step, so whoever loads
a topic *after* the barrier finds the transaction's files among the live ones. A transaction that is decided later is
decided by the entry that follows the newest one, or by a later one. Its producer checked, when the newest entry was
there already (rule T3, one at a time) and before it created the next, that the transaction had been open for no longer
than ``transaction_timeout_ms``; the committer of a micro-batch, that no file was uploaded more than a day ago, by
clocks that may differ by a day. So however long either of them sleeps in its create, its files are older than the id's
newest entry by no more than the time-out, or two days. A session without a marker has no transaction open (rule T4,
open sessions), and what it begins later has no file that is older than two days at T.

How much later than the barrier a topic is swept doesn't matter, as long as ages are taken as of T.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from sparklog.errors import SparklogError
from sparklog.log.cluster import Cluster
from sparklog.log.data.object_paths import object_path
from sparklog.parallel import parallel_map
from sparklog.paths import topic_table
from sparklog.txn.entries import TransactionEntry, TransactionLog, open_transaction_log
from sparklog.txn.overview import SessionMarker, age_ms, markers_by_id, may_be_open, transactional_ids
from sparklog.txn.recovery import EXPIRATION_MS, Recovered, recover_transactions

__all__ = ["IdSeen", "TransactionBarrier", "look_at_ids", "named_files", "set_barrier"]

_MOST_UPLOADED_AHEAD_MS = 2 * 86_400_000
"""A file is uploaded no longer than a day before its transaction is decided, by clocks that differ by a day at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdSeen:
    """The facts that the newest entry of a transactional id states."""

    transactional_id: str
    named: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By topic: the data files, as paths in the store, of a decision that isn't carried out yet."""
    oldest_file_ms: int = 0
    """Files of a transaction that may still be decided are no older; milliseconds. 0: none can be open."""
    expired_for_ms: int | None = None
    """How long ago the id was taken from a producer that hadn't used it for too long; None where it wasn't."""
    error: SparklogError | None = None
    """Why its log can't be understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionBarrier:
    """Transactions that were decided before it are finished; what may be decided after it has young files alone."""

    before_ms: int
    """The store's time before it was set, milliseconds since the epoch: ages count up to here."""
    oldest_file_ms: int
    """A transaction that is decided later has no older file, as of ``before_ms``."""
    named: Mapping[str, frozenset[str]]
    """By topic: the data files, as paths in the store, of what was decided while the barrier was being set."""
    ids: Mapping[str, IdSeen]
    """All transactional ids, as they were seen last."""
    error: SparklogError | None = None
    """Why it doesn't stand: a transaction that can't be finished, or a transactional id that can't be understood."""

    def check(self) -> None:
        """Raise :attr:`error` unless the barrier stands."""
        if self.error is not None:
            raise self.error.with_traceback(None)


def set_barrier(
    cluster: Cluster, *, before_ms: int, recovered: Iterable[Recovered] | None = None, timeout_ms: float
) -> TransactionBarrier:
    """Set a barrier for the sweeps of any number of topics. The error of what can't be finished is its ``error``.

    Costs a recovery; then two listings, a LIST and a GET for each transactional id, 32 ids at a time, and a LIST more
    for one that may have a transaction open, or that expired.

    Args:
        before_ms: the store's time, learned before this is called and before what ``recovered`` is of.
        recovered: what a recovery said that began after ``before_ms`` was learned; by default there is one now.
        timeout_ms: for each entry, each topic and each group.
    Raises:
        StoreError: the listings.
    """
    if recovered is None:
        # A session that was aborted for being idle may sleep in the create that would have followed: unless it is taken
        # away first, its id's newest entry is taken again once it is so old that files would be spared for its sake.
        recovered = recover_transactions(cluster, timeout_ms=timeout_ms, again_after_ms=EXPIRATION_MS)
    failed = [(result.transactional_id, result.error) for result in recovered if result.error is not None]
    seen = look_at_ids(cluster, now_ms=before_ms)
    failed += [(each.transactional_id, each.error) for each in seen.values() if each.error is not None]
    return TransactionBarrier(
        before_ms=before_ms,
        oldest_file_ms=max((each.oldest_file_ms for each in seen.values()), default=0),
        named=named_files(seen.values()),
        ids=seen,
        error=_why_not_swept(*failed[0]) if failed else None,
    )


def look_at_ids(cluster: Cluster, *, now_ms: int) -> dict[str, IdSeen]:
    """Read the newest entry of every transactional id, 32 at a time; changes nothing.

    Args:
        now_ms: the store's time.
    Raises:
        StoreError: the listings. Other errors are recorded with the id.
    """
    markers = markers_by_id(cluster)  # first: a session without one by now begins a transaction later, with young files

    def look(transactional_id: str) -> IdSeen:
        log = open_transaction_log(cluster, transactional_id)
        try:
            newest, _ = log.open_newest()
            return _seen(log, newest, markers.get(transactional_id, ()), now_ms)
        except SparklogError as error:
            return IdSeen(transactional_id=transactional_id, error=error.with_traceback(None))

    return {seen.transactional_id: seen for seen in parallel_map(look, transactional_ids(cluster))}


def named_files(seen: Iterable[IdSeen]) -> dict[str, frozenset[str]]:
    """The data files, by topic, of all decisions that aren't carried out yet, as paths in the store."""
    paths_by_topic: dict[str, frozenset[str]] = {}
    for each in seen:
        for topic, paths in each.named.items():
            paths_by_topic[topic] = paths_by_topic.get(topic, frozenset()) | paths
    return paths_by_topic


def _seen(
    log: TransactionLog, newest: TransactionEntry | None, markers: Collection[SessionMarker], now_ms: int
) -> IdSeen:
    if newest is None:
        return IdSeen(transactional_id=log.transactional_id)
    oldest_file_ms, expired_for_ms = 0, None
    if newest.is_expired:
        expired_for_ms = age_ms(log, newest, now_ms=now_ms)
    elif any(marker.number > newest.version or may_be_open(log, newest, marker) for marker in markers):
        ahead_ms = max(newest.header.timeout_ms, _MOST_UPLOADED_AHEAD_MS)
        oldest_file_ms = max(0, age_ms(log, newest, now_ms=now_ms)) + ahead_ms
    return IdSeen(
        transactional_id=log.transactional_id,
        named={
            topic: frozenset(object_path(topic_table(topic), file.path) for file in files.files)
            for topic, files in newest.contents.topics.items()
        },
        oldest_file_ms=oldest_file_ms,
        expired_for_ms=expired_for_ms,
    )


def _why_not_swept(transactional_id: str, error: SparklogError) -> SparklogError:
    """The error as it is reported for each topic that would have been swept; for the id it is reported unchanged."""
    reported = copy.copy(error)
    reported.args = (f"orphans aren't swept: transactional id {transactional_id!r} can't be finished: {error}",)
    return reported
