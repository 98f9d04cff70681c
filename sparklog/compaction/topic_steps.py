"""The steps of one topic, in order: the topic is loaded once, and its state carried on from step to step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from sparklog.compaction.clean_arrow import Clean, clean_with_arrow
from sparklog.compaction.compact import compact_state
from sparklog.compaction.delivered import delivered_below
from sparklog.compaction.due import LOOK_EVERY_MS, note_of
from sparklog.compaction.file_ranges import FileRange
from sparklog.compaction.idle_notes import TopicNote
from sparklog.compaction.optimize import optimize_state
from sparklog.compaction.plan_cleaning import CleanPlan
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.compaction.progress import Progress, ignore_progress
from sparklog.compaction.reports import SequenceReport, TopicMaintenance
from sparklog.compaction.retention import RetentionReport, retain_state
from sparklog.compaction.rewrite_arrow import Rewrite, rewrite_with_arrow
from sparklog.compaction.run_context import MaintenanceRun
from sparklog.compaction.steps import Step
from sparklog.compaction.vacuum import vacuum_state
from sparklog.delta.listing import read_checkpoint_hint
from sparklog.delta.log import DeltaLog
from sparklog.errors import (
    InvalidTopicError,
    NotATopicError,
    SparklogError,
    TopicShrunkError,
    UnknownTopicOrPartitionError,
    as_sparklog_error,
)
from sparklog.log.sequencing.sequencing import sequence_state
from sparklog.log.state import TopicState, load_state, open_state
from sparklog.storage.each_alone import check_of_one

__all__ = [
    "DEFAULT_TIMEOUT_MS",
    "MaintenanceOptions",
    "ProgressListener",
    "StepListener",
    "TopicOutcome",
    "ignore_steps",
    "maintain_topic",
]

DEFAULT_TIMEOUT_MS = 60_000.0
_MUCH_TO_LOAD = 5_000
"""Actions in a checkpoint: a topic with more is loaded while no other such topic is. The others wait with what they
have loaded, 12 MB at most each, while one is rewritten."""
_OF_RECORDS = frozenset({Step.RETENTION, Step.COMPACT, Step.OPTIMIZE})
"""The steps that take partition by partition."""
_STALE_MS = 60_000.0
"""After a step that took longer the topic is loaded anew: what others did meanwhile would make plans void."""
_LOGGER = logging.getLogger("sparklog.compaction")
T = TypeVar("T")

StepListener = Callable[[str, Step], object]
"""Called with the topic (empty for the cluster, or all topics at once) and the step that comes next; by several
threads."""


def ignore_steps(topic: str, step: Step) -> None:
    """A :data:`StepListener` that does nothing."""


@dataclass(frozen=True, slots=True)
class ProgressListener:
    """A :data:`StepListener` that also learns how far steps that may take long have come."""

    on_step: StepListener
    on_progress: Callable[[str, Step, str], object]
    """Called with the topic, the step, and how far it has come, in words."""

    def __call__(self, topic: str, step: Step) -> object:
        return self.on_step(topic, step)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOptions:
    """The steps to do for each topic, and how to do them."""

    steps: Collection[Step] = tuple(Step)
    policy: OptimizePolicy | None = None
    """Which files are worth being merged."""
    dry_run: bool = False
    timeout_ms: float = DEFAULT_TIMEOUT_MS
    """For each commit."""
    rewrite: Rewrite = rewrite_with_arrow
    """The function that merges files."""
    clean: Clean = clean_with_arrow
    """The function that compacts a partition."""
    most_merged_bytes: int | None = None
    """If a topic has more to be merged, that is left, see :attr:`TopicOutcome.left`; None: it never is."""
    most_compacted_bytes: int | None = None
    """The same, if a pass over one of the partitions that are due deals with more."""

    def steps_of(self, *, deleted: bool) -> list[Step]:
        """The steps for a topic: of one that was deleted only vacuum looks at what it left."""
        return [step for step in self.steps if step in _OF_TOPICS and (step is Step.VACUUM or not deleted)]

    def failed(self, topic: str, error: SparklogError) -> TopicOutcome:
        """The outcome of a topic for which no step could be tried."""
        errors = dict.fromkeys(self.steps_of(deleted=False), error)
        return TopicOutcome(report=TopicMaintenance(topic=topic, deleted=False, errors=errors))


_OF_TOPICS = (Step.SEQUENCE, Step.RETENTION, Step.COMPACT, Step.OPTIMIZE, Step.VACUUM)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOutcome:
    """The outcome of a topic's steps."""

    report: TopicMaintenance
    note: TopicNote | None = None
    """The note that the next run may rely on; None after a dry run."""
    left: tuple[Step, ...] = ()
    """The steps that are left: the first is too much, see :class:`MaintenanceOptions`. Nothing was done about them."""


