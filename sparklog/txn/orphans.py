"""Data files that no log will ever name: found, and swept from a topic's folder (rule L10, orphans).

They are what is left of transactions that were aborted and of writers that died between an upload and its commit; and
files that were removed from the table longer ago than any reader may still need them.

A file's age alone proves nothing: whoever decided to publish a young one may sleep for a week before its create. So a
sweep makes every decision impossible that was taken before: those of transactions by a barrier, which one run sets once
for all topics (:mod:`sparklog.txn.barrier`), and those of writers by taking the next version of the topic's log. A
writer that decided before that version loses its create, and one that decides later has looked at the age of its files
once more: they are younger than a day (:func:`~sparklog.log.uploads.longest_age_ms`), by clocks that may differ by a
day. All ages are as of the time that was learned before the barrier was set, and what is live is looked up after the
topic's own entry. So no file that is seven days old by then can still be published.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from sparklog.delta.actions import Metadata, RemoveFile
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import log_folder
from sparklog.delta.others_folders import OthersFolders
from sparklog.delta.properties import CHANGES_FOLDER, deleted_file_retention_ms, has_kept_changes
from sparklog.delta.removed import RemovedFiles, removed_files
from sparklog.errors import CorruptLogError
from sparklog.log.cluster import Cluster
from sparklog.log.commit import Commit, commit
from sparklog.log.data.object_paths import object_path
from sparklog.log.live_totals import TOTALS_INFO, totals_of, totals_of_info
from sparklog.log.state import TopicState, load_state
from sparklog.paths import STAGE_PREFIX
from sparklog.storage import ObjectInfo
from sparklog.storage.log_ground import delete_listed
from sparklog.storage.retrying import DEFAULT_RETRY_MS
from sparklog.txn.barrier import TransactionBarrier, look_at_ids, named_files, set_barrier
from sparklog.txn.overview import store_time_ms

__all__ = [
    "ORPHAN_AGE_MS",
    "Orphan",
    "Swept",
    "any_age_candidates",
    "candidates_of",
    "check_live_files",
    "find_orphans",
    "orphan_age_ms",
    "orphans_among",
    "others_folders",
    "removed_age_ms",
    "sweep_candidates",
    "sweep_orphans",
]

_LOGGER = logging.getLogger("sparklog.txn")

DAY_MS = 86_400_000
ORPHAN_AGE_MS = 7 * DAY_MS
"""A file that no log is known to have named is an orphan once it is older; later where the topic's table has a longer
``delta.deletedFileRetentionDuration``, or while a transaction may be open that was begun so long ago. Source: protocol
rule L10, orphans."""
_OWN_TABLES = re.compile(rf"{STAGE_PREFIX}[0-9a-f]{{32}}")
_DELETED_AT_ONCE = 1_000
_NOW_MS = 2**62
"""The time of a removal that has just been committed: later than any store's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A file that no log names."""

    path: str
    """In the store."""
    size_bytes: int
    age_ms: int
    """By the store's own times; see :func:`find_orphans`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """The result of a sweep of one topic."""

    orphans: tuple[Orphan, ...]
    """The orphans that were deleted."""
    state: TopicState
    """The state of the topic, to go on with."""


def orphan_age_ms(table: str, metadata: Metadata) -> int:
    """The least age of an orphan that was never part of the table, as far as its log remembers: milliseconds.

    Raises:
        InvalidConfigurationError: the table's ``delta.deletedFileRetentionDuration`` isn't understood.
    """
    return max(ORPHAN_AGE_MS, deleted_file_retention_ms(table, metadata))


def removed_age_ms(table: str, metadata: Metadata) -> int:
    """The time for which files that were removed from a table stay: milliseconds. As long as the table says, a week
    where it doesn't; a day at least: for so long the log's entries show when that was, whatever a checkpoint has
    forgotten.

    Raises:
        InvalidConfigurationError: the table's ``delta.deletedFileRetentionDuration`` isn't understood.
    """
    return max(DAY_MS, deleted_file_retention_ms(table, metadata))


def find_orphans(
    cluster: Cluster, topic: str, *, now_ms: int | None = None, log: DeltaLog | None = None
) -> list[Orphan]:
    """The orphans in a topic's folder as of now, by path; changes nothing.

    What is found needn't be deletable: a writer that sleeps may still publish one. Only a sweep makes sure that none
    does.

    Costs the topic loaded and a listing of its folder. Where something is old that doesn't live: a read of the log, a
    GET for each entry that is left of it, and a LIST and a GET for each transactional id.

    Args:
        now_ms: by default the store's time, which takes a write; a caller without write access gives this machine's.
        log: the topic's; by default the cluster's own.
    Raises:
        UnknownTopicOrPartitionError: there never was such a topic; that of a deleted one is searched.
        InvalidArgumentError: a live file lies outside of the topic's folder.
        InvalidConfigurationError: as :func:`orphan_age_ms`.
        CorruptLogError, UnsupportedVersionError, StoreError.
    """
    now_ms = store_time_ms(cluster) if now_ms is None else now_ms
    state = load_state(cluster.topic_log(topic) if log is None else log)
    candidates = candidates_of(state, cluster.store.list(f"{state.log.table}/"), now_ms=now_ms)
    if not candidates:  # as a rule
        return []

    def named() -> Collection[str]:
        return named_files(look_at_ids(cluster, now_ms=now_ms).values()).get(topic, frozenset())

    return orphans_among(state, candidates, removed_files(state.log), named, now_ms=now_ms)


def sweep_orphans(cluster: Cluster, topic: str, *, dry_run: bool, timeout_ms: float = DEFAULT_RETRY_MS) -> list[Orphan]:
    """Delete the orphans in a topic's folder.

    Where there are any, it first finishes every decided transaction of the cluster and aborts the sessions that are
    past their time-outs, then commits an entry without changes to the topic.

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
    now_ms = store_time_ms(cluster)
    state = load_state(cluster.topic_log(topic))
    candidates = candidates_of(state, cluster.store.list(f"{state.log.table}/"), now_ms=now_ms)

    def barrier() -> TransactionBarrier:
        return set_barrier(cluster, before_ms=now_ms, timeout_ms=timeout_ms)

    return [*sweep_candidates(state, topic, candidates, now_ms=now_ms, barrier=barrier, timeout_ms=timeout_ms).orphans]


