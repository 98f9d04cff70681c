"""Arrow tables that are sent whole: checking them before anything is queued, and cutting them to batches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidArgumentError, InvalidTypeError, MessageSizeTooLargeError
from sparklog.log.data.arrow_buffers import one_array
from sparklog.log.data.encode import byte_columns, record_columns
from sparklog.log.data.value_columns import DATA
from sparklog.log.data.value_sizes import most_bytes, value_sizes
from sparklog.producer.batch import TableBatch
from sparklog.producer.topic_queue import MAX_BATCH_BYTES
from sparklog.producer.typed_values import ValueEncoding

__all__ = ["check_table", "split_table", "table_batches"]

_KNOWN = ("key", "value", "headers", "timestamp", "partition")
_LARGEST_PIECE = 1.25
"""A piece of a table is no larger, by a batch's size, but for its last row."""


def check_table(
    topic: str,
    table: Any,
    *,
    now_ms: int,
    partition_count: int,
    max_record_bytes: int,
    call: str = "send_batch",
    limits: str = "max_request_size",
    encoding: ValueEncoding | None = None,
) -> pa.Table:
    """The table with the columns that a batch has: timestamp (int64 ms), key, value, headers, partition (int32).

    Args:
        now_ms: for rows without a timestamp.
        call: what errors name as the caller.
        limits: the caller's setting behind ``max_record_bytes``, beside the topic's own.
        encoding: of a typed topic's values: the table may have their fields as columns, or a struct ``value``. The
            result has them in ``data``.
    Raises:
        InvalidTypeError: not a table.
        InvalidArgumentError: no row, an unknown column, neither key nor value, a wrong type, a negative timestamp, a
            partition that isn't there.
        MessageSizeTooLargeError: a row is too large.
    """
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise InvalidTypeError(f"{call} to {topic!r}: got {type(table).__name__}, expected a pyarrow Table")
    data: pa.ChunkedArray | None = None
    if encoding is not None:
        checked = encoding.check_table(table)
        data, table = (checked[DATA], checked.drop_columns([DATA])) if DATA in checked.column_names else (None, checked)
    names = table.column_names
    unknown = sorted(set(names) - set(_KNOWN))
    if unknown or not {"key", "value"} & set(names):
        raise InvalidArgumentError(
            f"{call} to {topic!r}: got columns {', '.join(names) or 'none'}; expected key or value or both, and "
            "perhaps headers, timestamp and partition"
        )
    if table.num_rows == 0:
        raise InvalidArgumentError(f"{call} to {topic!r}: the table has no rows")
    if "timestamp" in names:
        columns = record_columns(table)
        timestamps = columns["timestamp"].cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
        columns["timestamp"] = pc.fill_null(timestamps, now_ms)
    else:
        columns = {"timestamp": pa.array(np.full(table.num_rows, now_ms)), **byte_columns(table)}
    columns["partition"] = _partitions(f"{call} to {topic!r}", table, partition_count)
    sizes = _row_sizes(columns["key"], columns["value"])
    if data is not None:
        columns[DATA] = data
        values = one_array(data)
        if data.nbytes > max_record_bytes and pc.max(sizes).as_py() + most_bytes(values) > max_record_bytes:
            sizes = pc.add(sizes, pa.array(value_sizes(values)))
    _check_sizes(f"{call} to {topic!r}", sizes, max_record_bytes, limits)
    earliest = pc.min(columns["timestamp"]).as_py()
    if earliest < 0:
        raise InvalidArgumentError(f"{call} to {topic!r}: timestamp {earliest} ms, expected 0 or later")
    return pa.table(columns)


def table_batches(
    topic: str, table: pa.Table, encoding: ValueEncoding | None, *, now_ticks_ms: float, is_whole: bool = False
) -> list[TableBatch]:
    """The batches of a checked table, to be queued one after the other.

    Args:
        encoding: of a typed topic's values.
        is_whole: one batch, however large it is.
    """
    decoded_bytes = 0 if encoding is None or DATA in table.schema.names else encoding.decoded_bytes
    return [
        TableBatch(
            topic,
            piece,
            created_ticks_ms=now_ticks_ms,
            size_bytes=max(1, piece.nbytes + decoded_bytes * piece.num_rows),
        )
        for piece in ([table] if is_whole else split_table(table, decoded_bytes=decoded_bytes))
    ]


def split_table(table: pa.Table, *, decoded_bytes: int = 0) -> Iterator[pa.Table]:
    """The table in pieces of about a batch's size, without copying.

    They are about as large as each other, and a piece may be a quarter larger than a batch: what was left over, as a
    piece of its own, would cost as many requests and as much of a store's time as a whole one.

    Args:
        decoded_bytes: what a row of bytes counts beside them, for the columns that they become.
    """
    if table.nbytes + decoded_bytes * table.num_rows <= _LARGEST_PIECE * MAX_BATCH_BYTES:
        yield table
        return
    sizes = np.asarray(_row_sizes(table["key"], table["value"]))
    beside = max(0, table.nbytes - int(sizes.sum())) / table.num_rows  # headers and the like: taken as even
    ends = sizes + (beside + decoded_bytes)
    np.cumsum(ends, out=ends)  # in place: new memory costs as much as the sum
    count = max(1, math.ceil(float(ends[-1]) / (_LARGEST_PIECE * MAX_BATCH_BYTES)))
    marks = float(ends[-1]) * np.arange(1, count) / count
    cuts = [0, *np.unique(np.searchsorted(ends, marks, side="right")), table.num_rows]
    for start, end in itertools.pairwise(cuts):
        if end > start:
            yield table.slice(start, end - start)


def _partitions(where: str, table: pa.Table, partition_count: int) -> pa.ChunkedArray | pa.Array:
    if "partition" not in table.column_names:
        return pa.nulls(table.num_rows, pa.int32())
    column = table["partition"]
    if not pa.types.is_integer(column.type) and not pa.types.is_null(column.type):
        raise InvalidArgumentError(f"{where}: column partition is {column.type}, expected int32")
    bounds = pc.min_max(column).as_py()
    if bounds["min"] is not None and (bounds["min"] < 0 or bounds["max"] >= partition_count):
        raise InvalidArgumentError(
            f"{where}: column partition has {bounds['min']} to {bounds['max']}, expected 0 to {partition_count - 1}"
        )
    return column.cast(pa.int32())


def _row_sizes(keys: pa.ChunkedArray, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Bytes of each row's key and value."""
    if values.null_count == len(values):  # of a typed topic
        return _lengths(keys)
    return pc.add(_lengths(keys), _lengths(values))


def _lengths(column: pa.ChunkedArray) -> pa.ChunkedArray:
    lengths = pc.binary_length(column).cast(pa.int64())
    return pc.fill_null(lengths, 0) if column.null_count else lengths


def _check_sizes(where: str, sizes: pa.ChunkedArray, limit_bytes: int, limits: str) -> None:
    largest = pc.max(sizes).as_py()
    if largest > limit_bytes:
        raise MessageSizeTooLargeError(
            f"{where}: row {pc.index(sizes, largest).as_py()} has {largest} bytes, expected at most "
            f"{limit_bytes} ({limits} and the topic's max.message.bytes)"
        )
