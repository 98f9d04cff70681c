"""The ways of older PySparks give what the newest does; here with the newest. ``make sparks`` has the others."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sparklog.spark.runtime import spark_calls
from sparklog.spark.runtime.spark_calls import arrow_function, repartition_by_id, with_arrow_column
from sparklog.spark.runtime.versions import SparkVersion

pytestmark = pytest.mark.spark


@pytest.fixture(params=["4.0", "newest"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of which version the calls are."""
    if request.param == "4.0":
        monkeypatch.setattr(spark_calls, "need_pyspark", lambda: SparkVersion(4, 0))
    return str(request.param)


def test_rows_go_to_the_partition_of_their_number(spark, way):
    from pyspark.sql import functions as F

    rows = spark.range(40).select((F.col("id") % 7).cast("int").alias("n"))
    placed = repartition_by_id(rows, 5, "n").withColumn("at", F.spark_partition_id())
    assert {(row.n, row["at"]) for row in placed.collect()} == {(n, n % 5) for n in range(7)}
    assert placed.columns == ["n", "at"]


def test_a_function_of_arrays_is_called_with_keys_and_numbers(spark, way):
    def lengths(keys: pa.Array, numbers: pa.Array) -> pa.Array:
        return pc.add(pc.binary_length(keys), numbers).cast(pa.int32())

    rows = spark.createDataFrame([(b"abc", 1), (None, 2), (b"", 3)], "key BINARY, number BIGINT")
    found = rows.select(arrow_function(lengths, "int", (pa.binary(), pa.int64()))("key", "number").alias("found"))
    assert [row.found for row in found.collect()] == [4, None, 3]


def test_a_column_more_is_made_of_structs_and_moments_as_they_are(spark, way):
    from pyspark.sql import functions as F
    from pyspark.sql.types import LongType

    def micros(values: pa.Array) -> pa.Array:
        return values.field("at").cast(pa.int64())

    rows = spark.sql("SELECT 'x' AS key, named_struct('at', TIMESTAMP '2026-01-01 00:00:01Z') AS value")
    found = with_arrow_column(rows, "found", micros, LongType(), F.col("value"))
    assert found.columns == ["key", "value", "found"]
    [row] = found.collect()
    assert (row.key, row.found) == ("x", 1_767_225_601_000_000)
