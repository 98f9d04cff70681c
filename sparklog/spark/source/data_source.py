"""``format("sparklog")``: Spark's side of it, by the Python Data Source API. Alone imports pyspark as it is loaded.

Spark makes an object of these classes anew in each of its Python processes: one that plans a batch query, one that runs
with a streaming query, and those that run tasks. So they hold nothing but options; what a streaming query knows of its
topics lives in the process that runs with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import StructType

from sparklog.errors import InvalidConfigurationError, SparklogError, UnknownTopicOrPartitionError
from sparklog.log.topic import describe_topic
from sparklog.spark.runtime.versions import SOURCE_SINCE, SparkVersion, check_spark
from sparklog.spark.sink.sink import batch_writer, stream_writer
from sparklog.spark.source.readers import (
    BatchReader,
    Columns,
    FilteringReader,
    RefusedStream,
    ViewReader,
    has_field_columns,
)
from sparklog.sql.view_schemas import VIEW_SCHEMAS
from sparklog.streaming.cluster_cache import cached_cluster
from sparklog.streaming.cluster_ref import cluster_ref_of
from sparklog.streaming.reused_process import work_begins
from sparklog.streaming.source_options import SourceOptions, source_options
from sparklog.streaming.task_reading import SOURCE_SCHEMA, field_columns

if TYPE_CHECKING:
    from sparklog.spark.sink.stream_writers import ArrowStreamWriter

__all__ = ["DefaultSource", "SparklogDataSource"]

_STREAMS_BY_LIMITS_SINCE = SparkVersion(4, 2)
"""The first whose readers of streams are told where a batch begins, and how much may come."""


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
        columns = _columns(options, schema)
        return ViewReader(options, columns.names) if options.view else self._batch_reader(options, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        try:
            options = self._options(streaming=True)
            if options.view:
                raise InvalidConfigurationError(f"the view {options.view} can't be read as a stream")
            columns = _columns(options, schema)
        except SparklogError as error:  # Spark would report an error of its own in place of one that is raised here
            return RefusedStream(error)
        if check_spark(pyspark.__version__, since=SOURCE_SINCE) >= _STREAMS_BY_LIMITS_SINCE:
            from sparklog.spark.source.stream_reader import StreamReader

            return StreamReader(options, columns)
        from sparklog.spark.source.plain_stream_reader import PlainStreamReader

        return PlainStreamReader(options, columns)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return batch_writer(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> ArrowStreamWriter:  # noqa: N802 - Spark's
        return stream_writer(dict(self.options), schema)

    def _batch_reader(self, options: SourceOptions, columns: Columns) -> DataSourceReader:
        return FilteringReader(options, columns)

    def _options(self, *, streaming: bool | None) -> SourceOptions:
        return source_options(dict(self.options), streaming=streaming)


class DefaultSource(SparklogDataSource):
    """The same for sessions that nobody has registered it in: Spark finds it by its package's name.

    Spark refuses a source that can push filters down unless a setting allows it, which is off by default.
    """

    def _batch_reader(self, options: SourceOptions, columns: Columns) -> DataSourceReader:
        return BatchReader(options, columns)


def _columns(options: SourceOptions, asked: StructType) -> Columns:
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
    return Columns(tuple(field.name for field in asked.fields), fields)


def _schema(options: SourceOptions, fields: Mapping[str, pa.Field]) -> pa.Schema:
    if options.view:
        return VIEW_SCHEMAS[options.view]
    names = [name for name in SOURCE_SCHEMA.names if name != "headers" or options.include_headers]
    columns = [pa.field(name, field.type) for name, field in fields.items()]
    return pa.schema([*(SOURCE_SCHEMA.field(name) for name in names), *columns])


def _field_columns(options: SourceOptions) -> Sequence[Mapping[str, pa.Field]]:
    """The fields of values as columns, by each schema that the topic had, the newest first; none unless the query reads
    one topic, which is typed."""
    topic = options.only_topic
    if topic is None or not has_field_columns(options):
        return ()
    log = cached_cluster(cluster_ref_of(options.uri, options.storage_options)).cluster.topic_log(topic)
    try:
        described = describe_topic(log, topic)
    except UnknownTopicOrPartitionError:  # whoever plans the query says so
        return ()
    return field_columns(described.value_schemas)[::-1]
