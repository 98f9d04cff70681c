"""A topic as an Arrow dataset: the records as a query sees them, from files that the log can't rule out."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from sparklog.delta.log import DeltaLog
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.log.cluster import Cluster
from sparklog.log.data.record_reading import object_path
from sparklog.log.data.schema import DATA_SCHEMA, TIMESTAMP
from sparklog.log.data.segments import Segment
from sparklog.log.data.value_bounds import value_bounds
from sparklog.log.data.value_columns import Leaf, leaves_of
from sparklog.log.state import TopicState, load_state
from sparklog.log.typed_records import view_columns
from sparklog.model import CREATE_TIME, LOG_APPEND_TIME
from sparklog.sql.column_use import columns_used
from sparklog.sql.files import files_of
from sparklog.sql.segment_rows import RowSource, SegmentRows, read_batches

__all__ = ["TOPIC_COLUMNS", "topic_dataset"]

TOPIC_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
"""The columns of each topic's view, as Spark's Kafka source has them."""

_KINDS: Mapping[str, pa.DataType] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestamp_type": pa.int32(),
    **{name: DATA_SCHEMA.field(name).type for name in ("key", "value", "headers")},
}


class TopicDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
    """The records of a topic as of a version, with a column for each field of its values.

    All methods of Python's that read go through :meth:`scanner`. What Arrow itself knows is which segments there are
    and what holds for each, by which it rules some out; it has numbers in place of their paths, so whoever passes
    ``scanner`` by gets an error, not records that were deleted.
    """

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> Any:
        """A scanner of the records, as of any dataset: files that the filter rules out aren't read, of others the
        columns that it and ``columns`` need."""
        needed = columns_used(self.schema, columns, filter)
        segments = (self.segments[int(fragment.path)] for fragment in self.get_fragments(filter))
        schema = pa.schema([self.schema.field(name) for name in needed])
        batches = read_batches(self.source, segments, schema, filter)
        return ds.Scanner.from_batches(batches, schema=schema, columns=columns, filter=filter, **options)

    segments: Sequence[SegmentRows]
    source: RowSource


def topic_dataset(cluster: Cluster, topic: str, state: TopicState | None = None) -> TopicDataset:
    """The records of a topic, a ``pyarrow.dataset.Dataset``: as of now, or of a whole ``state``.

    Of a folder or an S3 bucket nothing but the log is read yet; of other stores the files are copied now.

    Columns: those of :data:`TOPIC_COLUMNS`, and of a typed topic the fields that its values ever had, those of a name
    that is taken with ``value_`` before it.

    Filters on partition, offset, timestamp and the indexed fields of values skip files by the log alone. Files without
    offsets yet are not part of it.

    Raises:
        UnknownTopicOrPartitionError, and what reading a log raises.
    """
    log = cluster.topic_log(topic)
    state = load_living(log, topic) if state is None else state
    head, whole = state.head, state.require_whole()
    values = pa.struct([]) if head.values is None else head.values
    fields = view_columns([field.name for field in values], TOPIC_COLUMNS)
    leaves = list(leaves_of(values))
    time_type = LOG_APPEND_TIME if head.config["message.timestamp.type"] == "LogAppendTime" else CREATE_TIME
    segments = [
        SegmentRows(object_path(log.table, segment.path), segment, partition, start)
        for partition, start in enumerate(head.log_start_offsets)
        for segment in whole.index.from_offset(partition, start)
    ]
    always = _equal("topic", topic) & _equal("timestamp_type", time_type)
    partitions = [always & _equal("partition", partition) for partition in range(len(head.log_start_offsets))]
    format_, numbers = ds.ParquetFileFormat(), pafs.LocalFileSystem()
    fragments = [
        format_.make_fragment(
            str(number),
            filesystem=numbers,
            partition_expression=partitions[rows.partition]
            & _known(rows.segment)
            & _known_values(whole.statistics.get(rows.segment.path, {}), leaves, fields),
        )
        for number, rows in enumerate(segments)
    ]
    schema = pa.schema([*_KINDS.items(), *((fields[field.name], field.type) for field in values)])
    dataset = TopicDataset(fragments, schema, format_, numbers)
    files = files_of(cluster.store, [rows.path for rows in segments])
    dataset.segments = segments
    dataset.source = RowSource(files.filesystem, topic, time_type, values, fields)
    if files.copy is not None:
        weakref.finalize(dataset, files.copy.cleanup)
    return dataset


def _equal(name: str, value: Any) -> Any:
    return ds.field(name) == pa.scalar(value, _KINDS[name])


def _known(segment: Segment) -> Any:
    """An expression of what the log tells of every record of a segment."""
    offset, time = ds.field("offset"), ds.field("timestamp")
    known = offset >= segment.first_offset
    if segment.max_offset_delta is not None:
        known &= offset <= segment.last_offset
    if segment.min_timestamp_ms is not None:
        known &= (time >= _time(segment.min_timestamp_ms)) | time.is_null()
    if segment.max_timestamp_ms is not None:
        # Statistics are cut to milliseconds, foreign records may have microseconds. Two comparisons that each allow
        # null, since that is the form in which Arrow draws conclusions from them.
        known &= (time < _time(segment.max_timestamp_ms + 1)) | time.is_null()
    return known


def load_living(log: DeltaLog, topic: str) -> TopicState:
    """A topic with its files' statistics, as of now. Raises ``UnknownTopicOrPartitionError``, and what reading a log
    raises."""
    state = load_state(log, statistics=True)
    if state.head.deleted:
        raise UnknownTopicOrPartitionError(f"unknown topic: {topic!r} was deleted")
    return state


def _known_values(
    stats: str | Mapping[str, Any], leaves: Sequence[tuple[Leaf, pa.DataType]], fields: Mapping[str, str]
) -> Any:
    """An expression of what a file's statistics tell of the values of every record."""
    known = pc.scalar(True)
    for leaf, low, high in value_bounds(stats, leaves) if stats else ():
        field = ds.field(fields[leaf[0]], *leaf[1:])
        if low is not None:
            known &= (field >= low) | field.is_null()
        if high is not None:
            known &= (field <= high) | field.is_null()
    return known


def _time(timestamp_ms: int) -> Any:
    return pa.scalar(timestamp_ms * 1_000, TIMESTAMP)
