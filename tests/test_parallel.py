"""Calls side by side: their order, their bound, what fails, and what the threads see of the caller."""

import _thread
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sparklog import parallel
from sparklog.errors import InvalidArgumentError, StoreUnavailableError
from sparklog.parallel import parallel_map, parallel_results
from sparklog.storage import MemoryStore
from sparklog.storage.retrying import Patience, RetryingStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock


def test_results_keep_the_order_of_the_items_and_few_enough_calls_are_under_way():
    lock, under_way, most, meeting = threading.Lock(), 0, 0, threading.Barrier(2)

    def call(number: int) -> int:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.001 * (number % 3))
        if number < 2:
            meeting.wait(60)
        with lock:
            under_way -= 1
        return number * number

    assert parallel_map(call, range(40), at_once=4) == [number * number for number in range(40)]
    assert 1 < most <= 4


def test_none_and_one_need_no_thread(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parallel, "ThreadPoolExecutor", None)
    assert parallel_map(str, []) == []
    assert parallel_map(lambda _: threading.current_thread(), [1]) == [threading.current_thread()]


def test_where_no_thread_can_be_started_the_caller_makes_the_calls(monkeypatch: pytest.MonkeyPatch):
    """A consumer that ``atexit`` closes, while the interpreter shuts down, leaves its group nevertheless."""

    class ShuttingDown(ThreadPoolExecutor):
        def submit(self, call, /, *args, **kwargs):
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(parallel, "ThreadPoolExecutor", ShuttingDown)
    assert parallel_map(lambda number: (number, threading.current_thread()), [1, 2]) == [
        (1, threading.current_thread()),
        (2, threading.current_thread()),
    ]
    with pytest.raises(RuntimeError, match="own"):
        parallel_map(_raise_own, [1, 2])


def _raise_own(_: int) -> None:
    raise RuntimeError("the call's own")


@pytest.fixture
def cancelled(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Is set once what hasn't begun is cancelled. Until then other calls are to wait: there is no telling how many a
    busy machine would else make."""
    event, cancel = threading.Event(), parallel._cancel

    def cancel_and_tell(futures: Any) -> None:
        cancel(futures)
        event.set()

    monkeypatch.setattr(parallel, "_cancel", cancel_and_tell)
    return event


def test_the_first_error_by_item_order_is_raised_and_nothing_more_is_called(cancelled: threading.Event):
    called = []

    def call(number: int) -> None:
        called.append(number)
        if number == 0:
            raise InvalidArgumentError("the first")
        assert cancelled.wait(60)
        raise InvalidArgumentError(f"number {number}")

    with pytest.raises(InvalidArgumentError, match="the first"):
        parallel_map(call, range(100), at_once=2)
    assert len(called) < 10


def test_an_interrupt_ends_the_wait_and_nothing_more_is_called(
    monkeypatch: pytest.MonkeyPatch, cancelled: threading.Event
):
    called = []

    class Interrupted(ThreadPoolExecutor):
        def submit(self, call, /, *args, **kwargs):
            future = super().submit(call, *args, **kwargs)
            monkeypatch.setattr(future, "result", interrupt)  # as if the signal came while the caller waits
            return future

    def interrupt(timeout=None):
        raise KeyboardInterrupt

    def call(number: int) -> None:
        called.append(number)
        assert cancelled.wait(60)

    monkeypatch.setattr(parallel, "ThreadPoolExecutor", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        parallel_map(call, range(100), at_once=2)
    assert len(called) < 10


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_calls_under_way_are_stopped_by_an_error_or_an_interrupt(is_interrupted: bool):
    stopped = threading.Event()
    begun: list[int] = []

    def act(number: int) -> None:
        begun.append(number)
        if number == 0 and not is_interrupted:
            raise OSError("odd")
        if number == 0:
            _thread.interrupt_main()
        assert stopped.wait(60)

    with pytest.raises(KeyboardInterrupt if is_interrupted else OSError):
        parallel_map(act, range(40), at_once=16, stop=stopped.set)
    assert stopped.is_set()
    assert len(begun) < 40


def test_an_error_of_one_item_does_not_hide_another():
    def call(number: int) -> int:
        if number % 2:
            raise InvalidArgumentError(f"number {number}")
        return number

    assert [str(result) for result in parallel_results(call, range(4))] == ["0", "number 1", "2", "number 3"]


def test_the_patience_of_the_caller_holds_in_the_threads():
    """Otherwise each call of a rebalance that must end soon repeats failing requests for 30 seconds."""
    clock = ManualClock()
    faulty = FaultyStore(MemoryStore(), Fault(kind=FaultKind.THROTTLED, times=None))
    store = RetryingStore(faulty, clock=clock)
    with store.patience(Patience(deadline=clock.deadline_in(None), retries=1)), pytest.raises(StoreUnavailableError):
        parallel_map(store.read, ["a", "b", "c"])
    assert len(faulty.calls) == 3 * 2


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_where_threads_are_few_each_call_is_made_once_all_the_same(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """✗ An executor that can't start its second thread raises an error, and makes the call nevertheless."""
    start, left, made = threading.Thread.start, [limit], []

    def some(thread: threading.Thread) -> None:
        if left[0] == 0:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    def call(number: int) -> int:
        made.append(number)
        return 2 * number

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", some)
        assert parallel_map(call, range(20)) == [2 * number for number in range(20)]
    assert sorted(made) == [*range(20)]
