import re
import threading

import pytest

from sparklog.errors import NoThreadError, StorePermissionError, StoreUnavailableError, UnsafeStoreError
from sparklog.parallel import parallel_map
from sparklog.storage import CreateResult, LocalStore, MemoryStore, probe_create_only
from sparklog.testing import (
    CheckThenWriteStore,
    Fault,
    FaultKind,
    FaultyStore,
    ManualClock,
    OverwritingStore,
    SimulatedCrash,
    WrappedStore,
    WrongBytesStore,
)


@pytest.fixture
def clock():
    return ManualClock()


def left(store):
    return [info.path for info in store.list("")]


def test_safe_stores_pass_and_are_left_clean(tmp_path, clock):
    for store in (MemoryStore(), LocalStore(tmp_path)):
        probe_create_only(store, clock=clock)
        assert left(store) == []
    assert clock.ticks_ms() == 0
    assert [*tmp_path.iterdir()] == []  # no empty folder either


@pytest.mark.parametrize("limit", [0, 3])
def test_a_process_that_may_have_no_more_threads_is_told_so(monkeypatch, clock, limit):
    """✗ Those that were started wait for the others for ever."""
    start, left = threading.Thread.start, [limit]

    def some(thread):
        if left[0] == 0:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", some)
    with pytest.raises(NoThreadError):
        probe_create_only(MemoryStore(), clock=clock)


def test_probes_at_the_same_time_do_not_disturb_each_other(tmp_path, clock):
    stores = [LocalStore(tmp_path) for _ in range(4)]

    def probe(store):
        for _ in range(5):
            probe_create_only(store, clock=clock)

    parallel_map(probe, stores)
    assert [*tmp_path.iterdir()] == []


def test_a_store_that_checks_and_then_writes_is_refused_though_it_passes_in_sequence(clock):
    memory = MemoryStore()
    store = CheckThenWriteStore(memory)
    assert store.create("a", b"1") is CreateResult.CREATED
    assert store.create("a", b"2") is CreateResult.EXISTS
    memory.delete(["a"])
    with pytest.raises(UnsafeStoreError, match=r"[2-8] of 8 racers were told they created it"):
        probe_create_only(store, clock=clock)
    assert left(memory) == []


def test_a_store_that_overwrites_is_refused(clock):
    memory = MemoryStore()
    with pytest.raises(UnsafeStoreError, match="8 of 8 racers"):
        probe_create_only(OverwritingStore(memory), clock=clock)
    assert left(memory) == []


def test_a_store_that_keeps_the_losers_bytes_is_refused(clock):
    with pytest.raises(UnsafeStoreError, match=r"racer \d was told it created it, but racer \d's bytes are stored"):
        probe_create_only(WrongBytesStore(MemoryStore()), clock=clock)


class ForgetfulStore(WrappedStore):
    """Right while they race, but gives a taken name away afterwards."""

    def __init__(self, store, *, told):
        super().__init__(store)
        self.told = told
        self.raced = False

    def read_many(self, paths):
        self.raced = True
        return self._store.read_many(paths)

    def create(self, path, data, *, sync=False):
        if not self.raced:
            return self._store.create(path, data)
        self._store.put(path, data)
        return self.told


@pytest.mark.parametrize(
    ("told", "seen"),
    [(CreateResult.CREATED, "created a second time, in sequence"), (CreateResult.EXISTS, "holds other bytes")],
)
def test_a_second_create_must_be_refused_and_change_nothing(clock, told, seen):
    with pytest.raises(UnsafeStoreError, match=seen):
        probe_create_only(ForgetfulStore(MemoryStore(), told=told), clock=clock)


def test_a_store_that_never_says_created_is_refused(clock):
    faults = Fault(kind=FaultKind.OWN_SUCCESS, times=None)
    with pytest.raises(UnsafeStoreError, match="none was told"):
        probe_create_only(FaultyStore(MemoryStore(), faults), clock=clock)


@pytest.mark.parametrize("seed", range(10))
def test_a_safe_store_passes_whatever_happens_to_its_answers(clock, seed):
    memory = MemoryStore()
    faults = [
        Fault(kind=kind, ops=["create"], chance=0.15, times=None)
        for kind in (FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.OWN_SUCCESS, FaultKind.CONFLICT)
    ]
    probe_create_only(FaultyStore(memory, *faults, seed=seed), clock=clock)
    assert left(memory) == []


def test_a_store_that_is_unavailable_for_a_while_passes(clock):
    faults = [Fault(kind=FaultKind.THROTTLED, ops=[op], times=2) for op in ("create", "get", "delete")]
    probe_create_only(FaultyStore(MemoryStore(), *faults), clock=clock)
    assert clock.ticks_ms() > 0


def test_a_store_that_stays_unavailable_is_not_asked_for_ever(clock):
    store = FaultyStore(MemoryStore(), Fault(kind=FaultKind.THROTTLED, ops=["create"], times=None))
    with pytest.raises(StoreUnavailableError):
        probe_create_only(store, clock=clock)
    assert sum(op == "create" for op, _ in store.calls) <= 8 * 6


def test_a_read_only_store_says_so(clock):
    store = FaultyStore(MemoryStore(), Fault(kind=FaultKind.READ_ONLY, times=None))
    with pytest.raises(StorePermissionError, match=re.escape("read-only")):
        probe_create_only(store, clock=clock)


def test_a_crash_is_not_taken_for_an_answer(clock):
    with pytest.raises(SimulatedCrash):
        probe_create_only(FaultyStore(MemoryStore(), Fault(kind=FaultKind.CRASH_AFTER, at=20)), clock=clock)
