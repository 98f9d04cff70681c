"""The session that the other Spark tests share."""

import os
import subprocess
import sys

import pytest

from tests.spark_session import WITH_IMPORTS

pytestmark = pytest.mark.spark


def test_a_delta_table_is_written_and_read(spark, tmp_path):
    path = (tmp_path / "table").as_uri()
    spark.range(3).write.format("delta").save(path)
    assert sorted(row.id for row in spark.read.format("delta").load(path).collect()) == [0, 1, 2]
    assert (tmp_path / "table" / "_delta_log" / "00000000000000000000.json").exists()


def test_workers_run_the_python_of_the_tests_and_its_packages(spark):
    """Not PySpark from Spark's zip, which each process would compile."""
    import pyspark

    tasks = spark.sparkContext.parallelize([0], 1)
    found = tasks.map(lambda _: (sys.executable, __import__("pyspark").__file__)).collect()
    assert found == [(sys.executable, pyspark.__file__)]


def test_daemons_of_any_work_have_imported_what_their_processes_need():
    """As Spark starts one. It ends as its standard input does."""
    command = [sys.executable, "-X", "importtime", "-m", "pyspark.daemon", "pyspark.sql.worker.plan_data_source_read"]
    environment = {**os.environ, "PYTHONPATH": WITH_IMPORTS}
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=500, env=environment)
    imported = {line.rpartition(b"|")[2].strip().decode() for line in done.stderr.splitlines()}
    assert imported >= {"pyspark.sql.datasource_internal", "sparklog.streaming.task_reading"}
