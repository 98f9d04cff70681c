"""A task of Spark for each topic: many topics at a time, each dealt with in one process as ``sparklog maintain`` does.

That suits all steps where a topic is small. What is too much for one task, of merging and of compaction by key, the
task leaves as it is, and says so: the driver deals with it afterwards, with all executors.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from sparklog.compaction.cleaner import Reason, cleaner_rules
from sparklog.compaction.compact import plan_topic
from sparklog.compaction.maintain import Step, TopicMaintenance, Wanted, as_ours, maintain_topic
from sparklog.compaction.rewriting import Rewritten, rewrite_with_arrow
from sparklog.compaction.units import FileRange
from sparklog.delta.log import DeltaLog
from sparklog.errors import SparklogError, UnknownTopicOrPartitionError
from sparklog.log.cluster import Cluster
from sparklog.log.state import load_state
from sparklog.spark.executors import on_executors
from sparklog.spark.maintenance_ahead import told_by_spark
from sparklog.spark.maintenance_clean import is_small
from sparklog.spark.opened import opened
from sparklog.spark.place import Place
from sparklog.txn.overview import store_time_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SmallRewrite", "Spread", "maintain_small", "spread"]

_LOGGER = logging.getLogger("sparklog.spark")
_MOST_TASKS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """What became of a topic in a task."""

    done: TopicMaintenance
    """It tells nothing of the steps that are left."""
    left: tuple[Step, ...] = ()
    """Of the steps that were wanted, those that are too much for a task: nothing was done about them."""


def spread(
    spark: SparkSession, place: Place, topics: Mapping[str, bool], wanted: Wanted, *, small_bytes: int
) -> list[Spread]:
    """Do what is wanted for all topics, in their order; ``rewrite`` and ``clean`` of ``wanted`` aren't used.

    A task that dies is repeated by Spark, and tells what it still found to do.

    Args:
        topics: by name, and whether each was deleted.
        small_bytes: what is no more than this, of a topic to be merged, or eight times as much, of a partition to be
            compacted, is done.
    Raises:
        RetriableError, InvalidConfigurationError: Spark gave up, see
            :func:`~sparklog.spark.maintenance_ahead.told_by_spark`.
    """
    there = partial(_maintain_there, place, wanted, small_bytes)
    with told_by_spark():
        return on_executors(spark, there, [*topics.items()], min(len(topics), _MOST_TASKS))


def _maintain_there(
    place: Place, wanted: Wanted, small_bytes: int, topics: Iterator[tuple[str, bool]]
) -> Iterator[Spread]:
    """What a task does."""
    cluster = opened(place).cluster
    for name, deleted in topics:
        try:
            found = maintain_small(cluster, name, wanted, deleted=deleted, small_bytes=small_bytes)
        except Exception as unforeseen:  # one topic hinders no other, whatever is in it
            _LOGGER.exception("topic %s", name)
            yield Spread(done=wanted.failed(name, as_ours(unforeseen), deleted=deleted))
            continue
        errors = {step: error.with_traceback(None) for step, error in found.done.errors.items()}
        yield replace(found, done=replace(found.done, errors=errors))


def maintain_small(cluster: Cluster, topic: str, wanted: Wanted, *, deleted: bool, small_bytes: int) -> Spread:
    """Do for one topic what is wanted and isn't too much, in this process. See :func:`spread`."""
    steps = list(wanted.steps)
    left: list[Step] = []
    errors: dict[Step, SparklogError] = {}
    if Step.COMPACT in steps and not deleted and not wanted.dry_run:
        try:
            if _is_much_to_be_compacted(cluster, topic, small_bytes):
                left = [
                    step for step in (Step.COMPACT, Step.OPTIMIZE) if step in steps
                ]  # merged is what compaction left
        except UnknownTopicOrPartitionError:
            pass  # it was deleted since it was listed: the steps tell it
        except SparklogError as error:  # the step would begin with the same
            errors[Step.COMPACT] = error
    steps = [step for step in steps if step not in left and step not in errors]
    rewrite = SmallRewrite(small_bytes)
    done = maintain_topic(cluster, topic, replace(wanted, steps=steps, rewrite=rewrite), deleted=deleted)
    if rewrite.declined:
        left.append(Step.OPTIMIZE)
        done = replace(done, optimize=None)
    return Spread(done=replace(done, errors=errors | dict(done.errors)), left=tuple(left))


def _is_much_to_be_compacted(cluster: Cluster, topic: str, small_bytes: int) -> bool:
    """Is one of the partitions that are due too much for a task?

    Asked for the topic as a whole, and before anything is committed, so that one report tells of all its partitions.
    What comes due while the task plans anew, it does, however much it is: slower than executors would, but as well.
    """
    log = cluster.topic_log(topic)
    state = load_state(log)
    if state.head.deleted:
        return False
    rules = cleaner_rules(log.table, state.require_whole().metadata)
    if not rules.compacts:
        return False
    plans = plan_topic(state, rules, now_ms=store_time_ms(cluster))
    return any(plan.reason is not Reason.NONE and not is_small(plan, small_bytes) for plan in plans)


class SmallRewrite:
    """A :data:`~sparklog.compaction.rewriting.Rewrite` for one topic, in this process: all of it, or nothing."""

    def __init__(self, small_bytes: int) -> None:
        """
        Args:
            small_bytes: more than this together is declined.
        """
        self._small_bytes = small_bytes
        self.declined = False
        """Was there more? Then nothing was rewritten."""

    def __call__(
        self, log: DeltaLog, ranges: Sequence[FileRange], compression: str
    ) -> Generator[Rewritten, None, None]:
        self.declined = sum(found.size_bytes for found in ranges) > self._small_bytes
        return rewrite_with_arrow(log, () if self.declined else ranges, compression)