def maintain_topic(
    run: MaintenanceRun,
    topic: str,
    options: MaintenanceOptions,
    *,
    search_ms: int = 0,
    tell: StepListener = ignore_steps,
) -> TopicOutcome | None:
    """Do for one topic what is wanted; of one that was deleted only vacuum looks at what it left.

    Costs a GET and the topic loaded, and with vacuum a LIST; more only where something is due.

    Args:
        search_ms: the store's time from which on vacuum is to search the topic's folder for unneeded files.
        tell: is called with the step that comes next.
    Returns:
        What became of it; None where there is no such topic.
    Raises:
        SparklogError: the store can't be read; all else is in the report.
    """
    try:
        log = run.cluster.topic_log(topic)
    except InvalidTopicError:  # a folder that isn't sparklog's
        return None
    with _room_for(run, log):
        opened = _OpenTopic(log)
        try:
            deleted = opened.state().head.deleted
        except (NotATopicError, UnknownTopicOrPartitionError):
            if not _is_topic(log):
                return None
            deleted = False
        except Exception:  # whatever it is, each step meets it and reports it
            deleted = False
        return _Steps(run, opened, topic, options, tell, deleted=deleted).do(search_ms=search_ms)


def attempt(what: str, act: Callable[[], T], failed: Callable[[SparklogError], object]) -> T | None:
    """The result of ``act``; None where it failed, and ``failed`` was called with the error."""
    try:
        return act()
    except SparklogError as error:
        failed(error)
    except _TooMuch:
        raise
    except Exception as unforeseen:  # whatever is in one topic: the others go on
        _LOGGER.exception("%s", what)
        failed(as_sparklog_error(unforeseen))
    return None


def _room_for(run: MaintenanceRun, log: DeltaLog) -> AbstractContextManager[object]:
    """Many topics are loaded at once, but of those that take much memory one after the other."""
    try:
        is_much = read_checkpoint_hint(log).row_count > _MUCH_TO_LOAD
    except SparklogError:  # loading the topic reports it
        is_much = False
    return run.rewrite_lock if is_much else nullcontext()


def _is_topic(log: DeltaLog) -> bool:
    """Does its newest entry say that it is a topic, though its table can't be loaded as one?"""
    try:
        return not open_state(log).head.deleted
    except TopicShrunkError:
        return True
    except (NotATopicError, UnknownTopicOrPartitionError):
        return False
    except SparklogError:
        return True


class _TooMuch(Exception):  # noqa: N818 - a signal within this module
    """Too much for this process: the step is left to another."""


