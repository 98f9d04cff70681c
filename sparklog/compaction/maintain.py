"""All that keeps a cluster in shape, in order: for a scheduler to call every now and then.

A topic is first given what other engines wrote, then cut, compacted, merged, and cleaned of what is left of all that.
One topic, group or step that fails hinders no other; each may be done again at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TypeVar

from sparklog.compaction.cleaning import Clean, clean_with_arrow
from sparklog.compaction.compact import CompactReport, compact_topic
from sparklog.compaction.groups import GroupReport, forget_groups
from sparklog.compaction.optimize import OptimizeReport, optimize_topic
from sparklog.compaction.optimizing import OptimizePolicy
from sparklog.compaction.progress import Progress, silent
from sparklog.compaction.replacing import Outcome
from sparklog.compaction.retention import RetentionReport, retain_topic
from sparklog.compaction.rewriting import Rewrite, rewrite_with_arrow
from sparklog.compaction.topics import may_succeed_later
from sparklog.compaction.vacuum import VacuumReport, vacuum_topic
from sparklog.delta.log import DeltaLog
from sparklog.errors import (
    InvalidTopicError,
    NotATopicError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import Cluster, sequence_topic
from sparklog.log.state import load_state, open_state
from sparklog.paths import TOPICS_FOLDER
from sparklog.txn.overview import store_time_ms
from sparklog.txn.recovery import EXPIRATION_MS, Recovered, recover_transactions

__all__ = [
    "DEFAULT_TIMEOUT_MS",
    "EachTopic",
    "MaintenanceReport",
    "SequenceReport",
    "Step",
    "Tell",
    "Telling",
    "TopicMaintenance",
    "Wanted",
    "as_ours",
    "each_topic_in_turn",
    "maintain",
    "maintain_topic",
    "quiet",
]

DEFAULT_TIMEOUT_MS = 60_000.0

_LOGGER = logging.getLogger("sparklog.compaction")
T = TypeVar("T")


class Step(str, Enum):
    """What :func:`maintain` does, in this order."""

    TRANSACTIONS = "transactions"
    """Finish what is decided, abort what is past its time-out, take back ids that nobody has used for a week."""
    SEQUENCE = "sequence"
    """Give offsets to what other engines wrote without."""
    RETENTION = "retention"
    """Remove what is too old or too much."""
    COMPACT = "compact"
    """Drop records whose keys came again, in compacted topics."""
    OPTIMIZE = "optimize"
    """Merge small files."""
    VACUUM = "vacuum"
    """Clean the logs up, delete files that nobody needs."""
    GROUPS = "groups"
    """Forget committed offsets that are past their time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceReport:
    """What became of the files that other engines wrote without offsets."""

    sequenced_files: int
    """In a dry run: how many wait, about."""
    refused: Mapping[str, str]
    """Path to reason of each that can't be given any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMaintenance:
    """What became of one topic; None for a step that wasn't asked for, or failed."""

    topic: str
    deleted: bool
    """It is no more, and only vacuum looks at what it left."""
    sequence: SequenceReport | None = None
    retention: RetentionReport | None = None
    compact: CompactReport | None = None
    optimize: OptimizeReport | None = None
    vacuum: VacuumReport | None = None
    errors: Mapping[Step, SparklogError] = field(default_factory=dict)
    """Of the steps that failed."""

    @property
    def failures(self) -> list[str]:
        """What went wrong, a line each; files that can't be rewritten, or given offsets, among it."""
        return [line for line, _ in self.told_failures()]

    def told_failures(self) -> Iterator[tuple[str, bool]]:
        """What went wrong, a line each, and whether the same may succeed later."""
        for step, error in self.errors.items():
            yield f"{step.value}: {error}", may_succeed_later(error)
        for path, reason in self.sequence.refused.items() if self.sequence is not None else ():
            yield f"sequence: {path}: {reason}", False
        for step, report in ((Step.RETENTION, self.retention), (Step.COMPACT, self.compact)):
            for path in report.unreadable if report is not None else ():
                yield f"{step.value}: {path} can't be read, so nothing from there on is dealt with", False
        for merged in self.optimize.ranges if self.optimize is not None else ():
            if merged.outcome is Outcome.FAILED:
                yield f"optimize: {merged.error}", merged.retriable
        for cleaned in self.compact.partitions if self.compact is not None else ():
            if cleaned.outcome is Outcome.FAILED:
                yield f"compact: {cleaned.error}", cleaned.retriable


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport:
    """What became of a cluster.

    Counts are of this run alone: what a task of Spark that was run again had done before isn't among them.
    """

    topics: tuple[TopicMaintenance, ...]
    """By name."""
    transactions: tuple[Recovered, ...]
    groups: tuple[GroupReport, ...]
    errors: Mapping[Step, SparklogError]
    """Of steps that failed for the whole cluster."""
    dry_run: bool

    @property
    def failures(self) -> list[str]:
        """What went wrong, a line each."""
        return [line for line, _ in self._told_failures()]

    @property
    def may_succeed_later(self) -> bool:
        """Did something fail, and may all that failed succeed when it is simply done again?"""
        found = [may for _, may in self._told_failures()]
        return bool(found) and all(found)

    def _told_failures(self) -> Iterator[tuple[str, bool]]:
        for step, error in self.errors.items():
            yield f"{step.value}: {error}", may_succeed_later(error)
        for one in self.transactions:
            if one.error is not None:
                yield f"transactions: {one.transactional_id}: {one.error}", may_succeed_later(one.error)
        for topic in self.topics:
            for line, may in topic.told_failures():
                yield f"topic {topic.topic}: {line}", may
        for group in self.groups:
            if group.error is not None:
                yield f"groups: {group.group}: {group.error}", may_succeed_later(group.error)


