"""Every store call of a change and of maintenance: the process dies there, its answer is lost there, it sleeps there.

After each, what was acknowledged is in the table, what wasn't is in it once or not at all, and the table goes on.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.names import entry_path
from sparklog.errors import (
    CommitFailedError,
    CommitStateUnknownError,
    KafkaTimeoutError,
    SparklogError,
    StoreOutcomeUnknownError,
)
from sparklog.groups.offsets.offset_files import file_version, plan_sweep
from sparklog.groups.offsets.offset_maintenance import maintain_offsets, sweep
from sparklog.groups.offsets.offset_state import load_state
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.model import TopicPartition
from sparklog.storage import LocalStore, MemoryStore, ObjectInfo
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, SimulatedCrash, crashes
from sparklog.testing.faulty_store import Call
from sparklog.testing.interrupted_store import InterruptedStore
from tests.depth import each_nth
from tests.groups.offsets.support import (
    ANN,
    BOB,
    HOUR_MS,
    P0,
    P1,
    P2,
    a_table,
    change,
    check_whole,
    commit,
    copy_to,
    do,
    offsets_of,
    take,
    two_days_of_commits,
    unowned,
)
from tests.support import DAY_MS, T0_MS, versions_of

CHANGES = ("put", "create", "delete", "sync", "sync_all")


@dataclass(frozen=True)
class Operation:
    """Something that a process which knows nothing yet does to a group's table."""

    name: str
    act: Callable[[OffsetTable], object]
    before: dict[TopicPartition, int | None]
    after: dict[TopicPartition, int | None]
    setup: Callable[[OffsetTable], object] = lambda table: do(table, take(ANN, P0, P1), commit(ANN, {P0: 5}))


def two_old_days(table: OffsetTable) -> None:
    clock = table.log.clock
    assert isinstance(clock, ManualClock)
    for offset in range(16):
        do(table, unowned({P0: offset}))
        clock.advance(DAY_MS / 8)


OPERATIONS = [
    Operation(
        name="first take",
        setup=lambda table: None,
        act=lambda table: do(table, take(ANN, P0)),
        before={},
        after={P0: None},
    ),
    Operation(
        name="commit",
        act=lambda table: do(table, commit(ANN, {P0: 8, P1: 9})),
        before={P0: 5, P1: None},
        after={P0: 8, P1: 9},
    ),
    Operation(
        name="done already",
        act=lambda table: do(table, take(ANN, P0)),
        before={P0: 5, P1: None},
        after={P0: 5, P1: None},
    ),
]
MAINTENANCE = Operation(
    name="maintenance",
    setup=two_old_days,
    act=lambda table: maintain_offsets(table.log, 99),
    before={P0: 15},
    after={P0: 15},
)


def prepared(operation: Operation) -> tuple[MemoryStore, ManualClock]:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    operation.setup(a_table(memory, clock))
    return memory, clock


def calls_of(operation: Operation) -> list[str]:
    memory, clock = prepared(operation)
    store = FaultyStore(memory)
    operation.act(a_table(store, clock))
    return [call.op for call in store.calls]


def crashes_in(ops: list[str]) -> Iterator[Fault]:
    return (f for f in crashes(len(ops)) if f.kind is FaultKind.CRASH_BEFORE or ops[f.at or 0] in CHANGES)


def troubles_in(ops: list[str]) -> Iterator[Fault]:
    lost = (FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.CONFLICT, FaultKind.THROTTLED)
    for number, op in enumerate(ops):
        if op in ("sync", "sync_all"):
            continue  # an fsync that fails is no passing refusal: see below
        kinds = (*lost, FaultKind.OWN_SUCCESS) if op == "create" else lost if op in CHANGES else (FaultKind.THROTTLED,)
        yield from (Fault(kind=kind, at=number) for kind in kinds)


def refusals_in(ops: list[str]) -> Iterator[Fault]:
    for number, op in enumerate(ops):
        if op in ("put", "create"):
            yield from (Fault(kind=kind, at=number) for kind in (FaultKind.DISK_FULL, FaultKind.READ_ONLY))


