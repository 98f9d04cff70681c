"""Spark Connect: a client without a JVM, at a Connect server within the JVM of the other tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.session.connect_client import CHECKS
from tests.spark_session import unavailable

pytestmark = pytest.mark.spark

EXTRA = Path(sys.prefix) / "connect"
"""What the extra ``connect`` adds, where ``make test`` puts it: for the client alone."""
LOOK = """
from importlib.util import find_spec
raise SystemExit(not all(map(find_spec, ("google.rpc", "grpc_status", "pandas", "zstandard"))))
"""
"""Ends with 0 where all of it is there; to import it takes three seconds."""
OF_PYSPARK = ("SPARK_", "PYSPARK_GATEWAY")
"""Variables that a classic session leaves in the environment."""


@pytest.fixture(scope="module")
def outcomes(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What became of each check of the client."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OF_PYSPARK)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH"), str(EXTRA)]))
    if subprocess.run([sys.executable, "-c", LOOK], capture_output=True, check=False, env=environment).returncode:
        unavailable(f"what the connect extra adds is neither installed nor in {EXTRA}")
    service = spark._jvm.org.apache.spark.sql.connect.service
    service.SparkConnectService.start(spark.sparkContext._jsc.sc())
    port = getattr(getattr(service, "SparkConnectService$"), "MODULE$").localPort()
    command = [sys.executable, "-m", "tests.spark.session.connect_client", f"sc://127.0.0.1:{port}"]
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
