"""A topic as an Arrow dataset: the records as a query sees them, from files that the log can't rule out."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from sparklog.delta.log import DeltaLog
from sparklog.delta.snapshot import open_newest
from sparklog.errors import InvalidArgumentError, UnknownTopicOrPartitionError
from sparklog.log.cluster import Cluster
from sparklog.log.data.schema import DATA_SCHEMA, TIMESTAMP
from sparklog.log.data.value_bounds import bound_columns
from sparklog.log.data.value_columns import leaves_of, view_columns
from sparklog.log.head import head_of_info
from sparklog.log.state import TopicState, load_state
from sparklog.model import CREATE_TIME, LOG_APPEND_TIME
from sparklog.sql.column_use import columns_used
from sparklog.sql.file_bounds import ColumnBounds, FileBounds
from sparklog.sql.files import files_of, missing_file
from sparklog.sql.segment_rows import TEXTS, RowSource, SegmentRows, live_segments, read_batches

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

_NO_FILE = "the files of a topic are read by the method scanner of its dataset alone"


class TopicDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
    """The records of a topic as of a version, with a column for each field of its values.

    All methods of Python's that read go through :meth:`scanner`. Arrow itself knows of one file, which isn't there, so
    whoever passes ``scanner`` by gets an error, not records that were deleted.
    """

    segments: Sequence[SegmentRows]
    source: RowSource
    plain_schema: pa.Schema
    """The columns, with texts as texts, whatever :attr:`schema` has."""
    statistics: Mapping[str, Any]
    """The statistics that the log has of each file, by its path in the table."""
    _found: tuple[list[str], FileBounds]
    """The columns of the newest filter, and what is known of them of each segment."""

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> Any:
        """A scanner of the records, as of any dataset: files that the filter rules out aren't read, of others the
        columns that it and ``columns`` need."""
        needed = columns_used(self.plain_schema, columns, filter)
        filtered = set() if filter is None else set(columns_used(self.plain_schema, [], filter))
        schema = pa.schema([(self.plain_schema if name in filtered else self.schema).field(name) for name in needed])
        batches = read_batches(self.source, self.segments_for(filter), schema, filter)
        if columns is None:
            columns = needed
        if not isinstance(columns, Mapping) and self.schema is not self.plain_schema:
            columns = {
                name: ds.field(name) if name in schema.names and name not in filtered else self._cast(name)
                for name in columns
            }
        return ds.Scanner.from_batches(batches, schema=schema, columns=columns, filter=filter, **options)

    def _cast(self, name: str) -> Any:
        kind = self.schema.field(name).type
        return ds.field(name) if kind == self.plain_schema.field(name).type else ds.field(name).cast(kind)

    def segments_for(self, filter: Any) -> Sequence[SegmentRows]:
        """The segments that may have records for which a filter holds, by each segment's bounds in the log."""
        if filter is None:
            return self.segments
        names = columns_used(self.plain_schema, [], filter)
        known = self._found  # taken once, as another thread may ask meanwhile
        if known[0] != names:  # who asks again asks for the same columns mostly
            known = self._found = names, FileBounds(list(self._bounds(names)), len(self.segments))
        return [self.segments[number] for number in known[1].places_left(self.plain_schema, filter)]

    def _bounds(self, names: Sequence[str]) -> Iterator[ColumnBounds]:
        """The bounds of these columns in each segment, as the log has them."""
        for name in names:
            if name in _OF_SEGMENT:
                is_constant, bounds_of = _OF_SEGMENT[name]
                kind = _KINDS[name]
                low, high = zip(*map(bounds_of, self.segments), strict=True) if self.segments else ((), ())
                yield ColumnBounds(ds.field(name), pa.array(low, kind), pa.array(high, kind), is_constant)
            elif name in ("topic", "timestamp_type"):
                same = pa.repeat(pa.scalar(getattr(self.source, name), _KINDS[name]), len(self.segments))
                yield ColumnBounds(ds.field(name), same, same, is_constant=True)
        fields = self.source.columns
        leaves = [(leaf, kind) for leaf, kind in leaves_of(self.source.values) if fields[leaf[0]] in names]
        if leaves:
            stats = [self.statistics.get(rows.segment.path, {}) for rows in self.segments]
            for (leaf, _), (low, high) in zip(leaves, bound_columns(stats, leaves), strict=True):
                yield ColumnBounds(ds.field(fields[leaf[0]], *leaf[1:]), low, high)


