"""Merging the small files of a topic: plan, rewrite, commit, one range after the other."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass

from sparklog.compaction.cleaner import CleanerState
from sparklog.compaction.optimizing import SETTINGS, OptimizePolicy, plan_optimize
from sparklog.compaction.replacing import Outcome, Replacement, commit_replacement
from sparklog.compaction.rewriting import Rewrite, Rewritten, rewrite_with_arrow
from sparklog.compaction.topics import check_columns, make_durable, strict_config
from sparklog.compaction.units import FileRange
from sparklog.delta.log import DeltaLog
from sparklog.errors import ObjectNotFoundError, UnknownTopicOrPartitionError
from sparklog.log.state import TopicState, load_state

__all__ = ["MergedRange", "OptimizeReport", "optimize_topic"]

_LOGGER = logging.getLogger("sparklog.compaction")
DEFAULT_TIMEOUT_MS = 60_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedRange:
    """What became of files that were worth being merged."""

    partition: int
    first_offset: int
    """Inclusive."""
    last_offset: int
    """Inclusive."""
    record_count: int
    files_before: int
    bytes_before: int
    files_after: int
    """0 where nothing was written."""
    bytes_after: int
    outcome: Outcome
    error: str = ""
    """Why it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeReport:
    """What merging did to a topic, or would do."""

    topic: str
    ranges: tuple[MergedRange, ...]
    delta_version: int
    dry_run: bool


def plan_topic(state: TopicState, policy: OptimizePolicy) -> list[FileRange]:
    """The ranges of a whole topic, partition by partition."""
    index = state.require_whole().index
    ranges = []
    for partition in index.partitions():
        cleaner = CleanerState.of(state.transactions, state.head.topic_id, partition)
        ranges += plan_optimize(
            index.partition(partition), policy, partition=partition, boundary_offset=cleaner.first_dirty_offset
        )
    return ranges


def optimize_topic(
    log: DeltaLog,
    topic: str,
    *,
    policy: OptimizePolicy | None = None,
    rewrite: Rewrite = rewrite_with_arrow,
    dry_run: bool = False,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
) -> OptimizeReport:
    """Merge small files of each partition into few large ones; not a record changes.

    Each range is a commit of its own. Safe to run twice at once and to kill at any point: what was uploaded and not
    committed is swept later.

    Args:
        timeout_ms: for each commit.
    Raises:
        NotATopicError: the table has columns of others; nothing was rewritten.
        InvalidConfigurationError: a setting isn't understood; nothing was rewritten.
        UnknownTopicOrPartitionError, KafkaTimeoutError, CommitStateUnknownError, StoreError, …: what was merged before
            stays so.
    """
    state = load_state(log)
    if state.head.deleted:
        raise UnknownTopicOrPartitionError(f"unknown topic: {topic!r} was deleted")
    metadata = state.require_whole().metadata
    check_columns(log.table, metadata)
    config = strict_config(log.table, metadata, SETTINGS)
    compression = str(config["compression.type"])
    ranges = plan_topic(state, (policy or OptimizePolicy()).for_topic(config))
    if dry_run:
        planned = tuple(_planned(found) for found in ranges)
        return OptimizeReport(topic=topic, ranges=planned, delta_version=state.position.version, dry_run=True)
    topic_id = state.head.topic_id
    merged = []
    with closing(rewrite(log, ranges, compression)) as results:
        for rewritten in results:
            if rewritten.error is not None:
                merged.append(_refused(log, rewritten))
                continue
            replacement = Replacement(
                rewritten=rewritten,
                data_change=False,
                operation="OPTIMIZE",
                topic_id=topic_id,
            )
            outcome, state = commit_replacement(state, replacement, timeout_ms=timeout_ms)
            merged.append(_merged(rewritten, outcome))
    if merged:
        make_durable(log)
    return OptimizeReport(topic=topic, ranges=tuple(merged), delta_version=state.position.version, dry_run=False)


def _planned(found: FileRange) -> MergedRange:
    return _merged(Rewritten(range=found, files=(), began_ticks_ms=0), Outcome.PLANNED)


def _refused(log: DeltaLog, rewritten: Rewritten) -> MergedRange:
    if isinstance(rewritten.error, ObjectNotFoundError):  # replaced, and vacuumed already: somebody else was at it
        return _merged(rewritten, Outcome.OVERTAKEN)
    _LOGGER.warning("%s: files aren't merged: %s", log.table, rewritten.error)
    return _merged(rewritten, Outcome.FAILED, error=str(rewritten.error))


def _merged(rewritten: Rewritten, outcome: Outcome, *, error: str = "") -> MergedRange:
    found = rewritten.range
    return MergedRange(
        partition=found.partition,
        first_offset=found.first_offset,
        last_offset=found.last_offset,
        record_count=found.record_count,
        files_before=len(found.segments),
        bytes_before=found.size_bytes,
        files_after=len(rewritten.files),
        bytes_after=sum(file.size_bytes for file in rewritten.files),
        outcome=outcome,
        error=error,
    )
