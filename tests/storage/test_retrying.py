"""Which calls are repeated on passing refusals and lost answers, and for how long."""

import threading

import pytest

from sparklog.errors import StoreFullError, StoreOutcomeUnknownError, StoreUnavailableError
from sparklog.storage import MemoryStore
from sparklog.storage.retrying import Patience, RetryingStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock
from tests.consumer.remote_store import RemoteStore

PASSING = [FaultKind.THROTTLED, FaultKind.CONFLICT, FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST]

REPEATED = {
    "get": lambda store: store.read("a"),
    "put": lambda store: store.put("b", b"2"),
    "list": lambda store: store.list_names(""),
    "delete": lambda store: store.delete(["a"]),
}
ONCE = {
    "create": lambda store: store.create("b", b"2"),
    "sync": lambda store: store.sync(["a"]),
    "sync_all": lambda store: store.sync_all(),
}


def a_store(*faults):
    memory, clock = MemoryStore(), ManualClock()
    memory.put("a", b"1")
    faulty = FaultyStore(memory, *faults)
    return RetryingStore(faulty, clock=clock, retry_ms=10_000), faulty, clock


@pytest.mark.parametrize("kind", PASSING, ids=lambda kind: kind.name)
@pytest.mark.parametrize("op", REPEATED)
def test_a_call_that_may_be_repeated_is(op, kind):
    store, faulty, _ = a_store(Fault(kind=kind, ops=[op], times=3))
    REPEATED[op](store)
    assert [call.op for call in faulty.calls] == [op] * 4


@pytest.mark.parametrize("op", REPEATED)
def test_it_is_repeated_for_so_long_and_then_the_last_error_is_told(op):
    store, _, clock = a_store(Fault(kind=FaultKind.THROTTLED, ops=[op], times=None))
    with pytest.raises(StoreUnavailableError):
        REPEATED[op](store)
    assert 10_000 <= clock.ticks_ms() <= 11_000


@pytest.mark.parametrize("kind", PASSING, ids=lambda kind: kind.name)
@pytest.mark.parametrize("op", ONCE)
def test_a_create_and_an_fsync_are_made_once(op, kind):
    """Rules L2 and L9: after a failed fsync the next may be called a success though the data is gone."""
    store, faulty, clock = a_store(Fault(kind=kind, ops=[op]))
    with pytest.raises((StoreUnavailableError, StoreOutcomeUnknownError)):
        ONCE[op](store)
    assert [call.op for call in faulty.calls] == [op]
    assert clock.ticks_ms() == 0


def test_what_the_store_refuses_for_good_is_not_repeated():
    store, faulty, _ = a_store(Fault(kind=FaultKind.DISK_FULL, times=None))
    with pytest.raises(StoreFullError):
        store.put("b", b"2")
    assert len(faulty.calls) == 1


class Recorder(ManualClock):
    """A clock that remembers how long it was slept on."""

    def __init__(self):
        super().__init__()
        self.sleeps = []

    def sleep_ms(self, duration_ms):
        self.sleeps.append(duration_ms)
        super().sleep_ms(duration_ms)


def a_patient_store(*faults, retry_ms=10_000):
    memory, clock = MemoryStore(), Recorder()
    memory.put("a", b"1")
    faulty = FaultyStore(memory, *faults)
    return RetryingStore(faulty, clock=clock, retry_ms=retry_ms), faulty, clock


ALL_REPEATED = {
    **REPEATED,
    "put": lambda store: store.put_many({"b": b"2"}),
    "list": lambda store: list(store.list("")),
}


@pytest.mark.parametrize("calls", [REPEATED, ALL_REPEATED], ids=["one", "many"])
@pytest.mark.parametrize("op", REPEATED)
def test_within_patience_a_call_is_repeated_until_its_deadline_and_not_beyond(op, calls):
    store, _, clock = a_patient_store(Fault(kind=FaultKind.THROTTLED, ops=[op], times=None))
    patience = Patience(deadline=clock.deadline_in(500), backoff_ms=300, backoff_max_ms=100_000)
    with store.patience(patience), pytest.raises(StoreUnavailableError):
        calls[op](store)
    assert clock.ticks_ms() == 500  # the last wait is cut short
    calls_made = clock.sleeps
    assert 2 <= len(calls_made) <= 3


