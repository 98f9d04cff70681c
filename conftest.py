"""Fixtures for every test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.s3_server import s3_endpoint, s3_options, s3_uri
from tests.spark_session import SPARK_TIMEOUT_S, spark
from tests.support import SUMMARY_LINE

__all__ = ["s3_endpoint", "s3_options", "s3_uri", "spark"]

# A JVM of a test compiles more than it runs: without its second compiler, and with the plain garbage collector, Spark
# takes half the CPU. Both variables are Spark's; they reach the JVMs that tests and examples start as well.
for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(variable, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

settings.register_profile("sparklog", deadline=None)  # no test asserts how long something takes
settings.load_profile("sparklog")

REPOSITORY = Path(__file__).parent
SHARED = ("spark", "kafka")
"""Markers of tests that share one JVM, which is made once per process."""
OWN_JVM = ("tests/spark/sink/test_sink_kill.py",)
"""Files whose tests start and kill JVMs of their own."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]:
        for name, text in report.user_properties:
            if name == SUMMARY_LINE and report.when == "call":
                terminalreporter.write_line(f"{report.nodeid}: {text}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """With ``--dist loadgroup`` one more than there are cores: the one that has all of Spark's tests waits mostly."""
    if config.getoption("dist") != "loadgroup" or os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None
    return (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadgroup`` one worker runs all files of a marker in ``SHARED``.

    pytest-xdist 3.8 writes its own groups into ``Item._nodeid``, which pytest 9.2 doesn't read any more.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByMarker(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid.partition("::")[0]) or nodeid

    return ByMarker(config, log)


@pytest.fixture(params=[True, False], ids=["ends waits", "restarts waits"])
def sigint(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the signal does to a wait without a limit: as Python has it, and as ``import polars`` leaves it."""
    signal.siginterrupt(signal.SIGINT, request.param)
    yield
    signal.siginterrupt(signal.SIGINT, True)


@cache
def group_of(file: str) -> str | None:
    """The marker in ``SHARED`` that a file names, unless it is one of ``OWN_JVM``."""
    if file in OWN_JVM:
        return None
    text = (REPOSITORY / file).read_text()
    return next((marker for marker in SHARED if f"mark.{marker}" in text), None)
