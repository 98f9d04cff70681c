"""Attempts know when their caller gives up, and a wait that can't be ended is abandoned."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from sparklog.clock import SystemClock
from sparklog.errors import StoreOutcomeUnknownError, StoreUnavailableError
from sparklog.interrupts import CallAbandonedError
from sparklog.storage import MemoryStore
from sparklog.storage._attempts import Attempts
from sparklog.storage._event_loop import run_in_loop
from sparklog.storage._main_thread import run_interruptibly, run_within
from sparklog.storage.call_limit import CallLimit, call_limit
from sparklog.storage.retrying import Patience, RetryingStore
from sparklog.testing import ManualClock, WrappedStore

T = TypeVar("T")


def test_no_attempt_begins_after_the_callers_limit():
    clock = ManualClock()
    calls: list[None] = []

    def call() -> None:
        calls.append(None)
        clock.advance(600)
        raise StoreOutcomeUnknownError("no answer")

    with CallLimit(clock.deadline_in(1_000)), pytest.raises(StoreOutcomeUnknownError):
        Attempts(lambda error: StoreOutcomeUnknownError(str(error)), pauses_s=(0, 0, 0)).run(call)
    assert len(calls) == 2


def test_threads_and_event_loops_that_make_a_call_know_its_limit():
    limit = ManualClock().deadline_in(1_000)

    async def seen() -> object:
        return (await asyncio.gather(asyncio.sleep(0, call_limit())))[0]

    with CallLimit(limit):
        assert run_interruptibly(call_limit) is limit
        assert run_within(call_limit, 10) is limit
        assert run_interruptibly(lambda: run_in_loop(seen())) is limit
    assert call_limit() is None


class Refusing(WrappedStore):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__(MemoryStore())
        self.clock = clock
        self.puts = 0

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        self.puts += 1
        self.clock.advance(2_000)
        raise StoreOutcomeUnknownError("no answer")


def test_uploads_are_not_repeated_one_by_one_after_the_deadline():
    clock = ManualClock()
    store = Refusing(clock)
    retrying = RetryingStore(store, clock=clock)
    patience = Patience(deadline=clock.deadline_in(1_000))
    with retrying.patience(patience), pytest.raises(StoreOutcomeUnknownError):
        retrying.put_many({"a": b"x", "b": b"y"})
    assert store.puts == 1


class Deaf(WrappedStore):
    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.gate = threading.Event()

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        self.gate.wait()
        return call()


CALLS: dict[str, Callable[[RetryingStore], object]] = {
    "read": lambda store: store.read("a"),
    "read_many": lambda store: store.read_many(["a", "b"]),
    "list": lambda store: [*store.list("")],
    "list_names": lambda store: store.list_names(""),
    "put": lambda store: store.put("a", b"x"),
    "put_many": lambda store: store.put_many({"a": b"x", "b": b"y"}),
    "create": lambda store: store.create("c", b"x"),
    "delete": lambda store: store.delete(["a"]),
}
WRITES = {"put", "put_many", "create", "delete"}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_not_over_in_time_is_abandoned_and_a_write_is_unknown(name):
    store = Deaf()
    retrying = RetryingStore(store, clock=SystemClock())
    try:
        with retrying.patience(Patience(deadline=SystemClock().deadline_in(10), abandons=True)):
            expected = StoreOutcomeUnknownError if name in WRITES else StoreUnavailableError
            with pytest.raises(expected, match="no answer within"):
                CALLS[name](retrying)
        with pytest.raises(expected, match="no answer within"):
            CALLS[name](retrying.abandoning(10))
    finally:
        store.gate.set()
    CALLS[name](retrying) if name != "read" else None


def test_a_listing_that_may_be_abandoned_shows_all():
    store = MemoryStore()
    for number in range(1_100):
        store.put(f"f/{number:04}", b"")
    assert len([*RetryingStore(store, clock=SystemClock()).abandoning(10_000).list("f/")]) == 1_100


def test_an_abandoned_call_goes_on():
    gate, done = threading.Event(), threading.Event()

    def call() -> None:
        gate.wait()
        done.set()

    with pytest.raises(CallAbandonedError):
        run_within(call, 0.01)
    gate.set()
    assert done.wait(10)
