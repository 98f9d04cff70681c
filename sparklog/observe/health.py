"""Is a cluster fit for use from this machine: can it be read and written, is the clock sane, does maintenance run?"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace

from sparklog.compaction.last_runs import RunSummary, read_runs, words
from sparklog.errors import SparklogError, UnsafeStoreError
from sparklog.log.cluster import Cluster
from sparklog.observe.readable import MOST_LOOKED_AT, look_whether_readable
from sparklog.paths import CLUSTER_FILE, MAINTENANCE_FOLDER, MAINTENANCE_NOTES, TOPICS_FOLDER, new_probe
from sparklog.storage import CreateResult
from sparklog.storage.disk import DiskSpace, disk_space
from sparklog.texts import counted

__all__ = ["HealthCheck", "Verdict", "check_health", "clock_check", "disk_check", "maintenance_check", "with_run"]

_CLOCK_WARNS_MS = 30_000
_CLOCK_FAILS_MS = 300_000
_DISK_WARNS_SHARE = 0.1
_DISK_FAILS_SHARE = 0.01
_LEAST_FREE_BYTES, _LEAST_FREE_INODES = 64 * 1_048_576, 1_000
"""A disk with more than that fails no check, however large it is."""
_MAINTENANCE_WARNS_MS = 2 * 86_400_000
"""Maintenance looks at each topic once a day, and notes it."""
_MOST_NAMED = 5
"""Things that can't be read."""
_AHEAD_MS = 180_000
"""A run whose end is so far ahead of this machine's clock is said to be: less shows as 0.0 h."""


class Verdict(str, enum.Enum):
    """The outcome of a check."""

    OK = "ok"
    WARNING = "warning"
    """It works; an operator should look at it."""
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """One check."""

    name: str
    """``read``, ``create``, ``clock``, ``disk`` or ``maintenance``."""
    verdict: Verdict
    detail: str
    """A text that describes the finding."""
    took_ms: float = 0.0
    error: SparklogError | None = None


def check_health(cluster: Cluster, *, writes: bool = True) -> list[HealthCheck]:
    """Check a cluster from this machine. A dozen requests, and some for each of up to 100 topics, 100 groups and 100
    transactional ids (:mod:`sparklog.observe.readable`); a check that fails hinders no other. The disk
    is checked where the store is a local folder.

    Args:
        writes: create an object under ``probes/``, and delete it; without, neither that nor the clock is checked.
    """
    created: list[int] = []
    topic_counts: list[int] = []
    checks = [_timed(cluster, "read", lambda: _read(cluster, topic_counts))]
    if writes:
        checks.append(_timed(cluster, "create", lambda: _create(cluster, created)))
    else:
        checks.append(HealthCheck(name="create", verdict=Verdict.SKIPPED, detail="nothing was to be written"))
    if created:
        checks.append(clock_check(created[0]))
    else:
        detail = "the store's time shows on an object that was created"
        checks.append(HealthCheck(name="clock", verdict=Verdict.SKIPPED, detail=detail))
    disk = disk_space(cluster.store.uri)
    if disk is not None:
        checks.append(disk_check(disk))
    checks.append(_timed(cluster, "maintenance", lambda: _maintenance(cluster, topic_counts)))
    return checks


def clock_check(ahead_ms: int) -> HealthCheck:
    """The verdict on a clock that is so far ahead of the store's; less than 0: behind. Pure."""
    by = f"{abs(ahead_ms) / 1_000:.1f} s {'ahead of' if ahead_ms > 0 else 'behind'} the store's"
    if abs(ahead_ms) <= _CLOCK_WARNS_MS:
        return HealthCheck(name="clock", verdict=Verdict.OK, detail=by)
    verdict = Verdict.WARNING if abs(ahead_ms) <= _CLOCK_FAILS_MS else Verdict.FAILED
    detail = f"this machine's clock is {by}: records that are sent from here get its time"
    return HealthCheck(name="clock", verdict=verdict, detail=detail)


def disk_check(disk: DiskSpace) -> HealthCheck:
    """The verdict on a disk with so much room. Pure."""
    rooms = [(disk.free_bytes, disk.size_bytes, _LEAST_FREE_BYTES, "bytes")]
    if disk.inodes is not None and disk.free_inodes is not None:
        rooms.append((disk.free_inodes, disk.inodes, _LEAST_FREE_INODES, "i-nodes"))
    detail = ", ".join(f"{free:,} of {size:,} {unit} free" for free, size, _, unit in rooms)
    verdict = Verdict.OK
    if any(free < _DISK_WARNS_SHARE * size for free, size, _, _ in rooms):
        verdict = Verdict.WARNING
        detail += f": expected {_DISK_WARNS_SHARE:.0%} at least"
    if any(free < min(_DISK_FAILS_SHARE * size, least) for free, size, least, _ in rooms):
        verdict = Verdict.FAILED
        detail += "; `sparklog maintain --emergency` shows what can be deleted at once"
    return HealthCheck(name="disk", verdict=verdict, detail=detail)


