"""Arrow columns to Python records: column by column, never record by record but to put them together."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.config.consumer import Deserialize
from sparklog.errors import RecordDeserializationError
from sparklog.log.data.arrow_buffers import binary_lengths, buffer_numbers, is_valid
from sparklog.model import NO_HEADERS, ConsumerRecord, Headers, TopicPartition

__all__ = ["Deserializers", "records_of"]

_RECORD: Any = partial(tuple.__new__, ConsumerRecord)
"""Makes a record as ``ConsumerRecord._make`` does, without its check of the length."""
_MICROSECONDS = 1_000
_KEY, _VALUE = ConsumerRecord._fields.index("key"), ConsumerRecord._fields.index("value")


class Deserializers:
    """A user's ``key_deserializer`` and ``value_deserializer``."""

    def __init__(self, key: Deserialize | None, value: Deserialize | None) -> None:
        self._key = key
        self._value = value

    def apply(
        self, partition: TopicPartition, records: list[ConsumerRecord]
    ) -> tuple[list[ConsumerRecord], RecordDeserializationError | None]:
        """The records deserialized, up to the first that fails, and why it does.

        A null stays None: the function isn't called (as in Java, not in kafka-python).
        """
        if self._key is None and self._value is None:
            return records, None
        made: list[ConsumerRecord] = []
        for record in records:
            key, value = record[_KEY], record[_VALUE]
            name = "key"
            try:
                if self._key is not None and key is not None:
                    key = self._key(partition.topic, record.headers, key)
                name = "value"
                if self._value is not None and value is not None:
                    value = self._value(partition.topic, record.headers, value)
            except Exception as error:
                at = f"{partition.topic}-{partition.partition} at offset {record.offset}"
                failure = RecordDeserializationError(
                    f"the {name} of {at} can't be deserialized: {error!r}; seek beyond it to go on",
                    topic_partition=partition,
                    offset=record.offset,
                )
                failure.__cause__ = error
                return made, failure
            made.append(_RECORD((*record[:_KEY], key, value, *record[_VALUE + 1 :])))
        return made, None


def records_of(batch: pa.RecordBatch, partition: TopicPartition, timestamp_type: int) -> list[ConsumerRecord]:
    """The rows of a batch of :data:`sparklog.log.data.record_streaming.RECORD_SCHEMA`, in their order."""
    offsets, timestamps, keys, values, headers = batch.columns
    header_lists, header_sizes = _headers(headers)
    columns: list[Iterable[Any]] = [
        repeat(partition.topic),
        repeat(partition.partition),
        repeat(-1),
        offsets.to_pylist(),
        _milliseconds(timestamps),
        repeat(timestamp_type),
        keys.to_pylist(),
        values.to_pylist(),
        header_lists,
        repeat(None),
        _sizes(keys),
        _sizes(values),
        header_sizes,
    ]
    return list(map(_RECORD, zip(*columns, strict=False)))  # those that repeat never end


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
