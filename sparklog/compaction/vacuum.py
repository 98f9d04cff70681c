"""Deleting what a topic doesn't need any more: old log entries, removed files, files that no log names."""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.compaction.topics import strict_config
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.delta.properties import deleted_file_retention_ms
from sparklog.log import Cluster, sequence_topic
from sparklog.log.state import load_state
from sparklog.txn.markers import expire_markers
from sparklog.txn.orphans import find_orphans, removed_age_ms, sweep_orphans

__all__ = ["VacuumReport", "checkpoint_worthwhile", "vacuum_topic"]

_TAIL = 20
_LIVE_FILES_PER_VERSION = 100
_LOG_RETENTION = "log.retention.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumReport:
    """What was deleted of a topic, or would be."""

    topic: str
    files_deleted: int
    """Data files: removed from the table for longer than ``retention_ms``; or left over, and never part of it, for
    longer than that and than a week."""
    bytes_deleted: int
    entries_deleted: int
    """Log entries and old checkpoints. In a dry run 0: what may go is known once a checkpoint is written."""
    checkpoint_version: int | None
    """Of the checkpoint that was written; None where none was worth it."""
    expired_ids: int
    """Transactional ids that were taken from their producers a week ago: the topic lets them go."""
    retention_ms: int
    """For so long readers may go on with files that were removed, and the table be read as it was; by so much less as
    the clocks of the machines that commit to it differ."""
    dry_run: bool


def checkpoint_worthwhile(*, version: int, checkpoint_version: int, live_file_count: int) -> bool:
    """Is it for a job to write a checkpoint? Sooner than for a writer: only entries below one can be cleaned up."""
    return version - checkpoint_version >= max(_TAIL, live_file_count // _LIVE_FILES_PER_VERSION)


def vacuum_topic(cluster: Cluster, topic: str, *, dry_run: bool = False, timeout_ms: float) -> VacuumReport:
    """Write a checkpoint where it is worth it, clean the log up, and delete files that nobody needs.

    Also of a deleted topic. Files go once they were removed for as long as ``delta.deletedFileRetentionDuration`` says,
    a week by default and a day at least; those that were never committed once they are as old, and a week at least.
    Safe to run twice at once and to kill at any point.

    Args:
        timeout_ms: for each commit.
    Raises:
        InvalidConfigurationError: ``log.retention.ms`` or ``delta.deletedFileRetentionDuration`` isn't understood;
            nothing was deleted.
        UnknownTopicOrPartitionError: there never was such a topic.
        SparklogError: a transaction can't be finished, so no file is deleted; and whatever reading a log raises.
    """
    log = cluster.topic_log(topic)
    state = load_state(log)
    metadata = state.require_whole().metadata
    log_retention_ms = strict_config(log.table, metadata, [_LOG_RETENTION]).integer(_LOG_RETENTION)
    retention_ms = removed_age_ms(log.table, metadata)
    if retention_ms > deleted_file_retention_ms(log.table, metadata):
        log_retention_ms = max(log_retention_ms, retention_ms)  # what a checkpoint has forgotten, the entries tell
    checkpoint, entries = None, 0
    if not dry_run:
        known = {"version": state.position.version, "live_file_count": state.head.live_file_count}
        if checkpoint_worthwhile(checkpoint_version=state.checkpoint_version, **known):
            if state.head.unsequenced_count and not state.head.deleted:
                sequence_topic(log, timeout_ms=timeout_ms)  # rule F2: a checkpoint forgets the order of foreign commits
            checkpoint = write_checkpoint(log)
        cleaned = clean_log(log, retention_ms=log_retention_ms)
        entries = cleaned.deleted_count if cleaned is not None else 0
    # After what takes no transactional id's log to be understood; the next checkpoint leaves them out.
    expired = expire_markers(cluster, state, dry_run=dry_run, timeout_ms=timeout_ms)
    now_ms = cluster.clock.now_ms() if dry_run else None  # to ask for the store's time takes a write
    orphans = find_orphans(cluster, topic, now_ms=now_ms)
    if orphans and not dry_run:  # a sweep commits to the topic, so it is for those that have something to be swept
        orphans = sweep_orphans(cluster, topic, dry_run=False, timeout_ms=timeout_ms)
    return VacuumReport(
        topic=topic,
        files_deleted=len(orphans),
        bytes_deleted=sum(orphan.size_bytes for orphan in orphans),
        entries_deleted=entries,
        checkpoint_version=checkpoint,
        expired_ids=len(expired),
        retention_ms=retention_ms,
        dry_run=dry_run,
    )
