"""Deleting what a topic doesn't need any more: old log entries, removed files, files that no log names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from sparklog.compaction.due import checkpoint_worthwhile
from sparklog.compaction.run_context import MaintenanceRun
from sparklog.compaction.topic_access import strict_config
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.delta.names import log_folder, parse_name
from sparklog.delta.properties import deleted_file_retention_ms, protected_below
from sparklog.delta.removed import removed_files
from sparklog.log import Cluster, sequence_topic
from sparklog.log.state import TopicState, load_state
from sparklog.paths import ANNOUNCED_FOLDER
from sparklog.storage import ObjectInfo
from sparklog.txn.barrier import named_files
from sparklog.txn.markers import expire_markers
from sparklog.txn.orphans import (
    ORPHAN_AGE_MS,
    Orphan,
    candidates_of,
    check_live_files,
    orphans_among,
    others_folders,
    removed_age_ms,
    sweep_candidates,
)

__all__ = ["VacuumReport", "vacuum_state", "vacuum_topic"]

_LOG_RETENTION = "log.retention.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumReport:
    """The report on what was deleted of a topic, or would be."""

    topic: str
    files_deleted: int
    """Data files: removed from the table for longer than ``retention_ms``; or left over, and never part of it, for
    longer than that and than a week."""
    bytes_deleted: int
    entries_deleted: int
    """Log entries and old checkpoints. In a dry run 0: what may go is known once a checkpoint is written."""
    checkpoint_version: int | None
    """The version of the checkpoint that was written; None where none was worth it."""
    expired_ids: int
    """Transactional ids that were taken from their producers a week ago: the topic lets them go."""
    retention_ms: int
    """For so long readers may go on with files that were removed, and the table be read as it was; by so much less as
    the clocks of the machines that commit to it differ."""
    dry_run: bool
    searched: bool = True
    """Was the topic's folder searched for unneeded files, and were its transactional ids looked at? A run that
    wasn't asked for this topic or this step does it once a day."""
    spared_folders: tuple[str, ...] = ()
    """Folders in the topic's that hold another cluster or another table, with a trailing slash: nothing in them was
    deleted. They don't belong there."""


def vacuum_topic(cluster: Cluster, topic: str, *, dry_run: bool = False, timeout_ms: float) -> VacuumReport:
    """Write a checkpoint where it is worth it, clean the log up, and delete unneeded files.

    Also of a deleted topic. Files go once they were removed for as long as ``delta.deletedFileRetentionDuration`` says,
    a week by default and a day at least; those that were never committed once they are as old, and a week at least.
    Safe to run twice at once and to kill at any point.

    Args:
        timeout_ms: for each commit.
    Raises:
        InvalidConfigurationError: ``log.retention.ms`` or ``delta.deletedFileRetentionDuration`` isn't understood;
            nothing was deleted.
        UnsupportedVersionError: the table asks a writer for what sparklog doesn't do; nothing was deleted.
        UnknownTopicOrPartitionError: there never was such a topic.
        SparklogError: a transaction can't be finished, so no file is deleted; and whatever reading a log raises.
    """
    run = MaintenanceRun(cluster, timeout_ms=timeout_ms, dry_run=dry_run)
    run.began_ms  # noqa: B018 - before the topic is loaded: what is removed later is younger
    return vacuum_state(load_state(cluster.topic_log(topic)), topic, run, dry_run=dry_run, timeout_ms=timeout_ms)[0]


