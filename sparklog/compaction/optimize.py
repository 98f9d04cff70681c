"""Merging the small files of a topic: plan, rewrite, commit, one range after the other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from typing import overload

from sparklog.compaction.commit_replacement import Outcome, Replacement, commit_replacement, is_live, why_gone
from sparklog.compaction.file_ranges import FileRange
from sparklog.compaction.plan_optimize import OptimizePolicy, plan_topic, policy_of
from sparklog.compaction.progress import Progress, bytes_done, ignore_progress
from sparklog.compaction.rewrite_arrow import Rewrite, Rewritten, rewrite_with_arrow
from sparklog.compaction.topic_access import check_columns, is_gone, made_durable, may_succeed_later
from sparklog.delta.log import DeltaLog
from sparklog.errors import ObjectNotFoundError, UnknownTopicOrPartitionError
from sparklog.log.catch_up import catch_up
from sparklog.log.reloading import reload_state
from sparklog.log.state import TopicState, load_state
from sparklog.storage.entry_log import PositionLost

__all__ = ["MergedRange", "OptimizeReport", "optimize_state", "optimize_topic"]

_LOGGER = logging.getLogger("sparklog.compaction")
DEFAULT_TIMEOUT_MS = 60_000.0
_MOST_AHEAD = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedRange:
    """The report on one range of files that were worth being merged."""

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
    retriable: bool = False
    """It failed, and may succeed later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeReport:
    """The report on merging in one topic: what was done, or would be."""

    topic: str
    ranges: tuple[MergedRange, ...]
    delta_version: int
    dry_run: bool


def optimize_topic(
    log: DeltaLog,
    topic: str,
    *,
    policy: OptimizePolicy | None = None,
    rewrite: Rewrite = rewrite_with_arrow,
    dry_run: bool = False,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    progress: Progress = ignore_progress,
) -> OptimizeReport:
    """Merge small files of each partition into few large ones; not a record changes.

    Each range is a commit of its own. Safe to run twice at once and to kill at any point: what was uploaded and not
    committed is swept later.

    Args:
        timeout_ms: for each commit.
        progress: is called after each range.
    Raises:
        NotATopicError: the table has columns of others; nothing was rewritten.
        InvalidConfigurationError: a setting isn't understood; nothing was rewritten.
        UnknownTopicOrPartitionError, KafkaTimeoutError, CommitStateUnknownError, StoreError, …: what was merged before
            stays so.
    """
    return optimize_state(
        load_state(log),
        topic,
        policy=policy,
        rewrite=rewrite,
        dry_run=dry_run,
        timeout_ms=timeout_ms,
        progress=progress,
    )[0]


def optimize_state(
    state: TopicState,
    topic: str,
    *,
    policy: OptimizePolicy | None = None,
    rewrite: Rewrite = rewrite_with_arrow,
    dry_run: bool = False,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    progress: Progress = ignore_progress,
    rewrite_lock: AbstractContextManager[object] | None = None,
    begins: Callable[[Sequence[FileRange]], object] | None = None,
) -> tuple[OptimizeReport, TopicState]:
    """Merge files of a topic that is loaded, as :func:`optimize_topic` does. Returns the state to go on with, too.
    Where nothing is worth being merged no store is called.

    Args:
        rewrite_lock: is entered while records are read and written.
        begins: is called with the ranges before they are merged; its errors are raised.
    """
    log = state.log
    if state.head.deleted:
        raise UnknownTopicOrPartitionError(f"unknown topic: {topic!r} was deleted")
    metadata = state.require_whole().metadata
    check_columns(log.table, metadata)
    policy, compression = policy_of(state, policy)
    ranges = plan_topic(state, policy)
    if dry_run or not ranges:
        planned = tuple(_planned(found) for found in ranges)
        version = state.position.version
        return OptimizeReport(topic=topic, ranges=planned, delta_version=version, dry_run=dry_run), state
    if begins is not None:
        begins(ranges)
    job = _Job(state, ranges, timeout_ms, progress)
    with (
        rewrite_lock or nullcontext(),
        made_durable(log) as committing,
        closing(rewrite(log, job.left, compression)) as results,
    ):
        for rewritten in results:
            job.replace(rewritten, committing)
            if is_gone(job.state, job.topic_id):  # the others would be rewritten in vain
                break
    job.merged += [_merged(_untouched(found), Outcome.OVERTAKEN) for found in job.left.passed_over]
    state = job.state
    report = OptimizeReport(topic=topic, ranges=tuple(job.merged), delta_version=state.position.version, dry_run=False)
    return report, state


