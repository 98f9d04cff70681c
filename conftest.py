"""Fixtures and hooks for every test."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings

from sparklog.clock import Clock
from sparklog.log import new_cluster
from sparklog.storage import LocalStore, MemoryStore, ObjectStore, probe_create_only
from sparklog.storage.request_counts import CountedStore
from sparklog.storage.retrying import RetryingStore
from tests.azurite import azure_options, azure_uri, azurite_endpoint
from tests.databases import database_url, mariadb, postgresql
from tests.depth import NIGHTLY, WALK, by_depth
from tests.fake_gcs import fake_gcs_endpoint, gcs_options, gcs_uri, gcs_xml_endpoint, gcsfs_options
from tests.parts import CPU_S, PART, SUMMARY, Stopwatch, add_up, part_of
from tests.s3_server import s3_endpoint, s3_options, s3_uri
from tests.spark_session import SPARK_TIMEOUT_S, spark, spark_jars
from tests.support import SUMMARY_LINE
from tests.units import GROUPS, group_of, units_of

__all__ = [
    "azure_options",
    "azure_uri",
    "azurite_endpoint",
    "database_url",
    "fake_gcs_endpoint",
    "gcs_options",
    "gcs_uri",
    "gcs_xml_endpoint",
    "gcsfs_options",
    "mariadb",
    "postgresql",
    "s3_endpoint",
    "s3_options",
    "s3_uri",
    "spark",
    "spark_jars",
]

# A JVM of a test loads and compiles more than it runs: without its second compiler, with the plain garbage collector
# and without a proof of each class that it loads, Spark takes less than half the CPU. Without the second compiler the
# JVM keeps 48 MB for compiled code, which Spark fills: methods were thrown out, and compiled again, all the time. Both
# variables are Spark's; they reach the JVMs that tests and examples start as well.
for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(
        variable,
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
        "-XX:ReservedCodeCacheSize=240m -XX:-MethodFlushing",
    )

# A shell that runs `make test &` in a script has it ignore Ctrl-C, which some tests send to themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # nohup does
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# No test asserts how long something takes.
settings.register_profile("sparklog", deadline=None, max_examples=by_depth(gate=30, nightly=100))
settings.load_profile("sparklog")

REPOSITORY = Path(__file__).parent
WALKS = ("_crashes", "_faults", "_power_loss", "interleavings", "simulation", "state_machine")
"""How the names of files end whose tests walk over all store calls or through many schedules: all of them are slow."""
LONG_S = 200
"""A test that may take longer than this says so, and is begun before those that don't."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    for report in reports:
        for name, text in report.user_properties:
            if name == SUMMARY_LINE and report.when == "call":
                terminalreporter.write_line(f"{report.nodeid}: {text}")
    lines = add_up(report for found in terminalreporter.stats.values() for report in found)
    if len(lines) > SUMMARY:
        depth = "played whole" if NIGHTLY else f"played in part (SPARKLOG_WALK={WALK})"
        terminalreporter.write_line(f"Walks were {depth}. The time of each part, in all processes together:")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[STOPWATCH] = Stopwatch(has_children=any(map(item.get_closest_marker, GROUPS)))
    result = yield
    rename_remaining_threads(item.nodeid)
    return result


def rename_remaining_threads(test: str) -> None:
    """Give threads that a test leaves behind a name of their own.

    A later test that looks for threads by name doesn't take them for its own, nor what they log for its own, and a dump
    of stacks names that test.
    Tests that play a client's death leave some on purpose, and some stores' threads live as long as the process.
    """
    for thread in threading.enumerate():
        if thread.name.startswith("sparklog-"):
            thread.name = f"{LEFT}{test}: {thread.name}"


LEFT = "left by "