def each(faults: Callable[[list[str]], Iterator[Fault]], *operations: Operation) -> list[object]:
    return [
        pytest.param(operation, fault, id=f"{operation.name}: {fault.kind.name.lower()} at call {fault.at}")
        for operation in operations
        for fault in each_nth(faults(calls_of(operation)), 6)
    ]


def read_by_deltalake(memory: MemoryStore, folder: Path) -> dict[TopicPartition, int | None]:
    rows = DeltaTable(copy_to(memory, folder)).to_pyarrow_table().to_pylist()
    assert len({(row["topic"], row["partition"]) for row in rows}) == len(rows)
    return {TopicPartition(row["topic"], row["partition"]): row["offset"] for row in rows}


@pytest.mark.parametrize(("operation", "fault"), each(crashes_in, *OPERATIONS))
def test_a_process_that_dies_at_any_store_call_leaves_the_table_whole(
    operation: Operation, fault: Fault, tmp_path: Path
) -> None:
    memory, clock = prepared(operation)
    with pytest.raises(SimulatedCrash):
        operation.act(a_table(FaultyStore(memory, fault), clock))
    seen = offsets_of(a_table(memory, clock).fetch())
    assert seen in (operation.before, operation.after)
    if seen:
        assert read_by_deltalake(memory, tmp_path) == seen
    operation.act(a_table(memory, clock))
    assert offsets_of(check_whole(memory, clock)) == operation.after


@pytest.mark.slow
def test_maintenance_that_dies_at_any_store_call_leaves_the_table_whole(tmp_path: Path) -> None:
    for number, fault in enumerate(each_nth(crashes_in(calls_of(MAINTENANCE)), 6)):
        test_a_process_that_dies_at_any_store_call_leaves_the_table_whole(MAINTENANCE, fault, tmp_path / str(number))


@pytest.mark.parametrize(("operation", "fault"), each(troubles_in, *OPERATIONS))
def test_a_lost_answer_or_a_passing_refusal_at_any_store_call_changes_nothing(
    operation: Operation, fault: Fault
) -> None:
    memory, clock = prepared(operation)
    versions = len(versions_of(a_table(memory, clock).log))
    operation.act(a_table(FaultyStore(memory, fault, clock=clock), clock))
    log = a_table(memory, clock).log
    assert len(versions_of(log)) == versions + (operation.before != operation.after)
    assert offsets_of(check_whole(memory, clock)) == operation.after


@pytest.mark.parametrize(("operation", "fault"), each(refusals_in, *OPERATIONS))
def test_a_full_or_read_only_disk_is_told_and_nothing_is_changed(operation: Operation, fault: Fault) -> None:
    memory, clock = prepared(operation)
    with pytest.raises(SparklogError, match="injected"):
        operation.act(a_table(FaultyStore(memory, fault), clock))
    assert offsets_of(a_table(memory, clock).fetch()) == operation.before


# --- sleeping at any call


def sleeps(*operations: Operation) -> list[object]:
    return [
        pytest.param(operation, at, after, id=f"{operation.name} {'after' if after else 'before'} call {at}")
        for operation in operations
        for at in range(len(calls_of(operation)))
        for after in (False, True)
    ]


def asleep(operation: Operation, at: int, after: bool, meanwhile: Callable[[MemoryStore, ManualClock], object]) -> None:
    memory, clock = prepared(operation)
    store = InterruptedStore(memory)
    store.interrupt(lambda: meanwhile(memory, clock), at=at, after=after)
    told = True
    try:
        operation.act(a_table(store, clock))
    except SparklogError:
        told = False  # it timed out, or its outcome is unknown; it must not have done half of it
    seen = offsets_of(check_whole(memory, clock))
    others = {P2: seen.pop(P2)} if P2 in seen else {}
    assert others in ({}, {P2: 99})
    assert seen in ([operation.after] if told else [operation.before, operation.after])


