"""A cluster is fit for use if it can be read and written from here; a clock and a job that look odd are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparklog.compaction import maintain
from sparklog.compaction.last_runs import Work, note_run
from sparklog.errors import StorePermissionError
from sparklog.log import Cluster, open_cluster
from sparklog.observe.health import (
    HealthCheck,
    Verdict,
    check_health,
    clock_check,
    disk_check,
    maintenance_check,
    with_run,
)
from sparklog.paths import MAINTENANCE_RUNS
from sparklog.storage import CreateResult, ObjectStore
from sparklog.storage.disk import DiskSpace
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import ManualClock, WrappedStore
from tests.compaction.support import a_run
from tests.observe.support import Watched, watched
from tests.support import DAY_MS, T0_MS

OK, WARNING, FAILED, SKIPPED = Verdict.OK, Verdict.WARNING, Verdict.FAILED, Verdict.SKIPPED


@pytest.fixture
def here() -> Watched:
    return watched()


def verdicts(checks: list[HealthCheck]) -> dict[str, Verdict]:
    return {check.name: check.verdict for check in checks}


def behind(here: Watched, store: ObjectStore, *, ahead_ms: int = 0) -> Cluster:
    """The cluster on another store, and on a clock that is ahead of the store's."""
    clock = ManualClock(start_ms=T0_MS + ahead_ms)
    return Cluster(cluster_id="c", store=RetryingStore(store, clock=clock, retry_ms=0), clock=clock)


def test_a_cluster_in_shape_is_healthy_and_nothing_is_left_behind(here: Watched) -> None:
    before = [found.path for found in here.memory.list("")]
    here.requests()
    checks = check_health(here.cluster)
    assert verdicts(checks) == {"read": OK, "create": OK, "clock": OK, "maintenance": OK}
    assert [found.path for found in here.memory.list("")] == before
    assert here.requests() <= 10


def test_without_writes_nothing_is_written(here: Watched) -> None:
    here.requests()
    assert verdicts(check_health(here.cluster, writes=False)) == {
        "read": OK,
        "create": SKIPPED,
        "clock": SKIPPED,
        "maintenance": OK,
    }
    assert here.store.counts().keys() <= {"get", "list"}


def test_a_store_that_refuses_fails_what_it_refuses(here: Watched) -> None:
    class ReadOnly(WrappedStore):
        def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
            raise StorePermissionError(f"{path}: read-only")

    checks = check_health(behind(here, ReadOnly(here.memory)))
    assert verdicts(checks) == {"read": OK, "create": FAILED, "clock": SKIPPED, "maintenance": OK}
    here.failing.is_away = True
    checks = check_health(behind(here, here.failing))
    assert verdicts(checks) == {"read": FAILED, "create": FAILED, "clock": SKIPPED, "maintenance": FAILED}
    assert all(check.error is not None and check.error.retriable for check in checks if check.verdict is FAILED)


def test_a_store_that_lets_two_win_is_found(here: Watched) -> None:
    class Overwriting(WrappedStore):
        def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
            self._store.put(path, data)
            return CreateResult.CREATED

    checks = check_health(behind(here, Overwriting(here.memory)))
    assert verdicts(checks)["create"] is FAILED
    assert "created twice" in checks[1].detail
    assert [*here.memory.list("probes/")] == []


@pytest.mark.parametrize(
    ("ahead_ms", "verdict"),
    [
        (0, OK),
        (30_000, OK),
        (-30_000, OK),
        (30_001, WARNING),
        (-300_000, WARNING),
        (300_001, FAILED),
        (-DAY_MS, FAILED),
    ],
)
def test_a_clock_that_is_off_is_told(here: Watched, ahead_ms: int, verdict: Verdict) -> None:
    assert clock_check(ahead_ms).verdict is verdict
    assert verdicts(check_health(behind(here, here.memory, ahead_ms=ahead_ms)))["clock"] is verdict


