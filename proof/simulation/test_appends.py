"""Any interleaving of the store calls of several writers gives dense, unique offsets and keeps each writer's order."""

from __future__ import annotations

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.log.append import TopicWriter
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from sparklog.testing.faulty_store import Fault, FaultKind, FaultyStore
from sparklog.testing.scheduler import Scheduler
from tests.depth import by_depth
from tests.support import T0_MS, a_log, a_topic, append, contents, inline_checkpoints, no_checkpoints, wrong_totals

WRITERS = ("a", "b", "c")
APPENDS = 5
PARTITIONS = 2

TROUBLE = (
    FaultKind.LOST_ANSWER,
    FaultKind.LOST_REQUEST,
    FaultKind.CONFLICT,
    FaultKind.THROTTLED,
    FaultKind.OWN_SUCCESS,
)


def run_writers(seed: int, *, fault_chance: float, checkpoints: bool) -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    a_topic(memory, clock, num_partitions=PARTITIONS)
    scheduler = Scheduler(seed)
    acknowledged: dict[tuple[int, int], str] = {}

    def work(name: str, number: int) -> None:
        faults = [Fault(kind=kind, chance=fault_chance, times=None) for kind in TROUBLE] if fault_chance else []
        store = FaultyStore(scheduler.store(memory), *faults, seed=seed + number)
        log = a_log(store, clock)
        writer = TopicWriter(log, "t", checkpoints=inline_checkpoints() if checkpoints else no_checkpoints())
        for turn in range(APPENDS):
            partition = turn % PARTITIONS
            result = append(writer, f"{name}{turn}.0", f"{name}{turn}.1", partition=partition, timeout_ms=10**9)
            for at in (0, 1):
                key = (partition, result.base_offsets[0] + at)
                assert key not in acknowledged
                acknowledged[key] = f"{name}{turn}.{at}"

    for number, name in enumerate(WRITERS):
        scheduler.spawn(name, partial(work, name, number))
    scheduler.run()

    seen = contents(a_log(memory, clock))
    assert {(p, offset): value for p, rows in seen.items() for offset, value in rows} == acknowledged
    for rows in seen.values():
        assert [offset for offset, _ in rows] == list(range(len(rows)))
        for name in WRITERS:
            own = [value for _, value in rows if value.startswith(name)]
            assert own == sorted(own)
    assert wrong_totals(a_log(memory, clock)) == []


@settings(max_examples=by_depth(gate=12, nightly=25))
@given(seed=st.integers(0, 2**32 - 1))
def test_any_interleaving_gives_dense_offsets_and_keeps_each_writers_order(seed: int) -> None:
    run_writers(seed, fault_chance=0, checkpoints=False)


@settings(max_examples=by_depth(gate=12, nightly=25))
@given(seed=st.integers(0, 2**32 - 1))
def test_so_does_any_interleaving_in_which_the_store_loses_answers_and_refuses_calls(seed: int) -> None:
    run_writers(seed, fault_chance=0.08, checkpoints=False)


def test_the_same_seed_gives_the_same_interleaving() -> None:
    def order(seed: int) -> list[str]:
        scheduler = Scheduler(seed)
        store = scheduler.store(MemoryStore())
        for name in WRITERS:
            scheduler.spawn(name, partial(store.put_many, {f"{name}/{number}": b"" for number in range(5)}))
        scheduler.run()
        return scheduler.order

    assert order(7) == order(7)
    assert len({tuple(order(seed)) for seed in range(20)}) > 10
