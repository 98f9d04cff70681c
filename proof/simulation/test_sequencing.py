"""Any interleaving of the store calls of producers, foreign writers and sequencers gives every record once."""

from __future__ import annotations

import json
import random
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.delta.actions import Action, RemoveFile
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path
from sparklog.log.append import TopicWriter
from sparklog.log.follow import TopicFollower
from sparklog.log.maintenance import Sequencing
from sparklog.log.sequencing.sequencing import sequence_topic
from sparklog.log.state import load_state, open_state
from sparklog.storage import CreateResult, MemoryStore, ObjectStore
from sparklog.testing import ManualClock, SimulatedCrash, WrappedStore
from sparklog.testing.faulty_store import Fault, FaultKind, FaultyStore
from sparklog.testing.scheduler import Scheduler
from tests.depth import by_depth
from tests.support import (
    T0_MS,
    a_log,
    a_topic,
    append,
    contents,
    foreign_commit,
    foreign_file,
    no_checkpoints,
)

PARTITIONS = 2
TROUBLE = (
    FaultKind.LOST_ANSWER,
    FaultKind.LOST_REQUEST,
    FaultKind.CONFLICT,
    FaultKind.THROTTLED,
    FaultKind.OWN_SUCCESS,
)


def try_commit(log: DeltaLog, version: int, *actions: Action) -> bool:
    """Commit as another engine would, unless the version is taken."""
    lines = [{"commitInfo": {"operation": "WRITE"}}, *(action.to_json() for action in actions)]
    data = "\n".join(json.dumps(line) for line in lines).encode()
    return log.store.create(entry_path(log.table, version), data) is CreateResult.CREATED


def commit_as_another(log: DeltaLog, *actions: Action) -> None:
    """Commit at whichever version is free, as an engine may that only adds."""
    version = open_state(log).position.version + 1
    while not try_commit(log, version, *actions):
        version += 1


def a_table(values: list[str], choose: random.Random) -> pa.Table:
    """Rows of these values, in the ways in which engines leave columns out."""
    columns = {"value": pa.array([value.encode() for value in values])}
    if choose.random() < 0.7:
        columns["key"] = pa.array([choose.choice([b"a", b"b", b"c", None]) for _ in values], pa.binary())
    if choose.random() < 0.5:
        columns["offset_delta"] = pa.array(sorted(choose.sample(range(20), len(values))), pa.int64())
    if choose.random() < 0.5:
        columns["timestamp"] = pa.array([T0_MS] * len(values), pa.timestamp("ms", "UTC"))
    return pa.table(columns)


