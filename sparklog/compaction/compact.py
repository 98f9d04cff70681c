"""Compaction by key: plans, passes and commits for the partitions of a topic that are due, the dirtiest first.

A pass commits range by range, in offset order, and at its end remembers up to where it came. Killed in between it has
dropped records whose keys came again, all of which are still there, and nothing else; the next pass begins anew. A
range that somebody else changed meanwhile ends the pass: nothing behind it may be dropped for what it holds.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass, replace

from sparklog.compaction.cleaner import CleanerRules, CleanerState, CleanPlan, Reason, cleaner_rules, plan_clean
from sparklog.compaction.cleaning import Clean, clean_with_arrow
from sparklog.compaction.keys import Counts
from sparklog.compaction.optimizing import TARGET_BYTES
from sparklog.compaction.replacing import Outcome, Replacement, commit_replacement
from sparklog.compaction.topics import check_columns, check_removal, commit_job, is_gone, make_durable, strict_config
from sparklog.delta.log import DeltaLog
from sparklog.errors import CorruptRecordError, InvalidArgumentError, ObjectNotFoundError, UnknownTopicOrPartitionError
from sparklog.log.commit import Commit
from sparklog.log.state import TopicState, load_state

__all__ = ["CleanedPartition", "CompactReport", "compact_topic"]

_LOGGER = logging.getLogger("sparklog.compaction")
DEFAULT_TIMEOUT_MS = 60_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedPartition:
    """Where a partition of a compacted topic stands, and what was done about it."""

    partition: int
    reason: Reason
    """Why it was due; :attr:`~Reason.NONE` where it wasn't."""
    dirty_ratio: float
    """Before; 0 … 1."""
    oldest_dirty_ms: int | None
    """Before; the smallest timestamp of a record that waited; None where none did."""
    tombstones_due: int
    """Before; about how many might go."""
    first_dirty_offset: int
    """Afterwards."""
    counts: Counts
    """Of the records that were looked at."""
    files_before: int
    """Of those that were replaced."""
    bytes_before: int
    files_after: int
    bytes_after: int
    outcome: Outcome | None
    """None where nothing was to be done."""
    error: str = ""
    """Why it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport:
    """What compaction did to a topic, or would do."""

    topic: str
    compacts: bool
    """False: its ``cleanup.policy`` is without ``compact``, there is nothing to tell."""
    partitions: tuple[CleanedPartition, ...]
    """By number; those with files."""
    delta_version: int
    dry_run: bool


def compact_topic(
    log: DeltaLog,
    topic: str,
    *,
    now_ms: int,
    clean: Clean = clean_with_arrow,
    target_bytes: int = TARGET_BYTES,
    dry_run: bool = False,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
) -> CompactReport:
    """Drop the records of a compacted topic whose keys came again, where it is worth it; offsets and order stay.

    Safe to run twice at once and to kill at any point.

    Args:
        now_ms: the store's time.
        target_bytes: how large a rewritten file may become; ``segment.bytes`` may say less.
        timeout_ms: for each commit.
    Raises:
        InvalidConfigurationError: a setting isn't understood; nothing was dropped.
        PolicyViolationError: the table is append-only.
        NotATopicError: the table has columns of others.
        UnknownTopicOrPartitionError, KafkaTimeoutError, CommitStateUnknownError, StoreError, …: what was dropped
            before is right; do it again.
    """
    state = load_state(log)
    if state.head.deleted:
        raise UnknownTopicOrPartitionError(f"unknown topic: {topic!r} was deleted")
    metadata = state.require_whole().metadata
    rules = cleaner_rules(log.table, metadata)
    if not rules.compacts:
        return CompactReport(
            topic=topic, compacts=False, partitions=(), delta_version=state.position.version, dry_run=dry_run
        )
    check_columns(log.table, metadata)
    check_removal(log.table, metadata)
    plans = plan_topic(state, rules, now_ms=now_ms)
    if dry_run:
        found = [_told(plan, Outcome.PLANNED if plan.reason is not Reason.NONE else None) for plan in plans]
    else:
        compression = str(strict_config(log.table, metadata, ["compression.type"])["compression.type"])
        job = _Job(state, rules, clean, compression, min(target_bytes, rules.segment_bytes), now_ms, timeout_ms)
        found = [job.run(plan) for plan in sorted(plans, key=lambda plan: -plan.dirty_ratio)]
        state = job.state
        if any(one.outcome is not None for one in found):
            make_durable(log)
    return CompactReport(
        topic=topic,
        compacts=True,
        partitions=tuple(sorted(found, key=lambda one: one.partition)),
        delta_version=state.position.version,
        dry_run=dry_run,
    )


def plan_topic(state: TopicState, rules: CleanerRules, *, now_ms: int) -> list[CleanPlan]:
    """The plans of all partitions that have files."""
    index = state.require_whole().index
    return [
        _plan(state, rules, partition, now_ms=now_ms)
        for partition in index.partitions()
        if partition < state.head.partition_count
    ]


def _plan(state: TopicState, rules: CleanerRules, partition: int, *, now_ms: int) -> CleanPlan:
    return plan_clean(
        state.require_whole().index.partition(partition),
        rules,
        CleanerState.of(state.transactions, state.head.topic_id, partition),
        partition=partition,
        log_start_offset=state.head.log_start_offsets[partition],
        now_ms=now_ms,
    )


class _Job:
    """The partitions of one topic, one after the other."""

    def __init__(
        self,
        state: TopicState,
        rules: CleanerRules,
        clean: Clean,
        compression: str,
        file_bytes: int,
        now_ms: int,
        timeout_ms: float,
    ) -> None:
        self.state = state
        self._log = state.log
        self._rules = rules
        self._clean = clean
        self._compression = compression
        self._file_bytes = file_bytes
        self._topic_id = state.head.topic_id
        self._began = (now_ms, state.log.clock.ticks_ms())
        self._timeout_ms = timeout_ms

    def run(self, plan: CleanPlan) -> CleanedPartition:
        """Pass after pass, up to where the partition was cleanable at first."""
        told = _told(plan, None)
        if plan.reason is Reason.NONE:
            return told
        end_offset, next_plan = plan.end_offset, plan
        while True:
            try:
                told, is_through = self._pass(next_plan, told)
            except ObjectNotFoundError:  # replaced, and vacuumed already: somebody else was at it
                return replace(told, outcome=Outcome.OVERTAKEN)
            except (CorruptRecordError, InvalidArgumentError) as error:
                _LOGGER.warning("%s: partition %d isn't compacted: %s", self._log.table, plan.partition, error)
                return replace(told, outcome=Outcome.FAILED, error=str(error))
            if not is_through or told.first_dirty_offset >= end_offset or is_gone(self.state, self._topic_id):
                return told
            next_plan = _plan(self.state, self._rules, plan.partition, now_ms=self._now_ms())
            if not next_plan.dirty_bytes:  # each pass cleans some; what was left is gone
                return told

    def _pass(self, plan: CleanPlan, told: CleanedPartition) -> tuple[CleanedPartition, bool]:
        """One pass: what is to be told after it, and whether it came to its end."""
        going = self._clean(self._log, plan, self._compression, self._file_bytes)
        tombstones_kept = 0
        with closing(going.pieces) as pieces:
            for piece in pieces:
                told = replace(told, counts=told.counts + piece.counts)
                for rewritten in piece.rewritten:
                    replacement = Replacement(
                        rewritten=rewritten,
                        data_change=True,
                        operation="COMPACT",
                        topic_id=self._topic_id,
                    )
                    outcome, self.state = commit_replacement(self.state, replacement, timeout_ms=self._timeout_ms)
                    if outcome is not Outcome.DONE:
                        came_to = piece.first_offset  # below, each key is there once: its later records weren't met
                        if came_to > plan.first_dirty_offset and self._remember(plan, came_to, tombstones_kept):
                            told = replace(told, first_dirty_offset=came_to)
                        return replace(told, outcome=outcome), False
                    told = replace(
                        told,
                        files_before=told.files_before + len(rewritten.range.segments),
                        bytes_before=told.bytes_before + rewritten.range.size_bytes,
                        files_after=told.files_after + len(rewritten.files),
                        bytes_after=told.bytes_after + sum(file.size_bytes for file in rewritten.files),
                    )
                tombstones_kept += piece.counts.tombstones_kept
        is_remembered = self._remember(plan, going.end_offset, tombstones_kept)
        if not is_remembered:
            return replace(told, outcome=Outcome.OVERTAKEN), False
        return replace(told, outcome=Outcome.DONE, first_dirty_offset=going.end_offset), True

    def _remember(self, plan: CleanPlan, end_offset: int, tombstone_count: int) -> bool:
        """Commit up to where the partition is clean. False: somebody else has cleaned it meanwhile."""

        def decide(now: TopicState) -> Commit | None:
            found = CleanerState.of(now.transactions, self._topic_id, plan.partition)
            if is_gone(now, self._topic_id) or found != plan.state:
                return None
            after = found.after_pass(
                end_offset=end_offset,
                tombstone_count=tombstone_count,
                due_tombstones_end=plan.due_tombstones_end,
                now_ms=self._now_ms(),
            )
            wanted.append(after)
            return Commit(actions=after.to_actions(self._topic_id, plan.partition), head=now.head, operation="COMPACT")

        wanted: list[CleanerState] = []
        done = commit_job(self.state, decide, timeout_ms=self._timeout_ms)
        self.state = done.state
        found = CleanerState.of(self.state.transactions, self._topic_id, plan.partition)
        return done.commit is not None or found in wanted  # found: our own commit, whose answer was lost

    def _now_ms(self) -> int:
        """The store's time, carried on by ticks: no clock that an administrator sets."""
        now_ms, ticks_ms = self._began
        return now_ms + int(self._log.clock.ticks_ms() - ticks_ms)


def _told(plan: CleanPlan, outcome: Outcome | None) -> CleanedPartition:
    return CleanedPartition(
        partition=plan.partition,
        reason=plan.reason,
        dirty_ratio=plan.dirty_ratio,
        oldest_dirty_ms=plan.oldest_dirty_ms,
        tombstones_due=plan.tombstones_due,
        first_dirty_offset=plan.state.first_dirty_offset,
        counts=Counts(),
        files_before=0,
        bytes_before=0,
        files_after=0,
        bytes_after=0,
        outcome=outcome,
    )
