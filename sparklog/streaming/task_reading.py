"""Reading the records of one task from the store, as Arrow batches, in whatever process Spark runs the task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

from sparklog.delta.log import DeltaLog
from sparklog.errors import ObjectNotFoundError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.record_streaming import is_read_whole, open_segments
from sparklog.log.data.schema import TIMESTAMP
from sparklog.log.data.segments import Segment, overlapping
from sparklog.log.data.value_columns import conform_values, first_seen, leaf_column, view_columns
from sparklog.log.follow import TopicFollower
from sparklog.log.typed_records import ValueReading
from sparklog.model import TopicPartition
from sparklog.schemas import ValueSchema
from sparklog.streaming.planning import Task

__all__ = ["SOURCE_SCHEMA", "field_columns", "read_task"]

_ELEMENT = pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

SOURCE_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", pa.list_(_ELEMENT)),
    ]
)
"""The schema as Spark expects it of Arrow, down to the names of inner fields."""

_REQUEST_BYTES = 16 * 1024 * 1024
"""Files that are read together; a first one always is."""
_PIECE_BYTES = 4 * 1024 * 1024
_BATCH_ROWS = 16_384
"""Smaller pieces are put together: a batch of its own for each costs more than its records."""


def field_columns(schemas: Sequence[ValueSchema]) -> list[dict[str, pa.Field]]:
    """The fields of a typed topic's values as columns beside those of :data:`SOURCE_SCHEMA`, by each of its schemas: by
    the column's name, with ``value_`` before it where a field's own is taken.

    Args:
        schemas: all that the topic has, the oldest first: a column keeps its meaning.
    """
    names = view_columns(first_seen(schema.arrow.names for schema in schemas), SOURCE_SCHEMA.names)
    return [{names[field.name]: field for field in schema.arrow} for schema in schemas]


def read_task(
    log: DeltaLog,
    task: Task,
    columns: Sequence[str],
    *,
    fail_on_data_loss: bool = True,
    fields: Mapping[str, pa.Field] = MappingProxyType({}),
    values_as_bytes: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The records of a task by offset, in batches with these columns of :data:`SOURCE_SCHEMA` and of ``fields``.

    Args:
        fields: as :func:`field_columns` has returned them when the query was planned.
        values_as_bytes: of a typed topic ``value`` has the bytes of all values; else of those that can't be decoded.

    A file that was replaced since the task was planned is looked for once more in the topic as it is now (rule L10,
    orphans).

    Raises:
        OffsetOutOfRangeError: records that are still to be read were deleted.
        UnknownTopicOrPartitionError: the topic was deleted.
        CorruptRecordError, StoreError.
    """
    schema = pa.schema([_column(name, fields) for name in columns])
    constants = _Constants(task)
    own = pa.schema([field for field in schema if field.name not in constants.values])
    waiting: list[pa.RecordBatch] = []
    count = 0
    wanted = [*filter(fields.__contains__, columns)]
    values = task.values if wanted or "value" in columns else None
    for records in _despite_replaced_files(log, task, fail_on_data_loss, values):
        given: dict[str, pa.Array] = {}
        if values is not None:
            if wanted or not values_as_bytes:
                structs, given["value"] = values.structs(records)
                given |= {name: _field_of(structs, fields[name]) for name in wanted}
            if values_as_bytes and "value" in columns:
                given["value"] = values.as_bytes(records).column("value")
        waiting.append(_shown(records, own, given))
        count += records.num_rows
        if count >= _BATCH_ROWS or records.nbytes >= _PIECE_BYTES:
            yield _together(waiting, count, schema, constants)
            waiting, count = [], 0
    if waiting:
        yield _together(waiting, count, schema, constants)


def _column(name: str, fields: Mapping[str, pa.Field]) -> pa.Field:
    return pa.field(name, fields[name].type) if name in fields else SOURCE_SCHEMA.field(name)


def _field_of(structs: pa.StructArray, field: pa.Field) -> pa.Array:
    """A field of the values as the query's plan has it: the topic may have another schema since."""
    if structs.type.get_field_index(field.name) < 0:
        return pa.nulls(len(structs), field.type)
    return conform_values(leaf_column(structs, (field.name,)), field.type)


