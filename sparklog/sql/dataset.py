"""A topic as an Arrow dataset: the live segments, each with what the log knows of it, so that filters skip files."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sparklog.delta.log import DeltaLog
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.log.cluster import Cluster
from sparklog.log.data.record_reading import object_path
from sparklog.log.data.schema import DATA_SCHEMA, TIMESTAMP
from sparklog.log.data.segments import Segment
from sparklog.log.data.value_bounds import value_bounds
from sparklog.log.data.value_columns import DATA, Leaf, leaves_of
from sparklog.log.state import TopicState, load_state
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

    Filters on partition, timestamp and the indexed fields of values skip files by the log alone. Files without offsets
    yet are not part of it.

    Raises:
        UnknownTopicOrPartitionError, and what reading a log raises.
    """
    log = cluster.topic_log(topic)
    state = load_living(log, topic) if state is None else state
    head, whole = state.head, state.require_whole()
    leaves = [] if head.values is None else list(leaves_of(head.values))
    time_type = LOG_APPEND_TIME if head.config["message.timestamp.type"] == "LogAppendTime" else CREATE_TIME
    live = {
        object_path(log.table, segment.path): (segment, partition)
        for partition, start in enumerate(head.log_start_offsets)
        for segment in whole.index.from_offset(partition, start)
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
            & _known(segment)
            & _known_values(whole.statistics.get(segment.path, {}), leaves),
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


def load_living(log: DeltaLog, topic: str) -> TopicState:
    """A topic with its files' statistics, as of now. Raises ``UnknownTopicOrPartitionError``, and what reading a log
    raises."""
    state = load_state(log, statistics=True)
    if state.head.deleted:
        raise UnknownTopicOrPartitionError(f"unknown topic: {topic!r} was deleted")
    return state


def _known_values(stats: str | Mapping[str, Any], leaves: Sequence[tuple[Leaf, pa.DataType]]) -> Any:
    """An expression of what a file's statistics tell of the values of every record."""
    known = pc.scalar(True)
    for leaf, low, high in value_bounds(stats, leaves) if stats else ():
        field = ds.field(DATA, *leaf)
        if low is not None:
            known &= (field >= low) | field.is_null()
        if high is not None:
            known &= (field <= high) | field.is_null()
    return known


def _time(timestamp_ms: int) -> Any:
    return pa.scalar(timestamp_ms * 1_000, TIMESTAMP)
