"""Maintenance of topics on Spark: the plans and commits of ``sparklog.compaction``, with executors that do the work.

Each topic is a task, many topics at a time. What is too much for one, of merging and compaction by key, is for the
driver to plan and to commit, topic after topic, and for the executors to read and write; so is all of a single topic.
Neither Delta nor S3A is needed: files and logs are read and written by sparklog's own store, in every process.

By Spark Connect a topic is always dealt with in one process, however much it is: in a task, where there are several.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparklog.compaction.clean_arrow import Clean, clean_with_arrow
from sparklog.compaction.idle_notes import TopicNote
from sparklog.compaction.maintenance import (
    DEFAULT_TIMEOUT_MS,
    MaintenanceOptions,
    MaintenanceReport,
    Step,
    StepListener,
    TopicOutcome,
    ignore_steps,
    maintain_topic,
)
from sparklog.compaction.maintenance import maintain as maintain_cluster
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.compaction.rewrite_arrow import Rewrite, rewrite_with_arrow
from sparklog.compaction.run_context import MaintenanceRun
from sparklog.errors import SparklogError
from sparklog.spark.maintenance.clean_by_shuffle import SparkClean
from sparklog.spark.maintenance.per_topic import maintain_per_topic
from sparklog.spark.maintenance.rewrite_on_executors import SparkRewrite
from sparklog.spark.session.connect import is_connect
from sparklog.spark.session.session import cluster_ref_for
from sparklog.streaming.cluster_cache import cached_cluster
from sparklog.streaming.cluster_ref import ClusterRef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SMALL_BYTES", "maintain", "optimize", "run_compaction", "run_retention", "vacuum"]

SMALL_BYTES = 32 * 1024 * 1024
"""The size of files that one process merges or compacts by itself, sooner than a job of Spark would begin."""

_PARTS = ((Step.SEQUENCE, Step.RETENTION), (Step.COMPACT, Step.OPTIMIZE), (Step.VACUUM,))


def run_retention(
    spark: SparkSession,
    cluster: str | Path,
    topics: Iterable[str] | str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    tell: StepListener = ignore_steps,
) -> MaintenanceReport:
    """Remove what topics' ``retention.ms`` and ``retention.bytes`` don't keep, and what lies below their log starts.

    See :func:`maintain`. The ``retention`` of each topic's report says what was removed.
    """
    maintenance = SparkMaintenance(spark, cluster_ref_for(spark, cluster, storage_options))
    return maintenance.run(topics, (Step.RETENTION,), dry_run=dry_run, timeout_ms=timeout_ms, tell=tell)


def run_compaction(
    spark: SparkSession,
    cluster: str | Path,
    topics: Iterable[str] | str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    small_bytes: int = SMALL_BYTES,
    tell: StepListener = ignore_steps,
) -> MaintenanceReport:
    """Drop the records of compacted topics whose keys came again, where it is due.

    See :func:`maintain`. The ``compact`` of each topic's report says what was dropped.
    """
    maintenance = SparkMaintenance(spark, cluster_ref_for(spark, cluster, storage_options), small_bytes)
    return maintenance.run(topics, (Step.COMPACT,), dry_run=dry_run, timeout_ms=timeout_ms, tell=tell)


def optimize(
    spark: SparkSession,
    cluster: str | Path,
    topics: Iterable[str] | str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    policy: OptimizePolicy | None = None,
    dry_run: bool = False,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    small_bytes: int = SMALL_BYTES,
    tell: StepListener = ignore_steps,
) -> MaintenanceReport:
    """Merge small files of topics into few large ones. Not a record changes, and Delta streams pass over it.

    See :func:`maintain`. The ``optimize`` of each topic's report says which were merged.

    Args:
        policy: which files are worth being merged.
    """
    maintenance = SparkMaintenance(spark, cluster_ref_for(spark, cluster, storage_options), small_bytes)
    return maintenance.run(topics, (Step.OPTIMIZE,), policy=policy, dry_run=dry_run, timeout_ms=timeout_ms, tell=tell)


def vacuum(
    spark: SparkSession,
    cluster: str | Path,
    topics: Iterable[str] | str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    tell: StepListener = ignore_steps,
) -> MaintenanceReport:
    """Delete files and log entries that nobody needs, of deleted topics too.

    See :func:`maintain`. The ``vacuum`` of each topic's report says how many.
    """
    maintenance = SparkMaintenance(spark, cluster_ref_for(spark, cluster, storage_options))
    return maintenance.run(topics, (Step.VACUUM,), dry_run=dry_run, timeout_ms=timeout_ms, tell=tell)


def maintain(
    spark: SparkSession,
    cluster: str | Path,
    topics: Iterable[str] | str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    steps: Collection[Step] = tuple(Step),
    policy: OptimizePolicy | None = None,
    dry_run: bool = False,
    full: bool = False,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    small_bytes: int = SMALL_BYTES,
    tell: StepListener = ignore_steps,
) -> MaintenanceReport:
    """Run all steps that keep a cluster in shape, in order.

    Topics in which nothing has happened, and nothing has become due, are passed over; each is looked at once a day.

    Safe to run twice at once and to kill at any point: what was committed is right, and what was uploaded and not
    committed is swept later. A producer never waits for it.

    Args:
        cluster: its root: a folder that all processes of Spark see, or ``s3://…``.
        topics: only these; then transactions and groups, which are the cluster's, are left alone. By default all.
        storage_options: access to S3; else as boto3 finds it, in every process.
        policy: which files are worth being merged.
        dry_run: change nothing, and report what would be done as of now.
        full: look at every topic, and search its folder for files that nobody needs.
        timeout_ms: for each commit.
        small_bytes: what is no more than this, of a topic to be merged, or eight times as much, of a partition to be
            compacted, one process does: a task; for a single topic, this one.
        tell: is called with the topic (empty for the cluster, or all topics at once) and the step that comes next.
    Returns:
        What was done; what failed, for a topic or a step, is reported there (``failures``), and hindered no other.
    Raises:
        InvalidArgumentError: there is no cluster, or one in memory.
        UnknownTopicOrPartitionError: one of ``topics`` isn't there; nothing was done.
        StoreError: the topics can't be listed.
    """
    maintenance = SparkMaintenance(spark, cluster_ref_for(spark, cluster, storage_options), small_bytes)
    return maintenance.run(topics, steps, policy=policy, dry_run=dry_run, full=full, timeout_ms=timeout_ms, tell=tell)


class SparkMaintenance:
    """The maintenance of one cluster by a Spark session: tasks for whole topics, executors for large ones."""

    def __init__(self, spark: SparkSession, cluster_ref: ClusterRef, small_bytes: int = SMALL_BYTES) -> None:
        self._spark = spark
        self._cluster_ref = cluster_ref
        if is_connect(spark):  # it hands no other work to executors than a task for each topic
            self._small_bytes = sys.maxsize
            self._rewrite: Rewrite = rewrite_with_arrow
            self._clean: Clean = clean_with_arrow
            return
        self._small_bytes = small_bytes
        self._rewrite = SparkRewrite(spark, cluster_ref, small_bytes=small_bytes)
        self._clean = SparkClean(spark, cluster_ref, small_bytes=small_bytes)

    def run(
        self,
        topics: Iterable[str] | str | None,
        steps: Collection[Step],
        *,
        policy: OptimizePolicy | None = None,
        dry_run: bool,
        full: bool = False,
        timeout_ms: float,
        tell: StepListener,
    ) -> MaintenanceReport:
        """Run these steps over some topics or all. Raises as :func:`maintain`."""
        return maintain_cluster(
            cached_cluster(self._cluster_ref).cluster,
            [topics] if isinstance(topics, str) else topics,
            steps=steps,
            policy=policy,
            dry_run=dry_run,
            full=full,
            timeout_ms=timeout_ms,
            tell=tell,
            each_topic=self.each_topic,
        )

    def each_topic(
        self, run: MaintenanceRun, topics: Mapping[str, int], options: MaintenanceOptions, tell: StepListener
    ) -> list[TopicOutcome | None]:
        """See :data:`~sparklog.compaction.maintenance.EachTopic`."""
        if len(topics) < 2:
            return [self._in_this_process(run, name, options, search_ms, tell) for name, search_ms in topics.items()]
        for step in options.steps_of(deleted=False):
            tell("", step)
        parts: dict[str, list[TopicOutcome | None]] = {name: [] for name in topics}
        left: dict[str, tuple[Step, ...]] = {}
        for name, outcome in self._in_tasks(run, topics, options).items():
            parts[name].append(outcome)
            if outcome is not None and outcome.left:
                left[name] = outcome.left
        for name, steps in left.items():
            here = replace(options, steps=[step for step in steps if step is not Step.VACUUM])
            parts[name].append(self._in_this_process(run, name, here, topics[name], tell))
        to_vacuum = {name: topics[name] for name, steps in left.items() if Step.VACUUM in steps}
        for name, outcome in self._in_tasks(run, to_vacuum, replace(options, steps=[Step.VACUUM])).items():
            parts[name].append(outcome)
        return [_joined(outcomes) for outcomes in parts.values()]

    def _in_tasks(
        self, run: MaintenanceRun, topics: Mapping[str, int], options: MaintenanceOptions
    ) -> dict[str, TopicOutcome | None]:
        """Maintain each topic by a task. Where Spark gives up, do some of the steps at a time: one of them may kill its
        worker, and is to hinder no other step."""
        if not topics:
            return {}
        try:
            return self._in_one_job(run, topics, options)
        except SparklogError as error:
            parts = [[step for step in part if step in options.steps] for part in _PARTS]
            some = [replace(options, steps=steps) for steps in parts if steps]
            if len(some) < 2:
                return {name: options.failed(name, error) for name in topics}
        done = [self._in_tasks(run, topics, part) for part in some]
        return {name: _joined([part[name] for part in done]) for name in topics}

    def _in_one_job(
        self, run: MaintenanceRun, topics: Mapping[str, int], options: MaintenanceOptions
    ) -> dict[str, TopicOutcome | None]:
        is_search_due = Step.VACUUM in options.steps and min(topics.values()) <= run.now_ms()
        facts = run.facts(with_transactions=is_search_due)
        outcomes = maintain_per_topic(
            self._spark, self._cluster_ref, facts, topics, options, small_bytes=self._small_bytes
        )
        return dict(zip(topics, outcomes, strict=True))

    def _in_this_process(
        self, run: MaintenanceRun, topic: str, options: MaintenanceOptions, search_ms: int, tell: StepListener
    ) -> TopicOutcome | None:
        """Maintain a topic by this process, and by executors where it is more than a little."""
        own_options = replace(options, rewrite=self._rewrite, clean=self._clean)
        return maintain_topic(run, topic, own_options, search_ms=search_ms, tell=tell)


def _joined(parts: Iterable[TopicOutcome | None]) -> TopicOutcome | None:
    """One outcome of the parts in which a topic was maintained; each step is reported by one of them."""
    outcomes = [part for part in parts if part is not None]
    if len(outcomes) < 2:
        return outcomes[0] if outcomes else None
    report = outcomes[0].report
    reported: dict[str, Any] = {}
    errors = dict(report.errors)
    for part in (outcome.report for outcome in outcomes[1:]):
        values = {field.name: getattr(part, field.name) for field in fields(part) if field.name != "errors"}
        reported |= {name: value for name, value in values.items() if value}
        errors |= part.errors
    # Whether something is due now nobody knows, of a topic that was dealt with in parts.
    note = TopicNote(search_ms=max(o.note.search_ms if o.note is not None else 0 for o in outcomes))
    left = next((outcome.left for outcome in outcomes if outcome.left), ())
    return TopicOutcome(report=replace(report, **reported, errors=errors), note=note, left=left)
