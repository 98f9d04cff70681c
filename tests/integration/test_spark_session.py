"""The session that the other Spark tests share."""

import sys

import pytest

pytestmark = pytest.mark.spark


def test_a_delta_table_is_written_and_read(spark, tmp_path):
    path = (tmp_path / "table").as_uri()
    spark.range(3).write.format("delta").save(path)
    assert sorted(row.id for row in spark.read.format("delta").load(path).collect()) == [0, 1, 2]
    assert (tmp_path / "table" / "_delta_log" / "00000000000000000000.json").exists()


def test_workers_run_the_python_of_the_tests(spark):
    assert spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect() == [sys.executable]
