"""The rows of a task that has few of them: they go to the driver with the task's message, and it writes those of all
tasks together.

A file for each partition of each task would be as many as tasks times partitions, most of them with a handful of
records: on an object store one PUT each, and one GET for each of them and each reader. What goes through the driver is
bounded, for a task by :func:`most_bytes` and so for a job of any number of tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

import pyarrow as pa

from sparklog.log.append import TopicWriter
from sparklog.log.cluster import Cluster
from sparklog.spark.sink.sink_options import SINK_COLUMNS, SinkOptions
from sparklog.spark.sink.sink_writing import TaskFiles, TaskWriter, withdraw

__all__ = ["SMALL_BYTES", "TaskOutput", "most_bytes", "packed", "take_few", "unpacked", "write_rows"]

SMALL_BYTES = 256 * 1024
"""Arrow bytes that a task hands to the driver at most."""
_FIRST_TASKS = 256
"""So many tasks may hand over all of it; later ones a share that falls with their number: 1,000 tasks hand over less
than 160 MiB together, 100,000 less than 450 MiB. Spark fails a job whose results are more than 1 GiB."""


@dataclass(frozen=True, slots=True)
class TaskOutput:
    """The output of a task: files, or, where they were few, the rows themselves."""

    files: tuple[TaskFiles, ...] = ()
    rows: bytes = b""
    """See :func:`packed`."""

    def __bool__(self) -> bool:
        return bool(self.files or self.rows)


def most_bytes(task: int) -> int:
    """Arrow bytes that the task of this number, from 0 on, may hand to the driver."""
    return SMALL_BYTES * _FIRST_TASKS // max(_FIRST_TASKS, task + 1)


def take_few(
    batches: Iterable[pa.RecordBatch], limit_bytes: int, columns: Collection[str] = SINK_COLUMNS
) -> tuple[bytes | None, Iterator[pa.RecordBatch]]:
    """All rows as bytes, if they are no more than a limit.

    Args:
        columns: those that are written.

    Returns:
        The bytes and nothing more, empty where there is no row; or None, and all batches.
    """
    taken: list[pa.RecordBatch] = []
    size_bytes = 0
    rest = iter(batches)
    for batch in rest:
        taken.append(batch)
        size_bytes += batch.nbytes
        if size_bytes > limit_bytes:
            return None, chain(taken, rest)
    return packed(taken, columns), iter(())


def packed(batches: Iterable[pa.RecordBatch], columns: Collection[str] = SINK_COLUMNS) -> bytes:
    """The columns of rows that are written, in Arrow's stream format; empty where there is no row."""
    with_rows = [batch for batch in batches if batch.num_rows]
    if not with_rows:
        return b""
    table = pa.Table.from_batches(with_rows)
    table = table.select([name for name in table.column_names if name in columns])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpacked(rows: bytes) -> list[pa.RecordBatch]:
    """The rows that :func:`packed` made bytes of."""
    return list(pa.ipc.open_stream(rows)) if rows else []


def write_rows(
    cluster: Cluster, options: SinkOptions, writers: dict[str, TopicWriter], outputs: Sequence[TaskOutput]
) -> list[TaskFiles]:
    """The files of all tasks, in their order; rows that came without files are uploaded now, those of tasks that follow
    each other together. Where that fails nothing of the job is left.

    Args:
        writers: of topics that this process knows; added to.
    Raises:
        As :meth:`TaskWriter.write`.
    """
    files: list[TaskFiles] = []
    try:
        for are_rows, following in groupby(outputs, key=lambda output: bool(output.rows)):
            if are_rows:
                batches = (batch for output in following for batch in unpacked(output.rows))
                files += TaskWriter(cluster, options, writers).write(batches)
            else:
                files += (one for output in following for one in output.files)
    except BaseException:
        withdraw(cluster, [*files, *(one for output in outputs for one in output.files)])
        raise
    return files