def _despite_replaced_files(
    log: DeltaLog, task: Task, fail_on_data_loss: bool, values: ValueReading | None
) -> Iterator[pa.RecordBatch]:
    offset, segments = task.start, task.segments
    gone = ""
    while True:
        try:
            for records in _records(log, segments, offset, task.end, values):
                offset = records.column(0)[-1].as_py() + 1
                yield records
            return
        except ObjectNotFoundError as error:
            if str(error) == gone:
                raise
            gone = str(error)
        try:
            offset, segments = _found_again(log, task, offset, fail_on_data_loss)
        except UnknownTopicOrPartitionError:
            if fail_on_data_loss:
                raise
            return


def _found_again(log: DeltaLog, task: Task, offset: int, fail_on_data_loss: bool) -> tuple[int, tuple[Segment, ...]]:
    follower = TopicFollower(log, task.topic)
    if follower.head.topic_id != task.topic_id:
        raise UnknownTopicOrPartitionError(f"topic {task.topic!r} with id {task.topic_id} was deleted")
    start = follower.head.log_start_offsets[task.partition]
    if offset < start:
        if fail_on_data_loss:
            raise OffsetOutOfRangeError(
                f"records {offset} to {min(start, task.end) - 1} of {task.topic}-{task.partition} were deleted while a "
                "query was to read them",
                topic_partition=TopicPartition(task.topic, task.partition),
                offset=offset,
            )
        offset = start
    found = follower.segments(task.partition, offset)
    return offset, tuple(segment for segment in found if segment.first_offset < task.end)


def _records(
    log: DeltaLog, segments: Sequence[Segment], start: int, end: int, values: ValueReading | None
) -> Iterator[pa.RecordBatch]:
    kind = None if values is None else values.type
    for groups in _requests(segments):
        paths = [object_path(log.table, segment.path) for group in groups if is_read_whole(group) for segment in group]
        data = dict(zip(paths, log.store.read_buffers(paths), strict=True)) if paths else {}
        for group in groups:
            whole = (
                [data.pop(object_path(log.table, segment.path)) for segment in group] if is_read_whole(group) else None
            )
            opened = open_segments(log, group, whole, start_offset=start, piece_bytes=_PIECE_BYTES, values=kind)
            for piece in opened.pieces:
                records = _below(piece, end)
                if records.num_rows:
                    yield records
                if records.num_rows < piece.num_rows:
                    break


def _requests(segments: Sequence[Segment]) -> Iterator[list[list[Segment]]]:
    """Segments in groups that overlap, and groups whose files are read together."""
    together: list[list[Segment]] = []
    size = 0
    for group in overlapping(segments):
        group_bytes = sum(segment.size_bytes for segment in group)
        if together and size + group_bytes > _REQUEST_BYTES:
            yield together
            together, size = [], 0
        together.append(group)
        size += group_bytes
    if together:
        yield together


def _below(piece: pa.RecordBatch, end: int) -> pa.RecordBatch:
    """The records of a piece, which is in order, below an offset."""
    offsets = piece.column(0)
    if offsets[-1].as_py() < end:
        return piece
    return piece.slice(0, int(offsets.to_numpy().searchsorted(end)))


def _shown(records: pa.RecordBatch, schema: pa.Schema, given: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """The columns of a batch: those ``given``, else those of the records; a field of values of a topic that isn't typed
    any more is null."""
    columns = []
    for field in schema:
        if field.name not in given and field.name not in SOURCE_SCHEMA.names:
            columns.append(pa.nulls(records.num_rows, field.type))
        else:
            column = given[field.name] if field.name in given else records.column(field.name)
            columns.append(column if column.type.equals(field.type, check_metadata=True) else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _Constants:
    """The columns that are the same in all records of a task: their batches share what was made once."""

    def __init__(self, task: Task) -> None:
        self.values = {"topic": task.topic, "partition": task.partition, "timestampType": task.timestamp_type}
        self._made: dict[str, pa.Array] = {}

    def column(self, field: pa.Field, count: int) -> pa.Array:
        """So many times the field's value."""
        made = self._made.get(field.name)
        if made is None or len(made) < count:
            length = count if made is None else max(count, 2 * len(made))  # a task of one batch makes what it needs
            made = self._made[field.name] = pa.repeat(pa.scalar(self.values[field.name], field.type), length)
        return made.slice(0, count)


def _together(
    batches: Sequence[pa.RecordBatch], count: int, schema: pa.Schema, constants: _Constants
) -> pa.RecordBatch:
    """One batch of ``count`` records, with the columns that are the same in all of them."""
    own = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    columns = [
        constants.column(field, count) if field.name in constants.values else own.column(field.name) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
