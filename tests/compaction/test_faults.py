"""Every store call of every job: the process dies there, its answer is lost there, or it sleeps there.

After each a fresh reader sees what it must see, and the same job again comes to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import pytest

from sparklog.compaction.compact import compact_topic
from sparklog.compaction.maintenance import maintain
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.compaction.retention import retain_topic
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.delta.log import DeltaLog
from sparklog.errors import SparklogError
from sparklog.log import Cluster
from sparklog.log.state import load_state, open_state
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, Scheduler, SimulatedCrash, crashes
from sparklog.testing.interrupted_store import InterruptedStore
from tests.compaction.support import append_pairs, pairs_of, stored
from tests.depth import each_nth
from tests.support import DAY_MS, T0_MS, a_log, a_topic, a_writer, no_checkpoints

Row = tuple[int, str | None, str | None]
CHANGES = ("put", "create", "delete", "sync", "sync_all")
POLICY = OptimizePolicy(min_files=2, growth=1.5)


@dataclass(frozen=True)
class Job:
    """Something that is done to the topic of :func:`prepared`."""

    name: str
    run: Callable[[DeltaLog], object]
    left: frozenset[int]
    """The offsets that are readable afterwards."""
    gone: frozenset[int] = frozenset()
    """Those that may be readable before, and during it."""


ALL = [("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("c", None), ("b", "2"), ("d", "1"), ("e", "1")]
"""A file each. The first two are of three days ago."""


def compact(log: DeltaLog) -> object:
    return compact_topic(log, "t", now_ms=T0_MS)


def maintain_all(log: DeltaLog) -> object:
    cluster = Cluster(cluster_id="c", store=log.store, clock=log.clock)  # type: ignore[arg-type]
    report = maintain(cluster, policy=POLICY)
    for topic in report.topics:
        for error in topic.errors.values():
            raise error
    return report


def eight(numbers: str) -> frozenset[int]:
    return frozenset(map(int, numbers))


JOBS = [
    Job("retention", lambda log: retain_topic(log, "t", now_ms=T0_MS), left=eight("234567"), gone=eight("01")),
    Job("optimize", lambda log: optimize_topic(log, "t", policy=POLICY), left=eight("01234567")),
    Job("compact", compact, left=eight("24567"), gone=eight("013")),
    Job("maintain", maintain_all, left=eight("24567"), gone=eight("013")),
]


def prepared() -> tuple[MemoryStore, ManualClock]:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    configs = {"cleanup.policy": "compact,delete", "retention.ms": DAY_MS, "segment.ms": 10 * DAY_MS}
    log = a_topic(memory, clock, configs=configs)
    writer = a_writer(log)
    for number, pair in enumerate(ALL):
        append_pairs(writer, [pair], timestamp_ms=T0_MS - (3 * DAY_MS if number < 2 else 0))
    return memory, clock


def readable(log: DeltaLog) -> list[Row]:
    """As a consumer sees it, by key and value."""
    start = load_state(log).head.log_start_offsets[0]
    return [row for row in pairs_of(log) if row[0] >= start]


def check(log: DeltaLog, job: Job, *, is_done: bool) -> None:
    seen = readable(log)
    offsets = {offset for offset, _, _ in seen}
    assert [offset for offset, _, _ in seen] == sorted(offsets)
    assert all(ALL[offset] == (key, value) for offset, key, value in seen if offset < len(ALL))
    assert job.left <= offsets
    if is_done:
        assert offsets & eight("01234567") == job.left
    else:
        assert offsets & eight("01234567") <= job.left | job.gone
    light, whole = open_state(log).head, load_state(log).head
    assert replace(light, live_file_count=0) == replace(whole, live_file_count=0)


@cache
def calls_of(job: Job) -> list[str]:
    """The ops of the store calls that a job makes, in order."""
    memory, clock = prepared()
    store = FaultyStore(memory)
    job.run(a_log(store, clock))
    return [call.op for call in store.calls]


def crashes_in(ops: list[str]) -> Iterator[Fault]:
    return (f for f in crashes(len(ops)) if f.kind is FaultKind.CRASH_BEFORE or ops[f.at or 0] in CHANGES)


def troubles_in(ops: list[str]) -> Iterator[Fault]:
    lost = (FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.CONFLICT)
    for number, op in enumerate(ops):
        if op in ("sync", "sync_all"):
            continue
        kinds = (*lost, FaultKind.OWN_SUCCESS) if op == "create" else lost if op in CHANGES else (FaultKind.THROTTLED,)
        yield from (Fault(kind=kind, at=number) for kind in kinds)


def each(faults: Callable[[list[str]], Iterator[Fault]]) -> list[object]:
    return [
        pytest.param(job, fault, id=f"{job.name}: {fault.kind.name.lower()} at call {fault.at}")
        for job in JOBS
        for fault in each_nth(faults(calls_of(job)), 6)
    ]


@pytest.mark.parametrize(("job", "fault"), each(crashes_in))
def test_a_job_that_is_killed_at_any_store_call_leaves_the_topic_whole(job: Job, fault: Fault) -> None:
    memory, clock = prepared()
    log = a_log(memory, clock)
    before = stored(log)
    with pytest.raises(SimulatedCrash):
        job.run(a_log(FaultyStore(memory, fault), clock))
    check(log, job, is_done=False)
    append_pairs(a_writer(log), [("x", "goes on")])
    job.run(log)
    check(log, job, is_done=True)
    assert readable(log)[-1] == (8, "x", "goes on")
    assert all(row in before for row in stored(log) if row["offset"] < 8)


@pytest.mark.slow
@pytest.mark.parametrize(("job", "fault"), each(troubles_in))
def test_a_lost_answer_or_a_passing_refusal_at_any_store_call_changes_nothing(job: Job, fault: Fault) -> None:
    memory, clock = prepared()
    job.run(a_log(FaultyStore(memory, fault, clock=clock), clock))
    check(a_log(memory, clock), job, is_done=True)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("job", "at"),
    [
        pytest.param(job, number, id=f"{job.name} at call {number}")
        for job in JOBS
        if job.name != "maintain"
        for number in each_nth(range(len(calls_of(job))), 10)
    ],
)
def test_a_job_may_sleep_two_days_of_commits_and_cleanups_at_any_store_call(job: Job, at: int, after: bool) -> None:
    memory, clock = prepared()

    def two_days_pass() -> None:
        log = a_log(memory, clock)
        writer = a_writer(log)
        for number in range(6):
            clock.advance(DAY_MS / 3)
            append_pairs(writer, [(f"m{number}", "meanwhile")])
        write_checkpoint(log)
        append_pairs(writer, [("m6", "meanwhile")])
        clean_log(log, retention_ms=DAY_MS)

    store = InterruptedStore(memory)
    store.interrupt(two_days_pass, at=at, after=after)
    log = a_log(memory, clock)
    try:
        job.run(a_log(store, clock))
    except SparklogError:
        check(log, job, is_done=False)  # it timed out; whatever it did is whole
    else:
        check(log, job, is_done=False)
    assert [value for offset, _, value in readable(log) if offset >= 8] == ["meanwhile"] * 7
    job.run(log)
    assert job.left <= {offset for offset, _, _ in readable(log)} or job.name == "retention"


@pytest.mark.parametrize(
    "seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in each_nth(range(3, 30), 6))]
)
def test_jobs_and_producers_in_any_order(seed: int) -> None:
    """Two of each job and three producers: whatever the order of their store calls, the last of each key is there."""
    memory, clock = prepared()
    scheduler = Scheduler(seed)
    acknowledged: list[tuple[str, str]] = []

    def produce(name: str) -> None:
        writer = a_writer(a_log(scheduler.store(memory), clock), checkpoints=no_checkpoints())
        for number in range(6):
            append_pairs(writer, [(f"{name}{number % 2}", f"{name} {number}")])
            acknowledged.append((f"{name}{number % 2}", f"{name} {number}"))

    def work(job: Job) -> None:
        job.run(a_log(scheduler.store(memory), clock))

    for name in "xyz":
        scheduler.spawn(name, lambda name=name: produce(name))  # type: ignore[misc]
    for job in JOBS[:3] * 2:
        scheduler.spawn(job.name, lambda job=job: work(job))  # type: ignore[misc]
    scheduler.run()

    log = a_log(memory, clock)
    seen = readable(log)
    offsets = [offset for offset, _, _ in seen]
    assert offsets == sorted(set(offsets))
    assert load_state(log).head.log_end_offsets == (8 + 18,)
    last = {key: value for _, key, value in seen}
    assert {key: value for key, value in last.items() if key and key[0] in "xyz"} == dict(acknowledged)
    assert {key: last[key] for key in "abcde"} == {"a": "2", "b": "2", "c": None, "d": "1", "e": "1"}
    compact(log)
    keys = [key for offset, key, _ in readable(log)[:-1]]
    assert len(keys) == len(set(keys))