@pytest.mark.parametrize("calls", [REPEATED, ALL_REPEATED], ids=["one", "many"])
@pytest.mark.parametrize("op", REPEATED)
def test_within_patience_a_call_is_repeated_so_often_and_not_more(op, calls):
    for retries in (0, 1, 3):
        store, faulty, clock = a_patient_store(Fault(kind=FaultKind.THROTTLED, ops=[op], times=None))
        patience = Patience(deadline=clock.deadline_in(None), retries=retries)
        with store.patience(patience), pytest.raises(StoreUnavailableError):
            calls[op](store)
        extra = 1 if retries and calls is ALL_REPEATED and op == "put" else 0  # all of them at first, then one by one
        assert len(faulty.calls) == 1 + retries + extra


def test_waits_grow_from_the_first_to_the_longest_shortened_by_chance_up_to_a_half():
    store, _, clock = a_patient_store(Fault(kind=FaultKind.THROTTLED, times=6))
    with store.patience(Patience(deadline=clock.deadline_in(None), backoff_ms=100, backoff_max_ms=500)):
        store.read("a")
    for slept, most in zip(clock.sleeps, [100, 200, 400, 500, 500, 500], strict=True):
        assert most / 2 <= slept <= most


def test_a_first_wait_longer_than_the_longest_is_the_longest():
    """Source: Kafka ``CommonClientConfigs.warnDisablingExponentialBackoff``."""
    store, _, clock = a_patient_store(Fault(kind=FaultKind.THROTTLED, times=2))
    with store.patience(Patience(deadline=clock.deadline_in(None), backoff_ms=2**63 - 1, backoff_max_ms=50)):
        store.read("a")
    assert all(25 <= slept <= 50 for slept in clock.sleeps)


def test_patience_takes_the_place_of_the_stores_own_bound():
    store, _, clock = a_patient_store(Fault(kind=FaultKind.THROTTLED, times=None), retry_ms=1_000)
    with store.patience(Patience(deadline=clock.deadline_in(90_000))), pytest.raises(StoreUnavailableError):
        store.read("a")
    assert clock.ticks_ms() == 90_000
    with pytest.raises(StoreUnavailableError):
        store.read("a")
    assert clock.ticks_ms() == 91_000


def test_patience_is_a_threads_own_and_ends_with_its_block():
    store, faulty, clock = a_patient_store(Fault(kind=FaultKind.THROTTLED, times=3))
    caught = []
    with store.patience(Patience(deadline=clock.deadline_in(None), retries=0)):
        thread = threading.Thread(target=lambda: caught.append(store.read("a")))
        thread.start()
        thread.join()
        with store.patience(Patience(deadline=clock.deadline_in(None), retries=5)):
            store.read("a")
    assert caught == [b"1"]
    assert len(faulty.calls) == 5
    store, faulty, clock = a_patient_store(Fault(kind=FaultKind.THROTTLED, times=3))
    with store.patience(Patience(deadline=clock.deadline_in(None), retries=0)), pytest.raises(StoreUnavailableError):
        store.read("a")
    assert store.read("a") == b"1"


@pytest.mark.parametrize("is_remote", [True, False])
def test_stores_around_a_store_are_as_far_away_as_it(is_remote):
    inner = RemoteStore() if is_remote else MemoryStore()
    assert RetryingStore(FaultyStore(inner), clock=ManualClock()).is_remote is is_remote


def test_patience_holds_for_those_who_give_up_calls_of_the_store_too():
    store, _, clock = a_store(Fault(kind=FaultKind.THROTTLED, ops=["get"], times=None))
    with store.patience(Patience(deadline=clock.deadline_in(500))), pytest.raises(StoreUnavailableError):
        store.abandoning(within_ms=60_000).read("a")
    assert clock.ticks_ms() <= 1_000
