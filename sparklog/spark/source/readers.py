"""Readers of ``format("sparklog")`` whose API is the same in all versions of PySpark that have it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_type

from sparklog.clock import SystemClock
from sparklog.delta.log import DeltaLog
from sparklog.errors import SparklogError
from sparklog.log.value_schemas import TopicSchemas
from sparklog.paths import topic_table
from sparklog.storage.retrying import RetryingStore
from sparklog.streaming.cluster_cache import cached_cluster, shared_store
from sparklog.streaming.cluster_ref import ClusterRef, cluster_ref_of
from sparklog.streaming.planning import Narrowing, Task, narrow_ranges, split_into_tasks
from sparklog.streaming.resolving import plan_batch
from sparklog.streaming.reused_process import work_begins
from sparklog.streaming.source_options import SourceOptions
from sparklog.streaming.stream import StreamPlanner
from sparklog.streaming.task_reading import field_columns, read_task

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

__all__ = [
    "BatchReader",
    "Columns",
    "FilteringReader",
    "RecordReader",
    "RefusedStream",
    "TaskPartition",
    "ViewReader",
    "has_field_columns",
    "open_planner",
]

_OPERATORS: Mapping[str, str] = {
    "EqualTo": "=",
    "In": "in",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
"""By the names of PySpark's classes, which 4.0 doesn't have: it pushes no filters down."""


@dataclass(frozen=True)
class Columns:
    """The columns that a query reads."""

    names: tuple[str, ...]
    """All, or those that ``.schema(…)`` leaves."""
    fields: Mapping[str, pa.Field]
    """The columns among them that are fields of a typed topic's values."""

    def unread(self, schemas: TopicSchemas) -> list[str]:
        """The columns of a topic's newest schema that the query doesn't have, by name and type."""
        newest = field_columns(schemas.all())[-1]
        kept = {name: from_arrow_type(field.type) for name, field in self.fields.items()}
        return [name for name, field in newest.items() if kept.get(name) != from_arrow_type(field.type)]


class TaskPartition(InputPartition):
    """The part of a query that one task of Spark reads; sent to the task."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)


class RecordReader:
    """Reads records; where from, Spark decides."""

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._cluster_ref = cluster_ref_of(options.uri, options.storage_options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        work_begins()
        task = partition.value
        if task is None:  # Spark makes a task of nothing where there is none
            return
        log = _open_log(self._cluster_ref, task.topic)
        yield from read_task(
            log,
            task,
            self._columns.names,
            fail_on_data_loss=self._options.fail_on_data_loss,
            fields=self._columns.fields,
            values_as_bytes=self._options.value_format != "columns",
        )


class BatchReader(RecordReader, DataSourceReader):
    """Reads a batch query."""

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        super().__init__(options, columns)
        self._filters = Narrowing()

    def partitions(self) -> list[InputPartition]:
        ranges = narrow_ranges(plan_batch(cached_cluster(self._cluster_ref).cluster, self._options), self._filters)
        tasks = split_into_tasks(ranges, self._options.min_partitions, self._options.max_records)
        return [TaskPartition(task) for task in tasks]


class FilteringReader(BatchReader):
    """The same, for sessions that may push filters down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Files are left out by them; Spark still looks at each record."""
        for one in filters:
            operator = _OPERATORS.get(type(one).__name__)
            known: Any = one
            if operator is not None and len(known.attribute) == 1:
                self._filters = self._filters.with_filter(known.attribute[0], operator, known.value)
        return filters


class RefusedStream(DataSourceStreamReader):
    """A stream that can't be read: its first call says why."""

    def __init__(self, error: SparklogError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        raise self._error

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        raise self._error

    def latestOffset(self, *_: Any) -> dict[str, Any]:  # noqa: N802 - Spark's name; PySpark before 4.2 tells nothing
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error


class ViewReader(DataSourceReader):
    """Reads a view of groups or transactions in a task, which is one for all of it."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._view = options.view
        self._columns = list(columns)
        self._cluster_ref = cluster_ref_of(options.uri, options.storage_options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from sparklog.sql.system import read_view  # imports all of groups, which few queries need
        from sparklog.sql.unread import log_unread

        unread: dict[str, Exception] = {}
        rows = read_view(cached_cluster(self._cluster_ref).cluster, self._view, unread)
        log_unread(unread)
        yield rows.select(self._columns)


def has_field_columns(options: SourceOptions) -> bool:
    """Whether a query would have the fields of values as columns, if its topic is typed."""
    return not options.view and options.only_topic is not None and options.value_format != "bytes"


def open_planner(cluster_ref: ClusterRef, options: SourceOptions, columns: Columns) -> StreamPlanner:
    """Open the planner, which decides what each micro-batch of a streaming query reads."""
    return StreamPlanner(cluster_ref.open(), options, columns.unread if has_field_columns(options) else None)


def _open_log(cluster_ref: ClusterRef, topic: str) -> DeltaLog:
    clock = SystemClock()
    return DeltaLog(store=RetryingStore(shared_store(cluster_ref), clock=clock), table=topic_table(topic), clock=clock)
