"""The session that all Spark tests of a run share, made by ``sparklog.spark.session``."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from tests.integration import conftest as integration

__all__ = ["pytest_collection_modifyitems", "spark"]

pytest_collection_modifyitems = integration.pytest_collection_modifyitems


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    version = integration.java_version()
    if version not in integration.JAVA_VERSIONS:
        integration.unavailable(f"Spark needs Java 17 or 21; found {version or 'none'}")
    try:
        from pyspark.errors import PySparkRuntimeError
    except ImportError as error:
        integration.unavailable(f"the spark extra is not installed: {error}")
    from sparklog.spark import session

    settings: dict[str, Any] = {
        **integration.settings(tmp_path_factory.mktemp("spark")),
        "spark.master": "local[2]",
        "spark.sql.streaming.pollingDelay": "50ms",
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        environment.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        environment.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        environment.setenv("PYTHONPATH", os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")])))
        try:
            spark = session("sparklog-tests", **settings)
        except PySparkRuntimeError as error:  # spark-submit ended before Spark began
            if integration.has_delta_jar():
                raise
            integration.unavailable(f"could not fetch {integration.DELTA_PACKAGE}: {error}")
        spark.sparkContext.setLogLevel("ERROR")
        yield spark
        spark.stop()
