"""Arrow tables that are sent whole: checking them before anything is queued, and cutting them to batches."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidArgumentError, InvalidTypeError, MessageSizeTooLargeError
from sparklog.log.encode import record_columns
from sparklog.producer.accumulator import MAX_BATCH_BYTES

__all__ = ["check_table", "slices"]

_KNOWN = ("key", "value", "headers", "timestamp", "partition")


def check_table(topic: str, table: object, *, now_ms: int, partition_count: int, max_record_bytes: int) -> pa.Table:
    """The table with the columns that a batch has: timestamp (int64 ms), key, value, headers, partition (int32).

    Args:
        now_ms: for rows without a timestamp.
    Raises:
        InvalidTypeError: not a table.
        InvalidArgumentError: no row, an unknown column, neither key nor value, a wrong type, a negative timestamp, a
            partition that isn't there.
        MessageSizeTooLargeError: a row is too large.
    """
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise InvalidTypeError(f"send_batch to {topic!r}: got {type(table).__name__}, expected a pyarrow Table")
    names = table.column_names
    unknown = sorted(set(names) - set(_KNOWN))
    if unknown or not {"key", "value"} & set(names):
        raise InvalidArgumentError(
            f"send_batch to {topic!r}: got columns {', '.join(names) or 'none'}; expected key or value or both, and "
            "perhaps headers, timestamp and partition"
        )
    if table.num_rows == 0:
        raise InvalidArgumentError(f"send_batch to {topic!r}: the table has no rows")
    columns = record_columns(_with_timestamps(table, now_ms))
    columns["timestamp"] = columns["timestamp"].cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    columns["partition"] = _partitions(topic, table, partition_count)
    _check_sizes(topic, columns["key"], columns["value"], max_record_bytes)
    earliest = pc.min(columns["timestamp"]).as_py()
    if earliest < 0:
        raise InvalidArgumentError(f"send_batch to {topic!r}: timestamp {earliest} ms, expected 0 or later")
    return pa.table(columns)


def slices(table: pa.Table) -> Iterator[pa.Table]:
    """The table in pieces of about a batch's size, without copying."""
    rows = max(1, table.num_rows * MAX_BATCH_BYTES // max(1, table.nbytes))
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def _with_timestamps(table: pa.Table, now_ms: int) -> pa.Table:
    now = pa.scalar(now_ms, pa.int64())
    if "timestamp" not in table.column_names:
        return table.append_column("timestamp", pa.repeat(now, table.num_rows))
    column = table["timestamp"]
    if column.null_count == 0:
        return table
    kind = column.type
    default = now.cast(kind) if pa.types.is_integer(kind) else now.cast(pa.timestamp("ms", tz="UTC")).cast(kind)
    return table.set_column(table.column_names.index("timestamp"), "timestamp", pc.fill_null(column, default))


def _partitions(topic: str, table: pa.Table, partition_count: int) -> pa.ChunkedArray | pa.Array:
    if "partition" not in table.column_names:
        return pa.nulls(table.num_rows, pa.int32())
    column = table["partition"]
    if not pa.types.is_integer(column.type) and not pa.types.is_null(column.type):
        raise InvalidArgumentError(f"send_batch to {topic!r}: column partition is {column.type}, expected int32")
    bounds = pc.min_max(column).as_py()
    if bounds["min"] is not None and (bounds["min"] < 0 or bounds["max"] >= partition_count):
        raise InvalidArgumentError(
            f"send_batch to {topic!r}: column partition has {bounds['min']} to {bounds['max']}, expected 0 to "
            f"{partition_count - 1}"
        )
    return column.cast(pa.int32())


def _check_sizes(topic: str, keys: pa.ChunkedArray, values: pa.ChunkedArray, limit_bytes: int) -> None:
    sizes = pc.add(pc.fill_null(pc.binary_length(keys), 0), pc.fill_null(pc.binary_length(values), 0))
    largest = pc.max(sizes).as_py()
    if largest > limit_bytes:
        raise MessageSizeTooLargeError(
            f"send_batch to {topic!r}: row {pc.index(sizes, largest).as_py()} has {largest} bytes, expected at most "
            f"{limit_bytes} (max_request_size and the topic's max.message.bytes)"
        )
