"""The input of an ingest as rows of a topic: columns, types, partitions, and which rows a topic doesn't take."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidArgumentError
from sparklog.log.data.encode import MAX_TIMESTAMP_MS
from sparklog.log.head import TopicHead
from sparklog.producer.partitioner import key_partitions
from sparklog.producer.typed_values import ERROR_HEADER
from sparklog.spark.ingest.ingest_values import ERROR, TYPED_COLUMNS, VALUE_SIZE, TypedInput
from sparklog.spark.runtime.spark_calls import arrow_function

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["REFUSED", "ROW_COLUMNS", "check_columns", "conform", "partitions_of", "row_size"]

ROW_COLUMNS = ("partition", "timestamp", "key", "value", "headers", "producer_id", "producer_epoch", "sequence")
"""The columns of a row that :func:`conform` returns, beside :data:`REFUSED`."""
REFUSED = "refused"
"""A column: why a row can't be stored; null where it can."""

_NUMBERS = {"producer_id": "bigint", "producer_epoch": "smallint", "sequence": "int"}
_INTEGRAL = frozenset({"tinyint", "smallint", "int", "bigint"})
_TEXT = frozenset({"string", "binary"})


def check_columns(types: Mapping[str, str], fields: Collection[str] = ()) -> None:
    """Check the input's columns, by name and type as Spark writes it (``DataFrame.dtypes``).

    Args:
        fields: columns that are fields of a typed topic's values; ``value`` may then be a struct.
    Raises:
        InvalidArgumentError: one is missing, unknown, or of a type that can't be read.
    """
    expected = (
        "expected producer_id, producer_epoch and sequence, key or value or both, and perhaps headers, timestamp and "
        "partition"
    )
    given = sorted(set(types) & set(fields))
    if fields:
        expected += f"; for the values of the typed topic {', '.join(fields)} in place of value, or value as a struct"
    unknown = sorted(set(types) - set(ROW_COLUMNS) - set(given))
    missing = sorted(set(_NUMBERS) - set(types))
    if unknown or missing or not ({"key", "value"} & set(types) or given) or (given and "value" in types):
        raise InvalidArgumentError(f"merge_ingest: got columns {', '.join(types) or 'none'}; {expected}")
    for name, kind in types.items():
        if name in given or (fields and name == "value" and kind.startswith("struct<")):
            continue
        if not _is_readable(name, kind):
            raise InvalidArgumentError(f"merge_ingest: column {name} is {kind}, expected {_wanted(name)}")


def conform(df: DataFrame, head: TopicHead, *, now_ms: int) -> DataFrame:
    """Rows as the topic's table has them: :data:`ROW_COLUMNS`, and :data:`REFUSED`; of a typed topic also
    :data:`~sparklog.spark.ingest.ingest_values.TYPED_COLUMNS` and the bytes of a value in them.

    Text becomes its UTF-8 bytes. A row without a timestamp gets ``now_ms``, as every row does where the topic has
    ``message.timestamp.type=LogAppendTime``. Without a column ``partition`` rows go where a producer would send their
    keys (murmur2); a row without a key goes by its producer id and sequence, so always to the same one.

    Raises:
        InvalidArgumentError: see :func:`check_columns`.
    """
    from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own documentation

    types = dict(df.dtypes)
    typed = TypedInput.of(head, ROW_COLUMNS)
    check_columns(types, () if typed is None else list(typed.columns))
    config, count = head.config, head.partition_count
    nothing = F.lit(None).cast("binary")
    columns: dict[str, Column] = {"key": F.col("key").cast("binary") if "key" in types else nothing}
    refusals: list[tuple[Column, str | Column]] = []
    if typed is None:
        columns["value"] = F.col("value").cast("binary") if "value" in types else nothing
    else:
        df, of_values, reason = typed.with_values(df)
        columns |= of_values
        refusals.append((reason.isNotNull(), F.concat(F.lit("a value can't be the topic's: "), reason)))
    columns.update({name: _number(name, kind) for name, kind in _NUMBERS.items()})
    columns["headers"] = _headers("headers" in types)
    if ERROR in columns:
        columns["headers"] = _with_error(columns["headers"], columns[ERROR])
    now = F.timestamp_millis(F.lit(now_ms))
    given = F.lit(None).cast("timestamp")
    if "timestamp" in types and config["message.timestamp.type"] != "LogAppendTime":
        given = _moment(types["timestamp"])
    columns["timestamp"] = F.timestamp_millis(F.unix_millis(F.coalesce(given, now)))
    columns["partition"] = _partition("partition" in types, count, columns)
    refusals += [
        (columns[name].isNull() | (columns[name] < 0), f"{name} isn't a whole number from 0 on that fits {kind}")
        for name, kind in _NUMBERS.items()
    ]
    if "partition" in types:
        outside = columns["partition"].isNull() | (columns["partition"] < 0) | (columns["partition"] >= count)
        refusals.append((outside, f"partition isn't one from 0 to {count - 1}; leave the column out to have it chosen"))
    if "timestamp" in types and config["message.timestamp.type"] != "LogAppendTime":
        low = max(0, now_ms - config.integer("message.timestamp.before.max.ms"))
        high = min(MAX_TIMESTAMP_MS, now_ms + config.integer("message.timestamp.after.max.ms"))
        moment = F.unix_millis(columns["timestamp"])
        refusals += [
            (F.col("timestamp").isNotNull() & given.isNull(), "timestamp can't be read"),
            ((moment < low) | (moment > high), f"timestamp isn't from {low} to {high} ms, as the topic's settings ask"),
        ]
    if "compact" in str(config["cleanup.policy"]).split(","):
        refusals.append((columns["key"].isNull(), "key is null, and the topic is compacted"))
    size = row_size(columns)
    largest = config.integer("max.message.bytes")
    refusals.append((size > largest, f"key and value are larger than max.message.bytes={largest}"))
    refused = F.coalesce(*(F.when(condition, F.lit(reason)) for condition, reason in refusals))
    names = ROW_COLUMNS if typed is None else (*ROW_COLUMNS, *TYPED_COLUMNS, VALUE_SIZE)
    return df.select(*(columns[name].alias(name) for name in names), refused.alias(REFUSED))


