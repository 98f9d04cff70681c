"""Arrow columns to Python records, by the compiled core or in pure Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog._native import CORE
from sparklog.config.clients import OfData
from sparklog.config.consumer import Deserialize
from sparklog.consumer.plain_columns import PlainColumns
from sparklog.errors import RecordDeserializationError
from sparklog.log.data.arrow_buffers import binary_lengths, buffer_numbers, is_valid
from sparklog.log.data.few_rows import FewRows, Rows, as_batch
from sparklog.log.data.value_sizes import value_sizes
from sparklog.log.typed_records import ValueReading, values_left_out
from sparklog.model import NO_HEADERS, ConsumerRecord, Headers, TopicPartition
from sparklog.schemas import UnwritableError

__all__ = ["RecordMaker"]

_RECORD: Any = partial(tuple.__new__, ConsumerRecord)
"""Makes a record as ``ConsumerRecord._make`` does, without its check of the length."""
_MICROSECONDS = 1_000


Made = tuple[list[ConsumerRecord], RecordDeserializationError | None]
"""Records up to the first that can't be deserialized, and why it can't."""


class RecordMaker:
    """Makes records of columns, with a user's ``key_deserializer`` and ``value_deserializer``."""

    def __init__(self, key: Deserialize | None, value: Deserialize | None, *, wants_python: bool = False) -> None:
        """``wants_python``: a typed topic's values are dicts."""
        self._wants_python = wants_python
        self._key, self._is_key_alone = _unwrapped(key)
        self._value, self._is_value_alone = _unwrapped(value)

    def make(
        self, rows: Rows, partition: TopicPartition, timestamp_type: int, values: ValueReading | None = None
    ) -> Made:
        """The rows of a batch of :data:`sparklog.log.data.schema.RECORD_SCHEMA`, in their order; of a typed topic with
        ``data``.

        A null stays None: the function isn't called (as in Java, not in kafka-python).

        Args:
            timestamp_type: of all of them, see :class:`~sparklog.model.ConsumerRecord`.
            values: how a typed topic's values are read.
        """
        if values is None and isinstance(rows, FewRows):
            return self._make_few(rows, partition, timestamp_type)
        batch = as_batch(rows)
        if values is not None and self._wants_python:
            return self._make_typed(batch, partition, timestamp_type, values)
        failure = None
        if values is not None:
            try:
                batch = values.as_bytes(batch)
            except UnwritableError as error:
                failure = _failure("value", partition, batch.column("offset")[error.place].as_py(), error)
                batch = values.as_bytes(batch.slice(0, error.place))
        make = self.make_pure if CORE is None else self.make_native
        made, failed = make(batch, partition, timestamp_type)
        return made, failed or failure

    def _make_few(self, rows: FewRows, partition: TopicPartition, timestamp_type: int) -> Made:
        topic, number = partition
        key_objects, value_objects = rows.keys, rows.values
        failure = None
        if self._key is not None or self._value is not None:
            key_objects, value_objects = [*key_objects], [*value_objects]
            failed = self._deserialize(key_objects, value_objects, repeat(NO_HEADERS), topic)
            if failed is not None:
                at, name, error = failed
                failure = _failure(name, partition, rows.offsets[at], error)
                key_objects, value_objects = key_objects[:at], value_objects[:at]
        columns = (rows.offsets, rows.timestamps_us, key_objects, value_objects, rows.keys, rows.values)
        made = [
            _RECORD(
                (
                    *(topic, number, -1, offset, time_us // _MICROSECONDS, timestamp_type, key, value, NO_HEADERS),
                    *(None, -1 if key_data is None else len(key_data), -1 if data is None else len(data), -1),
                )
            )
            for offset, time_us, key, value, key_data, data in zip(*columns, strict=False)
        ]
        return made, failure

    def make_native(self, batch: pa.RecordBatch, partition: TopicPartition, timestamp_type: int) -> Made:
        """Does the same as :meth:`make`, by the compiled core."""
        offsets, timestamps, keys, values, headers = batch.columns
        lists, sizes = None, None
        if headers.null_count < len(headers):
            lists, sizes = _headers(headers)
        places = tuple((*column.buffers(), column.offset) for column in (offsets, timestamps, keys, values))
        made, failed = self._made(places, batch.num_rows, lists, sizes, partition, timestamp_type)
        if failed is None:
            return made, None
        field, error = failed
        return made, _failure(ConsumerRecord._fields[field], partition, offsets[len(made)].as_py(), error)

    def make_part(
        self, columns: PlainColumns, start: int, count: int, partition: TopicPartition, timestamp_type: int
    ) -> Made:
        """Some of the rows of a batch whose columns were looked up, as :meth:`make` makes them of a part of it."""
        made, failed = self._made(columns.from_row(start), count, None, None, partition, timestamp_type)
        if failed is None:
            return made, None
        field, error = failed
        offset = int(columns.offsets[start + len(made)])
        return made, _failure(ConsumerRecord._fields[field], partition, offset, error)

    def _made(
        self,
        places: tuple[tuple[Any, ...], ...],
        count: int,
        headers: Iterable[Headers] | None,
        header_sizes: Iterable[int] | None,
        partition: TopicPartition,
        timestamp_type: int,
    ) -> tuple[list[ConsumerRecord], tuple[int, Exception] | None]:
        core: Any = CORE
        made: tuple[list[ConsumerRecord], tuple[int, Exception] | None] = core.make_records(
            ConsumerRecord,
            (partition.topic, partition.partition, -1, timestamp_type, NO_HEADERS),
            *places,
            count,
            headers,
            header_sizes,
            self._key,
            self._value,
            self._is_key_alone,
            self._is_value_alone,
        )
        return made

    def _make_typed(
        self, batch: pa.RecordBatch, partition: TopicPartition, timestamp_type: int, values: ValueReading
    ) -> Made:
        objects, structs = values.as_python(batch)
        plain = values_left_out(batch)
        sizes = np.where(np.asarray(structs.is_valid()), value_sizes(structs), np.array(_sizes(plain.column("value"))))
        return self.make_pure(plain, partition, timestamp_type, typed=(objects, sizes.tolist()))

    def make_pure(
        self,
        batch: pa.RecordBatch,
        partition: TopicPartition,
        timestamp_type: int,
        typed: tuple[list[Any], list[int]] | None = None,
    ) -> Made:
        """Does the same as :meth:`make`, in pure Python.

        Args:
            typed: the values, which are no bytes, and their sizes.
        """
        offsets, timestamps, keys, values, headers = batch.columns
        header_lists, header_sizes = _headers(headers)
        key_objects = keys.to_pylist()
        value_objects, sizes = typed or (values.to_pylist(), _sizes(values))
        failure = None
        if self._key is not None or self._value is not None:
            failed = self._deserialize(key_objects, value_objects, header_lists, partition.topic)
            if failed is not None:
                at, name, error = failed
                failure = _failure(name, partition, offsets[at].as_py(), error)
                key_objects, value_objects = key_objects[:at], value_objects[:at]
        columns: list[Iterable[Any]] = [
            repeat(partition.topic),
            repeat(partition.partition),
            repeat(-1),
            offsets.to_pylist(),
            _milliseconds(timestamps),
            repeat(timestamp_type),
            key_objects,
            value_objects,
            header_lists,
            repeat(None),
            _sizes(keys),
            sizes,
            header_sizes,
        ]
        return list(map(_RECORD, zip(*columns, strict=False))), failure  # those that repeat never end

    def _deserialize(
        self, keys: list[Any], values: list[Any], headers: Iterable[Headers], topic: str
    ) -> tuple[int, str, Exception] | None:
        """Replace keys and values, record by record; where one fails: its place, which of the two, and why."""
        key_function, value_function = self._key, self._value
        for at, own in zip(range(len(keys)), headers, strict=False):
            name = "key"
            try:
                if key_function is not None and keys[at] is not None:
                    keys[at] = key_function(keys[at]) if self._is_key_alone else key_function(topic, own, keys[at])
                name = "value"
                if value_function is not None and (value := values[at]) is not None:
                    values[at] = value_function(value) if self._is_value_alone else value_function(topic, own, value)
            except Exception as error:
                return at, name, error
        return None


def _unwrapped(function: Deserialize | None) -> tuple[Callable[..., Any] | None, bool]:
    """The function to call; with the data alone? A call less for each record."""
    return (function.function, True) if isinstance(function, OfData) else (function, False)


def _failure(name: str, partition: TopicPartition, offset: int, error: Exception) -> RecordDeserializationError:
    failure = RecordDeserializationError(
        f"the {name} of {partition.topic}-{partition.partition} at offset {offset} can't be deserialized: {error!r}; "
        "seek beyond it to go on",
        topic_partition=partition,
        offset=offset,
    )
    failure.__cause__ = error
    return failure


def _milliseconds(column: pa.Array) -> list[int]:
    """Rounded down; -1 for null."""
    times = buffer_numbers(column, 1, np.int64) // _MICROSECONDS
    if column.null_count:
        times[~is_valid(column)] = -1
    listed: list[int] = times.tolist()
    return listed


def _sizes(column: pa.Array) -> list[int]:
    """Bytes of each value; -1 for null."""
    sizes: list[int] = binary_lengths(column).tolist()
    return sizes


def _texts(column: pa.Array) -> list[Any]:
    """The texts of a column. Bytes that aren't UTF-8, as another engine may write them, are decoded with replacement
    characters, as in Java."""
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        binaries = column.cast(pa.binary()).to_pylist()
        return [None if each is None else each.decode("utf-8", "replace") for each in binaries]


def _headers(column: pa.Array) -> tuple[Iterable[Headers], Iterable[int]]:
    """The headers of each row, and their bytes; -1 without any."""
    if column.null_count == len(column):
        return repeat(NO_HEADERS), repeat(-1)
    pairs = column.flatten()
    names, values = (pairs.field(name) for name in ("key", "value"))
    listed = [*zip(_texts(names), values.to_pylist(), strict=True)]
    ends = np.concatenate(([0], np.cumsum(pc.list_value_length(column).fill_null(0).to_numpy())))
    sizes = np.maximum(_sizes(names), 0) + np.maximum(_sizes(values), 0)
    bytes_before = np.concatenate(([0], np.cumsum(sizes)))
    bounds = ends.tolist()
    totals = np.where(ends[1:] > ends[:-1], bytes_before[ends[1:]] - bytes_before[ends[:-1]], -1)
    return [listed[start:end] for start, end in pairwise(bounds)], totals.tolist()