@pytest.mark.parametrize(
    ("free_bytes", "free_inodes", "verdict"),
    [
        (500, 900, OK),
        (99, 900, WARNING),
        (500, 99, WARNING),
        (9, 900, FAILED),
        (500, 9, FAILED),
        (500, None, OK),
    ],
)
def test_a_disk_that_fills_is_told(free_bytes: int, free_inodes: int | None, verdict: Verdict) -> None:
    """✗ 8 KiB are left, in which an object for the check of creates has room; no i-node is left for a data file."""
    inodes = None if free_inodes is None else 1_000
    disk = DiskSpace(free_bytes=free_bytes, size_bytes=1_000, free_inodes=free_inodes, inodes=inodes)
    assert disk_check(disk).verdict is verdict


def test_a_large_disk_fails_no_check_while_there_is_room() -> None:
    disk = DiskSpace(free_bytes=10**10, size_bytes=10**13, free_inodes=10**6, inodes=10**9)
    assert disk_check(disk).verdict is WARNING


def test_the_disk_of_a_folder_is_checked(tmp_path: Path) -> None:
    checks = check_health(open_cluster(tmp_path), writes=False)
    [disk] = [check for check in checks if check.name == "disk"]
    assert "bytes free" in disk.detail


def test_maintenance_that_does_not_run_is_told(here: Watched) -> None:
    assert maintenance_check(None, topic_count=0).verdict is OK
    assert maintenance_check(None, topic_count=1).verdict is WARNING
    assert maintenance_check(DAY_MS, topic_count=1).verdict is OK
    assert maintenance_check(3 * DAY_MS, topic_count=1).verdict is WARNING
    here.topic("t")
    here.memory.put("maintenance/notes.json", b"")
    here.clock.advance(3 * DAY_MS)
    assert "72.0 h" in check_health(here.cluster)[3].detail


def test_the_newest_run_of_maintenance_is_told(here: Watched) -> None:
    writer = here.topic("t")
    for _ in range(12):
        here.append(writer, "x")
    maintain(here.cluster)
    here.clock.advance(3_600_000)
    assert check_health(here.cluster)[3].detail.endswith("; 1.0 h ago a run did this: merged 11 files into 1")
    here.memory.put("maintenance/runs.json", b"{")
    garbled = check_health(here.cluster)[3]
    assert (garbled.verdict, "what runs did is unknown because of an error: " in garbled.detail) == (OK, True)


def test_what_runs_did_may_be_closed_to_a_probe(here: Watched) -> None:
    """Earlier versions listed the folder alone."""
    here.topic("t")
    maintain(here.cluster)
    here.failing.closed = MAINTENANCE_RUNS
    found = check_health(here.cluster, writes=False)[3]
    assert (found.verdict, found.error) == (OK, None)
    assert f"; what runs did is unknown because of an error: {MAINTENANCE_RUNS}: forbidden" in found.detail


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        ({"failed_count": 1, "topic_count": 1}, "merged 2 files into 1, 1 topic failed"),
        (
            {"failed_count": 2, "topic_count": 2, "has_failed_otherwise": True},
            "merged 2 files into 1, 2 topics failed, steps of the cluster failed",
        ),
    ],
)
def test_a_newest_run_that_failed_warns_until_one_does_not(here: Watched, failure: dict[str, Any], told: str) -> None:
    maintain(here.cluster)
    note_run(here.cluster, a_run(ended_ms=T0_MS, work=Work(merged_files=2, merged_into=1), **failure))
    found = check_health(here.cluster)[3]
    assert (found.verdict, found.detail.rpartition("did this: ")[2]) == (WARNING, told)
    maintain(here.cluster)
    assert check_health(here.cluster)[3].verdict is OK


def test_a_run_by_a_clock_ahead_of_this_one_is_told_so() -> None:
    fine = maintenance_check(0, topic_count=1)
    ahead = with_run(fine, a_run(ended_ms=T0_MS + 7 * 3_600_000), now_ms=T0_MS)
    assert ahead.detail.endswith("; 7.0 h ahead of this clock a run did this: nothing")
    assert "; 0.0 h ago" in with_run(fine, a_run(ended_ms=T0_MS + 60_000), now_ms=T0_MS).detail
    failed = a_run(ended_ms=T0_MS, has_failed_otherwise=True)
    assert with_run(maintenance_check(None, topic_count=1), failed, now_ms=T0_MS).verdict is WARNING
