"""Offset tables under many processes: every interleaving, with and without faults, against what the rules say."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.errors import CommitFailedError, IllegalGenerationError, NonEmptyGroupError, UnknownMemberIdError
from sparklog.groups.offsets.changes import GENERATION_FENCE, Change, DeleteAll, DeleteOffsets
from sparklog.groups.offsets.offset_maintenance import sweep
from sparklog.groups.offsets.offset_state import OffsetState, load_state, state_of
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.rows import Rows, Stamp
from sparklog.model import TopicPartition
from sparklog.storage import MemoryStore
from sparklog.storage.position import Position
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock
from sparklog.testing.scheduler import Scheduler
from tests.depth import by_depth
from tests.groups.offsets.support import (
    HOUR_MS,
    P0,
    P1,
    a_table,
    change,
    check_whole,
    commit,
    do,
    offsets_of,
    take,
    unowned,
)
from tests.support import DAY_MS, T0_MS

TROUBLE = (
    FaultKind.LOST_ANSWER,
    FaultKind.LOST_REQUEST,
    FaultKind.CONFLICT,
    FaultKind.THROTTLED,
    FaultKind.OWN_SUCCESS,
)
OPS = ("get", "list", "put", "create")
"""An fsync that fails is no passing trouble."""
EVER_MS = 10**9


def run(seed: int, *tasks: Callable[[OffsetTable], None], fault_chance: float = 0) -> MemoryStore:
    """Run tasks, each with a table object of its own, in an order that the seed decides."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    scheduler = Scheduler(seed)
    for number, task in enumerate(tasks):
        faults = [Fault(kind=kind, ops=OPS, chance=fault_chance, times=None) for kind in TROUBLE if fault_chance]
        store = FaultyStore(scheduler.store(memory), *faults, seed=seed + number)
        scheduler.spawn(str(number), partial(task, a_table(store, clock)))
    scheduler.run()
    return memory


def history(memory: MemoryStore) -> list[OffsetState]:
    """The table at every version; nothing may have been swept."""
    log = a_table(memory, ManualClock(start_ms=T0_MS)).log
    entries = [log.read_entry(version) for version in range(load_state(log).position.version + 1)]
    return [
        state_of(
            log,
            entry,
            Position(version=entry.version, token=entry.token, anchor_ticks_ms=0),
            checkpoint_version=-1,
        )
        for entry in entries
        if entry is not None
    ]


def counts_up(partition: TopicPartition, table: OffsetTable) -> None:
    for offset in range(1, 6):
        assert offsets_of(do(table, unowned({partition: offset}), timeout_ms=EVER_MS))[partition] == offset


def nothing_is_lost(seed: int, fault_chance: float) -> None:
    partitions = [TopicPartition("t", number) for number in range(3)]
    memory = run(seed, *(partial(counts_up, partition) for partition in partitions), fault_chance=fault_chance)
    states = history(memory)
    for partition in partitions:
        seen = [row.committed.offset for state in states if (row := state.rows.get(partition)) and row.committed]
        assert seen == sorted(seen)
        assert set(seen) == {1, 2, 3, 4, 5}
    assert len(states) == 15  # each once
    assert set(check_whole(memory, ManualClock(start_ms=T0_MS))) == set(partitions)


def members_fight(seed: int, fault_chance: float) -> None:
    """Members take one partition from one another, each in a generation of its own, and commit while they can."""
    acknowledged: set[tuple[Stamp, int]] = set()

    def member(generation: int, table: OffsetTable) -> None:
        stamp = Stamp(generation, f"member {generation}")
        taken = change(table, take(stamp, P0, P1), timeout_ms=EVER_MS)
        if isinstance(taken.errors[0], IllegalGenerationError):
            return
        offset = offsets_of(taken.rows)[P0] or 0
        for _ in range(4):
            offset += 1
            [error] = change(table, commit(stamp, {P0: offset, P1: offset}), timeout_ms=EVER_MS).errors
            if error is not None:
                assert isinstance(error, CommitFailedError)
                return
            acknowledged.add((stamp, offset))

    memory = run(seed, *(partial(member, generation) for generation in (1, 2, 3)), fault_chance=fault_chance)
    states = history(memory)
    stamps = [state.rows[P0].stamp for state in states]
    offsets = [offsets_of(state.rows)[P0] or 0 for state in states]
    assert stamps == sorted(stamps)
    assert offsets == sorted(offsets)
    assert stamps[-1].generation == 3
    assert all(offsets_of(state.rows)[P0] == offsets_of(state.rows)[P1] for state in states)
    assert acknowledged <= set(zip(stamps, offsets, strict=True))


@pytest.mark.parametrize("fault_chance", [0, 0.08], ids=["", "with faults"])
@pytest.mark.parametrize("check", [nothing_is_lost, members_fight])
def test_any_interleaving_keeps_the_rules(check: Callable[[int, float], None], fault_chance: float) -> None:
    for seed in range(4):
        check(seed, fault_chance)


@pytest.mark.slow
@pytest.mark.parametrize("check", [nothing_is_lost, members_fight])
@settings(max_examples=by_depth(gate=12, nightly=150), suppress_health_check=[HealthCheck.differing_executors])
@given(seed=st.integers(0, 2**32 - 1), fault_chance=st.sampled_from([0, 0.08, 0.2]))
def test_any_of_very_many_interleavings_keeps_the_rules(
    check: Callable[[int, float], None], seed: int, fault_chance: float
) -> None:
    check(seed, fault_chance)


