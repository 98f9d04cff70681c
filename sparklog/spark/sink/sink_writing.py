"""The work of a task of the sink: rows to data files in the topics' folders, which are in no log yet.

Rows are gathered up to :data:`GATHERED_BYTES`, then written as one file for each partition of each topic; all of it by
columns. A task that fails deletes what it has uploaded, as far as it still can; the rest is left to the sweep.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidArgumentError, UnknownTopicOrPartitionError
from sparklog.log.append import TopicWriter
from sparklog.log.cluster import Cluster
from sparklog.log.data.arrow_buffers import binary_lengths, is_valid, one_array
from sparklog.log.data.data_files import UploadedFile
from sparklog.log.producer_state import new_producer_id
from sparklog.paths import check_topic_name
from sparklog.producer.arrow_tables import check_table
from sparklog.producer.partitioner import StickyPartition
from sparklog.producer.prepared_batch import choose_partitions, refuse, sort_by_partition
from sparklog.producer.typed_values import ValueEncoding, sizes_of
from sparklog.spark.sink.sink_options import SINK_COLUMNS, SinkOptions
from sparklog.txn.committing import delete_uploads, learn

__all__ = ["GATHERED_BYTES", "TaskFiles", "TaskWriter", "by_topic", "spread_keyless", "withdraw"]

GATHERED_BYTES = 64 * 2**20
"""Arrow bytes that a task gathers before it writes them, and no more than twice that: no file is larger than about
128 MiB (rule L11, fairness)."""
STICKY_BYTES = 2**20
"""Keyless records go to one partition until so many bytes of values went there. Source: the producer's
``batch_size``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFiles:
    """The files that a task has uploaded for one topic."""

    topic: str
    topic_id: str
    files: tuple[UploadedFile, ...]
    """In the order of the task's rows."""


class TaskWriter:
    """The writer of a task's rows, or of those that several tasks have handed over. It writes under a producer id of
    its own, so that its sequences begin at 0."""

    def __init__(self, cluster: Cluster, options: SinkOptions, writers: dict[str, TopicWriter]) -> None:
        """
        Args:
            writers: of topics that this process knows, for this cluster; added to. Each costs a GET, a new one three
                calls.
        """
        self._cluster = cluster
        self._options = options
        self._writers = writers
        self._producer_id = new_producer_id()
        self._mine: dict[str, TopicWriter] = {}
        self._sticky: dict[str, StickyPartition] = {}
        self._files: dict[str, list[UploadedFile]] = {}

    def write(self, batches: Iterable[pa.RecordBatch]) -> tuple[TaskFiles, ...]:
        """Upload all rows.

        Args:
            batches: columns of :data:`~sparklog.spark.sink.sink_options.SINK_COLUMNS`, and those that the options name
                as fields; others are passed over.
        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            InvalidTopicError, InvalidArgumentError: a null topic; a partition that isn't there, a header without a
                key, a timestamp below 0.
            MessageSizeTooLargeError: a record is too large.
            InvalidTimestampError, InvalidRecordError: the topic's settings don't allow a record.
            StoreError.
        """
        try:
            gathered: list[pa.RecordBatch] = []
            size_bytes = 0
            for piece in (piece for batch in batches for piece in _pieces(batch)):
                gathered.append(piece)
                size_bytes += piece.nbytes
                if size_bytes >= GATHERED_BYTES:
                    self._flush(gathered)
                    gathered, size_bytes = [], 0
            self._flush(gathered)
        except BaseException:
            delete_uploads(
                self._cluster, {topic: [file.path for file in files] for topic, files in self._files.items()}
            )
            raise
        return tuple(
            TaskFiles(topic=topic, topic_id=self._mine[topic].topic_id, files=tuple(files))
            for topic, files in self._files.items()
        )

    def _flush(self, gathered: list[pa.RecordBatch]) -> None:
        if gathered:
            for topic, records in by_topic(pa.Table.from_batches(gathered), self._options.topic):
                self._upload(topic, records)

    def _upload(self, topic: str, rows: pa.Table) -> None:
        writer = self._writer(topic)
        head, now_ms = writer.head, self._cluster.clock.now_ms()
        config, count = head.config, head.partition_count
        encoding = ValueEncoding.of(topic, head)
        table = check_table(
            topic,
            _records_of(rows, self._options.fields),
            now_ms=now_ms,
            partition_count=count,
            max_record_bytes=min(self._options.max_request_size, config.integer("max.message.bytes")),
            call="write",
            limits="kafka.max.request.size",
            encoding=encoding,
        ).combine_chunks()
        if encoding is not None:
            table, undecodable, _ = encoding.encode(table, {})
            for error in undecodable.values():
                raise error
        if config["message.timestamp.type"] == "LogAppendTime":
            at = table.schema.get_field_index("timestamp")
            table = table.set_column(at, "timestamp", pa.array(np.full(table.num_rows, now_ms, np.int64)))
        timestamps, keys, values, chosen = (
            one_array(table[name]) for name in ("timestamp", "key", "value", "partition")
        )
        for error in refuse(topic, np.asarray(timestamps), keys, config, now_ms=now_ms).values():
            raise error
        sizes = binary_lengths(values) if encoding is None else sizes_of(table)
        partitions = choose_partitions(keys, sizes, chosen, count, self._sticky[topic])
        spread_keyless(~(is_valid(keys) | is_valid(chosen)), sizes, partitions, count, self._sticky[topic])
        _, parts = sort_by_partition(table.drop_columns(["partition"]), partitions)
        codec = str(config["compression.type"])
        staged = writer.upload(parts, compression=self._options.compression if codec == "producer" else codec)
        facts = [replace(one.facts, staged_ticks_ms=-math.inf) for one in staged]  # the driver has other ticks
        self._files.setdefault(topic, []).extend(facts)
        writer.forget(facts)

    def _writer(self, topic: str) -> TopicWriter:
        """The topic as it is now, when this task first meets it."""
        writer = self._mine.get(topic)
        if writer is not None:
            return writer
        writer = self._writers.get(check_topic_name(topic))
        if writer is not None:
            try:
                learn(writer)
            except UnknownTopicOrPartitionError:  # deleted; there may be another of its name
                writer = None
        if writer is None:
            writer = TopicWriter(self._cluster.topic_log(topic), topic, sync=True)
        writer.adopt(producer_id=self._producer_id, producer_epoch=0)
        self._writers[topic] = self._mine[topic] = writer
        self._sticky[topic] = StickyPartition(STICKY_BYTES)
        return writer


