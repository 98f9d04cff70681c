"""Compaction by key: plans, passes and commits for the partitions of a topic that are due, the dirtiest first.

A pass commits range by range, in offset order, and at its end remembers up to where it came. Killed in between it has
dropped records whose keys came again, all of which are still there, and nothing else; the next pass begins anew. A
range that another process changed meanwhile ends the pass: nothing behind it may be dropped for what it holds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace

from sparklog.compaction.clean_arrow import Clean, clean_with_arrow
from sparklog.compaction.commit_replacement import Outcome, Replacement, commit_replacement, why_gone
from sparklog.compaction.file_ranges import unreadable_files
from sparklog.compaction.keys import Counts
from sparklog.compaction.plan_cleaning import (
    CleanerRules,
    CleanerState,
    CleanPlan,
    Reason,
    cleaner_rules,
    plan_partition,
    plan_topic,
)
from sparklog.compaction.plan_optimize import TARGET_BYTES
from sparklog.compaction.progress import Progress, ignore_progress
from sparklog.compaction.rewrite_arrow import NOT_REWRITABLE, Rewritten
from sparklog.compaction.topic_access import (
    check_columns,
    check_removal,
    commit_job,
    is_gone,
    made_durable,
    may_succeed_later,
    strict_config,
)
from sparklog.delta.log import DeltaLog
from sparklog.errors import (
    ObjectNotFoundError,
    RetriableError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.commit import Commit
from sparklog.log.state import TopicState, load_state

__all__ = ["CleanedPartition", "CompactReport", "compact_state", "compact_topic"]

_LOGGER = logging.getLogger("sparklog.compaction")
DEFAULT_TIMEOUT_MS = 60_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedPartition:
    """The compaction of one partition: its state before, and what was done."""

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
    """The counts of the records that were looked at."""
    files_before: int
    """The number of files that were replaced."""
    bytes_before: int
    files_after: int
    bytes_after: int
    outcome: Outcome | None
    """None where nothing was to be done."""
    error: str = ""
    """Why it failed."""
    retriable: bool = False
    """It failed, and may succeed later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport:
    """The compaction of one topic, done or planned."""

    topic: str
    compacts: bool
    """False: its ``cleanup.policy`` lacks ``compact``, so there are no results."""
    partitions: tuple[CleanedPartition, ...]
    """By number; those with files."""
    delta_version: int
    dry_run: bool
    unreadable: tuple[str, ...] = ()
    """Paths of live files that can't be read: nothing from there on was compacted."""


def compact_topic(
    log: DeltaLog,
    topic: str,
    *,
    now_ms: int | Callable[[], int],
    clean: Clean = clean_with_arrow,
    target_bytes: int = TARGET_BYTES,
    dry_run: bool = False,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    progress: Progress = ignore_progress,
) -> CompactReport:
    """Drop the records of a compacted topic whose keys came again, where it is worth it; offsets and order stay.

    Safe to run twice at once and to kill at any point. A partition that fails hinders no other.

    Args:
        now_ms: the store's time, or what asks for it; a topic that isn't compacted is not worth the question.
        target_bytes: how large a rewritten file may become; ``segment.bytes`` may say less.
        timeout_ms: for each commit.
        progress: is called after each part of a pass.
    Raises:
        InvalidConfigurationError: a setting isn't understood; nothing was dropped.
        PolicyViolationError: the table is append-only.
        NotATopicError: the table lacks columns of a topic.
        UnknownTopicOrPartitionError, CommitStateUnknownError, StoreError, …: what was dropped before is right; do it
            again.
    """
    return compact_state(
        load_state(log),
        topic,
        now_ms=now_ms if callable(now_ms) else (lambda: now_ms),
        clean=clean,
        target_bytes=target_bytes,
        dry_run=dry_run,
        timeout_ms=timeout_ms,
        progress=progress,
    )[0]


