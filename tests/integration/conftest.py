"""One SparkSession with Delta for the whole run, or a reason why there is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
IVY = Path.home() / ".ivy2.5.2"
"""Where Spark keeps fetched jars by default; said aloud because Java may think of another home than Python."""
JAVA_VERSIONS = (17, 21)
SPARK_TIMEOUT_S = 600
"""For tests that set none: the first one also waits for Spark's start and, once per machine, for 90 MB of jars."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A SparkSession with Delta's SQL extension; everything it leaves behind is in a temporary directory."""
    version = java_version()
    if version is None:
        unavailable("there is no java on the PATH or under JAVA_HOME")
    if version not in JAVA_VERSIONS:
        unavailable(f"Spark needs Java 17 or 21; found {version}")
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        unavailable(f"the spark extra is not installed: {error}")

    folder = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.master("local[2]").appName("sparklog-tests")
    for key, value in settings(folder).items():
        builder = builder.config(key, value)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)  # else workers run whatever python3 the PATH has
        environment.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = start(builder)
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


def start(builder: SparkSession.Builder) -> SparkSession:
    from pyspark.errors import PySparkRuntimeError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # PySpark leaves its pipe to spark-submit open
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError as error:  # spark-submit ended before Spark began
            if has_delta_jar():
                raise
            failure = str(error)
    unavailable(f"could not fetch {DELTA_PACKAGE}: {failure}")


def settings(folder: Path) -> dict[str, str]:
    return {
        "spark.jars.packages": DELTA_PACKAGE,
        "spark.jars.ivy": str(IVY),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder} -Djava.io.tmpdir={folder}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def java_version() -> int | None:
    """The major version of the Java that Spark would start; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        return None
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    version = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return int(version[1]) if version else None


def has_delta_jar() -> bool:
    """Whether Delta's own jar is where ``spark.jars.packages`` leaves it."""
    group, artifact, version = DELTA_PACKAGE.split(":")
    return (IVY / "jars" / f"{group}_{artifact}-{version}.jar").exists()


def unavailable(reason: str) -> NoReturn:
    """Skip on a developer's machine; fail in CI, where a skip would go unseen."""
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(f"no Spark: {reason}", pytrace=False)
    pytest.skip(f"no Spark: {reason}")
