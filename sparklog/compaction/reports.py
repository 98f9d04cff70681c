"""The reports of a maintenance run: for each topic, and for the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sparklog.compaction.commit_replacement import Outcome
from sparklog.compaction.compact import CompactReport
from sparklog.compaction.group_cleanup import GroupReport
from sparklog.compaction.optimize import OptimizeReport
from sparklog.compaction.retention import RetentionReport
from sparklog.compaction.steps import Step
from sparklog.compaction.topic_access import may_succeed_later
from sparklog.compaction.vacuum import VacuumReport
from sparklog.errors import SparklogError
from sparklog.txn.recovery import Recovered

__all__ = ["MaintenanceReport", "SequenceReport", "TopicMaintenance"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceReport:
    """The sequencing of files that other engines wrote without offsets."""

    sequenced_files: int
    """In a dry run: how many wait, about."""
    refused: Mapping[str, str]
    """Path to reason of each that can't be given any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMaintenance:
    """The report on one topic; None for a step that wasn't asked for, or failed, or that nothing is known to be due
    for."""

    topic: str
    deleted: bool
    """It is no more, and only vacuum looks at what it left."""
    unchanged: bool = False
    """Nothing happened to it since a run that left nothing to do, and nothing has become due by time: no step was
    done."""
    sequence: SequenceReport | None = None
    retention: RetentionReport | None = None
    compact: CompactReport | None = None
    optimize: OptimizeReport | None = None
    vacuum: VacuumReport | None = None
    errors: Mapping[Step, SparklogError] = field(default_factory=dict)
    """The errors of the steps that failed."""

    @property
    def failures(self) -> list[str]:
        """The failures, a line each; files that can't be rewritten, or given offsets, among it."""
        return [line for line, _ in self.failures_with_prospects()]

    def failures_with_prospects(self) -> Iterator[tuple[str, bool]]:
        """The failures, a line each, and whether the same may succeed later."""
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
    """The report on a cluster.

    Counts are of this run alone: what a task of Spark that was run again had done before isn't among them.
    """

    topics: tuple[TopicMaintenance, ...]
    """By name."""
    transactions: tuple[Recovered, ...]
    groups: tuple[GroupReport, ...]
    errors: Mapping[Step, SparklogError]
    """The errors of steps that failed for the whole cluster."""
    dry_run: bool

    @property
    def failures(self) -> list[str]:
        """The failures, a line each."""
        return [line for line, _ in self._failures()]

    @property
    def may_succeed_later(self) -> bool:
        """Did something fail, and may all that failed succeed when it is simply done again?"""
        prospects = [may for _, may in self._failures()]
        return bool(prospects) and all(prospects)

    def _failures(self) -> Iterator[tuple[str, bool]]:
        for step, error in self.errors.items():
            yield f"{step.value}: {error}", may_succeed_later(error)
        for recovered in self.transactions:
            if (failure := recovered.error) is not None:
                yield f"transactions: {recovered.transactional_id}: {failure}", may_succeed_later(failure)
        for topic in self.topics:
            for line, may in topic.failures_with_prospects():
                yield f"topic {topic.topic}: {line}", may
        for group in self.groups:
            if group.error is not None:
                yield f"groups: {group.group}: {group.error}", may_succeed_later(group.error)