def others_folders(log: DeltaLog) -> OthersFolders:
    """The folders below a topic's that are none of its own."""
    return OthersFolders(log.store, f"{log.table}/", _OWN_TABLES)


def candidates_of(
    state: TopicState, listed: Iterable[ObjectInfo], *, now_ms: int, others: OthersFolders | None = None
) -> list[ObjectInfo]:
    """The objects of a topic's folder that are old, don't live, and may be orphans. What lies in a folder of others is
    none of them.

    Args:
        state: whole.
        listed: all objects of the topic's folder, those of sub-folders among them.
        now_ms: the store's time.
        others: to learn of folders of others; of :func:`others_folders`.
    Raises:
        StoreError.
    """
    others = others or others_folders(state.log)
    whole = state.require_whole()
    removed_ms = removed_age_ms(state.log.table, whole.metadata)  # the shortest: no file is younger than its removal
    folder, live = f"{state.log.table}/", _live(state)
    keeps_changes = has_kept_changes(whole.metadata)
    old: list[ObjectInfo] = []
    for file in listed:
        others.note(file.path)
        is_old = now_ms - file.modified_ms > removed_ms
        if (
            is_old
            and file.path not in live
            and _may_be_an_orphan(file.path.removeprefix(folder), keeps_changes=keeps_changes)
        ):
            old.append(file)
    for other in others.found():
        _LOGGER.warning("%s holds another cluster or table: what is there isn't swept", other)
    return [file for file in old if not others.spares(file.path)]


def any_age_candidates(state: TopicState, listed: Iterable[ObjectInfo]) -> list[ObjectInfo]:
    """The same, however young they are: for who knows otherwise that nobody will name them."""
    return candidates_of(state, listed, now_ms=_NOW_MS)


def orphans_among(
    state: TopicState,
    candidates: Iterable[ObjectInfo],
    removed: RemovedFiles,
    named: Callable[[], Collection[str]],
    *,
    now_ms: int,
) -> list[Orphan]:
    """The candidates that are orphans by what the topic's log says of them, in their order.

    Args:
        removed: read after ``state``.
        named: asks for the paths in the store that unfinished transactions name; only where it matters.
        now_ms: the store's time, learned before ``state``.
    """
    table, metadata = state.log.table, state.require_whole().metadata
    never_ms, removed_ms = orphan_age_ms(table, metadata), removed_age_ms(table, metadata)
    removed_at = {object_path(table, path): at_ms for path, at_ms in removed.removed_ms.items()}

    def is_over(file: ObjectInfo) -> bool:
        if file.path in removed_at:
            return now_ms - removed_at[file.path] > removed_ms
        return now_ms - file.modified_ms > never_ms

    over = [file for file in candidates if is_over(file)]
    spared = named() if over else ()
    return [
        Orphan(path=file.path, size_bytes=file.size_bytes, age_ms=now_ms - file.modified_ms)
        for file in over
        if file.path not in spared
    ]