partitions = st.sampled_from([P0, P1, TopicPartition("u", 0)])
generations = st.integers(0, 5)
members = st.sampled_from(["ann", "bob"])
tables = st.integers(0, 2)
topic_ids = st.sampled_from(["old", "new"])


class AgainstADict(RuleBasedStateMachine):
    """Three processes, each with what it happened to see last, against a dict that is never out of date."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(start_ms=T0_MS)
        self.memory = MemoryStore(clock=self.clock)
        self.tables = [a_table(self.memory, self.clock) for _ in range(3)]
        self.model: dict[TopicPartition, tuple[str, Stamp, int | None]] = {}
        self.fence = 0

    def carry_out(self, number: int, wanted: Change) -> Exception | None:
        done = change(self.tables[number], wanted)
        assert shown(done.rows) == self.model or done.errors[0] is None
        return done.errors[0]

    @rule(number=tables, partition=partitions, stamp=st.builds(Stamp, generations, members), topic_id=topic_ids)
    def take(self, number: int, partition: TopicPartition, stamp: Stamp, topic_id: str) -> None:
        before = self.model.get(partition)
        error = self.carry_out(number, take(stamp, partition, topic_id=topic_id))
        if before is None:
            is_refused = 0 < self.fence >= stamp.generation
        else:
            owned = (before[1].generation, before[1].member > "")
            is_refused = before[1] != stamp and owned >= (stamp.generation, True)
        if is_refused:
            assert isinstance(error, IllegalGenerationError)
        else:
            assert error is None
            kept = before[2] if before and before[0] == topic_id else None
            self.model[partition] = (topic_id, stamp, kept)

    @precondition(lambda self: self.model)
    @rule(number=tables, offset=st.integers(0, 3), data=st.data())
    def commit(self, number: int, offset: int, data: st.DataObject) -> None:
        partition = data.draw(st.sampled_from(sorted(self.model)))
        topic_id, stamp, _ = self.model[partition]
        assert self.carry_out(number, commit(stamp, {partition: offset})) is None
        self.model[partition] = (topic_id, stamp, offset)

    @rule(number=tables, partition=partitions, stamp=st.builds(Stamp, generations, members), offset=st.integers(0, 3))
    def commit_of_anybody(self, number: int, partition: TopicPartition, stamp: Stamp, offset: int) -> None:
        error = self.carry_out(number, commit(stamp, {partition: offset}))
        if partition in self.model and self.model[partition][1] == stamp:
            assert error is None
            self.model[partition] = (self.model[partition][0], stamp, offset)
        else:
            assert isinstance(error, CommitFailedError)

    @rule(number=tables, partition=partitions, generation=generations, offset=st.integers(0, 3))
    def commit_unowned(self, number: int, partition: TopicPartition, generation: int, offset: int) -> None:
        error = self.carry_out(number, unowned({partition: offset}, generation=generation))
        if self.has_members_since(generation):
            assert isinstance(error, UnknownMemberIdError)
        else:
            assert error is None
            self.model[partition] = ("id", Stamp(generation, ""), offset)

    @rule(number=tables, partition=partitions)
    def delete(self, number: int, partition: TopicPartition) -> None:
        assert self.carry_out(number, DeleteOffsets(partitions=[partition])) is None
        self.forget(partition)

    def forget(self, partition: TopicPartition) -> None:
        if partition in self.model:
            _, stamp, _ = self.model.pop(partition)
            self.fence = max(self.fence, stamp.generation - (stamp.member > ""))

    @rule(number=tables, generation=generations)
    def delete_all(self, number: int, generation: int) -> None:
        error = self.carry_out(number, DeleteAll(generation=generation))
        if self.has_members_since(generation):
            assert isinstance(error, NonEmptyGroupError)
        else:
            assert error is None
            for partition in [*self.model]:
                self.forget(partition)
            self.fence = max(self.fence, generation)

    def has_members_since(self, generation: int) -> bool:
        return any(
            stamp.generation > generation or (stamp.generation == generation and stamp.member != "")
            for _, stamp, _ in self.model.values()
        )

    @rule(number=tables, hours=st.sampled_from([0.01, 1, 12, 49]))
    def maintain(self, number: int, hours: float) -> None:
        self.clock.advance(hours * HOUR_MS)
        log = self.tables[number].log
        write_checkpoint(log)
        sweep(log)
        clean_log(log, retention_ms=DAY_MS)

    @rule(number=tables)
    def restart(self, number: int) -> None:
        self.tables[number] = a_table(self.memory, self.clock)

    @rule(number=tables)
    def fetch(self, number: int) -> None:
        assert shown(self.tables[number].fetch()) == self.model

    @invariant()
    def a_newcomer_sees_the_truth(self) -> None:
        assert shown(a_table(self.memory, self.clock).fetch()) == self.model


def shown(rows: Rows) -> dict[TopicPartition, tuple[str, Stamp, int | None]]:
    return {
        partition: (row.topic_id, row.stamp, row.committed.offset if row.committed else None)
        for partition, row in rows.items()
        if partition != GENERATION_FENCE
    }


@pytest.mark.slow
class TestAgainstADict(AgainstADict.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(max_examples=by_depth(gate=6, nightly=80), stateful_step_count=40)
