"""Merging small files on Spark's executors: each range in one task, what it wrote committed by the driver."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sparklog.compaction.file_ranges import FileRange
from sparklog.compaction.rewrite_arrow import Rewritten, rewrite_with_arrow
from sparklog.delta.log import DeltaLog
from sparklog.errors import RetriableError, SparklogError
from sparklog.spark.maintenance.prefetch import run_jobs_ahead, spark_errors, waves
from sparklog.streaming.cluster_cache import cached_cluster
from sparklog.streaming.cluster_ref import ClusterRef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkRewrite", "open_log", "rewrite_in_task"]


class SparkRewrite:
    """A :data:`~sparklog.compaction.rewrite_arrow.Rewrite`, the largest ranges first.

    Memory of a task: as :func:`~sparklog.compaction.rewrite_arrow.rewrite_with_arrow`, outside of the JVM.
    """

    def __init__(self, spark: SparkSession, cluster_ref: ClusterRef, *, small_bytes: int) -> None:
        """
        Args:
            small_bytes: up to so many together are merged by this process: it ends before a job of Spark begins.
        """
        self._spark = spark
        self._cluster_ref = cluster_ref
        self._small_bytes = small_bytes

    def __call__(
        self, log: DeltaLog, ranges: Sequence[FileRange], compression: str
    ) -> Generator[Rewritten, None, None]:
        if sum(file_range.size_bytes for file_range in ranges) <= self._small_bytes:
            yield from rewrite_with_arrow(log, ranges, compression)
            return
        ordered = sorted(ranges, key=lambda file_range: -file_range.size_bytes)
        jobs = (partial(self._rewrite, log, wave, compression) for wave in waves(self._spark, ordered))
        results = run_jobs_ahead(self._spark, jobs, about=f"sparklog: merging files of {log.table}")
        try:
            for wave in results:
                yield from (result for result in wave if isinstance(result, Rewritten))
                for result in wave:
                    if isinstance(result, SparklogError):  # what the other tasks did is committed first
                        raise result
        finally:
            results.close()

    def _rewrite(self, log: DeltaLog, ranges: Sequence[FileRange], compression: str) -> list[Rewritten | SparklogError]:
        began = log.clock.ticks_ms()  # those of another process mean nothing here
        work = partial(rewrite_in_task, self._cluster_ref, log.table, compression)
        try:
            with spark_errors():
                results = self._spark.sparkContext.parallelize(ranges, len(ranges)).map(work).collect()
        except RetriableError as error:  # one of them may kill every worker: it mustn't take the others with it
            if len(ranges) == 1:
                return [Rewritten(range=ranges[0], files=(), began_ticks_ms=began, error=error)]
            return [result for alone in ranges for result in self._rewrite(log, [alone], compression)]
        return [
            replace(result, began_ticks_ms=began) if isinstance(result, Rewritten) else result for result in results
        ]


def rewrite_in_task(
    cluster_ref: ClusterRef, table: str, compression: str, file_range: FileRange
) -> Rewritten | SparklogError:
    """The work of a task. An error is returned, not raised: as sparklog's own, without Spark's traceback."""
    try:
        [rewritten] = rewrite_with_arrow(open_log(cluster_ref, table), [file_range], compression)
    except SparklogError as error:
        return error.with_traceback(None)
    return rewritten


def open_log(cluster_ref: ClusterRef, table: str) -> DeltaLog:
    """A table's log, in a task. One GET."""
    cluster = cached_cluster(cluster_ref).cluster
    return DeltaLog(store=cluster.store, table=table, clock=cluster.clock, tail_trust_ms=cluster.tail_trust_ms)