class _Job:
    """The merging of one topic's ranges, one after the other."""

    def __init__(self, state: TopicState, ranges: Sequence[FileRange], timeout_ms: float, progress: Progress) -> None:
        self.state = state
        self.topic_id = state.head.topic_id
        self.merged: list[MergedRange] = []
        self.left = _LiveRanges(ranges, lambda found: is_live(self.state, found.segments))
        self._log = state.log
        self._known_version = state.position.version
        self._timeout_ms = timeout_ms
        self._progress = progress
        self._bytes_before, self._total_bytes = 0, sum(found.size_bytes for found in ranges)

    def replace(self, rewritten: Rewritten, committing: Callable[[], None]) -> None:
        """Commit the files that replace one range, or report why they don't."""
        if isinstance(rewritten.error, ObjectNotFoundError):
            self.state = load_state(self._log)
            self.merged.append(_missing(self.state, rewritten, rewritten.error, topic_id=self.topic_id))
        elif rewritten.error is not None:
            self.merged.append(_failed(self._log, rewritten, str(rewritten.error)))
        else:
            replacement = Replacement(
                rewritten=rewritten,
                data_change=False,
                operation="OPTIMIZE",
                topic_id=self.topic_id,
                known_version=self._known_version,
            )
            committing()
            outcome, self.state = commit_replacement(self.state, replacement, timeout_ms=self._timeout_ms)
            self.merged.append(_merged(rewritten, outcome))
            if outcome is Outcome.OVERTAKEN:
                self.state = _caught_up(self.state)
        self._bytes_before += rewritten.range.size_bytes
        self._progress(
            f"{len(self.merged)} of {len(self.left)} ranges, {bytes_done(self._bytes_before, self._total_bytes)}"
        )


def _caught_up(state: TopicState) -> TopicState:
    """Load what others committed since, so that changes of other ranges aren't noticed only by losing races."""
    try:
        catch_up(state, ahead=_MOST_AHEAD)
    except PositionLost:
        return reload_state(state)
    return state


class _LiveRanges(Sequence[FileRange]):
    """The ranges of a plan. Iterating over them leaves out each range that others have changed by the time it is
    reached."""

    def __init__(self, ranges: Sequence[FileRange], is_there: Callable[[FileRange], bool]) -> None:
        self._ranges = ranges
        self._is_there = is_there
        self._passed_over: dict[tuple[int, int], FileRange] = {}

    def __iter__(self) -> Iterator[FileRange]:
        for found in self._ranges:
            if self._is_there(found):
                yield found
            else:
                self._passed_over[found.partition, found.first_offset] = found

    def __len__(self) -> int:
        return len(self._ranges)

    @property
    def passed_over(self) -> Iterable[FileRange]:
        """The ranges of the plan that others have changed since, in their order."""
        return self._passed_over.values()

    @overload
    def __getitem__(self, at: int) -> FileRange: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[FileRange]: ...
    def __getitem__(self, at: int | slice) -> FileRange | Sequence[FileRange]:
        return self._ranges[at]


def _planned(file_range: FileRange) -> MergedRange:
    return _merged(_untouched(file_range), Outcome.PLANNED)


def _untouched(file_range: FileRange) -> Rewritten:
    return Rewritten(range=file_range, files=(), began_ticks_ms=0)


def _missing(now: TopicState, rewritten: Rewritten, error: ObjectNotFoundError, *, topic_id: str) -> MergedRange:
    problem = why_gone(now, rewritten.range.segments, error, topic_id=topic_id)
    return _failed(now.log, rewritten, problem) if problem else _merged(rewritten, Outcome.OVERTAKEN)


def _failed(log: DeltaLog, rewritten: Rewritten, problem: str) -> MergedRange:
    _LOGGER.warning("%s: files aren't merged: %s", log.table, problem)
    retriable = rewritten.error is not None and may_succeed_later(rewritten.error)
    return _merged(rewritten, Outcome.FAILED, error=problem, retriable=retriable)


def _merged(rewritten: Rewritten, outcome: Outcome, *, error: str = "", retriable: bool = False) -> MergedRange:
    file_range = rewritten.range
    return MergedRange(
        partition=file_range.partition,
        first_offset=file_range.first_offset,
        last_offset=file_range.last_offset,
        record_count=file_range.record_count,
        files_before=len(file_range.segments),
        bytes_before=file_range.size_bytes,
        files_after=len(rewritten.files),
        bytes_after=sum(file.size_bytes for file in rewritten.files),
        outcome=outcome,
        error=error,
        retriable=retriable,
    )
