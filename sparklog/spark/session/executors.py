"""A function over items on Spark's executors, in a classic session and by Spark Connect."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from sparklog.spark.session.connect import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["on_executors"]

T = TypeVar("T")
U = TypeVar("U")

_RESULTS = pa.schema([("result", pa.binary())])
_RESULTS_DDL = "result BINARY"


def on_executors(
    spark: SparkSession, work: Callable[[Iterator[T]], Iterator[U]], items: Sequence[T], tasks: int
) -> list[U]:
    """The results that ``work`` yields for ``items``, in their order.

    Args:
        work: is called once in each task, with the items that are its share; it is pickled, and may be called again for
            a task that was lost.
        tasks: 1 or more.
    Raises:
        What Spark raises where it gives up.
    """
    if not is_connect(spark):
        return list(spark.sparkContext.parallelize(items, tasks).mapPartitions(work).collect())
    numbers = spark.range(0, len(items), 1, tasks)
    rows = numbers.mapInArrow(_numbered(work, items), _RESULTS_DDL).collect()
    return [pickle.loads(row.result) for row in rows]  # noqa: S301 - our own task's


def _numbered(work: Callable[[Iterator[T]], Iterator[U]], items: Sequence[T]) -> Callable[[Any], Any]:
    """``work`` over batches of the items' numbers: a client of Spark Connect has no other way to hand them over."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        share = (items[number] for batch in batches for number in batch.column(0).to_pylist())
        for result in work(share):
            yield pa.record_batch([pa.array([pickle.dumps(result)], pa.binary())], schema=_RESULTS)

    return task
