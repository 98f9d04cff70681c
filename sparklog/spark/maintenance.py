"""Maintenance of topics on Spark: the plans and commits of ``sparklog.compaction``, with executors that do the work.

Each topic is a task, many topics at a time. What is too much for one, of merging and compaction by key, is for the
driver to plan and to commit, topic after topic, and for the executors to read and write; so is all of a single topic.
Neither Delta nor S3A is needed: files and logs are read and written by sparklog's own store, in every process.

By Spark Connect a topic is always dealt with in one process, however much it is: in a task, where there are several.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparklog.compaction.cleaning import Clean, clean_with_arrow
from sparklog.compaction.maintain import (
    DEFAULT_TIMEOUT_MS,
    MaintenanceReport,
    Step,
    Tell,
    TopicMaintenance,
    Wanted,
    maintain_topic,
    quiet,
)
from sparklog.compaction.maintain import maintain as maintain_cluster
from sparklog.compaction.optimizing import OptimizePolicy
from sparklog.compaction.rewriting import Rewrite, rewrite_with_arrow
from sparklog.errors import SparklogError
from sparklog.log.cluster import Cluster
from sparklog.spark.connect import is_connect
from sparklog.spark.maintenance_clean import SparkClean
from sparklog.spark.maintenance_rewrite import SparkRewrite
from sparklog.spark.maintenance_spread import Spread, spread
from sparklog.spark.opened import opened
from sparklog.spark.place import Place
from sparklog.spark.session import place_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SMALL_BYTES", "maintain", "optimize", "run_compaction", "run_retention", "vacuum"]

SMALL_BYTES = 32 * 1024 * 1024
"""Of files: what one process merges or compacts by itself, sooner than a job of Spark would begin."""

_PARTS = ((Step.SEQUENCE, Step.RETENTION), (Step.COMPACT, Step.OPTIMIZE), (Step.VACUUM,))
"""One after the other, for all topics."""


def run_retention(
    spark: SparkSession,
    cluster: str | Path,
    topics: Iterable[str] | str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    tell: Tell = quiet,
) -> MaintenanceReport:
    """Remove what topics' ``retention.ms`` and ``retention.bytes`` don't keep, and what lies below their log starts.

    See :func:`maintain`. The ``retention`` of each topic's report tells what went.
    """
    how = _How(spark, place_for(spark, cluster, storage_options))
    return how.run(topics, (Step.RETENTION,), dry_run=dry_run, timeout_ms=timeout_ms, tell=tell)


def run_compaction(
    spark: SparkSession,
    cluster: str | Path,
    topics: Iterable[str] | str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    small_bytes: int = SMALL_BYTES,
    tell: Tell = quiet,
) -> MaintenanceReport:
    """Drop the records of compacted topics whose keys came again, where it is due.

    See :func:`maintain`. The ``compact`` of each topic's report tells what was dropped.
    """
    how = _How(spark, place_for(spark, cluster, storage_options), small_bytes)
    return how.run(topics, (Step.COMPACT,), dry_run=dry_run, timeout_ms=timeout_ms, tell=tell)


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
    tell: Tell = quiet,
) -> MaintenanceReport:
    """Merge small files of topics into few large ones. Not a record changes, and Delta streams pass over it.

    See :func:`maintain`. The ``optimize`` of each topic's report tells which were merged.

    Args:
        policy: which files are worth being merged.
    """
    how = _How(spark, place_for(spark, cluster, storage_options), small_bytes)
    return how.run(topics, (Step.OPTIMIZE,), policy=policy, dry_run=dry_run, timeout_ms=timeout_ms, tell=tell)


def vacuum(
    spark: SparkSession,
    cluster: str | Path,
    topics: Iterable[str] | str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    tell: Tell = quiet,
) -> MaintenanceReport:
    """Delete files and log entries that nobody needs, of deleted topics too.

    See :func:`maintain`. The ``vacuum`` of each topic's report tells how many.
    """
    how = _How(spark, place_for(spark, cluster, storage_options))
    return how.run(topics, (Step.VACUUM,), dry_run=dry_run, timeout_ms=timeout_ms, tell=tell)


def maintain(
    spark: SparkSession,
    cluster: str | Path,
    topics: Iterable[str] | str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    steps: Collection[Step] = tuple(Step),
    policy: OptimizePolicy | None = None,
    dry_run: bool = False,
    timeout_ms: float = DEFAULT_TIMEOUT_MS,
    small_bytes: int = SMALL_BYTES,
    tell: Tell = quiet,
) -> MaintenanceReport:
    """All that keeps a cluster in shape, in order.

    Safe to run twice at once and to kill at any point: what was committed is right, and what was uploaded and not
    committed is swept later. A producer never waits for it.

    Args:
        cluster: its root: a folder that all processes of Spark see, or ``s3://…``.
        topics: only these; then transactions and groups, which are the cluster's, are left alone. By default all.
        storage_options: access to S3; else as boto3 finds it, in every process.
        policy: which files are worth being merged.
        dry_run: change nothing, and tell what would be done as of now.
        timeout_ms: for each commit.
        small_bytes: what is no more than this, of a topic to be merged, or eight times as much, of a partition to be
            compacted, one process does: a task; for a single topic, this one.
        tell: is told the topic (empty for the cluster, or all topics at once) and the step that comes next.
    Returns:
        What was done; what failed, for a topic or a step, is told there (``failures``), and hindered no other.
    Raises:
        InvalidArgumentError: there is no cluster, or one in memory.
        UnknownTopicOrPartitionError: one of ``topics`` isn't there; nothing was done.
        StoreError: the topics can't be listed.
    """
    how = _How(spark, place_for(spark, cluster, storage_options), small_bytes)
    return how.run(topics, steps, policy=policy, dry_run=dry_run, timeout_ms=timeout_ms, tell=tell)


class _How:
    """Steps on Spark."""

    def __init__(self, spark: SparkSession, place: Place, small_bytes: int = SMALL_BYTES) -> None:
        self._spark = spark
        self._place = place
        if is_connect(spark):  # it hands no other work to executors than a task for each topic
            self._small_bytes = sys.maxsize
            self._rewrite: Rewrite = rewrite_with_arrow
            self._clean: Clean = clean_with_arrow
            return
        self._small_bytes = small_bytes
        self._rewrite = SparkRewrite(spark, place, small_bytes=small_bytes)
        self._clean = SparkClean(spark, place, small_bytes=small_bytes)

    def run(
        self,
        topics: Iterable[str] | str | None,
        steps: Collection[Step],
        *,
        policy: OptimizePolicy | None = None,
        dry_run: bool,
        timeout_ms: float,
        tell: Tell,
    ) -> MaintenanceReport:
        return maintain_cluster(
            opened(self._place).cluster,
            [topics] if isinstance(topics, str) else topics,
            steps=steps,
            policy=policy,
            dry_run=dry_run,
            timeout_ms=timeout_ms,
            tell=tell,
            each_topic=self.each_topic,
        )

    def each_topic(
        self, cluster: Cluster, topics: Mapping[str, bool], wanted: Wanted, tell: Tell
    ) -> list[TopicMaintenance]:
        """See :data:`~sparklog.compaction.maintain.EachTopic`."""
        nothing = [TopicMaintenance(topic=name, deleted=deleted) for name, deleted in topics.items()]
        parts = [nothing]
        for part in _PARTS:
            steps = [step for step in part if step in wanted.steps]
            if not steps or not nothing:
                continue
            if len(nothing) == 1:
                parts.append([self._here(cluster, nothing[0], steps, wanted, tell)])
                continue
            for step in steps:
                tell("", step)
            there = self._there(topics, replace(wanted, steps=steps))
            parts.append([found.done for found in there])
            parts.append([self._here(cluster, found.done, found.left, wanted, tell) for found in there])
        return [_joined(of_topic) for of_topic in zip(*parts, strict=True)]

    def _there(self, topics: Mapping[str, bool], wanted: Wanted) -> list[Spread]:
        """By a task for each; where Spark gives up, that is what became of each topic, and the other parts go on."""
        try:
            return spread(self._spark, self._place, topics, wanted, small_bytes=self._small_bytes)
        except SparklogError as error:
            return [Spread(done=wanted.failed(name, error, deleted=deleted)) for name, deleted in topics.items()]

    def _here(
        self, cluster: Cluster, known: TopicMaintenance, steps: Sequence[Step], wanted: Wanted, tell: Tell
    ) -> TopicMaintenance:
        """By this process, and executors where it is more than a little. Without ``steps`` no log is read."""
        here = replace(wanted, steps=steps, rewrite=self._rewrite, clean=self._clean)
        return maintain_topic(cluster, known.topic, here, deleted=known.deleted, tell=tell)


def _joined(parts: Iterable[TopicMaintenance]) -> TopicMaintenance:
    """What became of a topic in one part after the other; each step is told by one of them."""
    first, *rest = parts
    found: dict[str, Any] = {}
    errors = dict(first.errors)
    for part in rest:
        values = {field.name: getattr(part, field.name) for field in fields(part) if field.name != "errors"}
        found |= {name: value for name, value in values.items() if value}
        errors |= part.errors
    return replace(first, **found, errors=errors)
