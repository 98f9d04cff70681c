"""Claims keep many clients from doing one piece of work at once; one whose holder died is taken over soon."""

from __future__ import annotations

import pytest

from sparklog.errors import StorePermissionError
from sparklog.log.claims import EXPIRES_MS, Claim, OthersClaim, take_claim
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, Fault, FaultKind, FaultyStore, ManualClock
from sparklog.testing.interrupted_store import InterruptedStore

PATH = "topics/t/_sequencing.json"


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_one_takes_it_and_the_others_see_it_until_it_is_released(memory: MemoryStore, clock: ManualClock) -> None:
    held = take_claim(memory, clock, PATH, None)
    assert isinstance(held, Claim)
    assert isinstance(take_claim(memory, clock, PATH, None), OthersClaim)
    held.release()
    assert isinstance(take_claim(memory, clock, PATH, None), Claim)


def test_taking_it_is_a_create_and_releasing_it_a_delete(memory: MemoryStore, clock: ManualClock) -> None:
    store = CountingStore(memory)
    held = take_claim(store, clock, PATH, None)
    assert isinstance(held, Claim)
    for _ in range(100):
        held.renew()
    held.release()
    assert store.counts() == {"create": 1, "delete": 1}


def watch(memory: MemoryStore, clock: ManualClock, holder: Claim | None) -> int:
    """Look every second for two minutes, the holder renewing its claim meanwhile; when it was taken over, in ms."""
    seen: OthersClaim | None = None
    for second in range(120):
        taken = take_claim(memory, clock, PATH, seen)
        if isinstance(taken, Claim):
            return second * 1_000
        seen = taken
        clock.advance(1_000)
        if holder is not None:
            holder.renew()
    return -1


def test_a_claim_that_is_renewed_stays_however_long_the_work_takes(memory: MemoryStore, clock: ManualClock) -> None:
    held = take_claim(memory, clock, PATH, None)
    assert isinstance(held, Claim)
    assert watch(memory, clock, held) == -1


def test_a_claim_that_its_holder_left_is_taken_over_after_twenty_seconds_of_watching(
    memory: MemoryStore, clock: ManualClock
) -> None:
    take_claim(memory, clock, PATH, None)
    clock.advance(86_400_000)  # nobody watched it
    assert watch(memory, clock, None) == EXPIRES_MS == 20_000


@pytest.mark.parametrize("kind", [FaultKind.LOST_ANSWER, FaultKind.OWN_SUCCESS])
def test_a_claim_whose_answer_was_lost_is_found_to_be_ones_own(
    memory: MemoryStore, clock: ManualClock, kind: FaultKind
) -> None:
    assert isinstance(take_claim(FaultyStore(memory, Fault(kind=kind)), clock, PATH, None), Claim)


def test_a_claim_that_was_not_created_is_nobodys(memory: MemoryStore, clock: ManualClock) -> None:
    store = FaultyStore(memory, Fault(kind=FaultKind.THROTTLED))
    assert isinstance(take_claim(store, clock, PATH, None), OthersClaim)
    assert isinstance(take_claim(store, clock, PATH, None), Claim)


def test_one_that_is_released_while_another_looks_is_free_at_the_next_look(
    memory: MemoryStore, clock: ManualClock
) -> None:
    held = take_claim(memory, clock, PATH, None)
    assert isinstance(held, Claim)
    store = InterruptedStore(memory)
    store.interrupt(held.release, at=0, after=True)
    seen = take_claim(store, clock, PATH, None)
    assert isinstance(seen, OthersClaim)
    assert isinstance(take_claim(store, clock, PATH, seen), Claim)


def test_who_may_not_write_is_told_so(memory: MemoryStore, clock: ManualClock) -> None:
    with pytest.raises(StorePermissionError):
        take_claim(FaultyStore(memory, Fault(kind=FaultKind.READ_ONLY)), clock, PATH, None)


def test_a_claim_that_cannot_be_deleted_is_left_to_others(memory: MemoryStore, clock: ManualClock) -> None:
    held = take_claim(FaultyStore(memory, Fault(kind=FaultKind.THROTTLED, ops=["delete"])), clock, PATH, None)
    assert isinstance(held, Claim)
    held.release()
    assert watch(memory, clock, None) == EXPIRES_MS