def an_hour(memory: MemoryStore, clock: ManualClock) -> None:
    clock.advance(HOUR_MS)


def two_hours_of_others(memory: MemoryStore, clock: ManualClock) -> None:
    table = a_table(memory, clock)
    for offset in (98, 97, 99):
        do(table, unowned({P2: offset}, generation=9))
        clock.advance(HOUR_MS)
    assert sweep(table.log) > 0


@pytest.mark.parametrize(("operation", "at", "after"), sleeps(*OPERATIONS))
def test_a_process_may_sleep_an_hour_at_any_store_call(operation: Operation, at: int, after: bool) -> None:
    asleep(operation, at, after, an_hour)


@pytest.mark.parametrize(("operation", "at", "after"), sleeps(OPERATIONS[1]))
def test_a_process_may_sleep_while_others_commit_and_sweep_at_any_store_call(
    operation: Operation, at: int, after: bool
) -> None:
    asleep(operation, at, after, two_hours_of_others)


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "at", "after"), sleeps(*OPERATIONS))
def test_a_process_may_sleep_two_days_of_commits_and_cleanups_at_any_store_call(
    operation: Operation, at: int, after: bool
) -> None:
    asleep(operation, at, after, two_days_of_commits)


@pytest.mark.slow
def test_maintenance_may_sleep_two_days_at_any_store_call() -> None:
    for at in each_nth(range(len(calls_of(MAINTENANCE))), 6):
        memory, clock = prepared(MAINTENANCE)
        store = InterruptedStore(memory)
        store.interrupt(partial(two_days_of_commits, memory, clock), at=at, after=False)
        with suppress(SparklogError):  # what it was about to read may be gone; the owner logs it
            MAINTENANCE.act(a_table(store, clock))
        assert offsets_of(check_whole(memory, clock)) == {P0: 15, P2: 99}


CREATE = 1


def a_sleeper(
    meanwhile: Callable[[MemoryStore, ManualClock], object], *, at: int = CREATE, after: bool
) -> tuple[OffsetTable, MemoryStore, ManualClock]:
    """A member that owns P0 and P1 at 5, and sleeps at a call of its next commit."""
    memory, clock = prepared(OPERATIONS[1])
    store = InterruptedStore(memory)
    table = a_table(store, clock)
    table.fetch()
    do(table, commit(ANN, {P0: 6}))
    store.interrupt(lambda: meanwhile(memory, clock), at=at, after=after)
    return table, memory, clock


@pytest.mark.parametrize("after", [False, True], ids=["before the create", "after the create"])
def test_a_sleepers_commit_fails_when_its_partition_was_taken_meanwhile(after: bool) -> None:
    """G1, and L1: before the create, it wins a name that was cleaned."""

    def others_take_over(memory: MemoryStore, clock: ManualClock) -> None:
        other = a_table(memory, clock)
        do(other, take(BOB, P0))
        do(other, commit(BOB, {P0: 50}))
        two_days_of_commits(memory, clock)

    table, memory, clock = a_sleeper(others_take_over, after=after)
    [error] = change(table, commit(ANN, {P0: 7})).errors
    assert isinstance(error, CommitFailedError) != after  # else it landed, before the others came
    assert offsets_of(check_whole(memory, clock))[P0] == 50


@pytest.mark.parametrize("after", [False, True], ids=["before the create", "after the create"])
def test_a_commit_that_landed_before_two_days_of_others_isnt_done_again(after: bool) -> None:
    """Rows don't tell whose they are: to do it again would take back what another committed without a member."""

    def another_commits(memory: MemoryStore, clock: ManualClock) -> None:
        do(a_table(memory, clock), unowned({P0: 50}, generation=9))
        two_days_of_commits(memory, clock)

    table, memory, clock = a_sleeper(another_commits, after=after)
    assert change(table, unowned({P0: 20}, generation=9), timeout_ms=3 * DAY_MS).errors == (None,)
    assert offsets_of(check_whole(memory, clock))[P0] == (50 if after else 20)