def compact_state(
    state: TopicState,
    topic: str,
    *,
    now_ms: Callable[[], int],
    fresh_ms: Callable[[], int] | None = None,
    clean: Clean = clean_with_arrow,
    target_bytes: int = TARGET_BYTES,
    dry_run: bool = False,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    progress: Progress = ignore_progress,
    rewrite_lock: AbstractContextManager[object] | None = None,
    begins: Callable[[Sequence[CleanPlan]], object] | None = None,
) -> tuple[CompactReport, TopicState]:
    """Compact a topic that is loaded, as :func:`compact_topic` does. Returns the state to go on with, too. Where
    nothing is due no store is called.

    Args:
        now_ms: asks for the store's time, by which the plan is made; it may be a little earlier.
        fresh_ms: asks for the store's time now, by which tombstones are remembered; by default ``now_ms`` does.
        rewrite_lock: is entered while records are read and written.
        begins: is called with the plans that are due, before anything is done about them; what it raises is raised.
    """
    log = state.log
    if state.head.deleted:
        raise UnknownTopicOrPartitionError(f"unknown topic: {topic!r} was deleted")
    metadata = state.require_whole().metadata
    rules = cleaner_rules(log.table, metadata)
    if not rules.compacts:
        report = CompactReport(
            topic=topic, compacts=False, partitions=(), delta_version=state.position.version, dry_run=dry_run
        )
        return report, state
    check_columns(log.table, metadata)
    check_removal(log.table, metadata)
    plans = plan_topic(state, rules, now_ms=now_ms())
    due = [plan for plan in plans if plan.reason is not Reason.NONE]
    if dry_run or not due:
        reports = [_initial_report(plan, None if plan.reason is Reason.NONE else Outcome.PLANNED) for plan in plans]
    else:
        if begins is not None:
            begins(due)
        compression = str(strict_config(log.table, metadata, ["compression.type"])["compression.type"])
        file_bytes = min(target_bytes, rules.segment_bytes)
        with rewrite_lock or nullcontext(), made_durable(log) as committing:
            began_ms = (fresh_ms or now_ms)()
            job = _Job(state, rules, clean, compression, file_bytes, began_ms, timeout_ms, committing, progress)
            reports = [job.run(plan) for plan in sorted(plans, key=lambda plan: -plan.dirty_ratio)]
        state = job.state
    report = CompactReport(
        topic=topic,
        compacts=True,
        partitions=tuple(sorted(reports, key=lambda report: report.partition)),
        delta_version=state.position.version,
        dry_run=dry_run,
        unreadable=unreadable_files(state.require_whole().index),
    )
    return report, state


@dataclass(slots=True)
class _PartitionProgress:
    """The report of a partition so far, however its pass ends."""

    report: CleanedPartition

    def add(self, rewritten: Rewritten) -> None:
        """Count one more range that was replaced."""
        report = self.report
        self.report = replace(
            report,
            files_before=report.files_before + len(rewritten.range.segments),
            bytes_before=report.bytes_before + rewritten.range.size_bytes,
            files_after=report.files_after + len(rewritten.files),
            bytes_after=report.bytes_after + sum(file.size_bytes for file in rewritten.files),
        )


