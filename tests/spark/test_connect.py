"""Spark Connect: a client without a JVM, at a Connect server within the JVM of the other tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark.connect_client import CHECKS
from tests.spark_session import unavailable

pytestmark = pytest.mark.spark

OF_PYSPARK = ("SPARK_", "PYSPARK_GATEWAY")
"""Variables that a classic session leaves in the environment."""


@pytest.fixture(scope="module")
def outcomes(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What became of each check of the client."""
    missing = subprocess.run([sys.executable, "-c", "import grpc, pandas"], capture_output=True, check=False).returncode
    if missing:
        unavailable("the connect extra is not installed")
    service = spark._jvm.org.apache.spark.sql.connect.service
    service.SparkConnectService.start(spark.sparkContext._jsc.sc())
    port = getattr(getattr(service, "SparkConnectService$"), "MODULE$").localPort()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OF_PYSPARK)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "tests.spark.connect_client", f"sc://127.0.0.1:{port}"]
    folder = tmp_path_factory.mktemp("connect")
    done = subprocess.run(
        [*command, str(folder)], capture_output=True, text=True, timeout=500, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    yield json.loads(done.stdout.splitlines()[-1])
    none: Any = spark._jvm.scala.Option.empty()
    service.SparkConnectService.stop(none, none)


@pytest.mark.parametrize("name", CHECKS)
def test_by_spark_connect(outcomes: dict[str, str], name: str) -> None:
    assert outcomes[name] == "passed", outcomes[name]
