"""What groups left behind goes: offsets past their time, groups without members and offsets, generations, files."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparklog.compaction.group_cleanup import GroupReport, expire_group, expire_groups
from sparklog.errors import SparklogError
from sparklog.groups.admin.emptiness import empty_since_ms
from sparklog.groups.admin.inspection import group_names
from sparklog.groups.membership.generations import generation_log
from sparklog.groups.offsets.changes import GENERATION_FENCE
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.log import create_topic
from sparklog.model import TopicPartition
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultyStore, ManualClock, SimulatedCrash, crashes
from sparklog.testing.interrupted_store import InterruptedStore
from tests.groups.admin.test_administration import P0, P1, Stage
from tests.groups.offsets.support import do, unowned
from tests.support import DAY_MS, T0_MS
from tests.txn.support import a_cluster

WEEK_MS = 7 * DAY_MS
OLD = TopicPartition("old", 0)


def a_stage() -> tuple[MemoryStore, Stage]:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    cluster = a_cluster(memory, clock)
    create_topic(cluster.topic_log("t"), "t", num_partitions=2)
    return memory, Stage(cluster, clock)


def forget(stage: Stage, **more: bool) -> GroupReport:
    return expire_group(stage.cluster, "g", now_ms=stage.clock.now_ms(), timeout_ms=60_000, **more)


def rows(stage: Stage) -> set[TopicPartition]:
    return {*OffsetTable(stage.cluster, "g").fetch()} - {GENERATION_FENCE}


def commit(stage: Stage, *partitions: TopicPartition, generation: int = 0) -> None:
    do(OffsetTable(stage.cluster, "g"), unowned(dict.fromkeys(partitions, 3), generation=generation))


def test_offsets_of_a_group_without_members_expire_a_week_after_their_commit() -> None:
    _, stage = a_stage()
    commit(stage, P0)
    stage.clock.advance(DAY_MS)
    commit(stage, P1)
    stage.clock.advance(WEEK_MS - DAY_MS - 1)
    assert forget(stage).expired_offsets == 0
    stage.clock.advance(1)
    assert forget(stage, dry_run=True).expired_offsets == 1
    assert rows(stage) == {P0, P1}
    assert forget(stage).expired_offsets == 1
    assert rows(stage) == {P1}
    stage.clock.advance(DAY_MS)
    assert forget(stage).expired_offsets == 1
    assert group_names(stage.cluster) == []


def test_a_group_with_members_keeps_what_they_read_and_forgets_the_rest() -> None:
    _, stage = a_stage()
    commit(stage, OLD)
    stage.a_stable_group()
    stage.clock.advance(WEEK_MS)
    stage.join("a", claims=[P0], generation=1)  # they live
    stage.join("b", claims=[P1], generation=1)
    assert forget(stage).expired_offsets == 1
    assert rows(stage) == {P0, P1}


def test_a_group_between_two_generations_forgets_nothing() -> None:
    _, stage = a_stage()
    commit(stage, OLD)
    stage.a_stable_group()
    stage.clock.advance(WEEK_MS)
    stage.join("a", claims=[P0], generation=1)
    assert forget(stage).expired_offsets == 0
    assert OLD in rows(stage)


def test_members_that_all_died_leave_an_empty_group_whose_time_counts_from_then_on() -> None:
    _, stage = a_stage()
    stage.a_stable_group()
    stage.clock.advance(WEEK_MS)
    assert forget(stage).expired_offsets == 0
    newest, _ = generation_log(stage.cluster, "g").open_newest()
    assert newest is not None
    assert (newest.version, dict(newest.plan.members)) == (2, {})
    stage.clock.advance(WEEK_MS - 1)
    assert forget(stage).expired_offsets == 0
    stage.clock.advance(1)
    report = forget(stage)
    assert (report.expired_offsets, report.deleted) == (2, True)
    assert group_names(stage.cluster) == []
    commit(stage, P0, generation=3)  # the name may be used again
    assert group_names(stage.cluster) == ["g"]
    assert forget(stage).deleted is False


@pytest.mark.parametrize("skew_ms", [-8 * DAY_MS, 8 * DAY_MS], ids=["behind", "ahead"])
def test_the_time_of_an_empty_group_is_the_stores_and_not_of_whoever_emptied_it(skew_ms: int) -> None:
    memory, stage = a_stage()
    stage.a_stable_group()
    stage.clock.advance(8 * DAY_MS)  # nobody commits anything meanwhile, and then all members die
    elsewhere = a_cluster(memory, ManualClock(start_ms=stage.clock.now_ms() + skew_ms))

    def forget_there() -> GroupReport:
        return expire_group(elsewhere, "g", now_ms=stage.clock.now_ms(), timeout_ms=60_000)

    for _ in range(2):  # the first says that the group is empty
        report = forget_there()
        assert (report.expired_offsets, report.deleted) == (0, False)
    stage.clock.advance(WEEK_MS - 1)
    assert forget_there().expired_offsets == 0
    stage.clock.advance(1)
    report = forget_there()
    assert (report.expired_offsets, report.deleted) == (2, True)


def test_a_generation_that_others_cleaned_meanwhile_tells_no_time() -> None:
    memory, stage = a_stage()
    stage.a_stable_group()
    stage.clock.advance(WEEK_MS)
    forget(stage)
    log = generation_log(stage.cluster, "g")
    newest, _ = log.open_newest()
    assert newest is not None
    assert empty_since_ms(log, newest) == stage.clock.now_ms()
    memory.delete([log.path_of(newest.version)])
    assert empty_since_ms(log, newest) is None
    assert empty_since_ms(log, None) is None


def calls_of(prepare: Callable[[], tuple[MemoryStore, Stage]]) -> int:
    memory, stage = prepare()
    store = FaultyStore(memory)
    forget(Stage(a_cluster(store, stage.clock), stage.clock))
    return len(store.calls)


def two_old_offsets() -> tuple[MemoryStore, Stage]:
    memory, stage = a_stage()
    commit(stage, P0, P1)
    stage.clock.advance(WEEK_MS)
    return memory, stage


def all_members_dead() -> tuple[MemoryStore, Stage]:
    memory, stage = a_stage()
    stage.a_stable_group()
    stage.clock.advance(WEEK_MS)
    forget(stage)
    stage.clock.advance(WEEK_MS)
    return memory, stage


@pytest.mark.parametrize("at", range(calls_of(two_old_offsets)))
@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["before", "after"])
def test_what_is_committed_at_any_moment_meanwhile_stays(at: int, after: bool) -> None:
    memory, stage = two_old_offsets()
    store = InterruptedStore(memory)
    store.interrupt(lambda: commit(stage, P0), at=at, after=after)
    forget(Stage(a_cluster(store, stage.clock), stage.clock))
    assert P0 in rows(stage)
    assert group_names(stage.cluster) == ["g"]


def named(fault: Fault) -> str:
    return f"{fault.kind.name.lower()} at call {fault.at}"


@pytest.mark.slow
@pytest.mark.parametrize("fault", list(crashes(calls_of(all_members_dead))), ids=named)
def test_killed_at_any_store_call_it_is_finished_by_the_next_run(fault: Fault) -> None:
    memory, stage = all_members_dead()
    with pytest.raises(SimulatedCrash):
        forget(Stage(a_cluster(FaultyStore(memory, fault), stage.clock), stage.clock))
    forget(stage)
    assert rows(stage) == set()
    assert group_names(stage.cluster) == []


def test_one_group_that_cannot_be_understood_hinders_no_other() -> None:
    memory, stage = two_old_offsets()
    memory.put("groups/bad/generations/00000000000000000001.json", b"no json")
    bad, good = expire_groups(stage.cluster, now_ms=stage.clock.now_ms(), timeout_ms=60_000)
    assert (bad.group, good.group, good.expired_offsets) == ("bad", "g", 2)
    assert isinstance(bad.error, SparklogError)


def test_old_generations_and_replaced_files_go() -> None:
    _, stage = a_stage()
    stage.a_stable_group()
    for _ in range(3):
        stage.decide()
        stage.clock.advance(DAY_MS)
        commit(stage, OLD, generation=99)
    report = forget(stage)
    assert report.generations_deleted > 0
    assert report.files_deleted > 0
    assert generation_log(stage.cluster, "g").numbers()[-1] == 4
