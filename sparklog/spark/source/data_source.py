"""``format("sparklog")``: Spark's side of it, by the Python Data Source API. Alone imports pyspark as it is loaded.

Spark makes an object of these classes anew in each of its Python processes: one that plans a batch query, one that runs
with a streaming query, and those that run tasks. So they hold nothing but options; what a streaming query knows of its
topics lives in the process that runs with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from sparklog.clock import SystemClock
from sparklog.delta.log import DeltaLog
from sparklog.errors import InvalidConfigurationError, SparklogError, UnknownTopicOrPartitionError
from sparklog.log.topic import describe_topic
from sparklog.log.value_schemas import TopicSchemas
from sparklog.paths import topic_table
from sparklog.spark.sink.sink import batch_writer, stream_writer
from sparklog.sql.view_schemas import VIEW_SCHEMAS
from sparklog.storage.retrying import RetryingStore
from sparklog.streaming.cluster_cache import cached_cluster, shared_store
from sparklog.streaming.cluster_ref import ClusterRef, cluster_ref_of
from sparklog.streaming.planning import Narrowing, Task, narrow_ranges, split_into_tasks
from sparklog.streaming.positions import Positions
from sparklog.streaming.resolving import plan_batch
from sparklog.streaming.reused_process import work_begins
from sparklog.streaming.source_options import SourceOptions, source_options
from sparklog.streaming.stream import StreamPlanner
from sparklog.streaming.task_reading import SOURCE_SCHEMA, field_columns, read_task

__all__ = ["DefaultSource", "SparklogDataSource"]

_OPERATORS: Mapping[type[Any], str] = {
    EqualTo: "=",
    In: "in",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}


class SparklogDataSource(DataSource):
    """``spark.read.format("sparklog")``, ``spark.readStream…``, ``df.write…`` and ``df.writeStream…``."""

    @classmethod
    def name(cls) -> str:
        """The name that ``format()`` is given."""
        return "sparklog"

    def schema(self) -> StructType:
        work_begins()
        options = self._options(streaming=None)
        newest = next(iter(_field_columns(options)), {})
        return from_arrow_schema(_schema(options, newest))

    def reader(self, schema: StructType) -> DataSourceReader:
        work_begins()
        options = self._options(streaming=False)
        columns = _Columns.of(options, schema)
        return _ViewReader(options, columns.names) if options.view else self._batch_reader(options, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        try:
            options = self._options(streaming=True)
            if options.view:
                raise InvalidConfigurationError(f"the view {options.view} can't be read as a stream")
            columns = _Columns.of(options, schema)
        except SparklogError as error:  # Spark would report an error of its own in place of one that is raised here
            return _RefusedStream(error)
        return _StreamReader(options, columns)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return batch_writer(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's
        return stream_writer(dict(self.options), schema)

    def _batch_reader(self, options: SourceOptions, columns: _Columns) -> DataSourceReader:
        return _FilteringReader(options, columns)

    def _options(self, *, streaming: bool | None) -> SourceOptions:
        return source_options(dict(self.options), streaming=streaming)


class DefaultSource(SparklogDataSource):
    """The same for sessions that nobody has registered it in: Spark finds it by its package's name.

    Spark refuses a source that can push filters down unless a setting allows it, which is off by default.
    """

    def _batch_reader(self, options: SourceOptions, columns: _Columns) -> DataSourceReader:
        return _BatchReader(options, columns)


class _TaskPartition(InputPartition):
    """The part of a query that one task of Spark reads; sent to the task."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)


class _RecordReader:
    """Reads records; where from, Spark decides."""

    def __init__(self, options: SourceOptions, columns: _Columns) -> None:
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


class _BatchReader(_RecordReader, DataSourceReader):
    def __init__(self, options: SourceOptions, columns: _Columns) -> None:
        super().__init__(options, columns)
        self._filters = Narrowing()

    def partitions(self) -> list[InputPartition]:
        ranges = narrow_ranges(plan_batch(cached_cluster(self._cluster_ref).cluster, self._options), self._filters)
        tasks = split_into_tasks(ranges, self._options.min_partitions, self._options.max_records)
        return [_TaskPartition(task) for task in tasks]


