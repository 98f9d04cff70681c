"""Summaries of the newest runs of maintenance: one small object for the whole cluster, for people to look at.

It decides nothing. It is read and written whole: of two runs that end at the same moment one may be missing, and so
is one that was killed; what they committed is in the logs of topics all the same. It has names of topics and numbers.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sparklog.errors import InvalidTopicError, ObjectNotFoundError, SparklogError
from sparklog.log.cluster import Cluster
from sparklog.paths import MAINTENANCE_RUNS, check_topic_name
from sparklog.texts import counted

if TYPE_CHECKING:
    from sparklog.compaction.reports import MaintenanceReport, TopicMaintenance

__all__ = [
    "FailedRuns",
    "RunHistory",
    "RunSummary",
    "TopicWork",
    "Work",
    "note_run",
    "read_history",
    "read_runs",
    "summary_of",
    "words",
]

RUNS_FORMAT = 1
_MOST_RUNS = 10
_MOST_TOPICS = 20
"""Topics of a run that are named: those that failed, and those with the most files."""
_MOST_COUNTED_TOPICS = 200
_MOST_BYTES = 262_144
"""An object that is longer is none of ours."""
_MOST_NUMBER = 2**53
_LAST_MS = 253_402_300_800_000
"""The year 10000, which no calendar here can show."""
_LOGGER = logging.getLogger("sparklog.compaction")
_CANT_BE_READ = "%s/%s can't be read: %s"
_CANT_BE_WRITTEN = "%s/%s can't be written: %s"
_counted = partial(counted, by_thousands=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The sums of what was done."""

    sequenced_files: int = 0
    """Files of other engines that were given offsets."""
    retention_files: int = 0
    """Files that retention removed."""
    compacted_files: int = 0
    """Files of compacted topics that were replaced."""
    dropped_records: int = 0
    """Records of compacted topics whose keys came again."""
    merged_files: int = 0
    merged_into: int = 0
    """Files that took the place of those."""
    deleted_files: int = 0
    deleted_entries: int = 0
    """Entries of logs."""
    checkpoints: int = 0

    @property
    def file_count(self) -> int:
        """All files that were touched."""
        return (
            self.sequenced_files + self.retention_files + self.compacted_files + self.merged_files + self.deleted_files
        )

    def plus(self, other: Work) -> Work:
        """The sum."""
        return Work(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicWork:
    """The work of a run in a topic."""

    topic: str
    work: Work
    failed: bool = False
    """Did a step fail? The report of the run says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run in short."""

    ended_ms: int
    """By the store's time, ms since the epoch."""
    took_ms: int
    topic_count: int
    unchanged_count: int
    """Topics that were passed over, as nothing had happened to them and nothing was due."""
    failed_count: int
    """Topics in which a step failed."""
    has_failed_otherwise: bool
    """Did a step fail for the whole cluster, a group or a transactional id?"""
    finished_transactions: int
    expired_offsets: int
    """Committed offsets of groups that were past their time."""
    work: Work
    topics: tuple[TopicWork, ...]
    """Some of the topics in which something was done, or failed: those that failed first."""

    @property
    def has_failed(self) -> bool:
        """Did any step fail?"""
        return bool(self.failed_count or self.has_failed_otherwise)

    @property
    def is_idle(self) -> bool:
        """Was nothing done, and did nothing fail?"""
        return not self.has_failed and not words(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRuns:
    """How many runs have failed since the first one that was noted; less those that ended at the same moment."""

    total: int = 0
    by_topic: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Runs of which a step failed in the topic; of the 200 topics in which one failed last, these last."""

    def plus(self, *, has_failed: bool, topics: Iterable[str]) -> FailedRuns:
        """The counts after one run more.

        Args:
            topics: those in which a step failed.
        """
        counts = dict(self.by_topic)
        for name in topics:
            counts[name] = counts.pop(name, 0) + 1
        newest = [*counts.items()][-_MOST_COUNTED_TOPICS:]
        return FailedRuns(total=self.total + has_failed, by_topic=dict(newest))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """The traces of all runs."""

    runs: tuple[RunSummary, ...] = ()
    """The newest runs that did something, newest first, and before them one that found nothing to do."""
    failed: FailedRuns = field(default_factory=FailedRuns)


def words(done: RunSummary | Work) -> str:
    """The work in words; empty for nothing."""
    work = done.work if isinstance(done, RunSummary) else done
    found = [
        (work.sequenced_files, f"gave offsets to {_counted(work.sequenced_files, 'file')}"),
        (work.retention_files, f"removed {_counted(work.retention_files, 'file')} by retention"),
        (
            work.compacted_files,
            f"compacted {_counted(work.compacted_files, 'file')}, dropping {_counted(work.dropped_records, 'record')}",
        ),
        (work.merged_files, f"merged {_counted(work.merged_files, 'file')} into {work.merged_into:,}"),
        (work.checkpoints, f"wrote {_counted(work.checkpoints, 'checkpoint')}"),
        (work.deleted_files, f"deleted {_counted(work.deleted_files, 'file')}"),
        (work.deleted_entries, f"deleted {_counted(work.deleted_entries, 'log entry', 'log entries')}"),
    ]
    if isinstance(done, RunSummary):
        found += [
            (done.finished_transactions, f"finished {_counted(done.finished_transactions, 'transaction')}"),
            (done.expired_offsets, f"let {_counted(done.expired_offsets, 'offset')} of groups expire"),
        ]
    return ", ".join(text for number, text in found if number)


def summary_of(report: MaintenanceReport, *, ended_ms: int, took_ms: float) -> RunSummary:
    """A report in short. Pure."""
    works = [TopicWork(topic=one.topic, work=_work(one), failed=bool(one.failures)) for one in report.topics]
    total = Work()
    for one in works:
        total = total.plus(one.work)
    named = [one for one in works if one.failed or words(one.work)]
    return RunSummary(
        ended_ms=ended_ms,
        took_ms=int(took_ms),
        topic_count=len(works),
        unchanged_count=sum(one.unchanged for one in report.topics),
        failed_count=sum(one.failed for one in works),
        has_failed_otherwise=bool(report.errors)
        or any(one.error is not None for one in report.transactions)
        or any(one.error is not None for one in report.groups),
        finished_transactions=sum(one.action.value != "nothing" for one in report.transactions if one.error is None),
        expired_offsets=sum(one.expired_offsets for one in report.groups),
        work=total,
        topics=tuple(sorted(named, key=lambda one: (not one.failed, -one.work.file_count, one.topic))[:_MOST_TOPICS]),
    )


def read_runs(cluster: Cluster) -> tuple[RunSummary, ...]:
    """The newest runs: those of :func:`read_history`."""
    return read_history(cluster).runs


def read_history(cluster: Cluster) -> RunHistory:
    """The traces of runs; empty where none was noted. A GET.

    Raises:
        ValueError: what is there can't be understood.
        StoreError.
    """
    try:
        data = cluster.store.read_range(MAINTENANCE_RUNS, 0, _MOST_BYTES + 1)
    except ObjectNotFoundError:
        return RunHistory()
    if len(data) > _MOST_BYTES:
        raise ValueError(f"{len(data)} bytes or more, expected {_MOST_BYTES} at most")
    try:
        body = json.loads(data)
        if body["format"] != RUNS_FORMAT or body["cluster_id"] != cluster.cluster_id:
            raise ValueError("another format, or of another cluster")
        runs = tuple(_run(one) for one in body["runs"][:_MOST_RUNS])
        return RunHistory(runs=runs, failed=_failed(body.get("failed", {})))
    except (KeyError, TypeError, AttributeError, RecursionError, InvalidTopicError) as error:
        raise ValueError(f"not understood: {type(error).__name__}") from error


def note_run(
    cluster: Cluster, run: RunSummary, *, failed_topics: Iterable[str] = (), if_last_failed: bool = False
) -> None:
    """Let a run be known, beside the newest others. A GET and a PUT. What fails is logged.

    Args:
        failed_topics: those in which a step failed.
        if_last_failed: only where the newest run that is known has failed: for a run of which nothing else is to be
            known than that it didn't. A GET where it hasn't.
    """
    uri = cluster.store.uri
    try:
        history = read_history(cluster)
    except (ValueError, SparklogError) as error:
        _LOGGER.info(_CANT_BE_READ, uri, MAINTENANCE_RUNS, error)
        history = RunHistory()
    before = history.runs
    if if_last_failed and not (before and before[0].has_failed):
        return
    kept = [run, *(one for one in before if not one.is_idle)][:_MOST_RUNS]
    failed = history.failed.plus(has_failed=run.has_failed, topics=failed_topics)
    body = {
        "format": RUNS_FORMAT,
        "cluster_id": cluster.cluster_id,
        "runs": [asdict(one) for one in kept],
        "failed": {"total": failed.total, "by_topic": dict(failed.by_topic)},
    }
    try:
        cluster.store.put(MAINTENANCE_RUNS, json.dumps(body, separators=(",", ":")).encode())
    except SparklogError as error:
        _LOGGER.warning(_CANT_BE_WRITTEN, uri, MAINTENANCE_RUNS, error)


def _work(topic: TopicMaintenance) -> Work:
    cleaned = [one for one in (topic.compact.partitions if topic.compact else ()) if _is_done(one.outcome)]
    merged = [one for one in (topic.optimize.ranges if topic.optimize else ()) if _is_done(one.outcome)]
    retention, vacuum = topic.retention, topic.vacuum
    return Work(
        sequenced_files=topic.sequence.sequenced_files if topic.sequence else 0,
        retention_files=retention.removed_files if retention else 0,
        compacted_files=sum(one.files_before for one in cleaned),
        dropped_records=sum(one.counts.dropped for one in cleaned),
        merged_files=sum(one.files_before for one in merged),
        merged_into=sum(one.files_after for one in merged),
        deleted_files=vacuum.files_deleted if vacuum else 0,
        deleted_entries=vacuum.entries_deleted if vacuum else 0,
        checkpoints=int(vacuum is not None and vacuum.checkpoint_version is not None),
    )


def _is_done(outcome: Any) -> bool:
    return outcome is not None and outcome.value == "done"


def _run(body: Mapping[str, Any]) -> RunSummary:
    """A run of plain values. Raises ``KeyError``, ``TypeError``, ``ValueError``, ``InvalidTopicError``."""
    numbers = ("took_ms", "topic_count", "unchanged_count", "failed_count", "finished_transactions", "expired_offsets")
    if max(body["unchanged_count"], body["failed_count"]) > body["topic_count"]:
        raise ValueError("more topics than there were")
    return RunSummary(
        ended_ms=_number(body["ended_ms"], below=_LAST_MS),
        has_failed_otherwise=bool(body["has_failed_otherwise"]),
        work=_work_of(body["work"]),
        topics=tuple(_topics_of(body["topics"])),
        **{name: _number(body[name]) for name in numbers},
    )


def _failed(body: Mapping[str, Any]) -> FailedRuns:
    listed = [*body.get("by_topic", {}).items()][-_MOST_COUNTED_TOPICS:]
    by_topic = {check_topic_name(name): _number(count) for name, count in listed}
    return FailedRuns(total=_number(body.get("total", 0)), by_topic=by_topic)


def _topics_of(listed: Sequence[Mapping[str, Any]]) -> Iterator[TopicWork]:
    for one in listed[:_MOST_TOPICS]:
        yield TopicWork(topic=check_topic_name(one["topic"]), work=_work_of(one["work"]), failed=bool(one["failed"]))


def _work_of(body: Mapping[str, Any]) -> Work:
    return Work(**{one.name: _number(body[one.name]) for one in fields(Work)})


def _number(value: Any, *, below: int = _MOST_NUMBER) -> int:
    if type(value) is not int or not 0 <= value < below:
        raise ValueError(f"expected a number from 0 to {below}")
    return value
