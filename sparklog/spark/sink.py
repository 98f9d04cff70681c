"""``format("sparklog")`` as a sink: Spark's side of it, by the Python Data Source API. Imports pyspark as it is loaded.

Spark makes a writer anew for every micro-batch, sends it to the tasks, and commits in a Python process beside the
driver's JVM, which it hands from query to query and ends when it idled for a minute. So writers hold nothing but
options, and what a process knows of clusters, topics and transactional ids is kept by the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sparklog.errors import IllegalStateError, InvalidConfigurationError
from sparklog.spark.opened import Opened, opened
from sparklog.spark.place import place_of
from sparklog.spark.sink_commit import QueryRun, commit_batch, commit_job, withdraw
from sparklog.spark.sink_options import SinkOptions, check_columns, sink_options
from sparklog.spark.sink_writing import TaskFiles, TaskWriter
from sparklog.txn.committing import UploadCommitter

__all__ = ["batch_writer", "stream_writer"]

_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"
"""Local properties of a streaming query's tasks. Source: Spark ``StreamExecution``."""


def batch_writer(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of ``df.write``. Raises ``InvalidConfigurationError``."""
    if overwrite:
        raise InvalidConfigurationError('format("sparklog") only appends: got mode("overwrite"), expected "append"')
    return _BatchWriter(_checked(given, schema))


def stream_writer(given: Mapping[str, str], schema: StructType) -> DataSourceStreamArrowWriter:
    """The writer of ``df.writeStream``, in any output mode: the rows that Spark hands over are appended, as the Kafka
    sink does. Raises ``InvalidConfigurationError``."""
    return _StreamWriter(_checked(given, schema))


@dataclass(frozen=True)
class _Uploads(WriterCommitMessage):
    """What a task tells the driver."""

    files: tuple[TaskFiles, ...]
    run: QueryRun | None


class _Writer:
    """Writes rows in a task."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._place = place_of(options.uri, options.storage_options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        here = self._opened()
        return _Uploads(TaskWriter(here.cluster, self._options, here.writers).write(iterator), _query_run())

    def _opened(self) -> Opened:
        return opened(self._place)

    def _withdraw(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """After Spark gave up. Only where a task has failed it is certain that no commit was tried."""
        if any(message is None for message in messages):
            withdraw(self._opened().cluster, [file for message in _uploads(messages) for file in message.files])


class _BatchWriter(_Writer, DataSourceArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        files = [file for message in _uploads(messages) for file in message.files]
        commit_job(self._opened().cluster, self._options.transactional_id, files)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._withdraw(messages)


class _StreamWriter(_Writer, DataSourceStreamArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        uploads = [message for message in _uploads(messages) if message.files]
        if not uploads:
            return
        runs = {message.run for message in uploads}
        run = next(iter(runs))
        if run is None or len(runs) > 1:
            raise IllegalStateError(
                f"micro-batch {batchId}: its tasks tell {len(runs)} streaming queries ({run}), expected one"
            )
        here = self._opened()
        committer = self._committer(here, run)
        try:
            commit_batch(committer, run, batchId, [file for message in uploads for file in message.files])
        except BaseException:
            here.committers.pop(committer.transactional_id, None)  # the next one looks at the log anew
            raise

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._withdraw(messages)

    def _committer(self, here: Opened, run: QueryRun) -> UploadCommitter:
        """This process's; a new one for a new run of the query, which is to fence off the run before."""
        transactional_id = self._options.transactional_id or f"spark-{run.query_id}"
        committer = here.committers.get(transactional_id)
        if committer is None or committer.holder != run.run_id:
            committer = UploadCommitter(here.cluster, transactional_id, holder=run.run_id)
            here.committers[transactional_id] = committer
        return committer


def _checked(given: Mapping[str, str], schema: StructType) -> SinkOptions:
    options = sink_options(given)
    check_columns([(field.name, field.dataType.simpleString()) for field in schema.fields], topic=options.topic)
    return options


def _query_run() -> QueryRun | None:
    """The streaming query that the running task belongs to."""
    context = TaskContext.get()
    query_id = context.getLocalProperty(_QUERY_ID) if context is not None else None
    if context is None or not query_id:
        return None
    return QueryRun(query_id=query_id, run_id=context.getLocalProperty(_RUN_ID) or "")


def _uploads(messages: Sequence[WriterCommitMessage | None]) -> list[_Uploads]:
    return [message for message in messages if isinstance(message, _Uploads)]
