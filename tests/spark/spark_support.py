"""What the tests with a SparkSession share: topics in a folder, and what a query has read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparklog.admin import Admin, NewTopic
from sparklog.consumer import Consumer
from sparklog.log.cluster import Cluster, open_cluster
from sparklog.model import ConsumerRecord
from sparklog.storage import ObjectStore
from tests.support import T0_MS, a_writer, records, to_the_end, within

HOUR_MS = 3_600_000


def a_cluster(root: Path | ObjectStore, topic: str = "t", configs: Mapping[str, object] | None = None) -> Cluster:
    """One with an empty topic of two partitions."""
    cluster = open_cluster(root)
    Admin(cluster).create_topics([NewTopic(topic, 2, configs=dict(configs or {}))])
    return cluster


def put(cluster: Cluster, *batches: tuple[int, str], topic: str = "t", timestamp_ms: int = T0_MS) -> None:
    """One commit: a record for each character, by partition."""
    writer = a_writer(cluster.topic_log(topic), topic=topic)
    uploaded = writer.upload(
        [(partition, records(*values, timestamp_ms=timestamp_ms)) for partition, values in batches]
    )
    writer.append(uploaded, deadline=within(writer, 60_000))


def consumed(root: Path | str, topic: str, **settings: Any) -> list[ConsumerRecord]:
    """All records up to the end of the log, as a consumer returns them, however long it takes."""
    with Consumer(topic, cluster=str(root), auto_offset_reset="earliest", **settings) as consumer:
        return to_the_end(consumer)


def seen(frame: Any) -> list[tuple[int, int, str]]:
    """Partition, offset and value of each row, sorted."""
    rows = frame.selectExpr("partition", "offset", "CAST(value AS STRING) AS value").collect()
    return sorted((row.partition, row.offset, row.value) for row in rows)


def files_read(frame: Any) -> tuple[int, int]:
    """How many rows a query has, and how many files its scan of a Delta table read for them."""
    execution = frame._jdf.queryExecution()
    count = len(execution.executedPlan().executeCollect())
    leaves = execution.executedPlan().collectLeaves()
    metrics = [leaves.apply(number).metrics().get("numFiles") for number in range(leaves.size())]
    return count, sum(metric.get().value() for metric in metrics if metric.isDefined())
