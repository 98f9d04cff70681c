"""Data files that no log will ever name: found, and swept from a topic's folder (rule L10).

They are what is left of transactions that were aborted and of writers that died between an upload and its commit; and
files that were removed from the table longer ago than any reader may still need them.

A file's age alone proves nothing: whoever decided to publish a young one may sleep for a week before its create. So the
sweep first learns the store's time, and then makes every decision impossible that was taken before: it takes the next
number of each transactional id that may have a transaction open, and the next version of the topic's log. Whoever
decides later has looked at the age of its files once more, and they are younger than a day
(:func:`~sparklog.log.uploads.longest_age_ms`), or than a transaction may last. So none of them was seven days old at
the time that was learned.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from sparklog.delta.actions import Metadata
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import log_folder
from sparklog.delta.properties import deleted_file_retention_ms
from sparklog.delta.removed import removed_files
from sparklog.log.cluster import Cluster
from sparklog.log.commit import Commit, commit
from sparklog.log.reading import object_path
from sparklog.log.state import TopicState, WholeTopic, load_state
from sparklog.paths import STAGE_PREFIX
from sparklog.storage import ObjectInfo
from sparklog.storage.retrying import DEFAULT_RETRY_MS
from sparklog.txn.entries import open_transaction_log
from sparklog.txn.overview import at_once, store_time_ms, transactional_ids
from sparklog.txn.recovery import recover_transactions

__all__ = ["ORPHAN_AGE_MS", "Orphan", "find_orphans", "orphan_age_ms", "removed_age_ms", "sweep_orphans"]

_LOGGER = logging.getLogger("sparklog.txn")

DAY_MS = 86_400_000
ORPHAN_AGE_MS = 7 * DAY_MS
"""A file that no log is known to have named is an orphan once it is older; later where the topic's table has a longer
``delta.deletedFileRetentionDuration``. Source: protocol rule L10."""
_DELETED_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A file that belongs to nobody."""

    path: str
    """In the store."""
    size_bytes: int
    age_ms: int
    """By the store's own times; see :func:`find_orphans`."""


def orphan_age_ms(table: str, metadata: Metadata) -> int:
    """How old an orphan is at least that was never part of the table, as far as its log remembers: milliseconds.

    Raises:
        InvalidConfigurationError: the table's ``delta.deletedFileRetentionDuration`` isn't understood.
    """
    return max(ORPHAN_AGE_MS, deleted_file_retention_ms(table, metadata))


def removed_age_ms(table: str, metadata: Metadata) -> int:
    """For how long files that were removed from a table stay: milliseconds. As long as the table says, a week where it
    doesn't; a day at least: for so long the log's entries tell when that was, whatever a checkpoint has forgotten.

    Raises:
        InvalidConfigurationError: the table's ``delta.deletedFileRetentionDuration`` isn't understood.
    """
    return max(DAY_MS, deleted_file_retention_ms(table, metadata))


def find_orphans(cluster: Cluster, topic: str, *, now_ms: int | None = None) -> list[Orphan]:
    """The orphans in a topic's folder as of now, by path; changes nothing.

    What is found needn't be deletable: a writer that sleeps may still publish one. Only :func:`sweep_orphans` makes
    sure that none does.

    Costs the topic loaded and a listing of its folder. Where something is old that doesn't live: the topic loaded once
    more, a GET for each entry that is left of its log, and a LIST and a GET for each transactional id.

    Args:
        now_ms: by default the store's time, which takes a write to ask for; whoever may not write gives this machine's.
    Raises:
        UnknownTopicOrPartitionError: there never was such a topic; that of a deleted one is searched.
        InvalidArgumentError: a live file lies outside of the topic's folder.
        InvalidConfigurationError: as :func:`orphan_age_ms`.
        CorruptLogError, UnsupportedVersionError, StoreError.
    """
    now_ms = store_time_ms(cluster) if now_ms is None else now_ms
    return _find(cluster, topic, load_state(cluster.topic_log(topic)), now_ms)