Tell = Callable[[str, Step], object]
"""Is told the topic (empty for the cluster, or all topics at once) and the step that comes next."""


def quiet(topic: str, step: Step) -> None:
    """A :data:`Tell` that passes nothing on."""


@dataclass(frozen=True, slots=True)
class Telling:
    """A :data:`Tell` that is also told, of steps that may take long, how far they have come."""

    begins: Tell
    goes_on: Callable[[str, Step, str], object]
    """Is told the topic, the step, and how far it has come, in words."""

    def __call__(self, topic: str, step: Step) -> object:
        return self.begins(topic, step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be done for each topic, and how."""

    steps: Collection[Step] = tuple(Step)
    policy: OptimizePolicy | None = None
    """Which files are worth being merged."""
    dry_run: bool = False
    timeout_ms: float = DEFAULT_TIMEOUT_MS
    """For each commit."""
    rewrite: Rewrite = rewrite_with_arrow
    """What merges files."""
    clean: Clean = clean_with_arrow
    """What compacts a partition."""

    def steps_of(self, *, deleted: bool) -> list[Step]:
        """The steps for a topic: of one that was deleted only vacuum looks at what it left."""
        return [step for step in self.steps if not deleted or step is Step.VACUUM]

    def failed(self, topic: str, error: SparklogError, *, deleted: bool) -> TopicMaintenance:
        """What is to be told of a topic of which nothing could be tried."""
        return TopicMaintenance(
            topic=topic, deleted=deleted, errors=dict.fromkeys(self.steps_of(deleted=deleted), error)
        )


def maintain(
    cluster: Cluster,
    topics: Iterable[str] | None = None,
    *,
    steps: Collection[Step] = tuple(Step),
    policy: OptimizePolicy | None = None,
    dry_run: bool = False,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    tell: Tell = quiet,
    each_topic: EachTopic | None = None,
) -> MaintenanceReport:
    """Do ``steps`` for a cluster, one topic after the other. Safe to run twice at once and to kill at any point.

    Args:
        topics: only these; then transactions and groups, which are the cluster's, are left alone. By default all, those
            that were deleted among them.
        policy: which files are worth being merged.
        dry_run: change nothing, and tell what would be done as of now: what a step leaves for the next isn't foreseen.
            Transactions are left alone, and ages are by this machine's clock: to ask for the store's takes a write.
        timeout_ms: for each commit.
        tell: is told the topic (empty for the cluster) and the step that comes next; a :class:`Telling` also how far
            merging and compaction have come.
        each_topic: what carries out the steps of topics; :func:`each_topic_in_turn` by default.
    Raises:
        UnknownTopicOrPartitionError: one of ``topics`` isn't there; nothing was done.
        StoreError: the topics can't be listed.
    """
    named = None if topics is None else sorted(set(topics))
    found = _look(cluster, named)
    errors: dict[Step, SparklogError] = {}
    of_cluster = _Steps(steps if named is None else (), "", tell, errors)
    transactions = None
    if not dry_run:
        transactions = of_cluster.attempt(
            Step.TRANSACTIONS,
            lambda: recover_transactions(cluster, timeout_ms=timeout_ms, expire_after_ms=EXPIRATION_MS),
        )
    wanted = Wanted(steps=steps, policy=policy, dry_run=dry_run, timeout_ms=timeout_ms)
    reports = tuple((each_topic or each_topic_in_turn)(cluster, found, wanted, tell))
    groups = of_cluster.attempt(
        Step.GROUPS,
        lambda: forget_groups(cluster, now_ms=_now_ms(cluster, dry_run), dry_run=dry_run, timeout_ms=timeout_ms),
    )
    return MaintenanceReport(
        topics=reports,
        transactions=tuple(transactions or ()),
        groups=tuple(groups or ()),
        errors=errors,
        dry_run=dry_run,
    )


def as_ours(unforeseen: Exception) -> SparklogError:
    """What is told of an error that isn't ours."""
    return SparklogError(f"{type(unforeseen).__name__}: {unforeseen}")


class _Steps:
    """The steps that were asked for, for a topic or the cluster; what fails is kept."""

    def __init__(
        self,
        wanted: Collection[Step],
        topic: str,
        tell: Tell,
        errors: dict[Step, SparklogError],
    ) -> None:
        self._wanted = wanted
        self._topic = topic
        self._tell = tell
        self._errors = errors

    def attempt(self, step: Step, act: Callable[[], T]) -> T | None:
        """What came of it; None where it isn't wanted, or failed."""
        if step not in self._wanted:
            return None
        self._tell(self._topic, step)
        try:
            return act()
        except SparklogError as error:
            self._errors[step] = error
        except Exception as unforeseen:  # whatever is in one topic: the others go on
            _LOGGER.exception("%s: %s", self._topic or "cluster", step.value)
            self._errors[step] = as_ours(unforeseen)
        return None

    def progress(self, step: Step) -> Progress:
        """What a step tells how far it has come."""
        goes_on = self._tell.goes_on if isinstance(self._tell, Telling) else None
        return silent if goes_on is None else partial(goes_on, self._topic, step)


EachTopic = Callable[[Cluster, Mapping[str, bool], Wanted, Tell], Iterable[TopicMaintenance]]
"""Carries out the steps of topics.

Its arguments: the cluster; the topics by name, and whether each was deleted; what is to be done; whom to tell. The
reports come in the order of the topics; an error of a topic is told in its report.
"""


def each_topic_in_turn(
    cluster: Cluster, topics: Mapping[str, bool], wanted: Wanted, tell: Tell
) -> Iterator[TopicMaintenance]:
    """An :data:`EachTopic` in this process."""
    return (maintain_topic(cluster, name, wanted, deleted=deleted, tell=tell) for name, deleted in topics.items())


def maintain_topic(
    cluster: Cluster, topic: str, wanted: Wanted, *, deleted: bool, tell: Tell = quiet
) -> TopicMaintenance:
    """Do for one topic what is wanted; of one that was ``deleted`` only vacuum looks at what it left."""
    log = cluster.topic_log(topic)
    errors: dict[Step, SparklogError] = {}
    of_topic = _Steps(wanted.steps_of(deleted=deleted), topic, tell, errors)
    dry_run, timeout_ms = wanted.dry_run, wanted.timeout_ms
    # Each step that goes by ages learns the time anew: the one before may have taken hours.
    now_ms = partial(_now_ms, cluster, dry_run)
    report = TopicMaintenance(
        topic=topic,
        deleted=deleted,
        sequence=of_topic.attempt(Step.SEQUENCE, lambda: _sequence(log, dry_run=dry_run, timeout_ms=timeout_ms)),
        retention=of_topic.attempt(
            Step.RETENTION,
            lambda: retain_topic(log, topic, now_ms=now_ms(), dry_run=dry_run, timeout_ms=timeout_ms),
        ),
        compact=of_topic.attempt(
            Step.COMPACT,
            lambda: compact_topic(
                log,
                topic,
                now_ms=now_ms,
                clean=wanted.clean,
                dry_run=dry_run,
                timeout_ms=timeout_ms,
                progress=of_topic.progress(Step.COMPACT),
            ),
        ),
        optimize=of_topic.attempt(
            Step.OPTIMIZE,
            lambda: optimize_topic(
                log,
                topic,
                policy=wanted.policy,
                rewrite=wanted.rewrite,
                dry_run=dry_run,
                timeout_ms=timeout_ms,
                progress=of_topic.progress(Step.OPTIMIZE),
            ),
        ),
        vacuum=of_topic.attempt(
            Step.VACUUM, lambda: vacuum_topic(cluster, topic, dry_run=dry_run, timeout_ms=timeout_ms)
        ),
        errors=errors,
    )
    return _without_what_deletion_caused(log, report)


def _without_what_deletion_caused(log: DeltaLog, report: TopicMaintenance) -> TopicMaintenance:
    """Of a topic that was deleted since it was listed: that steps didn't find it any more is no failure."""
    left = {step: error for step, error in report.errors.items() if not isinstance(error, UnknownTopicOrPartitionError)}
    if len(left) == len(report.errors) or not _is_gone(log):
        return report
    return replace(report, deleted=True, errors=left)


def _is_gone(log: DeltaLog) -> bool:
    try:
        return open_state(log).head.deleted
    except UnknownTopicOrPartitionError:
        return True
    except SparklogError:  # then what the steps told stands
        return False


def _now_ms(cluster: Cluster, dry_run: bool) -> int:
    """The store's time; in a dry run, which writes nothing and may not be allowed to, the machine's."""
    return cluster.clock.now_ms() if dry_run else store_time_ms(cluster)


def _sequence(log: DeltaLog, *, dry_run: bool, timeout_ms: float) -> SequenceReport:
    if dry_run:
        return SequenceReport(sequenced_files=load_state(log).head.unsequenced_count, refused={})
    done = sequence_topic(log, timeout_ms=timeout_ms)
    return SequenceReport(sequenced_files=done.sequenced_count, refused=done.refused)


def _look(cluster: Cluster, named: Sequence[str] | None) -> dict[str, bool]:
    """The topics to be dealt with, by name, and whether each was deleted. Names that aren't a topic's are passed over,
    unless they were given. One whose log can't be understood is among them: each step tells why it failed."""
    found = {}
    for name in cluster.store.list_names(TOPICS_FOLDER) if named is None else named:
        try:
            found[name] = open_state(cluster.topic_log(name)).head.deleted
        except (InvalidTopicError, NotATopicError, UnknownTopicOrPartitionError):
            if named is not None:
                raise
        except SparklogError:  # each step tells why, and the others go on
            found[name] = False
    return found