def _records_of(rows: pa.Table, fields: Mapping[str, str]) -> pa.Table:
    """The columns of records, with those that are fields of values as the struct ``value``."""
    records = rows.select([name for name in rows.column_names if name in SINK_COLUMNS and name != "topic"])
    found = [name for name in rows.column_names if name in fields]
    if not found:
        return records
    columns = [one_array(rows[name]) for name in found]
    return records.append_column("value", pa.StructArray.from_arrays(columns, [fields[name] for name in found]))


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch that is larger than what a task gathers, in pieces that are about as large; without copying."""
    if not batch.num_rows:
        return
    count = min(batch.num_rows, -(-batch.nbytes // GATHERED_BYTES)) or 1
    rows = -(-batch.num_rows // count)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def by_topic(rows: pa.Table, topic: str | None) -> Iterator[tuple[str, pa.Table]]:
    """Rows by the topic that they go to, in their order.

    Args:
        topic: of all of them; None: the column ``topic`` says it.
    Raises:
        InvalidArgumentError: a row without a topic. Source: Spark ``KafkaRowWriter``.
    """
    if topic is not None:
        yield topic, rows
        return
    names = rows["topic"].combine_chunks()
    if names.null_count:
        raise InvalidArgumentError(
            f"{names.null_count} rows have a null topic; give each a topic, or the option topic for all"
        )
    encoded = pc.dictionary_encode(names)
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    known = encoded.dictionary.to_pylist()
    if len(known) == 1:
        yield known[0], rows
        return
    codes = np.asarray(encoded.indices)
    sorted_rows = rows.take(pa.array(np.argsort(codes, kind="stable")))
    ends = np.cumsum(np.bincount(codes, minlength=len(known)))
    for name, start, end in zip(known, [0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        yield name, sorted_rows.slice(start, end - start)


def withdraw(cluster: Cluster, uploads: Iterable[TaskFiles]) -> None:
    """Delete files that nothing has committed, and nothing will."""
    paths: dict[str, list[str]] = {}
    for upload in uploads:
        paths.setdefault(upload.topic, []).extend(file.path for file in upload.files)
    delete_uploads(cluster, paths)


def spread_keyless(
    is_loose: npt.NDArray[np.bool_],
    value_sizes: npt.NDArray[np.int32],
    partitions: npt.NDArray[np.int32],
    partition_count: int,
    sticky: StickyPartition,
) -> None:
    """Where keyless records without a partition are more than :data:`STICKY_BYTES`, give each run of so many bytes a
    partition of its own; changes ``partitions``.

    Args:
        is_loose: which records have neither a key nor a partition.
        value_sizes: bytes of each value, -1 for null.
    """
    places = np.flatnonzero(is_loose)
    if partition_count == 1 or not len(places):
        return
    runs = np.cumsum(np.maximum(value_sizes[places], 0).astype(np.int64)) // STICKY_BYTES
    numbers, run_of = np.unique(runs, return_inverse=True)
    if len(numbers) > 1:
        chosen = np.array([sticky.take(partition_count, STICKY_BYTES) for _ in numbers], np.int32)
        partitions[places] = chosen[run_of]