def maintenance_check(age_ms: int | None, *, topic_count: int) -> HealthCheck:
    """The verdict on maintenance whose notes are so old; None: there are none. Pure."""
    if age_ms is None:
        verdict = Verdict.OK if topic_count == 0 else Verdict.WARNING
        detail = "it never ran" + ("" if topic_count == 0 else ": call `sparklog maintain` every few minutes or hours")
        return HealthCheck(name="maintenance", verdict=verdict, detail=detail)
    detail = f"its newest notes are {max(0, age_ms) / 3_600_000:.1f} h old"
    if age_ms <= _MAINTENANCE_WARNS_MS:
        return HealthCheck(name="maintenance", verdict=Verdict.OK, detail=detail)
    return HealthCheck(
        name="maintenance", verdict=Verdict.WARNING, detail=f"{detail}: expected a day at most; does its job run?"
    )


def with_run(check: HealthCheck, run: RunSummary, *, now_ms: int) -> HealthCheck:
    """A verdict on maintenance together with the newest recorded run: one that failed in part warns. Pure."""
    age_ms = now_ms - run.ended_ms
    when = f"{abs(age_ms) / 3_600_000:.1f} h {'ahead of this clock' if age_ms < -_AHEAD_MS else 'ago'}"
    failed = [f"{run.failed_count} topic{'' if run.failed_count == 1 else 's'} failed"] if run.failed_count else []
    failed += ["steps of the cluster failed"] if run.has_failed_otherwise else []
    done = ", ".join([words(run) or "nothing", *failed])
    verdict = Verdict.WARNING if run.has_failed and check.verdict is Verdict.OK else check.verdict
    return replace(check, verdict=verdict, detail=f"{check.detail}; {when} a run did this: {done}")


def _timed(cluster: Cluster, name: str, check: Callable[[], HealthCheck]) -> HealthCheck:
    began = cluster.clock.ticks_ms()
    try:
        result = check()
        error = None
    except SparklogError as caught:
        error = caught.with_traceback(None)
        result = HealthCheck(name=name, verdict=Verdict.FAILED, detail=" ".join(str(caught).split()))
    took_ms = cluster.clock.ticks_ms() - began
    return HealthCheck(name=name, verdict=result.verdict, detail=result.detail, took_ms=took_ms, error=error)


def _read(cluster: Cluster, topic_counts: list[int]) -> HealthCheck:
    """Read what there is. The number of topics goes into ``topic_counts``."""
    cluster.store.read(CLUSTER_FILE)
    found = look_whether_readable(cluster)
    topic_counts.append(found.topic_count)
    detail = f"{cluster.store.uri}, {counted(found.topic_count, 'topic')}"
    if not found.unread:
        return HealthCheck(name="read", verdict=Verdict.OK, detail=detail)
    named = [f"{name}: {' '.join(str(error).split())}" for name, error in found.unread.items()]
    more = [f"and {len(named) - _MOST_NAMED} more"] if len(named) > _MOST_NAMED else []
    of = f" of the {MOST_LOOKED_AT} of each kind that were looked at" if found.is_sample else ""
    detail = f"{detail}; {len(named)} unreadable{of}: {'; '.join([*named[:_MOST_NAMED], *more])}"
    return HealthCheck(name="read", verdict=Verdict.WARNING, detail=detail)


def _create(cluster: Cluster, ahead_ms: list[int]) -> HealthCheck:
    """Create an object twice: the second attempt must be refused. How far ahead the clock is goes into ``ahead_ms``."""
    store, probe = cluster.store, new_probe()
    try:
        before = cluster.clock.now_ms()
        first = store.create(probe, b"health")
        after = cluster.clock.now_ms()
        second = store.create(probe, b"health again")
        folder = f"{probe.rpartition('/')[0]}/"
        listed = next((file for file in store.list(folder) if file.path == probe), None)
    finally:
        store.delete([probe])
    if second is not CreateResult.EXISTS:
        raise UnsafeStoreError(f"{store.uri}/{probe} was created twice: commits would overwrite each other")
    if listed is not None:
        nearest = min(max(listed.modified_ms, before), after)
        ahead_ms.append(nearest - listed.modified_ms)
    detail = "an object was created once, and refused a second time"
    verdict = Verdict.OK if first is CreateResult.CREATED else Verdict.WARNING
    return HealthCheck(name="create", verdict=verdict, detail=detail)


def _maintenance(cluster: Cluster, topic_counts: list[int]) -> HealthCheck:
    store = cluster.store
    listed = store.list(MAINTENANCE_FOLDER)
    notes = next((file.modified_ms for file in listed if file.path == MAINTENANCE_NOTES), None)
    now_ms = cluster.clock.now_ms()
    age_ms = None if notes is None else now_ms - notes
    topic_count = topic_counts[0] if topic_counts else len(store.list_names(TOPICS_FOLDER))
    check = maintenance_check(age_ms, topic_count=topic_count)
    try:
        runs = read_runs(cluster)
    except (ValueError, SparklogError) as error:  # nothing is decided by it: whoever may not read it isn't unfit
        why = " ".join(str(error).split())
        return replace(check, detail=f"{check.detail}; what runs did is unknown because of an error: {why}")
    return with_run(check, runs[0], now_ms=now_ms) if runs else check
