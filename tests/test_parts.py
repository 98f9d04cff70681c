"""What a run says of its parts, and which part of a walk it plays."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from itertools import groupby
from pathlib import Path

import pytest

from tests import depth
from tests.parts import CPU_S, PART, Stopwatch, add_up, part_of
from tests.units import AT_ONCE, group_of, units_of


def a_report(nodeid: str, when: str, duration: float, part: str = "", cpu_s: float = 0) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=nodeid,
        location=("", 0, ""),
        keywords={},
        outcome="passed",
        longrepr=None,
        when=when,  # type: ignore[arg-type]
        duration=duration,
        user_properties=[(CPU_S, cpu_s), (PART, part)] if when == "teardown" else [],
    )


@pytest.mark.parametrize(
    ("nodeid", "markers", "part"),
    [
        ("tests/log/test_topic.py::test_it", "", "quick"),
        ("tests/log/test_crashes.py::test_it", "slow", "slow"),
        ("tests/spark/test_s3_ingest.py::test_it", "slow s3 spark", "spark"),
        ("tests/integration/test_demo.py::test_it", "slow spark", "demo"),
        ("proof/torture/test_torture.py::test_it", "slow s3", "torture"),
        ("proof/parity/test_kafka.py::test_it", "kafka", "kafka"),
    ],
)
def test_a_test_belongs_to_one_part(nodeid: str, markers: str, part: str) -> None:
    assert part_of(nodeid, markers.split()) == part


def test_the_table_adds_up_what_each_part_took() -> None:
    reports = [
        a_report("tests/a.py::test_a", "call", 1),
        a_report("tests/a.py::test_a", "teardown", 1, "quick", cpu_s=0.75),
        a_report("tests/a.py::test_b", "call", 3),
        a_report("tests/a.py::test_b", "teardown", 1, "spark", cpu_s=7),
    ]
    lines = [line.split() for line in add_up([*reports, "a warning"])]
    assert lines == [
        ["part", "tests", "seconds", "CPU", "seconds"],
        ["spark", "1", "4", "7"],
        ["quick", "1", "2", "1"],
        ["all", "2", "6", "8"],
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="others don't tell of living children")
def test_the_time_of_a_child_that_lives_counts() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        watch = Stopwatch(has_children=True)
        deadline = time.monotonic() + 60
        while watch.cpu_s() < 0.1 and time.monotonic() < deadline:
            time.sleep(0.02)
        child.kill()
    assert watch.cpu_s() >= 0.1


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_gate_plays_one_of_each_neighbours_and_each_of_them_in_some_run(
    monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    monkeypatch.setattr(depth, "NIGHTLY", False)
    played: set[int] = set()
    for walk in range(50):
        monkeypatch.setattr(depth, "WALK", walk)
        steps = depth.each_nth(range(10), n)
        assert [step // n for step in steps] == [*range(-(-10 // n))]
        assert steps == depth.each_nth(range(10), n)
        played.update(steps)
    assert played == {*range(10)}


def test_a_night_plays_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth, "NIGHTLY", True)
    assert depth.each_nth(iter("abc"), 3) == ["a", "b", "c"]
    assert depth.by_depth(gate=1, nightly=2) == 2


def test_no_test_ends_the_exemption_from_garbage_collections() -> None:
    """Each whole collection that its process makes later would take a second."""
    tests = Path(__file__).parent
    files = [*tests.rglob("*.py"), *(tests.parent / "proof").rglob("*.py")]
    assert [file.name for file in files if re.search(r"gc\.unfreeze", file.read_text())] == []


def test_tests_that_share_something_run_in_one_process_and_others_a_few_at_a_time() -> None:
    shared = ["tests/spark/test_gaps.py", "tests/outbox/test_relay.py", "tests/console/test_browser.py"]
    assert [group_of(file) for file in shared] == ["spark", "database", "tests/console/test_browser.py"]
    assert group_of("tests/integration/test_demo.py") == "spark"
    assert group_of("tests/integration/test_spark_stream.py") is None  # it starts a JVM of its own
    files = [*shared, "tests/processing/test_inbox.py", "tests/log/test_head.py", "tests/log/test_gaps.py"]
    nodeids = [f"{file}::test_{number}" for file in files for number in range(AT_ONCE + 1)]
    units = units_of(nodeids)
    assert [*units] == nodeids
    sizes = [len([*group]) for _, group in groupby(units.values())]
    assert sizes == [*[AT_ONCE + 1] * 4, AT_ONCE, 1, AT_ONCE, 1]
    assert units[nodeids[AT_ONCE + 1]] == units[nodeids[3 * (AT_ONCE + 1)]] == "database"
