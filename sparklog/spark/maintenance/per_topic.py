"""Maintenance with a Spark task for each topic: each is dealt with in one process, as ``sparklog maintain`` does.

That suits all steps where a topic is small. What is too much for one task, of merging and of compaction by key, the
task leaves as it is, with the steps that follow, and says so: the driver deals with it afterwards, with all executors.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sparklog.compaction.maintenance import MaintenanceOptions, TopicOutcome, maintain_topic
from sparklog.compaction.run_context import MaintenanceRun, RunFacts
from sparklog.errors import as_sparklog_error
from sparklog.spark.maintenance.clean_by_shuffle import most_bytes_in_one_process
from sparklog.spark.maintenance.prefetch import spark_errors
from sparklog.spark.session.executors import on_executors
from sparklog.spark.session.job_groups import described_jobs
from sparklog.streaming.cluster_cache import cached_cluster
from sparklog.streaming.cluster_ref import ClusterRef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["maintain_per_topic", "task_options"]

_LOGGER = logging.getLogger("sparklog.spark")
_MOST_TASKS = 1_000


def maintain_per_topic(
    spark: SparkSession,
    cluster_ref: ClusterRef,
    facts: RunFacts,
    topics: Mapping[str, int],
    options: MaintenanceOptions,
    *,
    small_bytes: int,
) -> list[TopicOutcome | None]:
    """Do the steps of all topics, in their order; ``rewrite`` and ``clean`` of ``options`` aren't used.

    A task that dies is repeated by Spark; its outcome is that of the last attempt.

    Args:
        facts: what the driver knows of the cluster.
        topics: by name, and the store's time from which on vacuum is to search each one's folder.
        small_bytes: see :func:`task_options`.
    Raises:
        RetriableError, InvalidConfigurationError: Spark gave up, see
            :func:`~sparklog.spark.maintenance.prefetch.spark_errors`.
    """
    work = partial(_maintain_in_task, cluster_ref, facts, task_options(options, small_bytes))
    about = f"sparklog: {', '.join(step.value for step in options.steps)} of {len(topics)} topics"
    with spark_errors(), described_jobs(spark, about):
        return on_executors(spark, work, [*topics.items()], min(len(topics), _MOST_TASKS))


def task_options(options: MaintenanceOptions, small_bytes: int) -> MaintenanceOptions:
    """The options of one task: it merges no more than ``small_bytes`` of a topic, and compacts no more than eight times
    as much of a partition. What is more is left."""
    plain = MaintenanceOptions(
        steps=options.steps, policy=options.policy, dry_run=options.dry_run, timeout_ms=options.timeout_ms
    )
    return replace(plain, most_merged_bytes=small_bytes, most_compacted_bytes=most_bytes_in_one_process(small_bytes))


def _maintain_in_task(
    cluster_ref: ClusterRef, facts: RunFacts, options: MaintenanceOptions, topics: Iterator[tuple[str, int]]
) -> Iterator[TopicOutcome | None]:
    """The work of a task: the steps of some topics."""
    cluster = cached_cluster(cluster_ref).cluster
    run = MaintenanceRun.of(cluster, facts, timeout_ms=options.timeout_ms, dry_run=options.dry_run)
    for name, search_ms in topics:
        try:
            outcome = maintain_topic(run, name, options, search_ms=search_ms)
        except Exception as unforeseen:  # one topic hinders no other, whatever is in it
            _LOGGER.exception("topic %s", name)
            yield options.failed(name, as_sparklog_error(unforeseen))
            continue
        if outcome is None:
            yield None
            continue
        errors = {step: error.with_traceback(None) for step, error in outcome.report.errors.items()}
        yield replace(outcome, report=replace(outcome.report, errors=errors))
