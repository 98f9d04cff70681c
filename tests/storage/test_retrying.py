"""Which calls are repeated on passing refusals and lost answers, and for how long."""

import pytest

from sparklog.errors import StoreFullError, StoreOutcomeUnknownError, StoreUnavailableError
from sparklog.storage import MemoryStore
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock

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