def test_a_stray_entry_of_a_sleeper_that_died_misleads_nobody() -> None:
    table, memory, clock = a_sleeper(two_days_of_commits, after=False)
    follower = a_table(memory, clock)
    follower.fetch()
    crash = Fault(kind=FaultKind.CRASH_AFTER, ops=["create"])
    table.log.store._store = FaultyStore(table.log.store._store, crash)  # type: ignore[attr-defined]
    with pytest.raises(SimulatedCrash):
        change(table, commit(ANN, {P0: 7}))
    log = follower.log
    assert versions_of(log)[0] == 2  # the stray: a name that cleanup had freed
    assert offsets_of(follower.fetch()) == {P0: 6, P1: None, P2: 99}
    sweep(log)
    assert offsets_of(check_whole(memory, clock)) == {P0: 6, P1: None, P2: 99}


def test_a_commit_that_slept_for_a_week_is_unknown() -> None:
    def a_week_passes(memory: MemoryStore, clock: ManualClock) -> None:
        two_days_of_commits(memory, clock)
        clock.advance(5 * DAY_MS)

    table, _, _ = a_sleeper(a_week_passes, after=True)
    with pytest.raises(CommitStateUnknownError, match=r"stalled for 7\.0 days"):
        change(table, commit(ANN, {P0: 7}))


def test_a_lost_position_that_cant_be_loaded_again_is_unknown() -> None:
    def two_days_and_a_broken_log(memory: MemoryStore, clock: ManualClock) -> None:
        two_days_of_commits(memory, clock)
        log = a_table(memory, clock).log
        memory.put(entry_path(log.table, versions_of(log)[-1]), b"garbage")

    table, _, _ = a_sleeper(two_days_and_a_broken_log, after=True)
    with pytest.raises(CommitStateUnknownError, match="corrupt log entry"):
        change(table, commit(ANN, {P0: 7}))


def test_an_answer_that_stays_lost_is_unknown_and_the_next_commit_isnt_taken_for_it() -> None:
    memory, clock = prepared(OPERATIONS[1])
    lost = FaultyStore(memory, Fault(kind=FaultKind.LOST_REQUEST, ops=["create"], times=None))
    table = a_table(lost, clock)
    with pytest.raises(CommitStateUnknownError):
        change(table, commit(ANN, {P0: 6}), timeout_ms=5_000)
    lost._faults = ()
    do(table, commit(ANN, {P0: 7}))
    assert offsets_of(check_whole(memory, clock))[P0] == 7


def test_a_store_that_refuses_beyond_its_retries_is_waited_for_until_the_deadline() -> None:
    memory, clock = prepared(OPERATIONS[1])
    for number, op in enumerate(("list", "get", "put", "create")):
        until = clock.ticks_ms() + 90_000
        busy = Fault(kind=FaultKind.THROTTLED, ops=[op], times=None, when=partial(is_before, clock, until))
        with pytest.raises(KafkaTimeoutError):
            change(a_table(FaultyStore(memory, busy), clock), commit(ANN, {P0: 10}), timeout_ms=20_000)
        do(a_table(FaultyStore(memory, busy), clock), commit(ANN, {P0: number}))
        assert until <= clock.ticks_ms() < until + 2_000
    assert offsets_of(check_whole(memory, clock))[P0] == 3


def is_before(clock: ManualClock, ticks_ms: float, call: Call) -> bool:
    return clock.ticks_ms() < ticks_ms


# --- durability (rule L9)


def test_nothing_is_said_of_what_may_not_survive_a_power_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    do(a_table(LocalStore(tmp_path)), take(ANN, P0))
    flushed: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        flushed.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path / "groups/g/offsets"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    table = a_table(LocalStore(tmp_path))
    do(table, take(ANN, P0))  # another's, but now we say that it is so
    [first, entry, *folders] = flushed
    assert (file_version(first), Path(entry).name) == (0, f"{0:020d}.json")
    assert {".", "_delta_log"} <= set(folders)
    flushed.clear()
    do(table, commit(ANN, {P0: 1}))
    # Until they are linked, files have other names, or none, in the folder that they will be in.
    assert [name if name in (".", "_delta_log") else os.path.dirname(name) for name in flushed] == [
        "",
        ".",
        "_delta_log",
        "_delta_log",
    ]


