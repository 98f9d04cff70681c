"""A topic as an Arrow dataset: the live segments, each with what the log knows of it, so that filters skip files."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from sparklog.delta.log import DeltaLog
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.log.cluster import Cluster
from sparklog.log.data.record_reading import object_path
from sparklog.log.data.schema import DATA_SCHEMA, TIMESTAMP
from sparklog.log.data.segments import Segment
from sparklog.log.data.value_bounds import value_bounds
from sparklog.log.data.value_columns import DATA, leaves_of
from sparklog.log.state import TopicState, load_state
from sparklog.model import CREATE_TIME, LOG_APPEND_TIME
from sparklog.sql.fields_dataset import FieldsDataset, field_column
from sparklog.sql.files import files_of

__all__ = ["TOPIC_COLUMNS", "fields_dataset", "topic_dataset"]

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
    return _dataset(cluster, topic, state, has_fields=False)


def fields_dataset(cluster: Cluster, topic: str, state: TopicState | None = None) -> Any:
    """The same records for DuckDB: of a typed topic with the fields of values as columns in place of ``data``, so that
    each is read alone. Raises as :func:`topic_dataset`."""
    return _dataset(cluster, topic, state, has_fields=True)


def _dataset(cluster: Cluster, topic: str, state: TopicState | None, *, has_fields: bool) -> Any:
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
    fragments, known_of_fields = [], []
    for path, (segment, partition) in live.items():
        known = (
            _equal("topic", topic)
            & _equal("partition", partition)
            & _equal("log_start_offset", head.log_start_offsets[partition])
            & _equal("timestamp_type", time_type)
            & _known(segment)
        )
        stats = whole.statistics.get(segment.path)
        bounds = [] if stats is None else list(value_bounds(stats, leaves))
        if has_fields:
            of_fields = [(ds.field(field_column(leaf[0]), *leaf[1:]), *both) for leaf, *both in bounds]
            known_of_fields.append(_bounded(known, of_fields))
        else:
            known = _bounded(known, [(ds.field(DATA, *leaf), *both) for leaf, *both in bounds])
        fragments.append(format_.make_fragment(path, filesystem=files.filesystem, partition_expression=known))
    schema = _SCHEMA if head.values is None else _SCHEMA.append(pa.field(DATA, head.values))
    dataset = ds.FileSystemDataset(fragments, schema, format_, filesystem=files.filesystem)
    if files.copy is not None:
        weakref.finalize(dataset, files.copy.cleanup)
    return FieldsDataset.of(dataset, known_of_fields) if has_fields and head.values is not None else dataset


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


def _bounded(known: Any, bounds: Iterable[tuple[Any, pa.Scalar | None, pa.Scalar | None]]) -> Any:
    """An expression of what is known of every record, with the bounds of values."""
    for field, low, high in bounds:
        if low is not None:
            known &= (field >= low) | field.is_null()
        if high is not None:
            known &= (field <= high) | field.is_null()
    return known


def _time(timestamp_ms: int) -> Any:
    return pa.scalar(timestamp_ms * 1_000, TIMESTAMP)
