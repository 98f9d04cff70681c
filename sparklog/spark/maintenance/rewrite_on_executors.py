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
from sparklog.spark.maintenance.prefetch import told_by_spark, waves, work_ahead
from sparklog.streaming.cluster_cache import opened
from sparklog.streaming.cluster_ref import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkRewrite", "log_at", "rewrite_there"]


class SparkRewrite:
    """A :data:`~sparklog.compaction.rewrite_arrow.Rewrite`, the largest ranges first.

    Memory of a task: as :func:`~sparklog.compaction.rewrite_arrow.rewrite_with_arrow`, outside of the JVM.
    """

    def __init__(self, spark: SparkSession, place: Place, *, small_bytes: int) -> None:
        """
        Args:
            small_bytes: up to so many together are merged by this process: it ends before a job of Spark begins.
        """
        self._spark = spark
        self._place = place
        self._small_bytes = small_bytes

    def __call__(
        self, log: DeltaLog, ranges: Sequence[FileRange], compression: str
    ) -> Generator[Rewritten, None, None]:
        if sum(found.size_bytes for found in ranges) <= self._small_bytes:
            yield from rewrite_with_arrow(log, ranges, compression)
            return
        ordered = sorted(ranges, key=lambda found: -found.size_bytes)
        jobs = (partial(self._rewrite, log, wave, compression) for wave in waves(self._spark, ordered))
        results = work_ahead(self._spark, jobs, about=f"sparklog: merging files of {log.table}")
        try:
            for wave in results:
                yield from (found for found in wave if isinstance(found, Rewritten))
                for found in wave:
                    if isinstance(found, SparklogError):  # what the other tasks did is committed first
                        raise found
        finally:
            results.close()

    def _rewrite(self, log: DeltaLog, ranges: Sequence[FileRange], compression: str) -> list[Rewritten | SparklogError]:
        began = log.clock.ticks_ms()  # those of another process mean nothing here
        there = partial(rewrite_there, self._place, log.table, compression)
        try:
            with told_by_spark():
                found = self._spark.sparkContext.parallelize(ranges, len(ranges)).map(there).collect()
        except RetriableError as error:  # one of them may kill every worker: it mustn't take the others with it
            if len(ranges) == 1:
                return [Rewritten(range=ranges[0], files=(), began_ticks_ms=began, error=error)]
            return [one for alone in ranges for one in self._rewrite(log, [alone], compression)]
        return [replace(one, began_ticks_ms=began) if isinstance(one, Rewritten) else one for one in found]


def rewrite_there(place: Place, table: str, compression: str, found: FileRange) -> Rewritten | SparklogError:
    """What a task does. It returns what it may raise: an error of ours, not a traceback in Spark's."""
    try:
        [rewritten] = rewrite_with_arrow(log_at(place, table), [found], compression)
    except SparklogError as error:
        return error.with_traceback(None)
    return rewritten


def log_at(place: Place, table: str) -> DeltaLog:
    """A table's log, in a task. One GET."""
    cluster = opened(place).cluster
    return DeltaLog(store=cluster.store, table=table, clock=cluster.clock, tail_trust_ms=cluster.tail_trust_ms)
