"""Rows by the partition of a topic that they go to, so that each partition is written by one task.

Spark asks no Python sink how rows are to be distributed, so each task has rows for every partition: tasks times
partitions files. Where a task has few rows the driver writes those of all tasks together; for the others there is this.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidArgumentError, UnknownTopicOrPartitionError
from sparklog.log.state import open_state
from sparklog.producer.partitioner import key_partitions
from sparklog.spark.runtime.spark_calls import arrow_function, repartition_by_id
from sparklog.spark.session.session import cluster_ref_for
from sparklog.streaming.cluster_cache import open_shared_cluster
from sparklog.streaming.cluster_ref import ClusterRef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["by_partition"]

_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_TASK = "sparklog_task"
"""A column that is there until the rows are distributed."""


def by_partition(
    frame: DataFrame, cluster: str | Path, topic: str, *, storage_options: Mapping[str, Any] | None = None
) -> DataFrame:
    """Bring the rows of each partition of a topic to one task, by a shuffle; for a batch query or a stream.

    Written to the topic, the rows of a partition become one file, and another for each further 64 MiB. There are as
    many tasks as the topic has partitions, but no more than ``spark.sql.shuffle.partitions``. A row goes where its
    column ``partition`` says, or else its key, as the sink decides by itself; a row without either gets a partition
    here, by its value, in the column ``partition``, which is added where it isn't there.

    The order of rows of different tasks isn't kept, as in any shuffle. The number of partitions is as of this call: a
    stream that runs while the topic grows writes keyed rows where they belong, in more files than before, and rows
    without key to the partitions of then.

    Args:
        frame: with ``value`` or ``key`` or both, and perhaps ``partition``; other columns are kept as they are.
    Raises:
        InvalidArgumentError: ``frame`` has neither ``key`` nor ``value``, or there is no cluster.
        UnknownTopicOrPartitionError: there is no such topic.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own documentation

    columns, spark = frame.columns, frame.sparkSession
    if not {"key", "value"} & set(columns):
        raise InvalidArgumentError(f"by_partition: got columns {', '.join(columns)}, expected key or value")
    count = _partition_count(cluster_ref_for(spark, cluster, storage_options), topic)
    given = F.col("partition") if "partition" in columns else F.lit(None).cast("int")
    of_key = _partition_of_key(count)(F.col("key").cast("binary")) if "key" in columns else F.lit(None).cast("int")
    of_value = F.pmod(F.xxhash64("value"), F.lit(count)).cast("int") if "value" in columns else F.lit(0)
    keyless = F.col("key").isNull() if "key" in columns else F.lit(True)
    most = str(spark.conf.get(_SHUFFLE_PARTITIONS))
    tasks = min(count, int(most)) if most.isdecimal() else count  # some runtimes know "auto"
    with_task = frame.withColumn(_TASK, F.coalesce(given, of_key, of_value))
    distributed = repartition_by_id(with_task, tasks, _TASK)
    # Where a key belongs the sink decides by itself: it knows how many partitions there are by then.
    return distributed.withColumn("partition", F.coalesce(given, F.when(keyless, F.col(_TASK)))).drop(_TASK)


def _partition_count(cluster_ref: ClusterRef, topic: str) -> int:
    head = open_state(open_shared_cluster(cluster_ref).topic_log(topic)).head
    if head.deleted:
        raise UnknownTopicOrPartitionError(f"unknown topic: {topic!r} was deleted")
    return head.partition_count


def _partition_of_key(partition_count: int) -> Any:
    """A function of a binary column: murmur2 as the producer's, null for null."""

    def partitions(keys: pa.Array) -> pa.Array:
        found = key_partitions(keys, partition_count)
        return pa.array(found, pa.int32(), mask=np.asarray(pc.is_null(keys)))

    return arrow_function(partitions, "int", (pa.binary(),))
