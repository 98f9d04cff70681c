"""Producers that come and go leave their states: what loading a topic costs, and that none is overlooked."""

from __future__ import annotations

import io

import pyarrow.parquet as pq
import pytest

from sparklog.delta import checkpoint_writing, parquet_reading, producer_states
from sparklog.delta.actions import SetTransaction
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import checkpoint_path
from sparklog.delta.parquet_seals import is_sealed
from sparklog.delta.producer_states import STATES_GROUP_KEY, CheckpointStates
from sparklog.delta.snapshot import load_snapshot
from sparklog.log.producer_state import ProducerEntry, app_id
from sparklog.log.state import TopicState, load_state
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock
from tests.support import T0_MS, a_topic, a_writer, append, contents, two_days_of_others

PRODUCERS = 12


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_writing, "LEAST_STATES", 5)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids that were asked for in states of a checkpoint."""
    asked: list[str] = []
    find = CheckpointStates.find

    def noted(self: CheckpointStates, name: str) -> SetTransaction | None:
        asked.append(name)
        return find(self, name)

    monkeypatch.setattr(CheckpointStates, "find", noted)
    return asked


def a_topic_of_many() -> tuple[DeltaLog, list[int]]:
    log = a_topic(MemoryStore())
    ids = []
    for number in range(PRODUCERS):
        writer = a_writer(log)
        while len(app_id(writer.producer_id)) < 15:  # one of ten thousand
            writer = a_writer(log)
        append(writer, f"v{number}")
        ids.append(writer.producer_id)
    write_checkpoint(log)
    return log, ids


def test_whoever_loads_a_topic_decodes_no_states_of_producers(decoded: list[str]) -> None:
    """✗ 400,000 of them took 3.7 s and 117 MiB."""
    log, ids = a_topic_of_many()
    state = load_state(log)
    assert contents(log)[0][-1] == (PRODUCERS - 1, f"v{PRODUCERS - 1}")
    assert not any(name in state.transactions for name in map(app_id, ids))
    assert [one.count for one in state.states] == [PRODUCERS]
    assert [one._decoded for one in state.states] == [None]
    assert decoded == []


def test_loading_a_topic_compares_a_checkpoint_with_its_seal_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """✗ It was opened once more for the live files, and all of its bytes compared again."""
    log, _ = a_topic_of_many()
    path = checkpoint_path(log.table, load_state(log).checkpoint_version)
    size = len(log.store.read(path))
    compared: list[int] = []

    def noted(data: bytes) -> bool | None:
        compared.append(len(data))
        return is_sealed(data)

    monkeypatch.setattr(parquet_reading, "is_sealed", noted)
    state = load_state(log)
    assert compared == [size]
    assert len(state.require_whole().index) == PRODUCERS


def test_a_state_is_found_by_whoever_asks(decoded: list[str]) -> None:
    log, ids = a_topic_of_many()
    state = load_state(log)
    for producer_id in ids:
        assert state.producer(producer_id) == ProducerEntry(producer_epoch=0, counter=0)
    assert state.producer(2**62 + 1) is None
    assert decoded == [app_id(one) for one in (*ids, 2**62 + 1)]
    state.forget_others(ids[3])
    assert (state.producer(ids[3]), state.producer(ids[4])) == (ProducerEntry(producer_epoch=0, counter=0), None)


def test_states_go_from_checkpoint_to_checkpoint_and_newer_ones_replace_them() -> None:
    log, ids = a_topic_of_many()
    writer = a_writer(log)
    writer.adopt(producer_id=ids[5], producer_epoch=0)
    writer._counter = 1
    append(writer, "again")
    assert load_state(log).producer(ids[5]) == ProducerEntry(producer_epoch=0, counter=1)
    write_checkpoint(log)
    state = load_state(log)
    assert [one.count for one in state.states] == [PRODUCERS]
    assert {one: state.producer(one) for one in ids} == {
        one: ProducerEntry(producer_epoch=0, counter=int(one == ids[5])) for one in ids
    }


def test_other_engines_find_every_action_in_the_checkpoint() -> None:
    log, ids = a_topic_of_many()
    file = pq.ParquetFile(io.BytesIO(log.store.read(checkpoint_path(log.table, PRODUCERS))))
    rows = [row["txn"]["appId"] for row in file.read(columns=["txn"]).to_pylist() if row["txn"]]
    assert {*map(app_id, ids)} <= {*rows}
    assert len(rows) == len({*rows})
    first = int(file.metadata.metadata[STATES_GROUP_KEY])
    assert first == file.metadata.num_row_groups - 1


def test_few_states_stay_among_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_writing, "LEAST_STATES", producer_states.LEAST_STATES)
    log, ids = a_topic_of_many()
    state = load_state(log)
    assert state.states == ()
    assert all(app_id(one) in state.transactions for one in ids)


def test_actions_of_other_names_are_never_set_apart() -> None:
    log, _ = a_topic_of_many()
    snapshot = load_snapshot(log)
    assert snapshot is not None
    assert snapshot.transactions
    assert not any(producer_states._IS_STATE.match(name) for name in snapshot.transactions)


def test_a_sleeper_finds_its_append_among_states_that_are_set_apart(
    decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule L7: its answer was lost, two days pass, its entry is cleaned away, and it loads the table."""
    monkeypatch.setattr(checkpoint_writing, "LEAST_STATES", 1)
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    writer = a_writer(log)
    while len(app_id(writer.producer_id)) < 15:
        writer = a_writer(log)
    append(writer, "first")
    two_days_of_others(memory, clock)
    state: TopicState = load_state(log)
    assert state.states
    assert state.producer(writer.producer_id) == ProducerEntry(producer_epoch=0, counter=0)
    assert decoded == [app_id(writer.producer_id)]