def topic_dataset(
    cluster: Cluster, topic: str, state: TopicState | None = None, *, texts_as_dictionaries: bool = False
) -> TopicDataset:
    """The records of a topic, a ``pyarrow.dataset.Dataset``: as of now, or of a whole ``state``.

    Of a folder or an S3 bucket nothing but the log is read yet; of other stores the files are copied now.

    Columns: those of :data:`TOPIC_COLUMNS`, and of a typed topic the fields that its values ever had, those of a name
    that is taken with ``value_`` before it.

    Filters on partition, offset, timestamp and the indexed fields of values skip files by the log alone. Files without
    offsets yet are not part of it.

    Args:
        texts_as_dictionaries: fields of the type string come as Arrow's dictionaries, which DuckDB groups and compares
            faster, and takes for texts all the same.
    Raises:
        UnknownTopicOrPartitionError, and what reading a log raises.
    """
    log = cluster.topic_log(topic)
    state = load_living(log, topic) if state is None else state
    head, whole = state.head, state.require_whole()
    values = pa.struct([]) if head.values is None else head.values
    fields = view_columns([field.name for field in values], TOPIC_COLUMNS)
    time_type = LOG_APPEND_TIME if head.config["message.timestamp.type"] == "LogAppendTime" else CREATE_TIME
    segments = live_segments(log, state)
    format_, nowhere = ds.ParquetFileFormat(), pafs.LocalFileSystem()
    fragments = [format_.make_fragment(_NO_FILE, filesystem=nowhere)] if segments else []
    plain = pa.schema([*_KINDS.items(), *((fields[field.name], field.type) for field in values)])
    schema = plain
    if texts_as_dictionaries:
        kinds = {fields[field.name]: TEXTS for field in values if pa.types.is_string(field.type)}
        schema = pa.schema([field.with_type(kinds.get(field.name, field.type)) for field in plain])
    dataset = TopicDataset(fragments, schema, format_, nowhere)
    missing = partial(missing_file, topic, head.delta_version)
    files = files_of(cluster.store, [rows.path for rows in segments], missing)
    dataset.segments = segments
    dataset.plain_schema = plain
    dataset.statistics = whole.statistics
    dataset._found = ([], FileBounds([], len(segments)))
    dataset.source = RowSource(files.filesystem, topic, time_type, values, fields, missing)
    if files.copy is not None:
        weakref.finalize(dataset, files.copy.cleanup)
    return dataset


def _offsets(rows: SegmentRows) -> tuple[int, int | None]:
    segment = rows.segment
    return segment.first_offset, None if segment.max_offset_delta is None else segment.last_offset


def _times(rows: SegmentRows) -> tuple[int | None, int | None]:
    """In microseconds. Statistics are cut to milliseconds, foreign records may have microseconds."""
    low, high = rows.segment.min_timestamp_ms, rows.segment.max_timestamp_ms
    return None if low is None else low * 1_000, None if high is None else high * 1_000 + 999


_OF_SEGMENT: Mapping[str, tuple[bool, Callable[[SegmentRows], tuple[Any, Any]]]] = {
    "partition": (True, lambda rows: (rows.partition, rows.partition)),
    "offset": (False, _offsets),
    "timestamp": (False, _times),
}
"""Whether all records of a segment have the same value of a column; the least and the greatest."""


def load_living(log: DeltaLog, topic: str, version: int | None = None) -> TopicState:
    """A topic with its files' statistics, as of now or of an older version.

    Raises:
        UnknownTopicOrPartitionError: there is no such topic now, whatever there was in the version.
        InvalidArgumentError: the log doesn't contain the version, or it is of another topic that had the name.
        Other errors: what reading a log raises.
    """
    if version is None:
        state = load_state(log, statistics=True)
        if state.head.deleted:
            raise _deleted(topic)
        return state
    newest = open_newest(log)
    if newest is None or newest.entry.info is None:
        now = load_state(log).head
    else:
        now = head_of_info(log.table, newest.entry.version, newest.entry.info)
    if now.deleted:
        raise _deleted(topic)
    state = load_state(log, statistics=True, version=version)
    if state.head.topic_id != now.topic_id or state.head.deleted:
        raise InvalidArgumentError(
            f"topic {topic!r} can't be shown as of version {version}: that is of another topic of this name, which was "
            "deleted since"
        )
    return state


def _deleted(topic: str) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(f"unknown topic: {topic!r} was deleted")
