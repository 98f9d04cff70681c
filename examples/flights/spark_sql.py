"""Spark SQL on the topic: a view of a Delta table, which Spark reads where it lies."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import sparklog.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLIGHTS = """
create or replace temporary view parsed as
select from_json(string(value), 'year int, month int, carrier string, origin string, dest string,
                                 dep_delay double, arr_delay double') as flight
from flights
"""
COUNT = "select count(*) as records, count(distinct partition, offset) as offsets from flights"
QUERIES = {
    "Worst routes (100 flights or more)": """
        select flight.origin, flight.dest, count(*) as flights, round(avg(flight.arr_delay), 1) as mean_delay_min
        from parsed group by all having count(*) >= 100 order by mean_delay_min desc, origin, dest limit 8""",
    "Mean departure delay by carrier and quarter (minutes)": """
        select * from (select flight.carrier, 'Q' || ceil(flight.month / 3) as quarter, flight.dep_delay as delay
                       from parsed)
        pivot (round(avg(delay), 1) for quarter in ('Q1', 'Q2', 'Q3', 'Q4')) order by carrier""",
}
WORST_ROUTES, _ = QUERIES
TYPED_WORST_ROUTES = """
    select origin, dest, count(*) as flights, round(avg(arr_delay), 1) as mean_delay_min
    from flights_typed group by all having count(*) >= 100 order by mean_delay_min desc, origin, dest limit 8"""
"""The first of them, by the columns of the typed topic."""


class NoSparkError(Exception):
    """Spark can't run on this machine; says why."""


def check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise NoSparkError("there is no Java on this machine; Spark needs Java 17 or 21")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    version = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    if version is None or int(version[1]) not in (17, 21):
        raise NoSparkError(f"Spark needs Java 17 or 21; found {version[1] if version else 'one of unknown version'}")


def session() -> SparkSession:
    """A local session with Delta. Raises :class:`NoSparkError`."""
    check_java()
    try:
        from pyspark.errors import PySparkRuntimeError
    except ImportError as error:
        raise NoSparkError(f"{error}; it comes with pip install 'sparklog[spark]'") from error
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": tempfile.mkdtemp(prefix="sparklog-demo-"),
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
    }
    try:
        with quiet():
            spark = sparklog.spark.session("sparklog-demo", **conf)
    except PySparkRuntimeError as error:  # spark-submit ended before Spark began
        raise NoSparkError(f"Spark did not start; it said the above ({error})") from error
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def quiet() -> Iterator[None]:
    """Spark's start tells of every jar; keep that in a file, and show it only when the start fails."""
    sys.stderr.flush()
    with tempfile.TemporaryFile("w+") as log:
        terminal = os.dup(2)
        os.dup2(log.fileno(), 2)  # Java inherits it
        try:
            yield
        except BaseException:
            log.seek(0)
            os.write(terminal, log.read().encode())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


def query(root: Path) -> tuple[int, int]:
    """Print the queries' results; returns how many records and how many different offsets Spark sees."""
    spark = session()
    sparklog.spark.register(spark, root)
    spark.sql(FLIGHTS)
    counted = spark.sql(COUNT).collect()[0]
    for title, text in QUERIES.items():
        print(f"\n{title}")
        spark.sql(text).show(30, truncate=False)
    by_json, by_columns = (spark.sql(text).collect() for text in (QUERIES[WORST_ROUTES], TYPED_WORST_ROUTES))
    if by_json != by_columns:
        sys.exit(f"The demo found a fault: the typed topic answers {by_columns}, JSON in bytes {by_json}")
    print("\nThe worst routes by the columns of the typed topic are the same:", TYPED_WORST_ROUTES)
    spark.stop()
    return counted["records"], counted["offsets"]
