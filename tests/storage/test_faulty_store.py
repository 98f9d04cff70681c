from concurrent.futures import ThreadPoolExecutor

import pytest

from sparklog.errors import (
    StoreFullError,
    StoreOutcomeUnknownError,
    StorePermissionError,
    StoreUnavailableError,
)
from sparklog.storage import CreateResult, MemoryStore, ObjectStore
from sparklog.testing import (
    CountingStore,
    Fault,
    FaultKind,
    FaultyStore,
    ManualClock,
    SimulatedCrash,
    crashes,
)
from sparklog.testing.store_contract import StoreContract


class TestFaultyStoreWithoutFaults(StoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return FaultyStore(MemoryStore())


class TestCountingStore(StoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return CountingStore(MemoryStore())


def paths(store):
    return [info.path for info in store.list("")]


def write_four(store):
    store.create("0", b"")
    store.put_many({"1": b"", "2": b""})
    store.delete(["0", "1"])


def test_a_crash_before_or_after_each_call_leaves_the_calls_before_it():
    counted = FaultyStore(MemoryStore())
    write_four(counted)
    assert counted.calls == (("create", "0"), ("put", "1"), ("put", "2"), ("delete", "0"), ("delete", "1"))
    left = []
    for fault in crashes(len(counted.calls)):
        memory = MemoryStore()
        store = FaultyStore(memory, fault)
        with pytest.raises(SimulatedCrash):
            write_four(store)
        assert store.crashed
        left.append("".join(paths(memory)))
    assert left == ["", "0", "0", "01", "01", "012", "012", "12", "12", "2"]


def test_after_a_crash_the_process_is_dead_and_a_new_one_reads_what_it_left():
    memory = MemoryStore()
    store = FaultyStore(memory, Fault(kind=FaultKind.CRASH_AFTER, at=0))
    with pytest.raises(SimulatedCrash):
        store.put("a", b"x")
    for call in (lambda: store.read("a"), lambda: store.list(""), lambda: store.delete(["a"]), store.sync_all):
        with pytest.raises(SimulatedCrash):
            call()
    assert store.calls == (("put", "a"),)
    assert FaultyStore(memory).read("a") == b"x"


@pytest.mark.parametrize(
    ("kind", "error", "carried_out"),
    [
        (FaultKind.LOST_ANSWER, StoreOutcomeUnknownError, True),
        (FaultKind.LOST_REQUEST, StoreOutcomeUnknownError, False),
        (FaultKind.CONFLICT, StoreUnavailableError, False),
        (FaultKind.THROTTLED, StoreUnavailableError, False),
        (FaultKind.DISK_FULL, StoreFullError, False),
        (FaultKind.READ_ONLY, StorePermissionError, False),
    ],
)
def test_errors_say_what_happened_once(kind, error, carried_out):
    memory = MemoryStore()
    store = FaultyStore(memory, Fault(kind=kind, ops=["create"]))
    store.put("before", b"")
    with pytest.raises(error, match=r"create a: .*\(injected\)"):
        store.create("a", b"x")
    assert ("a" in paths(memory)) is carried_out
    assert store.create("a", b"x") is (CreateResult.EXISTS if carried_out else CreateResult.CREATED)


def test_own_success_is_stored_but_said_to_exist():
    store = FaultyStore(MemoryStore(), Fault(kind=FaultKind.OWN_SUCCESS))
    store.put("other", b"")  # spared: only creates can suffer it
    assert store.create("a", b"mine") is CreateResult.EXISTS
    assert store.read("a") == b"mine"


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST])
def test_a_read_whose_answer_is_lost_is_unavailable(kind):
    store = FaultyStore(MemoryStore(), Fault(kind=kind))
    with pytest.raises(StoreUnavailableError):
        store.list_names("")


def test_conditions_add_up():
    fault = Fault(
        kind=FaultKind.CONFLICT, ops=["put"], path="log/", skip=1, times=2, when=lambda call: "x" in call.path
    )
    store = FaultyStore(MemoryStore(), fault)
    failed = []
    for path in ["log/x0", "log/y", "x", "log/x1", "log/x2", "log/x3"]:
        store.create(path, b"")
        try:
            store.put(path, b"")
        except StoreUnavailableError:
            failed.append(path)
    assert failed == ["log/x1", "log/x2"]


def test_chance_is_the_same_for_the_same_seed():
    def run(seed):
        store = FaultyStore(MemoryStore(), Fault(kind=FaultKind.CONFLICT, chance=0.5, times=None), seed=seed)
        failed = []
        for number in range(200):
            try:
                store.put("a", b"")
            except StoreUnavailableError:
                failed.append(number)
        return failed

    assert run(1) == run(1) != run(2)
    assert 60 < len(run(1)) < 140


def test_delays_move_the_clock_and_add_to_another_fault():
    clock = ManualClock(1_000)
    faults = [
        Fault(kind=FaultKind.DELAY, delay_ms=500, times=None),
        Fault(kind=FaultKind.DELAY, delay_ms=250, at=0),
        Fault(kind=FaultKind.CONFLICT, at=0),
    ]
    store = FaultyStore(MemoryStore(clock=clock), *faults, clock=clock)
    with pytest.raises(StoreUnavailableError):
        store.put("a", b"")
    assert (clock.now_ms(), clock.ticks_ms()) == (1_750, 750)
    store.put("a", b"")
    assert clock.ticks_ms() == 1_250
    with pytest.raises(ValueError, match="clock"):
        FaultyStore(MemoryStore(), faults[0])


def test_threads_share_the_count():
    store = FaultyStore(MemoryStore(), Fault(kind=FaultKind.CONFLICT, times=10))

    def put(number):
        try:
            store.put(str(number), b"")
        except StoreUnavailableError:
            return 1
        return 0

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(put, range(200))) == 10
    assert len(store.calls) == 200


def test_counts():
    store = CountingStore(MemoryStore())
    store.put("a", b"")
    store.put_many({"b": b"", "c": b""})
    store.create("a", b"")
    assert store.read_many(["a", "b", "gone"]) == [b"", b"", None]
    assert store.read_range("a", 0, 1) == b""
    assert len([*store.list("")]) == 3
    assert store.list_names("") == ["a", "b", "c"]
    store.delete(["a", "b"])
    store.sync(["c"])
    assert store.counts() == {"put": 3, "create": 1, "get": 4, "list": 2, "delete": 1, "sync": 1}
    store.reset()
    assert store.counts() == {}


def test_manual_clock():
    clock = ManualClock(1_000)
    clock.sleep_ms(10)
    clock.sleep_ms(-5)
    clock.advance(0.5)
    clock.shift_wall(-500)
    assert (clock.now_ms(), clock.ticks_ms()) == (510, 10.5)
    with pytest.raises(ValueError, match="back"):
        clock.advance(-1)