def test_an_fsync_that_fails_is_told_and_nothing_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(a_table(LocalStore(tmp_path)), take(ANN, P0))
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "lost")))
    for wanted in (take(ANN, P0), commit(ANN, {P0: 1})):
        with pytest.raises(StoreOutcomeUnknownError):
            change(a_table(LocalStore(tmp_path)), wanted)
    monkeypatch.undo()
    assert offsets_of(a_table(LocalStore(tmp_path)).fetch()) == {P0: None}


# --- sweeping


def a_file(version: int, modified_ms: int, *, name: str = "") -> ObjectInfo:
    path = f"g/{name or f'{version:020d}-{version:032x}.parquet'}"
    return ObjectInfo(path=path, size_bytes=1, modified_ms=modified_ms, etag="")


def swept(*files: ObjectInfo, newest: int, live: Sequence[ObjectInfo]) -> list[int]:
    found = plan_sweep(
        files,
        newest_version=newest,
        live_paths={file.path for file in live},
        newest_modified_ms=max(file.modified_ms for file in live),
    )
    return [int(path[2:22]) for path in found]


def test_a_file_is_swept_an_hour_after_its_successor_came() -> None:
    files = [a_file(n, n * HOUR_MS // 2) for n in range(6)]
    assert swept(*files, newest=5, live=files[5:]) == [0, 1, 2]
    assert swept(*files[:2], newest=1, live=files[1:2]) == []
    younger = [*files[:2], a_file(2, 5 * HOUR_MS // 2), *files[3:]]
    assert swept(*younger, newest=5, live=files[5:]) == [0]


def test_what_is_live_or_named_for_a_version_to_come_or_not_ours_is_never_swept() -> None:
    old = [a_file(version, 0) for version in range(6)]
    live = a_file(3, 9 * HOUR_MS)
    foreign, other = a_file(0, 9 * HOUR_MS, name="part-1.parquet"), a_file(0, 0, name="part-0.parquet")
    assert swept(*old[:3], live, *old[4:], other, newest=3, live=[live]) == [0, 1]
    assert swept(*old[:3], *old[4:], other, foreign, newest=3, live=[foreign]) == [0, 1, 2]
    assert swept(*old, foreign, newest=9, live=[foreign, old[1]]) == [0, 2, 3, 4]


def test_a_sweep_spares_the_file_of_a_writer_that_sleeps_before_its_create() -> None:
    def an_idle_week(memory: MemoryStore, clock: ManualClock) -> None:
        clock.advance(6 * DAY_MS)
        log = a_table(memory, clock).log
        write_checkpoint(log)
        sweep(log)

    table, memory, clock = a_sleeper(an_idle_week, after=False)
    assert change(table, commit(ANN, {P0: 7})).errors == (None,)
    assert offsets_of(check_whole(memory, clock))[P0] == 7


def test_a_file_whose_writer_lost_the_race_is_swept_too() -> None:
    memory, clock = prepared(OPERATIONS[1])

    def another_commits() -> None:
        do(a_table(memory, clock), unowned({P2: 1}, generation=7))

    store = InterruptedStore(memory)
    table = a_table(store, clock)
    table.fetch()
    store.interrupt(another_commits, at=CREATE + 1, after=False)  # a sync comes first
    do(table, take(BOB, P0))
    log = table.log
    names = [name for name in log.store.list_names(f"{log.table}/") if file_version(name) is not None]
    assert [file_version(name) for name in names] == [0, 1, 1, 2]
    clock.advance(HOUR_MS)
    do(table, commit(BOB, {P0: 8}))
    assert sweep(log) == 3
    assert load_state(log).rows == table.fetch()
