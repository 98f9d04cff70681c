"""The maintenance of a cluster, all steps in order: for a scheduler to call every now and then.

A topic is first given what other engines wrote, then cut, compacted, merged, and cleaned of what is left of all that.
One topic, group or step that fails hinders no other; each may be done again at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from sparklog.compaction.due import is_due, is_plausible
from sparklog.compaction.group_cleanup import expire_groups
from sparklog.compaction.idle_notes import TopicNote, is_newest, read_notes, write_notes
from sparklog.compaction.last_runs import note_run, summary_of
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.compaction.reports import MaintenanceReport, SequenceReport, TopicMaintenance
from sparklog.compaction.run_context import MaintenanceRun
from sparklog.compaction.steps import Step
from sparklog.compaction.topic_steps import (
    DEFAULT_TIMEOUT_MS,
    MaintenanceOptions,
    ProgressListener,
    StepListener,
    TopicOutcome,
    attempt,
    ignore_steps,
    maintain_topic,
)
from sparklog.errors import InvalidTopicError, NotATopicError, SparklogError, UnknownTopicOrPartitionError
from sparklog.groups.admin.share_groups import clean_share_groups
from sparklog.log import Cluster
from sparklog.log.state import open_state
from sparklog.parallel import parallel_map
from sparklog.paths import TOPICS_FOLDER
from sparklog.storage import ObjectStore
from sparklog.storage.each_alone import check_of_one
from sparklog.txn.recovery import EXPIRATION_MS, Recovered, recover_transactions

__all__ = [
    "DEFAULT_TIMEOUT_MS",
    "EachTopic",
    "MaintenanceOptions",
    "MaintenanceReport",
    "ProgressListener",
    "SequenceReport",
    "Step",
    "StepListener",
    "TopicMaintenance",
    "TopicOutcome",
    "each_topic_at_once",
    "ignore_steps",
    "maintain",
    "maintain_topic",
]

_LOGGER = logging.getLogger("sparklog.compaction")
_NOT_RECORDED = "what a run of maintenance did isn't recorded"
_TOPICS_AT_ONCE = 16
"""Topics that are loaded at once: each keeps its state in memory while it waits for its turn to be rewritten."""

T = TypeVar("T")

EachTopic = Callable[
    [MaintenanceRun, Mapping[str, int], MaintenanceOptions, StepListener], Iterable["TopicOutcome | None"]
]
"""Carries out the steps of topics.