def row_size(columns: Mapping[str, Column]) -> Column:
    """The bytes of a row's key and value."""
    from pyspark.sql import functions as F  # noqa: N812

    sizes = [F.octet_length(columns[name]) for name in ("key", "value")]
    sizes += [columns[VALUE_SIZE]] if VALUE_SIZE in columns else []
    return reduce(add, (F.coalesce(size, F.lit(0)).cast("bigint") for size in sizes))


def partitions_of(keys: pa.Array, producer_ids: pa.Array, sequences: pa.Array, *, partition_count: int) -> pa.Array:
    """The partition (int32) of each row: by murmur2 of its key, as Kafka's Java client; without a key by murmur2 of its
    producer id and sequence as 8 and 4 bytes, big-endian. The same for a row whenever it is seen."""
    partitions = key_partitions(keys, partition_count)
    if keys.null_count:
        keyless = np.flatnonzero(np.asarray(pc.is_null(keys).to_numpy(zero_copy_only=False)))
        partitions[keyless] = key_partitions(_packed(producer_ids, sequences).take(pa.array(keyless)), partition_count)
    return pa.array(partitions, pa.int32())


def _packed(producer_ids: pa.Array, sequences: pa.Array) -> pa.Array:
    rows: npt.NDArray[Any] = np.zeros(len(producer_ids), np.dtype([("producer_id", ">i8"), ("sequence", ">i4")]))
    for name, column in (("producer_id", producer_ids), ("sequence", sequences)):
        rows[name] = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)  # a row without them is refused
    fixed = pa.Array.from_buffers(pa.binary(12), len(rows), [None, pa.py_buffer(rows.tobytes())])
    return fixed.cast(pa.binary())


def _partition(is_given: bool, partition_count: int, columns: Mapping[str, Column]) -> Column:
    """The partition of a row: the one that it asks for, or that of its key."""
    from pyspark.sql import functions as F  # noqa: N812

    if is_given:
        return F.expr("try_cast(partition AS INT)")
    if partition_count == 1:
        return F.lit(0)
    chosen: Column = _chosen_partition(partition_count)(*(columns[name] for name in ("key", "producer_id", "sequence")))
    return chosen


def _chosen_partition(partition_count: int) -> Any:
    def chosen(keys: pa.Array, producer_ids: pa.Array, sequences: pa.Array) -> pa.Array:
        return partitions_of(keys, producer_ids, sequences, partition_count=partition_count)

    return arrow_function(chosen, "int", (pa.binary(), pa.int64(), pa.int32()))


def _number(name: str, kind: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.expr(f"try_cast({name} AS {kind})")


def _headers(is_given: bool) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    if not is_given:
        return F.lit(None).cast("array<struct<key:string,value:binary>>")
    return F.transform(
        F.col("headers"),
        lambda one: F.struct(one["key"].cast("string").alias("key"), one["value"].cast("binary").alias("value")),
    )


def _with_error(headers: Column, error: Column) -> Column:
    """The headers with one more where there is an error, as a producer adds it."""
    from pyspark.sql import functions as F  # noqa: N812

    more = F.array(F.struct(F.lit(ERROR_HEADER).alias("key"), error.cast("binary").alias("value")))
    return F.when(error.isNull(), headers).otherwise(F.when(headers.isNull(), more).otherwise(F.concat(headers, more)))


def _moment(kind: str) -> Column:
    """The column ``timestamp`` as a moment; null where it is null or can't be read."""
    from pyspark.sql import functions as F  # noqa: N812

    column = F.col("timestamp")
    if kind == "timestamp":
        return column

    def of_milliseconds(number: Column) -> Column:
        return F.when(number.between(0, MAX_TIMESTAMP_MS), F.timestamp_millis(number))

    if kind in _INTEGRAL:
        return of_milliseconds(column)
    is_number = column.rlike(r"^\s*-?\d+\s*$")
    return F.when(is_number, of_milliseconds(column.try_cast("bigint"))).otherwise(column.try_cast("timestamp"))


def _is_readable(name: str, kind: str) -> bool:
    if name in ("key", "value"):
        return kind in _TEXT
    if name == "headers":
        return kind in {f"array<struct<key:string,value:{value}>>" for value in _TEXT}
    if name == "timestamp":
        return kind in {"timestamp", "string", *_INTEGRAL}
    return kind in {"string", *_INTEGRAL}


def _wanted(name: str) -> str:
    if name in ("key", "value"):
        return "binary or string"
    if name == "headers":
        return "array<struct<key:string,value:binary>>"
    if name == "timestamp":
        return "a timestamp with a time zone, milliseconds since the epoch, or either as text"
    return "a whole number, or one as text"