class _OpenTopic:
    """A topic's state, loaded once and advanced by each commit. Owned by one thread."""

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        self._state: TopicState | None = None
        self._known_ticks_ms = 0.0
        self._error: SparklogError | None = None

    def state(self) -> TopicState:
        """The topic's state as it is known; loaded anew after a step that failed, or took long. Raises as
        :func:`~sparklog.log.state.load_state`, and then always."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        state = self._state
        if state is None or self._log.clock.ticks_ms() - self._known_ticks_ms > _STALE_MS:
            try:
                state = load_state(self._log)
            except SparklogError as error:
                self._error = error
                raise
            self.keep(state)
        return state

    def keep(self, state: TopicState) -> None:
        """Keep the state in which a step left the topic."""
        self._state, self._known_ticks_ms = state, self._log.clock.ticks_ms()

    def forget(self) -> None:
        """Forget the state: a step failed, or others may have changed the topic."""
        self._state = None


class _Steps:
    """The steps of one topic, as far as they were asked for; errors are kept, and hinder no other step."""

    def __init__(
        self,
        run: MaintenanceRun,
        opened: _OpenTopic,
        topic: str,
        options: MaintenanceOptions,
        tell: StepListener,
        *,
        deleted: bool,
    ) -> None:
        self._run = run
        self._opened = opened
        self._topic = topic
        self._options = options
        self._tell = tell
        self._steps = options.steps_of(deleted=deleted)
        self._deleted = deleted
        self._errors: dict[Step, SparklogError] = {}
        self._left: tuple[Step, ...] = ()

    def do(self, *, search_ms: int) -> TopicOutcome:
        """Run all steps, in order."""
        dry_run, timeout_ms, run = self._options.dry_run, self._options.timeout_ms, self._run
        report = TopicMaintenance(
            topic=self._topic,
            deleted=self._deleted,
            sequence=self._attempt(Step.SEQUENCE, self._sequence),
            retention=self._attempt(Step.RETENTION, self._retain),
            compact=self._attempt(
                Step.COMPACT,
                lambda state: compact_state(
                    state,
                    self._topic,
                    now_ms=run.now_ms,
                    fresh_ms=run.fresh_ms,
                    clean=self._options.clean,
                    dry_run=dry_run,
                    timeout_ms=timeout_ms,
                    progress=self._progress(Step.COMPACT),
                    rewrite_lock=run.rewrite_lock,
                    begins=self._compacts,
                ),
            ),
            optimize=self._attempt(
                Step.OPTIMIZE,
                lambda state: optimize_state(
                    state,
                    self._topic,
                    policy=self._options.policy,
                    rewrite=self._options.rewrite,
                    dry_run=dry_run,
                    timeout_ms=timeout_ms,
                    progress=self._progress(Step.OPTIMIZE),
                    rewrite_lock=run.rewrite_lock,
                    begins=self._merges,
                ),
            ),
            vacuum=self._attempt(
                Step.VACUUM,
                lambda state: vacuum_state(
                    state,
                    self._topic,
                    run,
                    search=run.now_ms() >= search_ms,
                    dry_run=dry_run,
                    timeout_ms=timeout_ms,
                ),
            ),
            errors=self._errors,
        )
        report = self._without_what_deletion_caused(report)
        note = None if dry_run else self._note(report, search_ms)
        return TopicOutcome(report=report, note=note, left=self._left)

    def _attempt(self, step: Step, act: Callable[[TopicState], tuple[T, TopicState]]) -> T | None:
        """The result of a step; None where it wasn't asked for, or failed."""
        if step not in self._steps or step in self._left:
            return None
        self._run.check_stopped()
        self._tell(self._topic, step)

        def failed(error: SparklogError) -> None:
            check_of_one(self._run.cluster.store, error)
            self._errors[step] = error
            self._opened.forget()

        def do() -> T:
            result, state = act(self._opened.state())
            self._opened.keep(state)
            if step in _OF_RECORDS and state.whole is not None:
                for stop in state.whole.index.stopped().values():  # this step passed over its partition
                    self._errors[step] = stop.error(state.log.table)
            return result

        try:
            return attempt(f"{self._topic}: {step.value}", do, failed)
        except _TooMuch:
            self._left = tuple(self._steps[self._steps.index(step) :])
            return None

    def _retain(self, state: TopicState) -> tuple[RetentionReport, TopicState]:
        now_ms = self._run.records_now_ms()
        return retain_state(
            state,
            self._topic,
            now_ms=now_ms,
            dry_run=self._options.dry_run,
            timeout_ms=self._options.timeout_ms,
            done_below=delivered_below(self._run.cluster, state, self._topic, now_ms=now_ms),
        )

    def _compacts(self, due: Sequence[CleanPlan]) -> None:
        """Raise where one of the partitions that are due is too much; asked before anything is committed, so that one
        report covers all partitions."""
        most = self._options.most_compacted_bytes
        if most is not None and any(plan.clean_bytes + plan.dirty_bytes > most for plan in due):
            raise _TooMuch

    def _merges(self, ranges: Sequence[FileRange]) -> None:
        most = self._options.most_merged_bytes
        if most is not None and sum(file_range.size_bytes for file_range in ranges) > most:
            raise _TooMuch

    def _progress(self, step: Step) -> Progress:
        """The function that a step calls to report how far it has come; it ends a run that was stopped."""
        tell = (
            partial(self._tell.on_progress, self._topic, step)
            if isinstance(self._tell, ProgressListener)
            else ignore_progress
        )

        def report_progress(how_far: str) -> None:
            tell(how_far)
            self._run.check_stopped()

        return report_progress

    def _sequence(self, state: TopicState) -> tuple[SequenceReport, TopicState]:
        count = state.head.unsequenced_count
        if self._options.dry_run or not count:
            return SequenceReport(sequenced_files=count, refused={}), state
        with self._run.rewrite_lock:
            done = sequence_state(state, timeout_ms=self._options.timeout_ms)
        return SequenceReport(sequenced_files=done.sequenced_count, refused=done.refused), load_state(state.log)

    def _without_what_deletion_caused(self, report: TopicMaintenance) -> TopicMaintenance:
        """Drop failures that come from the topic's deletion since it was loaded: that steps didn't find it is no
        failure."""
        errors = report.errors.items()
        left = {step: error for step, error in errors if not isinstance(error, UnknownTopicOrPartitionError)}
        if len(left) == len(report.errors) or not self._is_gone():
            return report
        return replace(report, deleted=True, errors=left)

    def _is_gone(self) -> bool:
        try:
            return self._opened.state().head.deleted
        except UnknownTopicOrPartitionError:
            return True
        except SparklogError:  # then what the steps reported stands
            return False

    def _note(self, report: TopicMaintenance, search_ms: int) -> TopicNote:
        """The note that the next run may rely on."""
        if report.vacuum is not None and report.vacuum.searched:
            search_ms = self._run.began_ms + LOOK_EVERY_MS
        if not report.failures and not self._left:
            try:
                state, now_ms = self._opened.state(), self._run.now_ms()
                return note_of(state, self._steps, policy=self._options.policy, now_ms=now_ms, search_ms=search_ms)
            except SparklogError as error:  # it is looked at again
                _LOGGER.warning("%s: the time of its next maintenance could not be determined: %s", self._topic, error)
        return TopicNote(search_ms=search_ms)
