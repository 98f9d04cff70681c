"""A topic as an Arrow dataset: the records as a query sees them, from files that the log can't rule out."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from sparklog.delta.log import DeltaLog
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.log.cluster import Cluster
from sparklog.log.data.schema import DATA_SCHEMA, TIMESTAMP
from sparklog.log.data.segments import Segment
from sparklog.log.data.value_columns import Leaf, leaves_of
from sparklog.log.state import TopicState, load_state
from sparklog.log.typed_records import view_columns
from sparklog.model import CREATE_TIME, LOG_APPEND_TIME
from sparklog.sql.column_use import columns_used
from sparklog.sql.file_bounds import between, known_times, known_values
from sparklog.sql.files import files_of
from sparklog.sql.segment_rows import RowSource, SegmentRows, live_segments, read_batches

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

    def field_of(leaf: Leaf) -> Any:
        return ds.field(fields[leaf[0]], *leaf[1:])

    time_type = LOG_APPEND_TIME if head.config["message.timestamp.type"] == "LogAppendTime" else CREATE_TIME
    segments = live_segments(log, state)
    always = _equal("topic", topic) & _equal("timestamp_type", time_type)
    partitions = [always & _equal("partition", partition) for partition in range(len(head.log_start_offsets))]
    format_, numbers = ds.ParquetFileFormat(), pafs.LocalFileSystem()
    fragments = [
        format_.make_fragment(
            str(number),
            filesystem=numbers,
            partition_expression=partitions[rows.partition]
            & _known(rows.segment)
            & known_values(whole.statistics.get(rows.segment.path, {}), leaves, field_of),
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
    last = None if segment.max_offset_delta is None else segment.last_offset
    return between(ds.field("offset"), segment.first_offset, last) & known_times(segment)


def load_living(log: DeltaLog, topic: str) -> TopicState:
    """A topic with its files' statistics, as of now. Raises ``UnknownTopicOrPartitionError``, and what reading a log
    raises."""
    state = load_state(log, statistics=True)
    if state.head.deleted:
        raise UnknownTopicOrPartitionError(f"unknown topic: {topic!r} was deleted")
    return state