def run(seed: int, *, fault_chance: float, deletes: bool) -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    a_topic(memory, clock, num_partitions=PARTITIONS)
    scheduler = Scheduler(seed)
    acknowledged: dict[tuple[int, int], str] = {}
    written: list[list[str]] = []
    deleted: list[list[str]] = []
    seen: dict[tuple[int, int], str] = {}

    def a_store(number: int) -> FaultyStore:
        faults = [Fault(kind=kind, chance=fault_chance, times=None) for kind in TROUBLE] if fault_chance else []
        return FaultyStore(scheduler.store(memory), *faults, seed=seed + number)

    def produce(name: str, number: int) -> None:
        sequencing = Sequencing(run=lambda work: work(), max_delay_ms=0)
        log = a_log(a_store(number), clock)
        writer = TopicWriter(log, "t", checkpoints=no_checkpoints(), sequencing=sequencing)
        for turn in range(4):
            result = append(writer, f"{name}{turn}", partition=turn % PARTITIONS, timeout_ms=10**9)
            acknowledged[turn % PARTITIONS, result.base_offsets[0]] = f"{name}{turn}"

    def insert(name: str) -> None:
        choose = random.Random(f"{seed} {name}")
        log = a_log(scheduler.store(memory), clock)
        for turn in range(4):
            adds, files = [], []
            for file in range(choose.randint(1, 2)):
                values = [f"{name}{turn}.{file}.{row}" for row in range(choose.randint(1, 4))]
                files.append(values)
                adds.append(foreign_file(log, a_table(values, choose), partition=choose.choice([None, None, 0, 1])))
            commit_as_another(log, *adds)
            written.extend(files)
            if deletes and turn == 1:
                now = load_state(log)
                is_live = adds[0].path in now.require_whole().index.by_path
                remove = RemoveFile(path=adds[0].path, deletion_ms=1)
                if is_live and try_commit(log, now.position.version + 1, remove):  # a conflict: it gives up
                    deleted.append(files[0])

    def sequence(number: int) -> None:
        log = a_log(a_store(number), clock)
        for _ in range(3):
            sequence_topic(log, timeout_ms=10**9)

    def watch() -> None:
        follower = TopicFollower(a_log(scheduler.store(memory), clock), "t")
        for _ in range(10):
            follower.poll()
            for number in range(PARTITIONS):
                table = follower.read(number, 0)
                for offset, value in zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True):
                    assert seen.setdefault((number, offset), value.decode()) == value.decode()

    for number, name in enumerate("ab"):
        scheduler.spawn(name, partial(produce, name, number))
    for name in ("x", "y"):
        scheduler.spawn(name, partial(insert, name))
    for number in (2, 3):
        scheduler.spawn(f"sequencer {number}", partial(sequence, number))
    scheduler.spawn("watcher", watch)
    scheduler.run()

    log = a_log(memory, clock)
    result = sequence_topic(log)
    assert result.refused == {}
    assert load_state(log).require_whole().index.unsequenced() == []
    found = {(number, offset): value for number, rows in contents(log).items() for offset, value in rows}
    assert found.items() >= seen.items()
    assert found.items() >= acknowledged.items()
    gone = {value for values in deleted for value in values}
    expected = [value for values in written for value in values if value not in gone] + [*acknowledged.values()]
    assert sorted(value for value in found.values()) == sorted(expected)
    for rows in contents(log).values():
        offsets = [offset for offset, _ in rows]
        assert offsets == sorted(set(offsets))
        for values in written:
            own = [value for _, value in rows if value in values]
            assert own == sorted(own)


def stampede(seed: int, *, clients: int) -> tuple[int, int]:
    """Clients that meet one file at the same moment, whose copy takes some seconds; every other of them dies at it.

    Returns how many began to copy it, and how many died.
    """
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock, num_partitions=PARTITIONS)
    foreign_commit(log, foreign_file(log, pa.table({"value": [b"%d" % n for n in range(30)]}), partition=None))
    scheduler = Scheduler(seed)
    choose = random.Random(seed)
    readers: set[ObjectStore] = set()
    deaths = 0

    class Slow(WrappedStore):
        """Time passes with each piece of the file that is read."""

        def read_range(self, path: str, start: int, end: int) -> bytes:
            readers.add(self)
            clock.advance(choose.uniform(0, 1_000))
            return super().read_range(path, start, end)

    def follow(dies: bool) -> None:
        nonlocal deaths
        crash = [Fault(kind=FaultKind.CRASH_BEFORE, ops=["get"], path=".parquet", skip=1)] if dies else []
        store = FaultyStore(Slow(scheduler.store(memory)), *crash)
        client = Sequencing(run=lambda work: work(), max_delay_ms=0)
        try:
            follower = TopicFollower(a_log(store, clock), "t")
            while follower.head.unsequenced_count:
                client.start_if_needed(follower.state)
                clock.advance(200)
                follower.poll()
        except SimulatedCrash:
            deaths += 1

    for number in range(clients):
        scheduler.spawn(str(number), partial(follow, number % 2 == 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparklog.log.sequencing.foreign_source._HELD_BYTES", 0)
        scheduler.run()
    assert {len(rows) for rows in contents(log).values()} == {0, 30}
    return len(readers), deaths


@settings(max_examples=5)
@given(seed=st.integers(0, 2**32 - 1))
def test_of_many_clients_one_copies_a_file_and_another_if_the_first_dies(seed: int) -> None:
    copies, deaths = stampede(seed, clients=8)
    assert 1 <= copies <= 2 + deaths


@settings(max_examples=by_depth(gate=5, nightly=10))
@given(seed=st.integers(0, 2**32 - 1))
def test_any_interleaving_gives_every_record_once_in_its_files_order(seed: int) -> None:
    run(seed, fault_chance=0, deletes=False)


@settings(max_examples=by_depth(gate=5, nightly=10))
@given(seed=st.integers(0, 2**32 - 1))
def test_so_it_does_where_the_store_loses_answers_and_users_delete_files(seed: int) -> None:
    run(seed, fault_chance=0.05, deletes=True)
