"""A topic as an Arrow dataset: the live segments, each with what the log knows of it, so that filters skip files."""

from __future__ import annotations

import weakref
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from sparklog.log.cluster import Cluster
from sparklog.log.data.record_reading import object_path
from sparklog.log.data.schema import DATA_SCHEMA, TIMESTAMP
from sparklog.log.data.segments import Segment
from sparklog.log.data.value_columns import DATA
from sparklog.log.follow import TopicFollower
from sparklog.log.state import TopicState
from sparklog.model import CREATE_TIME, LOG_APPEND_TIME
from sparklog.sql.files import files_of

__all__ = ["TOPIC_COLUMNS", "topic_dataset"]

TOPIC_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
"""The columns of each topic's view, as Spark's Kafka source has them."""

_READ = ("offset_delta", "timestamp", "key", "value", "headers")
_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("base_offset", pa.int64()),
        pa.field("log_start_offset", pa.int64()),
        pa.field("timestamp_type", pa.int32()),
        *(DATA_SCHEMA.field(name) for name in _READ),
    ]
)


def topic_dataset(cluster: Cluster, topic: str, state: TopicState | None = None) -> Any:
    """The records of a topic, a ``pyarrow.dataset.Dataset``: as of now, or of a whole ``state``.

    Of a folder or an S3 bucket nothing but the log is read yet, and Arrow reads the files by itself; of other stores
    they are copied now.

    Columns: ``topic``, ``partition``, ``base_offset``, ``log_start_offset``, ``timestamp_type`` (constant in each file,
    known from the log), ``offset_delta``, ``timestamp`` (UTC), ``key``, ``value``, ``headers``. A record's offset is
    ``base_offset + offset_delta``; one below ``log_start_offset`` was deleted and must be left out. Of a typed topic
    also ``data``, a struct of all fields that its values ever had.

    Filters on partition and timestamp skip files by the log alone. Files without offsets yet are not part of it.

    Raises:
        UnknownTopicOrPartitionError, and what reading a log raises.
    """
    log = cluster.topic_log(topic)
    state = TopicFollower(log, topic).state if state is None else state
    head, index = state.head, state.require_whole().index
    time_type = LOG_APPEND_TIME if head.config["message.timestamp.type"] == "LogAppendTime" else CREATE_TIME
    live = {
        object_path(log.table, segment.path): (segment, partition)
        for partition, start in enumerate(head.log_start_offsets)
        for segment in index.from_offset(partition, start)
    }
    files = files_of(cluster.store, list(live))
    format_ = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"))
    fragments = [
        format_.make_fragment(
            path,
            filesystem=files.filesystem,
            partition_expression=_equal("topic", topic)
            & _equal("partition", partition)
            & _equal("log_start_offset", head.log_start_offsets[partition])
            & _equal("timestamp_type", time_type)
            & _known(segment),
        )
        for path, (segment, partition) in live.items()
    ]
    schema = _SCHEMA if head.values is None else _SCHEMA.append(pa.field(DATA, head.values))
    dataset = ds.FileSystemDataset(fragments, schema, format_, filesystem=files.filesystem)
    if files.copy is not None:
        weakref.finalize(dataset, files.copy.cleanup)
    return dataset


def _equal(name: str, value: Any) -> Any:
    return ds.field(name) == pa.scalar(value, _SCHEMA.field(name).type)


def _known(segment: Segment) -> Any:
    """An expression of what the log tells of every record of a segment."""
    known = _equal("base_offset", segment.base_offset)
    time = ds.field("timestamp")
    if segment.min_timestamp_ms is not None:
        known &= (time >= _time(segment.min_timestamp_ms)) | time.is_null()
    if segment.max_timestamp_ms is not None:
        # Statistics are cut to milliseconds, foreign records may have microseconds. Two comparisons that each allow
        # null, since that is the form in which Arrow draws conclusions from them.
        known &= (time < _time(segment.max_timestamp_ms + 1)) | time.is_null()
    return known


def _time(timestamp_ms: int) -> Any:
    return pa.scalar(timestamp_ms * 1_000, TIMESTAMP)