class _FilteringReader(_BatchReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Files are left out by them; Spark still looks at each record."""
        for one in filters:
            operator = _OPERATORS.get(type(one))
            if operator is not None and len(one.attribute) == 1:
                self._filters = self._filters.with_filter(one.attribute[0], operator, one.value)
        return filters


class _StreamReader(_RecordReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    _planner: StreamPlanner | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._plan().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        return ReadAllAvailable() if limits.min_offsets is None else ReadMinRows(limits.min_offsets)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        limited = not isinstance(limit, ReadAllAvailable)
        return self._plan().next(Positions.from_json(start), limited=limited).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return self._plan().newest().to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._plan().freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        tasks = self._plan().plan(Positions.from_json(start), Positions.from_json(end))
        return [_TaskPartition(task) for task in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        self._plan().done(Positions.from_json(end))

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()

    def _plan(self) -> StreamPlanner:
        if self._planner is None:
            unread = self._columns.unread if _has_field_columns(self._options) else None
            self._planner = StreamPlanner(self._cluster_ref.open(), self._options, unread)
        return self._planner

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_planner"}


class _RefusedStream(DataSourceStreamReader):
    """A stream that can't be read: its first call says why."""

    def __init__(self, error: SparklogError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error


class _ViewReader(DataSourceReader):
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


@dataclass(frozen=True)
class _Columns:
    """The columns that a query reads."""

    names: tuple[str, ...]
    """All, or those that ``.schema(…)`` leaves."""
    fields: Mapping[str, pa.Field]
    """The columns among them that are fields of a typed topic's values."""

    @classmethod
    def of(cls, options: SourceOptions, asked: StructType) -> _Columns:
        """The columns that were asked for, perhaps before the topic's newest schema was there.

        Raises:
            InvalidConfigurationError: a column that isn't there, or of another type.
        """
        schemas = _field_columns(options) or [{}]
        newest = from_arrow_schema(_schema(options, schemas[0])).fields
        fields: dict[str, pa.Field] = {}
        for asked_for in asked.fields:
            name, kind = asked_for.name, asked_for.dataType
            of_values = [each[name] for each in schemas if name in each and from_arrow_type(each[name].type) == kind]
            if of_values:
                fields[name] = of_values[0]
            elif not any(one.name == name and one.dataType == kind for one in newest):
                raise InvalidConfigurationError(
                    f"column {name} {kind.simpleString()} was asked for; there are "
                    + ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in newest)
                )
        return cls(tuple(field.name for field in asked.fields), fields)

    def unread(self, schemas: TopicSchemas) -> list[str]:
        """The columns of a topic's newest schema that the query doesn't have, by name and type."""
        newest = field_columns(schemas.all())[-1]
        kept = {name: from_arrow_type(field.type) for name, field in self.fields.items()}
        return [name for name, field in newest.items() if kept.get(name) != from_arrow_type(field.type)]


def _schema(options: SourceOptions, fields: Mapping[str, pa.Field]) -> pa.Schema:
    if options.view:
        return VIEW_SCHEMAS[options.view]
    names = [name for name in SOURCE_SCHEMA.names if name != "headers" or options.include_headers]
    columns = [pa.field(name, field.type) for name, field in fields.items()]
    return pa.schema([*(SOURCE_SCHEMA.field(name) for name in names), *columns])


def _has_field_columns(options: SourceOptions) -> bool:
    """Would a query have the fields of values as columns, if its topic is typed?"""
    return not options.view and options.only_topic is not None and options.value_format != "bytes"


def _field_columns(options: SourceOptions) -> Sequence[Mapping[str, pa.Field]]:
    """The fields of values as columns, by each schema that the topic had, the newest first; none unless the query reads
    one topic, which is typed."""
    topic = options.only_topic
    if topic is None or not _has_field_columns(options):
        return ()
    log = cached_cluster(cluster_ref_of(options.uri, options.storage_options)).cluster.topic_log(topic)
    try:
        described = describe_topic(log, topic)
    except UnknownTopicOrPartitionError:  # whoever plans the query says so
        return ()
    return field_columns(described.value_schemas)[::-1]


def _open_log(cluster_ref: ClusterRef, topic: str) -> DeltaLog:
    clock = SystemClock()
    return DeltaLog(store=RetryingStore(shared_store(cluster_ref), clock=clock), table=topic_table(topic), clock=clock)
