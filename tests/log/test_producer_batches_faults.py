"""Every store call of an append of numbered batches fails in every way: after a repetition, through another writer too,
each batch is stored once."""

from __future__ import annotations

import pytest

from sparklog.errors import CommitStateUnknownError, SparklogError
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, SimulatedCrash
from tests.depth import each_nth
from tests.log.test_producer_batches import append, batch, stage, values
from tests.support import T0_MS, a_log, a_topic, a_writer, within

CALLS = 10
KINDS = (
    FaultKind.CRASH_BEFORE,
    FaultKind.CRASH_AFTER,
    FaultKind.LOST_ANSWER,
    FaultKind.LOST_REQUEST,
    FaultKind.OWN_SUCCESS,
    FaultKind.FALSE_REFUSAL,
)


@pytest.mark.parametrize("by_another", [False, True])
@pytest.mark.parametrize("fault", each_nth([(kind, at) for at in range(CALLS) for kind in KINDS], 2), ids=str)
def test_a_batch_that_is_repeated_is_stored_once(fault, by_another):
    kind, at = fault
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    append(a_writer(log), batch(0, 2))
    store = FaultyStore(memory, Fault(kind=kind, at=at))
    writer = None
    try:
        faulty = a_writer(a_log(store, clock))
        files = stage(faulty, batch(2, 2), batch(0, producer=8))
        faulty.append(files, deadline=within(faulty, 500))
        writer = faulty
    except (SparklogError, SimulatedCrash):
        pass  # unknown: its producer asks again, elsewhere
    if by_another or writer is None:
        writer = a_writer(log)
    offsets = append(writer, batch(2, 2), batch(0, producer=8))
    assert offsets == [2, 3, 4]
    assert append(writer, batch(4)) == [5]
    assert values(log) == ["7:0", "7:1", "7:2", "7:3", "8:0", "7:4"]


def test_another_writer_commits_the_batch_while_the_first_ones_create_is_on_its_way():
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    other = a_writer(log)
    append(other, batch(0))
    raced: list[object] = []

    def race(call):
        if call.op == "create" and not raced:
            raced.append(append(other, batch(1, 2)))
        return False

    store = FaultyStore(memory, Fault(kind=FaultKind.LOST_ANSWER, when=race))
    first = a_writer(a_log(store, clock))
    assert append(first, batch(1, 2), batch(0, producer=8)) == [1, 2, 3]
    assert raced == [[1, 2]]
    assert values(log) == ["7:0", "7:1", "7:2", "8:0"]


def test_an_append_whose_answers_are_all_lost_is_found_by_the_next():
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    append(a_writer(log), batch(0))
    lost = Fault(kind=FaultKind.LOST_ANSWER, ops=("create",), times=None)
    writer = a_writer(a_log(FaultyStore(memory, lost), clock))
    with pytest.raises(CommitStateUnknownError):
        writer.append(stage(writer, batch(1, 2)), deadline=within(writer, 500))
    assert append(a_writer(log), batch(1, 2)) == [1, 2]
    assert values(log) == ["7:0", "7:1", "7:2"]
