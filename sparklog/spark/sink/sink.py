"""``format("sparklog")`` as a sink: Spark's side of it, by the Python Data Source API. Imports pyspark as it is loaded.

Spark makes a writer anew for every micro-batch, sends it to the tasks, and commits in a Python process beside the
driver's JVM, which it hands from query to query and ends when it idled for a minute. So writers hold nothing but
options, and what a process knows of clusters, topics and transactional ids is kept by the process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sparklog.errors import IllegalStateError, InvalidConfigurationError, UnknownTopicOrPartitionError
from sparklog.log.data.value_columns import first_seen
from sparklog.log.topic import describe_topic
from sparklog.spark.sink.sink_commit import QueryRun, commit_batch, commit_job, commit_numbered, small_files
from sparklog.spark.sink.sink_options import NumberedWrite, SinkOptions, check_columns, field_columns, sink_options
from sparklog.spark.sink.sink_writing import TaskFiles, TaskWriter, withdraw
from sparklog.spark.sink.small_tasks import TaskOutput, most_bytes, take_few, write_rows
from sparklog.spark.sink.stream_writers import ArrowStreamWriter
from sparklog.streaming.cluster_cache import CachedCluster, cached_cluster
from sparklog.streaming.cluster_ref import cluster_ref_of
from sparklog.streaming.reused_process import work_begins
from sparklog.txn.committing import UploadCommitter

__all__ = ["batch_writer", "stream_writer"]

_LOGGER = logging.getLogger("sparklog.spark")
_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"
"""Local properties of a streaming query's tasks. Source: Spark ``StreamExecution``."""


def batch_writer(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of ``df.write``. Raises ``InvalidConfigurationError``."""
    if overwrite:
        raise InvalidConfigurationError('format("sparklog") only appends: got mode("overwrite"), expected "append"')
    return _BatchWriter(_checked(given, schema, streaming=False))


def stream_writer(given: Mapping[str, str], schema: StructType) -> ArrowStreamWriter:
    """The writer of ``df.writeStream``, in the output modes ``append`` and ``complete``: the rows that Spark hands over
    are appended, as the Kafka sink does. Spark refuses ``update`` for every Python data source.

    Raises ``InvalidConfigurationError``."""
    return _StreamWriter(_checked(given, schema, streaming=True))


@dataclass(frozen=True)
class _Message(WriterCommitMessage):
    """The message of a task to the driver."""

    output: TaskOutput
    run: QueryRun | None


class _Writer:
    """Writes rows in a task."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._cluster_ref = cluster_ref_of(options.uri, options.storage_options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        work_begins()
        context = TaskContext.get()
        rows, batches = take_few(
            iterator, most_bytes(0 if context is None else context.partitionId()), self._options.columns
        )
        if rows is not None:  # no store is asked for anything
            return _Message(TaskOutput(rows=rows), _query_run())
        here = self._cached_cluster()
        files = TaskWriter(here.cluster, self._options, here.writers).write(batches)
        return _Message(TaskOutput(files=files), _query_run())

    def _cached_cluster(self) -> CachedCluster:
        return cached_cluster(self._cluster_ref)

    def _files(self, here: CachedCluster, messages: Sequence[_Message], what: str) -> list[TaskFiles]:
        """The files of all tasks, in their order; a warning says where they are many and small, once for ``what``."""
        files = write_rows(here.cluster, self._options, here.writers, [message.output for message in messages])
        warning = small_files(files)
        if warning is not None and what not in here.warned:
            here.warned.add(what)
            _LOGGER.warning("%s: %s", what, warning)
        return files

    def _committer(self, here: CachedCluster, transactional_id: str, holder: str) -> UploadCommitter:
        """This process's; a new one for a new run of the query, which is to fence off the run before."""
        committer = here.committers.get(transactional_id)
        if committer is None or committer.holder != holder:
            committer = UploadCommitter(here.cluster, transactional_id, holder=holder)
            here.committers[transactional_id] = committer
        return committer

    def _withdraw(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the files of a write that Spark gave up. Only where a task has failed it is certain that no commit was
        tried."""
        if any(message is None for message in messages):
            files = [file for message in _with_rows(messages) for file in message.output.files]
            withdraw(self._cached_cluster().cluster, files)


class _BatchWriter(_Writer, DataSourceArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        written = _with_rows(messages)
        if not written:
            return
        here = self._cached_cluster()
        files = self._files(here, written, "a batch query")
        numbered = self._options.numbered
        if numbered is None:
            commit_job(here.cluster, self._options.transactional_id, files)
        else:
            self._commit_numbered(here, numbered, files, {message.run for message in written})

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._withdraw(messages)

    def _commit_numbered(
        self, here: CachedCluster, write: NumberedWrite, files: list[TaskFiles], runs: set[QueryRun | None]
    ) -> None:
        transactional_id, topic = write.transactional_id(self._options.topic), self._options.topic
        run = next(iter(runs)) if len(runs) == 1 else None
        if run is None:  # no stream is behind it: nobody shares the id with this process
            committer = UploadCommitter(here.cluster, transactional_id)
            try:
                commit_numbered(here.cluster, committer, write, files, topic=topic)
            finally:
                committer.close()
            return
        committer = self._committer(here, transactional_id, run.run_id)
        try:
            commit_numbered(here.cluster, committer, write, files, topic=topic)
        except BaseException:
            here.committers.pop(transactional_id, None)  # the next one looks at the log anew
            raise


class _StreamWriter(_Writer, ArrowStreamWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        written = _with_rows(messages)
        if not written:
            return
        runs = {message.run for message in written}
        run = next(iter(runs))
        if run is None or len(runs) > 1:
            raise IllegalStateError(
                f"micro-batch {batchId}: its tasks name {len(runs)} streaming queries ({run}), expected one"
            )
        here = self._cached_cluster()
        committer = self._committer(here, self._options.transactional_id or f"spark-{run.query_id}", run.run_id)
        try:
            files = self._files(here, written, f"a micro-batch of query {run.query_id}")
            commit_batch(committer, run, batchId, files, topic=self._options.topic)
        except BaseException:
            here.committers.pop(committer.transactional_id, None)  # the next one looks at the log anew
            raise

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._withdraw(messages)


def _checked(given: Mapping[str, str], schema: StructType, *, streaming: bool) -> SinkOptions:
    options = sink_options(given, streaming=streaming)
    columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    *earlier, fields = _fields(options) or [[]]
    seen = first_seen(earlier)
    check_columns(columns, topic=options.topic, fields=fields, earlier=seen)
    return replace(options, fields=field_columns([name for name, _ in columns], fields, seen))


def _fields(options: SinkOptions) -> list[list[str]]:
    """The fields of the values of the option's topic, where it is typed, by each of its schemas."""
    if options.topic is None:
        return []
    log = cached_cluster(cluster_ref_of(options.uri, options.storage_options)).cluster.topic_log(options.topic)
    try:
        schemas = describe_topic(log, options.topic).value_schemas
    except UnknownTopicOrPartitionError:  # its tasks say so
        return []
    return [schema.arrow.names for schema in schemas]


def _query_run() -> QueryRun | None:
    """The streaming query that the running task belongs to."""
    context = TaskContext.get()
    query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
    if context is None or not query_id:
        return None
    return QueryRun(query_id=query_id, run_id=context.getLocalProperty(_RUN_ID) or "")


def _with_rows(messages: Sequence[WriterCommitMessage | None]) -> list[_Message]:
    return [message for message in messages if isinstance(message, _Message) and message.output]