def sweep_candidates(
    state: TopicState,
    topic: str,
    candidates: Sequence[ObjectInfo],
    *,
    now_ms: int,
    barrier: Callable[[], TransactionBarrier],
    timeout_ms: float,
) -> Swept:
    """Delete those of a topic's candidates that are orphans. Writes nothing where none is.

    Each entry that is left of the topic's log is read once, and only where there are candidates.

    Args:
        state: whole.
        candidates: of :func:`candidates_of`, by ``now_ms`` and ``state``, or an earlier state.
        now_ms: the store's time, learned before the barrier was set.
        barrier: gives the barrier, or sets it now.
        timeout_ms: for the topic's entry.
    Raises:
        SparklogError: the barrier's, where it doesn't stand; and as :func:`find_orphans`. Nothing was deleted.
        StoreError: some may have been deleted.
    """
    read_ticks_ms = state.log.clock.ticks_ms()
    removed = removed_files(state.log) if candidates else None
    if removed is None or not orphans_among(state, candidates, removed, tuple, now_ms=now_ms):
        return Swept(orphans=(), state=state)
    check_live_files(state)
    known = barrier()
    known.check()
    state = _take_next_version(state, timeout_ms=timeout_ms)
    removed = _with_removed_since(state, removed, read_ticks_ms=read_ticks_ms)
    live, table = _live(state), state.log.table
    spared_ms = min(now_ms, known.before_ms) - known.oldest_file_ms
    ever_removed = {object_path(table, path) for path in removed.removed_ms}
    may_go = [
        file
        for file in candidates
        if file.path not in live and (file.path in ever_removed or file.modified_ms < spared_ms)
    ]
    named = known.named.get(topic, frozenset())
    orphans = orphans_among(state, may_go, removed, lambda: named, now_ms=now_ms)
    for first in range(0, len(orphans), _DELETED_AT_ONCE):
        some = [orphan.path for orphan in orphans[first : first + _DELETED_AT_ONCE]]
        delete_listed(state.log, state.position.version, state.position.token, some)
    if orphans:
        _LOGGER.info("deleted %d orphans of topic %s", len(orphans), topic)
    return Swept(orphans=tuple(orphans), state=state)


def _take_next_version(state: TopicState, *, timeout_ms: float) -> TopicState:
    """Commit an entry that changes nothing: processes that decided before it decide again. The state after it."""

    def decide(now: TopicState) -> Commit:
        return Commit(actions=[], head=now.head, operation="VACUUM START")

    deadline = state.log.clock.deadline_in(timeout_ms)
    return commit(state, decide, deadline=deadline, sync=True).state


def _with_removed_since(state: TopicState, removed: RemovedFiles, *, read_ticks_ms: float) -> RemovedFiles:
    """``removed``, and what others removed since it was read, up to ``state``: as if it were removed now.

    Where that took so long that entries may have been cleaned meanwhile, the log is read anew (rule L1, trust).
    """
    log = state.log
    entries = log.read_raw_entries(range(removed.version + 1, state.position.version))
    if log.clock.ticks_ms() - read_ticks_ms > log.tail_trust_ms or None in entries:
        return removed_files(log)
    actions = (action for read in entries if read is not None for action in read[0].actions)
    since = {action.path: _NOW_MS for action in actions if isinstance(action, RemoveFile)}
    return RemovedFiles(removed_ms={**removed.removed_ms, **since}, version=state.position.version)


def check_live_files(state: TopicState) -> None:
    """Raise ``CorruptLogError`` where fewer files are live than the newest entry states: the checkpoint lacks some, and
    what it lacks looks like an orphan."""
    entry = state.log.read_entry(state.position.version)
    stated = None if entry is None else totals_of_info((entry.info or {}).get(TOTALS_INFO))
    found = totals_of(state.require_whole().index.by_path.values())
    if stated is not None and found.file_count < stated.file_count:
        raise CorruptLogError(
            f"{state.log.table}, version {state.position.version}: {found.file_count} files are live by the checkpoint "
            f"of version {state.checkpoint_version} and the entries behind it, and the entry states "
            f"{stated.file_count}: no file is deleted; sparklog check --repair writes a right checkpoint if it can"
        )


def _live(state: TopicState) -> set[str]:
    return {object_path(state.log.table, path) for path in state.require_whole().index.by_path}


def _may_be_an_orphan(path: str, *, keeps_changes: bool) -> bool:
    """Hidden folders hold what engines keep for themselves (source: Delta's ``VACUUM``). Not so the logs of stages that
    ingests left: one that is older than a day is of no use to the ingest that made it. Nor, as there, the rows that
    other engines changed, where the table keeps such or has kept them."""
    folder, _, rest = path.partition("/")
    if folder == CHANGES_FOLDER and keeps_changes:
        path = rest
    if folder.startswith(STAGE_PREFIX) and path.startswith(log_folder(folder)):
        return True
    return path.endswith(".parquet") and not any(part.startswith(("_", ".")) for part in path.split("/"))