Its arguments: the run; the topics by name, and the store's time from which on vacuum is to search each one's folder;
what is to be done; the listener. The outcomes come in the order of the topics, None for what is no topic; an error of a
topic is in its report.
"""


def maintain(
    cluster: Cluster,
    topics: Iterable[str] | None = None,
    *,
    steps: Collection[Step] = tuple(Step),
    policy: OptimizePolicy | None = None,
    dry_run: bool = False,
    full: bool = False,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    tell: StepListener = ignore_steps,
    each_topic: EachTopic | None = None,
) -> MaintenanceReport:
    """Do ``steps`` for a cluster, 16 topics at a time. Safe to run twice at once and to kill at any point.

    A topic to which nothing happened since a run left nothing to do, and for which nothing has become due by time, is
    passed over, for three requests; but each is looked at once a day, and then its folder is searched for files that
    nobody needs.

    Args:
        topics: only these, each of which is looked at; then transactions and groups, which are the cluster's, are left
            alone. By default all, those that were deleted among them.
        policy: which files are worth being merged.
        dry_run: change nothing, and report what would be done now: effects of a step on the next aren't foreseen.
            Transactions are left alone, and ages are by this machine's clock: to ask for the store's takes a write.
        full: look at every topic, and search its folder.
        timeout_ms: for each commit.
        tell: is called with the topic (empty for the cluster) and the step that comes next; a :class:`ProgressListener`
            also learns how far merging and compaction have come. By the threads that do it.
        each_topic: what carries out the steps of topics; :func:`each_topic_at_once` by default.
    Raises:
        UnknownTopicOrPartitionError: one of ``topics`` isn't there; nothing was done.
        StoreError: the topics can't be listed, or the store can't be read any more: nothing further was tried.
    """
    began_ticks_ms = cluster.clock.ticks_ms()
    run = MaintenanceRun(cluster, timeout_ms=timeout_ms, dry_run=dry_run)
    options = MaintenanceOptions(steps=steps, policy=policy, dry_run=dry_run, timeout_ms=timeout_ms)
    names = _named(cluster, topics)
    of_cluster = _ClusterSteps(cluster.store, steps if topics is None else (), tell)
    transactions = None if dry_run else of_cluster.do(Step.TRANSACTIONS, lambda: _recover(run, timeout_ms))
    carry_out = each_topic or each_topic_at_once
    reports, is_noted = _maintain_topics(
        run, names, options, tell, carry_out, by_notes=topics is None and not dry_run, full=full
    )
    groups = of_cluster.do(
        Step.GROUPS,
        lambda: expire_groups(cluster, now_ms=run.now_ms(), dry_run=dry_run, timeout_ms=timeout_ms),
    )
    if not dry_run:
        of_cluster.do(Step.GROUPS, lambda: _clean_share_groups(cluster))
    report = MaintenanceReport(
        topics=tuple(sorted(reports, key=lambda report: report.topic)),
        transactions=tuple(transactions or ()),
        groups=tuple(groups or ()),
        errors=of_cluster.errors,
        dry_run=dry_run,
    )
    if not dry_run:
        _note_run(run, report, is_noted=is_noted, took_ms=cluster.clock.ticks_ms() - began_ticks_ms)
    return report


def each_topic_at_once(
    run: MaintenanceRun, topics: Mapping[str, int], options: MaintenanceOptions, tell: StepListener
) -> Sequence[TopicOutcome | None]:
    """An :data:`EachTopic` in this process: 16 topics at a time, of which one at a time is rewritten."""

    def maintain_one(name: str) -> TopicOutcome | None:
        return maintain_topic(run, name, options, search_ms=topics[name], tell=tell)

    return parallel_map(maintain_one, topics, at_once=_TOPICS_AT_ONCE, stop=run.stop)


class _ClusterSteps:
    """The steps that concern the whole cluster, as far as they were asked for; the first error of each is kept."""

    def __init__(self, store: ObjectStore, steps: Collection[Step], tell: StepListener) -> None:
        self._store = store
        self.errors: dict[Step, SparklogError] = {}
        self._steps = steps
        self._begun: set[Step] = set()
        self._tell = tell

    def do(self, step: Step, act: Callable[[], T]) -> T | None:
        """The result of a step, or of a part of it; None where the step wasn't asked for, or ``act`` failed.

        The listener hears of a step once, however many parts it has; a part that fails hinders none of the others.
        """
        if step not in self._steps:
            return None
        if step not in self._begun:
            self._begun.add(step)
            self._tell("", step)

        def failed(error: SparklogError) -> None:
            check_of_one(self._store, error)
            self.errors.setdefault(step, error)

        return attempt(f"cluster: {step.value}", act, failed)


def _named(cluster: Cluster, topics: Iterable[str] | None) -> list[str]:
    """The names of the topics that were asked for, which are there; or of all folders that may be a topic's."""
    if topics is None:
        return [*cluster.store.list_names(TOPICS_FOLDER)]
    names = sorted(set(topics))
    parallel_map(lambda name: _check_topic(cluster, name), names)
    return names


def _maintain_topics(
    run: MaintenanceRun,
    names: Sequence[str],
    options: MaintenanceOptions,
    tell: StepListener,
    each_topic: EachTopic,
    *,
    by_notes: bool,
    full: bool,
) -> tuple[list[TopicMaintenance], bool]:
    """The reports of the topics, in no order; and whether something was noted for the next run.

    Args:
        by_notes: pass over what is noted to need nothing, and note it for the next run.
        full: but pass over none.
    """
    notes = _plausible(run, read_notes(run.cluster)) if by_notes else {}
    is_asked = not by_notes or full or (Step.VACUUM in options.steps and {*options.steps} != {*Step})
    unchanged = {} if is_asked else _unchanged(run, names, notes, options)
    looked_at = {
        name: 0 if is_asked or name not in notes else notes[name].search_ms for name in names if name not in unchanged
    }
    outcomes = [outcome for outcome in each_topic(run, looked_at, options, tell) if outcome is not None]
    is_noted = False
    if by_notes:
        after = {o.report.topic: _merged_note(notes.get(o.report.topic), o.note) for o in outcomes if o.note}
        is_noted = write_notes(run.cluster, notes, after, names)
    return [*unchanged.values(), *(outcome.report for outcome in outcomes)], is_noted