def vacuum_state(
    state: TopicState, topic: str, run: MaintenanceRun, *, search: bool = True, dry_run: bool = False, timeout_ms: float
) -> tuple[VacuumReport, TopicState]:
    """Vacuum a topic that was loaded since the run began, as :func:`vacuum_topic` does. Returns the state to go on
    with, too.

    Where nothing is due it costs a LIST, with ``search`` one of the whole folder.

    Args:
        search: search for unneeded files, and for markers of expired transactional ids.
    """
    log, metadata = state.log, state.require_whole().metadata
    if state.unwritable is not None:  # a feature that sparklog doesn't know may keep files of its own in the folder
        raise state.unwritable.with_traceback(None)
    log_retention_ms = strict_config(log.table, metadata, [_LOG_RETENTION]).integer(_LOG_RETENTION)
    retention_ms = removed_age_ms(log.table, metadata)
    if retention_ms > deleted_file_retention_ms(log.table, metadata):
        log_retention_ms = max(log_retention_ms, retention_ms)  # entries keep what a checkpoint has dropped
    below = protected_below(log.table, metadata)
    checkpoint = None
    if not dry_run:
        checkpoint, state = _write_checkpoint_if_worthwhile(state, run, timeout_ms=timeout_ms)
    oldest = _OldestEntries(log_folder(log.table))
    candidates: list[ObjectInfo] = []
    others = others_folders(log)
    if search:  # one listing serves all that goes by ages
        listed = oldest.watch(log.store.list(f"{log.table}/"))
        candidates = candidates_of(state, listed, now_ms=run.began_ms, others=others)
    elif state.checkpoint_version >= 0:
        next(filter(lambda _: oldest.are_known, oldest.watch(log.store.list(log_folder(log.table)))), None)
    entries = 0
    if not dry_run and oldest.may_go(state.checkpoint_version, now_ms=run.now_ms(), retention_ms=log_retention_ms):
        check = partial(check_live_files, state)
        cleaned = clean_log(log, retention_ms=log_retention_ms, protected_below=below, before_delete=check)
        entries = cleaned.deleted_count if cleaned is not None else 0
    expired: list[str] = []
    orphans: Sequence[Orphan] = ()
    if search:  # after what takes no transactional id's log to be understood; the next checkpoint leaves markers out
        expired, state = expire_markers(state, run.ids, dry_run=dry_run, timeout_ms=timeout_ms)
        orphans, state = _sweep(state, topic, candidates, run, dry_run=dry_run, timeout_ms=timeout_ms)
        if not dry_run:
            folder = f"{log.table}/{ANNOUNCED_FOLDER}"
            log.store.remove_empty_folders(folder, changed_before_ms=run.began_ms - ORPHAN_AGE_MS)
    report = VacuumReport(
        topic=topic,
        files_deleted=len(orphans),
        bytes_deleted=sum(orphan.size_bytes for orphan in orphans),
        entries_deleted=entries,
        checkpoint_version=checkpoint,
        expired_ids=len(expired),
        retention_ms=retention_ms,
        dry_run=dry_run,
        searched=search,
        spared_folders=others.found(),
    )
    return report, state


def _write_checkpoint_if_worthwhile(
    state: TopicState, run: MaintenanceRun, *, timeout_ms: float
) -> tuple[int | None, TopicState]:
    log, head = state.log, state.head
    known = {"version": state.position.version, "checkpoint_version": state.checkpoint_version}
    if not checkpoint_worthwhile(**known, live_file_count=head.live_file_count):
        return None, state
    if head.unsequenced_count and not head.deleted:
        with run.rewrite_lock:
            # rule F2, sequencing: a checkpoint forgets the order of foreign commits
            sequence_topic(log, timeout_ms=timeout_ms)
        state = load_state(log)
    version = write_checkpoint(log)
    if version is not None:
        state.checkpoint_version = max(state.checkpoint_version, version)
    return version, state


def _sweep(
    state: TopicState,
    topic: str,
    candidates: Sequence[ObjectInfo],
    run: MaintenanceRun,
    *,
    dry_run: bool,
    timeout_ms: float,
) -> tuple[Sequence[Orphan], TopicState]:
    if not dry_run:
        swept = sweep_candidates(
            state, topic, candidates, now_ms=run.began_ms, barrier=run.barrier, timeout_ms=timeout_ms
        )
        return swept.orphans, swept.state
    if not candidates:
        return (), state

    def named() -> Collection[str]:
        return named_files(run.ids().values()).get(topic, frozenset())

    return orphans_among(state, candidates, removed_files(state.log), named, now_ms=run.began_ms), state


class _OldestEntries:
    """The two oldest entries of a log, as a listing passes by."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._found: list[tuple[int, int]] = []
        """Version, and the store's time of the entry."""

    def watch(self, listed: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
        """The listing, which is by path."""
        for one in listed:
            if not self.are_known and one.path.startswith(self._folder):
                version = parse_name(one.path.removeprefix(self._folder))
                if isinstance(version, int):
                    self._found.append((version, one.modified_ms))
            yield one

    @property
    def are_known(self) -> bool:
        return len(self._found) == 2

    def may_go(self, checkpoint_version: int, *, now_ms: int, retention_ms: int) -> bool:
        """Is the oldest entry one that a cleanup might delete, see :func:`~sparklog.delta.cleanup.plan_cleanup`?"""
        if not self.are_known:
            return False
        (version, _), (_, successor_ms) = self._found
        return version < checkpoint_version and now_ms - successor_ms >= retention_ms