class _Job:
    """The compaction of one topic's partitions, one after the other."""

    def __init__(
        self,
        state: TopicState,
        rules: CleanerRules,
        clean: Clean,
        compression: str,
        file_bytes: int,
        now_ms: int,
        timeout_ms: float,
        committing: Callable[[], None],
        progress: Progress,
    ) -> None:
        self.state = state
        self._known_version = state.position.version
        self._log = state.log
        self._rules = rules
        self._clean = clean
        self._compression = compression
        self._file_bytes = file_bytes
        self._topic_id = state.head.topic_id
        self._began = (now_ms, state.log.clock.ticks_ms())
        self._timeout_ms = timeout_ms
        self._committing = committing
        self._progress = progress

    def run(self, plan: CleanPlan) -> CleanedPartition:
        """Clean a partition, pass after pass, up to where it was cleanable at first."""
        progress = _PartitionProgress(_initial_report(plan, None))
        if plan.reason is Reason.NONE:
            return progress.report
        next_plan = plan
        try:
            while self._pass(next_plan, progress):
                if progress.report.first_dirty_offset >= plan.end_offset or is_gone(self.state, self._topic_id):
                    break
                next_plan = plan_partition(self.state, self._rules, plan.partition, now_ms=self._now_ms())
                if not next_plan.dirty_bytes:  # each pass cleans some; what was left is gone
                    break
        except ObjectNotFoundError as error:
            self.state = load_state(self._log)
            segments = [segment for unit in next_plan.units for segment in unit.segments]
            lost = why_gone(self.state, segments, error, topic_id=self._topic_id)
            return (
                self._failed(progress.report, error, lost)
                if lost
                else replace(progress.report, outcome=Outcome.OVERTAKEN)
            )
        except NOT_REWRITABLE as error:
            return self._failed(progress.report, error, str(error))
        except RetriableError as error:  # lost races, or an engine that gave up: other partitions may fare better
            if not may_succeed_later(error):  # the topic is gone, or the outcome of a commit is unknown
                raise
            return self._failed(progress.report, error, str(error))
        return progress.report

    def _failed(self, report: CleanedPartition, error: SparklogError, why: str) -> CleanedPartition:
        _LOGGER.warning("%s: partition %d isn't compacted: %s", self._log.table, report.partition, why)
        return replace(report, outcome=Outcome.FAILED, error=why, retriable=may_succeed_later(error))

    def _pass(self, plan: CleanPlan, progress: _PartitionProgress) -> bool:
        """Do one pass. True: it came to its end."""
        cleaning = self._clean(self._log, plan, self._compression, self._file_bytes)
        tombstones_kept = records = 0
        total = sum(unit.record_count for unit in plan.units if unit.first_offset < cleaning.end_offset)
        with closing(cleaning.pieces) as pieces:
            for piece in pieces:
                progress.report = replace(progress.report, counts=progress.report.counts + piece.counts)
                for rewritten in piece.rewritten:
                    outcome = self._replace(rewritten)
                    if outcome is not Outcome.DONE:
                        came_to = piece.first_offset  # below, each key is there once: its later records weren't met
                        if came_to > plan.first_dirty_offset and self._remember(
                            plan, came_to, tombstones_kept, cleaning.due_tombstones_end
                        ):
                            progress.report = replace(progress.report, first_dirty_offset=came_to)
                        progress.report = replace(progress.report, outcome=outcome)
                        return False
                    progress.add(rewritten)
                tombstones_kept += piece.counts.tombstones_kept
                records += piece.counts.records
                self._progress(f"partition {plan.partition}: {records} of {total} records")
        if not self._remember(plan, cleaning.end_offset, tombstones_kept, cleaning.due_tombstones_end):
            progress.report = replace(progress.report, outcome=Outcome.OVERTAKEN)
            return False
        progress.report = replace(progress.report, outcome=Outcome.DONE, first_dirty_offset=cleaning.end_offset)
        return True

    def _replace(self, rewritten: Rewritten) -> Outcome:
        replacement = Replacement(
            rewritten=rewritten,
            data_change=True,
            operation="COMPACT",
            topic_id=self._topic_id,
            known_version=self._known_version,
        )
        self._committing()
        outcome, self.state = commit_replacement(self.state, replacement, timeout_ms=self._timeout_ms)
        return outcome

    def _remember(self, plan: CleanPlan, end_offset: int, tombstone_count: int, due_tombstones_end: int) -> bool:
        """Commit up to where the partition is clean. False: another process has cleaned it meanwhile."""

        def decide(now: TopicState) -> Commit | None:
            state = CleanerState.of(now.transactions, self._topic_id, plan.partition)
            if is_gone(now, self._topic_id) or state != plan.state:
                return None
            after = state.after_pass(
                end_offset=end_offset,
                tombstone_count=tombstone_count,
                due_tombstones_end=due_tombstones_end,
                now_ms=self._now_ms(),
            )
            wanted.append(after)
            return Commit(actions=after.to_actions(self._topic_id, plan.partition), head=now.head, operation="COMPACT")

        wanted: list[CleanerState] = []
        self._committing()
        done = commit_job(self.state, decide, timeout_ms=self._timeout_ms)
        self.state = done.state
        state = CleanerState.of(self.state.transactions, self._topic_id, plan.partition)
        return done.commit is not None or state in wanted  # in wanted: our own commit, whose answer was lost

    def _now_ms(self) -> int:
        """The store's time, carried on by ticks: no clock that an administrator sets."""
        now_ms, ticks_ms = self._began
        return now_ms + int(self._log.clock.ticks_ms() - ticks_ms)


def _initial_report(plan: CleanPlan, outcome: Outcome | None) -> CleanedPartition:
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
