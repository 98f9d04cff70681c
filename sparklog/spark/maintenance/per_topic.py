"""A task of Spark for each topic: many topics at a time, each dealt with in one process as ``sparklog maintain`` does.

That suits all steps where a topic is small. What is too much for one task, of merging and of compaction by key, the
task leaves as it is, with the steps that follow, and says so: the driver deals with it afterwards, with all executors.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sparklog.compaction.maintain import TopicOutcome, Wanted, as_ours, maintain_topic
from sparklog.compaction.run_context import Run, RunFacts
from sparklog.spark.maintenance.clean_by_shuffle import most_in_memory
from sparklog.spark.maintenance.prefetch import told_by_spark
from sparklog.spark.session.executors import on_executors
from sparklog.streaming.cluster_cache import opened
from sparklog.streaming.cluster_ref import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["for_a_task", "spread"]

_LOGGER = logging.getLogger("sparklog.spark")
_MOST_TASKS = 1_000


def spread(
    spark: SparkSession,
    place: Place,
    facts: RunFacts,
    topics: Mapping[str, int],
    wanted: Wanted,
    *,
    small_bytes: int,
) -> list[TopicOutcome | None]:
    """Do what is wanted for all topics, in their order; ``rewrite`` and ``clean`` of ``wanted`` aren't used.

    A task that dies is repeated by Spark, and tells what it still found to do.

    Args:
        facts: what the driver knows of the cluster.
        topics: by name, and the store's time from which on vacuum is to search each one's folder.
        small_bytes: see :func:`for_a_task`.
    Raises:
        RetriableError, InvalidConfigurationError: Spark gave up, see
            :func:`~sparklog.spark.maintenance.prefetch.told_by_spark`.
    """
    there = partial(_maintain_there, place, facts, for_a_task(wanted, small_bytes))
    with told_by_spark():
        return on_executors(spark, there, [*topics.items()], min(len(topics), _MOST_TASKS))


def for_a_task(wanted: Wanted, small_bytes: int) -> Wanted:
    """What is wanted, as far as one task may do it: no more than ``small_bytes`` of a topic to be merged, and eight
    times as much of a partition to be compacted."""
    plain = Wanted(steps=wanted.steps, policy=wanted.policy, dry_run=wanted.dry_run, timeout_ms=wanted.timeout_ms)
    return replace(plain, most_merged_bytes=small_bytes, most_compacted_bytes=most_in_memory(small_bytes))


def _maintain_there(
    place: Place, facts: RunFacts, wanted: Wanted, topics: Iterator[tuple[str, int]]
) -> Iterator[TopicOutcome | None]:
    """What a task does."""
    run = Run.of(opened(place).cluster, facts, timeout_ms=wanted.timeout_ms, dry_run=wanted.dry_run)
    for name, search_ms in topics:
        try:
            found = maintain_topic(run, name, wanted, search_ms=search_ms)
        except Exception as unforeseen:  # one topic hinders no other, whatever is in it
            _LOGGER.exception("topic %s", name)
            yield wanted.failed(name, as_ours(unforeseen))
            continue
        if found is None:
            yield None
            continue
        errors = {step: error.with_traceback(None) for step, error in found.report.errors.items()}
        yield replace(found, report=replace(found.report, errors=errors))
