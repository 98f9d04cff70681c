"""Calls of PySpark that not every supported version has, or has alike; newer ones by the newer way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from sparklog.spark.runtime.versions import SparkVersion, need_pyspark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = [
    "arrow_function",
    "in_thread_of",
    "map_in_arrow",
    "repartition_by_id",
    "session_settings",
    "with_arrow_column",
]

T = TypeVar("T")

_ARROW_FUNCTIONS_SINCE = SparkVersion(4, 1)
"""And ``repartitionById``."""
_SETTINGS_SINCE = SparkVersion(4, 0)
_COLUMN_IS_EXPRESSION = SparkVersion(3, 5)
_VECTORIZED_SINCE = SparkVersion(4, 2)


def map_in_arrow(frame: DataFrame, work: Callable[[Any], Any], schema: Any) -> DataFrame:
    """``frame.mapInArrow(work, schema)`` without pandas, which PySpark insists on, and then doesn't use.

    Args:
        schema: of the result, as DDL or a ``StructType``.
    """
    from pyspark.sql import DataFrame

    version = need_pyspark()
    kinds = import_module("pyspark.rdd" if version == _COLUMN_IS_EXPRESSION else "pyspark.util").PythonEvalType
    kind = kinds.SQL_MAP_ARROW_ITER_UDF
    if version >= _VECTORIZED_SINCE:
        functions: Any = import_module("pyspark.sql.pandas.functions")  # its stub leaves out what isn't for everybody
        udf = functions.vectorized_udf(work, returnType=schema, functionType=kind)
    else:
        udf = import_module("pyspark.sql.udf")._create_udf(work, schema, kind)
    column = udf(*[frame[name] for name in frame.columns])
    if version == _COLUMN_IS_EXPRESSION:
        return DataFrame(frame._jdf.pythonMapInArrow(column._jc.expr(), False), frame.sparkSession)
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def arrow_function(work: Callable[..., pa.Array], kind: str, taken: Sequence[pa.DataType]) -> Callable[..., Column]:
    """``arrow_udf(work, kind)``; where there is none a function that is called for each row, which takes longer.

    Args:
        work: takes arrays, and returns one of ``kind``.
        taken: the types of the arrays: binary values, texts and numbers alone.
    """
    if need_pyspark() >= _ARROW_FUNCTIONS_SINCE:
        from pyspark.sql.functions import arrow_udf

        vectorized: Callable[..., Column] = arrow_udf(work, kind)
        return vectorized
    from pyspark.sql.functions import udf

    def of_row(*values: Any) -> Any:
        [result] = work(*map(_array_of, values, taken)).to_pylist()
        return result

    by_row: Callable[..., Column] = udf(of_row, kind, useArrow=False)  # else it needs pandas
    return by_row


def with_arrow_column(
    frame: DataFrame, name: str, work: Callable[[pa.Array], pa.Array], kind: Any, value: Column
) -> DataFrame:
    """``frame`` with a column more, that ``work`` makes of the values of another.

    Args:
        kind: a type of Spark's.
    """
    if need_pyspark() >= _ARROW_FUNCTIONS_SINCE:
        from pyspark.sql.functions import arrow_udf

        return frame.withColumn(name, arrow_udf(work, kind)(value))
    from pyspark.sql.types import StructField, StructType

    columns = frame.schema.fields
    with_value = frame.withColumn(name, value)
    position = len(columns)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            arrays = [batch.column(at) for at in range(position)]
            result = work(batch.column(position))
            fields = [batch.schema.field(at) for at in range(position)]
            schema = pa.schema([*fields, pa.field(name, result.type)])
            yield pa.RecordBatch.from_arrays([*arrays, result], schema=schema)

    return map_in_arrow(with_value, task, StructType([*columns, StructField(name, kind)]))


def in_thread_of(spark: SparkSession, work: Callable[..., T]) -> Callable[..., T]:
    """``work`` for another thread, with the local properties that this one has, such as its job group."""
    from pyspark import inheritable_thread_target

    if need_pyspark() < _SETTINGS_SINCE:  # it takes the function itself
        plain: Callable[..., T] = inheritable_thread_target(work)
        return plain
    in_thread: Callable[[Callable[..., T]], Callable[..., T]] = inheritable_thread_target(spark)
    return in_thread(work)


def repartition_by_id(frame: DataFrame, count: int, column: str) -> DataFrame:
    """``frame.repartitionById(count, column)``: rows whose ``column`` is n go to partition n modulo ``count``.

    Where there is no such call, they go by the hash of a number that is known to lead there.
    """
    if need_pyspark() >= _ARROW_FUNCTIONS_SINCE:
        return frame.repartitionById(count, column)
    from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own documentation

    leading = _numbers_leading_to(frame.sparkSession, count)
    by_number = F.array(*(F.lit(number) for number in leading))
    spread = f"{column}_spread"
    return (
        frame.withColumn(spread, F.get(by_number, F.pmod(F.col(column), F.lit(count))))
        .repartition(count, spread)
        .drop(spread)
    )


def session_settings(spark: SparkSession) -> dict[str, str]:
    """The settings of a session that isn't the default. Not those of Spark Connect."""
    if need_pyspark() >= _SETTINGS_SINCE:
        known: Any = spark.conf.getAll
        return dict(known)
    session: Any = spark
    entries = session._jsparkSession.conf().getAll().iterator()
    found: dict[str, str] = {}
    while entries.hasNext():
        entry = entries.next()
        found[entry._1()] = entry._2()
    return found


def _array_of(value: Any, kind: pa.DataType) -> pa.Array:
    return pa.array([bytes(value) if isinstance(value, bytearray) else value], kind)


def _numbers_leading_to(spark: SparkSession, count: int) -> list[int]:
    """For each partition of ``count`` a number whose hash leads to it. Source: Spark ``HashPartitioning``, which takes
    the hash that SQL's function ``hash`` gives."""
    from pyspark.sql import functions as F  # noqa: N812

    tried = 16 * max(count, 4)
    while True:
        numbers = spark.range(tried).select(F.col("id").cast("int").alias("number"))
        to = F.pmod(F.hash("number"), F.lit(count))
        rows = numbers.groupBy(to.alias("to")).agg(F.min("number").alias("number")).collect()
        if len(rows) == count:
            return [row.number for row in sorted(rows, key=lambda row: int(row.to))]
        tried *= 4