STOPWATCH = pytest.StashKey[Stopwatch]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "teardown":
        markers = {marker.name for marker in item.iter_markers()}
        report.user_properties += [(CPU_S, item.stash[STOPWATCH].cpu_s()), (PART, part_of(item.nodeid, markers))]
    return report


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files of which a quick run would deselect every test: to collect them takes it a fifth longer.

    Files that the command names are collected all the same.
    """
    is_quick_run = f"-m={config.option.markexpr}" in config.getini("addopts")
    if not is_quick_run or collection_path.is_dir():
        return None
    return is_slow(collection_path.relative_to(REPOSITORY).as_posix()) or None


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))
        if is_slow(item.nodeid.partition("::")[0]):
            item.add_marker(pytest.mark.slow)
    if hasattr(config, "workerinput"):  # else the order is that of the files
        items.sort(key=turn)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are collected, and leave what was made out of later collections.

    It is millions of objects that live as long as the run. A whole collection would look at each of them, which takes a
    second; so no test calls ``gc.unfreeze``, not even one that has frozen more.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep log entries of threads that another test has left from the tests that count entries."""
    plugin = session.config.pluginmanager.get_plugin("logging-plugin")
    if plugin is not None:
        plugin.caplog_handler.addFilter(is_of_this_test)


def is_of_this_test(entry: logging.LogRecord) -> bool:
    """Whether no thread that another test has left logs it: tests count entries."""
    return not (entry.threadName or "").startswith(LEFT)


def is_slow(file: str) -> bool:
    """Whether all tests of a file are: walks, and the proof.

    The faults that tests of integrity play are damage, not calls of a store.
    """
    if file.startswith("tests/integrity/"):
        return False
    return Path(file).stem.endswith(WALKS) or file.startswith("proof/")


def turn(item: pytest.Item) -> tuple[int, float, bool]:
    """Sorts tests by when they begin, so that none of which others wait at the end of a run is among the last.

    First those that one process runs after another, then those that ask for a long limit, then the other slow ones.
    """
    group = group_of(item.nodeid.partition("::")[0])
    rank = 0 if group in GROUPS else 2 if group is None else 1
    return rank, -time_limit_s(item), item.get_closest_marker("slow") is None


def time_limit_s(item: pytest.Item) -> float:
    """The limit of a test that asks for a long one, else 0."""
    marker = item.get_closest_marker("timeout")
    limit_s = float(marker.args[0]) if marker is not None else 0
    return limit_s if limit_s > LONG_S else 0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """One more than there are cores: tests wait for Spark, for servers and for threads."""
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None
    return (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadgroup`` one worker runs all that :func:`group_of` groups; others get a few tests at a time.

    pytest-xdist 3.8 writes its own groups into ``Item._nodeid``, which pytest 9.2 doesn't read any more.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # the order is that of ``turn``

    class ByMarker(LoadScopeScheduling):  # type: ignore[misc]
        def schedule(self) -> None:
            if self.collection is None:
                self.unit_of = units_of(next(iter(self.registered_collections.values())))
            super().schedule()

        def _split_scope(self, nodeid: str) -> str:
            return self.unit_of[nodeid]

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            """Forget units that are done: the scheduler counts what is left in all of them after each test."""
            super().mark_test_complete(node, item_index, duration)
            nodeid = self.registered_collections[node][item_index]
            unit = self.unit_of[nodeid]
            if all(self.assigned_work[node][unit].values()):
                del self.assigned_work[node][unit]

    return ByMarker(config, log)


@pytest.fixture(scope="session", autouse=True)
def one_probe() -> Iterator[None]:
    """A process probes one folder and one store in memory: its next cluster there is as safe as the first."""
    probed: set[type[ObjectStore]] = set()

    def probe(store: RetryingStore, *, clock: Clock) -> None:
        counted = store._store
        assert isinstance(counted, CountedStore)
        kind = type(counted._store)  # not that of tests, which count calls or fail
        if kind not in probed:
            probe_create_only(store, clock=clock)
        if kind in (LocalStore, MemoryStore):
            probed.add(kind)

    with mock.patch.object(new_cluster, "probe_create_only", probe):
        yield


@pytest.fixture(params=[True, False], ids=["ends waits", "restarts waits"])
def sigint(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the signal does to a wait without a limit: as Python has it, and as ``import polars`` leaves it."""
    signal.siginterrupt(signal.SIGINT, request.param)
    yield
    signal.siginterrupt(signal.SIGINT, True)
