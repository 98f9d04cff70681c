"""Compaction by key on Spark's executors, by a shuffle: no process ever holds more keys than a task's share.

The keys of all records go to the executors by key, each with the position of its record; the greatest of each key stays
on their disks. Group of files after group, these positions go to a task that rewrites the group; the driver sees
counts and paths, and commits in the order of offsets.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sparklog.compaction.clean_arrow import CleanedFiles, CleanPass, clean_with_arrow
from sparklog.compaction.clean_shuffled import Layout, clean_group, read_keys
from sparklog.compaction.plan_cleaning import CleanPlan
from sparklog.delta.log import DeltaLog
from sparklog.errors import SparklogError
from sparklog.spark.maintenance.prefetch import as_text, run_jobs_ahead, spark_errors, waves
from sparklog.spark.maintenance.rewrite_on_executors import open_log
from sparklog.spark.runtime.spark_calls import map_in_arrow, repartition_by_id
from sparklog.streaming.cluster_ref import ClusterRef

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkClean", "clean_in_task", "most_bytes_in_one_process", "read_keys_in_task"]

_LOGGER = logging.getLogger("sparklog.spark")
_IN_MEMORY = 8
"""So many times what is small to be merged is small to be compacted: a pass in one process is ten times as fast, record
by record, as one by a shuffle on a few cores. What has more keys than fit in memory it cleans in several passes."""
_KEYS_DDL = "key BINARY, position LONG"
_CLEANED = pa.schema([("number", pa.int64()), ("cleaned", pa.binary())])
_CLEANED_DDL = "number LONG, cleaned BINARY"
_MARKER = -1
"""A position that is none: its row says that there is such a group, which may hold no record that stays."""

Batches = Iterator[pa.RecordBatch]


class SparkClean:
    """A :data:`~sparklog.compaction.clean_arrow.Clean`.

    Memory of a task: one group of files as they are stored, the new file, and 8 bytes for each record that stays,
    outside of the JVM; a share of the keys within it, or on its disk.
    """

    def __init__(self, spark: SparkSession, cluster_ref: ClusterRef, *, small_bytes: int) -> None:
        """
        Args:
            small_bytes: a pass over no more than eight times so many is done by this process: it ends sooner.
        """
        self._spark = spark
        self._cluster_ref = cluster_ref
        self._small_bytes = small_bytes

    def __call__(self, log: DeltaLog, plan: CleanPlan, compression: str, file_bytes: int) -> CleanPass:
        if _is_small(plan, self._small_bytes):
            return clean_with_arrow(log, plan, compression, file_bytes)
        layout = Layout.of(plan, compression=compression, file_bytes=file_bytes)
        return CleanPass(
            end_offset=plan.end_offset,
            due_tombstones_end=plan.due_tombstones_end,
            pieces=self._pieces(log, layout),
        )

    def _shuffle(self, log: DeltaLog, layout: Layout) -> _ShuffledPositions:
        """The plan of the shuffle: what to read, to shuffle, and to write. No job has begun.

        The second shuffle sends the positions of each group to a task of its own. It is done once: a wave of groups is
        a job that runs their tasks alone, and reads what is meant for them.
        """
        from pyspark.sql import functions as F  # noqa: N812

        shared = self._spark.sparkContext.broadcast(layout)
        read = _task(partial(read_keys_in_task, self._cluster_ref, log.table), shared)
        clean = _task(partial(clean_in_task, self._cluster_ref, log.table), shared)
        numbers = self._spark.range(0, len(layout.reads), 1, max(1, len(layout.reads)))
        latest = (
            map_in_arrow(numbers, read, _KEYS_DDL)
            .groupBy("key")
            .agg(F.max("position").alias("position"))
            .select(F.shiftright("position", layout.group_bits).alias("number"), "position")
        )
        count = len(layout.groups)
        markers = self._spark.range(0, count, 1, 1).selectExpr("id AS number", f"CAST({_MARKER} AS LONG) AS position")
        rows = latest.unionByName(markers).withColumn("task", F.expr("CAST(number AS INT)"))
        by_group = repartition_by_id(rows, max(1, count), "task").select("number", "position")
        return _ShuffledPositions(shared, map_in_arrow(by_group, clean, _CLEANED_DDL))

    def _pieces(self, log: DeltaLog, layout: Layout) -> Generator[CleanedFiles, None, None]:
        with spark_errors():
            shuffled = self._shuffle(log, layout)
        try:
            with closing(run_jobs_ahead(self._spark, [shuffled.rdd], about=f"sparklog: keys of {log.table}")) as read:
                next(read)  # a file that can't be read is an error before anything is rewritten
            jobs = (partial(self._clean, log, shuffled, wave) for wave in waves(self._spark, range(len(layout.groups))))
            with closing(run_jobs_ahead(self._spark, jobs, about=f"sparklog: compacting {log.table}")) as results:
                for wave in results:
                    for result in wave:
                        if isinstance(result, SparklogError):
                            raise result
                        yield result
        finally:
            shuffled.release()

    def _clean(
        self, log: DeltaLog, shuffled: _ShuffledPositions, numbers: Sequence[int]
    ) -> list[CleanedFiles | SparklogError]:
        """Clean some groups; returns their results in their order."""
        began = log.clock.ticks_ms()  # those of another process mean nothing here
        rows = self._spark.sparkContext.runJob(shuffled.rdd(), list, [*numbers])
        results = {int(row.number): pickle.loads(row.cleaned) for row in rows}  # noqa: S301 - our own task's
        return [_with_ticks(results[number], began) for number in numbers]


class _ShuffledPositions:
    """The positions of the latest record of each key, shuffled during a pass to a task for each group."""

    def __init__(self, shared: Broadcast[Layout], cleaned: DataFrame) -> None:
        self._shared = shared
        self._cleaned = cleaned
        self._rdd: Any = None

    def rdd(self) -> Any:
        """The result, a partition for each group, as an RDD of rows; nothing of it is computed. Where Spark plans as it
        goes, as it does by default, the keys are read and shuffled now; else by the first job. Called by one thread
        first, and then by several."""
        if self._rdd is None:
            self._rdd = self._cleaned.rdd
        return self._rdd

    def release(self) -> None:
        """Free what the executors keep of it; the shuffles go when the JVM finds that nobody refers to them.

        An error is only logged: the one that may have come before is the one to raise.
        """
        self._rdd = None
        try:
            with spark_errors():
                self._shared.destroy()
        except SparklogError as error:
            _LOGGER.warning("what the executors keep of a compaction can't be freed: %s", error)


def most_bytes_in_one_process(small_bytes: int) -> int:
    """The number of bytes that a pass may deal with that one process does sooner than executors, where ``small_bytes``
    are what it merges sooner."""
    return small_bytes * _IN_MEMORY


def _is_small(plan: CleanPlan, small_bytes: int) -> bool:
    """Is a pass for one process, sooner than for executors?"""
    return plan.clean_bytes + plan.dirty_bytes <= most_bytes_in_one_process(small_bytes)


def read_keys_in_task(cluster_ref: ClusterRef, table: str, layout: Layout, batches: Batches) -> Batches:
    """The work of a task of the first part: numbers of ``layout.reads`` to keys and positions.

    An error must end the task: were it a row among the others, a task that Spark repeats later, for an executor that it
    lost, might leave out keys without anybody learning of it, and their records would be taken for superseded.
    """
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        try:
            yield from read_keys(open_log(cluster_ref, table), layout, number)
        except SparklogError as error:
            raise RuntimeError(as_text(error)) from None


def clean_in_task(cluster_ref: ClusterRef, table: str, layout: Layout, batches: Batches) -> Batches:
    """The work of a task of the second part: positions to what became of their group, or to the error that it met.

    A task is given whole groups; one, as a rule.
    """
    gathered = pa.Table.from_batches(batches, pa.schema([("number", pa.int64()), ("position", pa.int64())]))
    numbers, positions = (gathered[name].to_numpy() for name in ("number", "position"))
    for number in np.unique(numbers).tolist():
        latest = positions[(numbers == number) & (positions != _MARKER)]
        try:
            result: CleanedFiles | SparklogError = clean_group(open_log(cluster_ref, table), layout, number, latest)
        except SparklogError as error:
            result = error.with_traceback(None)
        yield pa.record_batch([pa.array([number]), pa.array([pickle.dumps(result)], pa.binary())], schema=_CLEANED)


def _task(work: Callable[[Layout, Batches], Batches], shared: Any) -> Callable[[Iterable[pa.RecordBatch]], Batches]:
    """``work`` with what is shared with all tasks."""

    def task(batches: Iterable[pa.RecordBatch]) -> Batches:
        yield from work(shared.value, iter(batches))

    return task


def _with_ticks(result: CleanedFiles | SparklogError, began_ticks_ms: float) -> CleanedFiles | SparklogError:
    if isinstance(result, SparklogError):
        return result
    rewritten = tuple(replace(files, began_ticks_ms=began_ticks_ms) for files in result.rewritten)
    return replace(result, rewritten=rewritten)
