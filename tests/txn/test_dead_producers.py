"""Readers that wait for a group's offsets end the transaction of a producer that died, once it is past its time-out."""

from __future__ import annotations

import logging

import pytest

from sparklog.errors import UnstableOffsetCommitError
from sparklog.groups.offsets.commit_thread import OffsetCommitThread
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore
from sparklog.txn.deciding_for_groups import deciding_for
from sparklog.txn.states import TransactionState
from tests.txn.support import IN, TIMEOUT_MS, Driver, a_cluster, a_world, states

BOUND_MS = TIMEOUT_MS * 3 // 2
LOOK_MS = 2_000


@pytest.fixture
def world():
    return a_world()


def died(cluster, offset=6):
    """A producer has sent an offset, and died before it could commit."""
    driver = Driver(cluster).init()
    driver.begin()
    driver.send("t", "a")
    driver.send_offset(offset)
    return driver


@pytest.fixture
def reader(world):
    _, _, cluster = world
    readers: list[OffsetCommitThread] = []

    def read(*, waits=True, cluster=cluster):
        if not readers:
            deciding = deciding_for(cluster, reason="its partitions moved", timeout_ms=TIMEOUT_MS)
            readers.append(OffsetCommitThread(cluster, "g", deciding))
        rows = readers[0].fetch([IN], timeout_ms=TIMEOUT_MS, waits=waits).result()
        committed = rows[IN].committed
        return committed and committed.offset

    yield read
    for thread in readers:
        thread.stop()
        assert thread.join(60)


def test_a_reader_ends_what_is_past_its_time_out_and_nothing_earlier(world, reader):
    _, clock, cluster = world
    died(cluster)
    for wait_ms in (0, BOUND_MS):
        clock.advance(wait_ms)
        with pytest.raises(UnstableOffsetCommitError):
            reader()
    clock.advance(LOOK_MS)
    assert reader() == 5
    assert states(cluster)[-1] == TransactionState.COMPLETE_ABORT.value


def test_a_second_transaction_of_a_session_that_was_aborted_is_ended_too(world, reader):
    _, clock, cluster = world
    driver = died(cluster)
    clock.advance(BOUND_MS + 1)
    assert reader() == 5
    second = Driver(cluster).init()
    second.begin()
    second.send_offset(8)
    clock.advance(LOOK_MS)
    with pytest.raises(UnstableOffsetCommitError):
        reader()
    clock.advance(BOUND_MS + LOOK_MS)
    assert reader() == 5
    assert driver.session is not second.session


def test_who_does_not_wait_ends_nothing(world, reader):
    _, clock, cluster = world
    died(cluster)
    before = states(cluster)
    clock.advance(10 * BOUND_MS)
    assert reader(waits=False) == 5
    assert states(cluster) == before


def test_what_was_committed_meanwhile_counts(world, reader):
    _, clock, cluster = world
    driver = died(cluster)
    driver.commit()
    clock.advance(BOUND_MS + 1)
    assert reader() == 6


def test_a_reader_that_asks_again_and_again_looks_every_two_seconds(world):
    memory, clock, cluster = world
    died(cluster)
    counting = CountingStore(memory)
    counted = a_cluster(counting, clock)
    thread = OffsetCommitThread(counted, "g", deciding_for(counted, reason="moved", timeout_ms=TIMEOUT_MS))
    counts = []
    for _ in range(4):
        counting.reset()
        with pytest.raises(UnstableOffsetCommitError):
            thread.fetch([IN], timeout_ms=TIMEOUT_MS, waits=True).result()
        counts.append(counting.counts().get("put", 0) + counting.counts().get("create", 0))
        clock.advance(LOOK_MS / 2)
    thread.stop()
    assert thread.join(60)
    assert counts[1] == counts[3] == 0
    assert counts[2] > 0


def test_a_reader_without_the_right_to_end_it_goes_on_waiting(world, caplog):
    memory, clock, cluster = world
    died(cluster)
    clock.advance(BOUND_MS + 1)
    store = FaultyStore(memory, Fault(kind=FaultKind.READ_ONLY, path="transactions/", times=None))
    refused = a_cluster(store, clock)
    thread = OffsetCommitThread(refused, "g", deciding_for(refused, reason="moved", timeout_ms=TIMEOUT_MS))
    with caplog.at_level(logging.WARNING), pytest.raises(UnstableOffsetCommitError):
        thread.fetch([IN], timeout_ms=TIMEOUT_MS, waits=True).result()
    thread.stop()
    assert thread.join(60)
    assert "its transaction wasn't ended" in caplog.text