def _note_run(run: MaintenanceRun, report: MaintenanceReport, *, is_noted: bool, took_ms: float) -> None:
    """Let what a run did be seen; where it did nothing, noted nothing, and none failed before, nothing is written."""
    try:
        found = summary_of(report, ended_ms=run.now_ms(), took_ms=took_ms)
        failed = [one.topic for one in report.topics if one.failures]
        note_run(run.cluster, found, failed_topics=failed, if_last_failed=found.is_idle and not is_noted)
    except SparklogError:  # the store's time, which each step has met
        return
    except Exception:  # a defect: the run is done, and its report has more than the summary
        _LOGGER.exception(_NOT_RECORDED)


def _clean_share_groups(cluster: Cluster) -> None:
    """Clean each share group; then raise the error of the first in which that failed."""
    for error in clean_share_groups(cluster).values():
        raise error


def _check_topic(cluster: Cluster, name: str) -> None:
    """Raise ``UnknownTopicOrPartitionError``, ``NotATopicError`` or ``InvalidTopicError`` where there is no such topic.
    One that can't be understood exists: its steps report why they failed."""
    try:
        open_state(cluster.topic_log(name))
    except (InvalidTopicError, NotATopicError, UnknownTopicOrPartitionError):
        raise
    except SparklogError as error:
        check_of_one(cluster.store, error)


def _recover(run: MaintenanceRun, timeout_ms: float) -> Sequence[Recovered]:
    run.began_ms  # noqa: B018 - before: a sweep goes by what is recovered after the time is known (rule L10, orphans)
    recovered = recover_transactions(run.cluster, timeout_ms=timeout_ms, expire_after_ms=EXPIRATION_MS)
    run.recovered(recovered)
    return recovered


def _plausible(run: MaintenanceRun, notes: Mapping[str, TopicNote]) -> dict[str, TopicNote]:
    """The notes that may be relied on."""
    if not notes:
        return {}
    try:
        now_ms = run.now_ms()
    except SparklogError:  # each step reports why
        return {}
    return {name: note for name, note in notes.items() if is_plausible(note, now_ms=now_ms)}


def _unchanged(
    run: MaintenanceRun, names: Sequence[str], notes: Mapping[str, TopicNote], options: MaintenanceOptions
) -> dict[str, TopicMaintenance]:
    """The topics that are passed over, by name."""
    if not notes:
        return {}
    now_ms, steps = run.now_ms(), options.steps_of(deleted=False)

    def is_unchanged(name: str) -> bool:
        note = notes.get(name)
        if note is None or note.version < 0 or is_due(note, steps, policy=options.policy, now_ms=now_ms):
            return False
        try:
            return is_newest(run.cluster.topic_log(name), note)
        except InvalidTopicError:  # whoever wrote the note
            return False

    still = parallel_map(is_unchanged, names)
    return {
        name: TopicMaintenance(topic=name, deleted=notes[name].deleted, unchanged=True)
        for name, is_so in zip(names, still, strict=True)
        if is_so
    }


def _merged_note(before: TopicNote | None, after: TopicNote) -> TopicNote:
    """The note of a topic after a run; for the steps that the run didn't do, it says what the earlier note did."""
    if before is None:
        return after
    search_ms = max(before.search_ms, after.search_ms)
    if (before.version, before.token) != (after.version, after.token):
        return replace(after, search_ms=search_ms)
    policy = after.policy if Step.OPTIMIZE in after.due_ms else before.policy
    return replace(after, due_ms={**before.due_ms, **after.due_ms}, policy=policy, search_ms=search_ms)