def sweep_orphans(cluster: Cluster, topic: str, *, dry_run: bool, timeout_ms: float = DEFAULT_RETRY_MS) -> list[Orphan]:
    """Delete the orphans in a topic's folder.

    First finishes every decided transaction of the cluster and aborts the sessions that are past their time-outs, then
    commits an entry without changes to the topic.

    Args:
        dry_run: only :func:`find_orphans`, by this machine's clock: nothing is written.
        timeout_ms: for each entry, each topic and each group.
    Returns:
        What was deleted, or would be.
    Raises:
        SparklogError: a transaction couldn't be finished: nothing is deleted. And as :func:`find_orphans`.
    """
    if dry_run:
        return find_orphans(cluster, topic, now_ms=cluster.clock.now_ms())
    log = cluster.topic_log(topic)
    state = load_state(log)
    now_ms = store_time_ms(cluster)  # before what makes earlier decisions impossible
    for recovered in recover_transactions(cluster, timeout_ms=timeout_ms, again_after_ms=DAY_MS):
        if recovered.error is not None:
            error = recovered.error
            error.args = (
                f"the orphans of topic {topic!r} weren't swept: transactional id {recovered.transactional_id!r} can't "
                f"be finished: {error}",
            )
            raise error
    orphans = _find(cluster, topic, _take_next_version(state, timeout_ms=timeout_ms), now_ms)
    for first in range(0, len(orphans), _DELETED_AT_ONCE):
        cluster.store.delete([orphan.path for orphan in orphans[first : first + _DELETED_AT_ONCE]])
    if orphans:
        _LOGGER.info("deleted %d orphans of topic %s", len(orphans), topic)
    return orphans


def _take_next_version(state: TopicState, *, timeout_ms: float) -> TopicState:
    """Commit an entry that changes nothing: whoever decided before it has to decide again. The state after it."""

    def decide(now: TopicState) -> Commit:
        return Commit(actions=[], head=now.head, operation="VACUUM START")

    deadline = state.log.clock.ticks_ms() + timeout_ms
    return commit(state, decide, deadline_ticks_ms=deadline, sync=True).state


def _find(cluster: Cluster, topic: str, state: TopicState, now_ms: int) -> list[Orphan]:
    """The orphans, by what lives in ``state``; what was removed since is found by its removal.

    Args:
        now_ms: the store's time before ``state`` was loaded.
    """
    whole = state.require_whole()
    age_ms = orphan_age_ms(state.log.table, whole.metadata)
    removed_ms = removed_age_ms(state.log.table, whole.metadata)  # the shorter; no file is younger than its removal
    folder, live = f"{state.log.table}/", _live(state.log, whole)
    old = [
        found
        for found in cluster.store.list(folder)
        if now_ms - found.modified_ms > removed_ms
        and found.path not in live
        and _may_be_an_orphan(found.path.removeprefix(folder))
    ]
    if not old:  # as a rule: to ask every transactional id would take a LIST and a GET each, for every topic
        return []
    removed, named = _removed(state.log), _named(cluster, topic)

    def is_over(found: ObjectInfo) -> bool:
        if found.path in removed:
            return now_ms - removed[found.path] > removed_ms
        return now_ms - found.modified_ms > age_ms

    return [
        Orphan(path=found.path, size_bytes=found.size_bytes, age_ms=now_ms - found.modified_ms)
        for found in old
        if found.path not in named and is_over(found)
    ]


def _live(log: DeltaLog, whole: WholeTopic) -> set[str]:
    return {object_path(log.table, path) for path in whole.index.by_path}


def _removed(log: DeltaLog) -> dict[str, int]:
    """When those were removed of which the log still knows: a reader may need them for some time."""
    return {object_path(log.table, path): at_ms for path, at_ms in removed_files(log).items()}


def _named(cluster: Cluster, topic: str) -> set[str]:
    """Those that an unfinished transaction names: also one of an earlier topic of this name."""
    table = cluster.topic_log(topic).table

    def named(transactional_id: str) -> Collection[str]:
        newest, _ = open_transaction_log(cluster, transactional_id).open_newest()
        found = newest.contents.topics.get(topic) if newest is not None else None
        return () if found is None else [object_path(table, file.path) for file in found.files]

    return {path for paths in at_once(named, transactional_ids(cluster)) for path in paths}


def _may_be_an_orphan(path: str) -> bool:
    """Hidden folders hold what engines keep for themselves (source: Delta's ``VACUUM``). Not so the logs of stages that
    ingests left: one that is older than a day is of no use to the ingest that made it."""
    folder = path.split("/")[0]
    if folder.startswith(STAGE_PREFIX) and path.startswith(log_folder(folder)):
        return True
    return path.endswith(".parquet") and not any(part.startswith(("_", ".")) for part in path.split("/"))
