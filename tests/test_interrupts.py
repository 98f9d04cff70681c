"""What Ctrl-C may end: it leaves nothing held, and nothing half done."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable
from functools import partial
from itertools import cycle
from types import SimpleNamespace

import pytest

from sparklog import interrupts
from sparklog.interrupts import CallThread, EventCount, SafeEvent, SafeQueue, uninterrupted
from tests.interrupting import POINTS, interrupt, numbers

LONG_S = 60.0
"""For what is there in milliseconds: reached only by a test that fails."""


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("timeout_s", [0.0, 0.000_001])
def test_a_wait_that_is_interrupted_anywhere_keeps_nobody_from_waiting_or_notifying(
    point: str, timeout_s: float
) -> None:
    for at in numbers():
        events = EventCount()
        was_reached = interrupt(partial(events.wait_for, bool, timeout_s), at=at, point=point)
        events.notify_all()
        assert events.waiting_count == 0
        if not was_reached:
            break
    assert at > 5


@pytest.mark.parametrize("point", POINTS)
def test_a_notification_that_is_interrupted_may_be_repeated(point: str) -> None:
    for at in numbers():
        events, seen = EventCount(), list[int]()
        waiting = threading.Thread(target=events.wait_for, args=(seen.__len__,), daemon=True)
        waiting.start()
        while not events.waiting_count:
            pass
        seen.append(1)
        was_reached = interrupt(events.notify_all, at=at, point=point)
        events.notify_all()
        waiting.join(LONG_S)
        assert not waiting.is_alive()
        if not was_reached:
            break


@pytest.mark.parametrize("point", POINTS)
def test_an_event_that_a_signal_handler_sets_anywhere_in_its_wait_ends_the_wait(point: str) -> None:
    for at in numbers():
        event, seen = SafeEvent(), list[bool]()
        was_reached = interrupt(lambda: seen.append(event.wait(0.002)), at=at, point=point, act=event.set)  # noqa: B023
        assert event.is_set() == was_reached
        assert event.wait(0) == was_reached
        if not was_reached:
            break
    assert at > 5
    assert seen == [False]


def test_a_wait_ends_as_soon_as_its_predicate_holds() -> None:
    events, seen = EventCount(), list[int]()

    def change() -> None:
        seen.append(1)
        events.notify_all()

    threading.Timer(0.01, change).start()
    assert events.wait_for(lambda: seen, LONG_S)
    assert events.wait_for(lambda: seen, 0)
    assert not events.wait_for(lambda: False, 0)
    assert not events.wait_for(lambda: False, -1)


def test_a_wait_whose_time_is_up_before_it_begins_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """As happens if the process is suspended at that moment. ``SimpleQueue.get`` never returns then."""
    ticks = cycle([0.0, 0.0, 1.0])  # as it is called, before it waits for the microsecond that is left, and afterwards
    monkeypatch.setattr(interrupts, "time", SimpleNamespace(monotonic=lambda: next(ticks)))

    def wait() -> None:
        for _ in range(20_000):
            assert not EventCount().wait_for(bool, 0.000_001)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(LONG_S)
    assert not waiting.is_alive()


def test_a_queue_gives_each_item_to_one_thread_and_ends_in_time() -> None:
    items, taken = SafeQueue[int](), list[int]()

    def take(timeout_s: float | None) -> None:
        while (item := items.get(timeout_s)) >= 0:
            taken.append(item)

    threads = [threading.Thread(target=take, args=(each,), daemon=True) for each in (LONG_S, LONG_S, None, None)]
    for thread in threads:
        thread.start()
    for number in [*range(2_000), -1, -1, -1, -1]:
        items.put(number)
    for thread in threads:
        thread.join(LONG_S)
    assert sorted(taken) == [*range(2_000)]
    assert items.empty()
    for timeout_s in (0.001, 0, -1):
        with pytest.raises(queue.Empty):
            items.get(timeout_s)


def test_an_item_whose_put_was_interrupted_before_it_notified_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    items, taken = SafeQueue[int](), list[int]()
    monkeypatch.setattr(interrupts, "_ITEM_CHECK_INTERVAL_S", 0.05)
    thread = threading.Thread(target=lambda: taken.append(items.get(LONG_S)), daemon=True)
    thread.start()
    while not items._changed.waiting_count:
        pass
    items._items.put(1)
    thread.join(LONG_S)
    assert taken == [1]


@pytest.mark.parametrize("point", POINTS)
def test_a_put_that_is_interrupted_anywhere_adds_its_item_once_or_not_at_all(point: str) -> None:
    for at in numbers():
        items = SafeQueue[int]()
        was_reached = interrupt(partial(items.put, 1), at=at, point=point)
        items.put(2)
        taken = [items.get(LONG_S)]
        while not items.empty():
            taken.append(items.get(LONG_S))
        assert taken in ([[1, 2], [2]] if was_reached else [[1, 2]])
        if not was_reached:
            break
    assert at > 1


def interrupting(work: Callable[[], object], go_on: threading.Event) -> Callable[[], object]:
    """Interrupts the main thread, then goes on once it may."""

    def call() -> object:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert go_on.wait(LONG_S)
        return work()

    return call


@pytest.mark.usefixtures("sigint")
def test_a_call_goes_on_when_its_caller_is_interrupted() -> None:
    go_on, done = threading.Event(), threading.Event()
    with pytest.raises(KeyboardInterrupt):
        uninterrupted(interrupting(done.set, go_on))
    assert not done.is_set()
    go_on.set()
    assert done.wait(LONG_S)


def test_the_same_call_again_tells_how_the_interrupted_one_ended() -> None:
    calls, go_on, made = CallThread("calls"), threading.Event(), []
    with pytest.raises(KeyboardInterrupt):
        calls.run(interrupting(lambda: made.append("first"), go_on), key="commit")
    assert calls.interrupted == "commit"
    go_on.set()
    calls.run(lambda: made.append("second"), key="commit")
    assert made == ["first"]
    calls.run(lambda: made.append("third"), key="commit")
    assert made == ["first", "third"]
    assert calls.interrupted is None
    calls.stop()


def test_another_call_waits_for_the_interrupted_one() -> None:
    calls, go_on, made = CallThread("calls"), threading.Event(), []
    for key in ("commit", None):
        go_on.clear()
        with pytest.raises(KeyboardInterrupt):
            calls.run(interrupting(lambda: made.append("first"), go_on), key=key)
        threading.Timer(0.01, go_on.set).start()
        calls.run(lambda: made.append("other"), key=None)
    assert made == ["first", "other"] * 2
    calls.stop()


@pytest.mark.parametrize("point", POINTS)
def test_a_call_whose_caller_is_interrupted_anywhere_is_made_once_by_the_next_try(point: str) -> None:
    calls = CallThread("calls")
    for at in numbers():
        made: list[int] = []
        was_reached = interrupt(partial(calls.run, partial(made.append, 1), key=("commit", at)), at=at, point=point)
        if was_reached:
            calls.run(partial(made.append, 1), key=("commit", at))
        calls.run(lambda: None)
        assert 1 <= len(made) <= 2  # the second where the first was told already
        if not was_reached:
            break
    calls.stop()


def test_errors_are_raised_where_the_call_was_made() -> None:
    calls = CallThread("calls")
    for run in (uninterrupted, calls.run):
        with pytest.raises(ZeroDivisionError):
            run(lambda: 1 // 0)
        assert run(lambda: threading.current_thread() is threading.main_thread()) is False
    calls.stop()


def test_other_threads_than_the_main_one_make_their_calls_themselves() -> None:
    seen: list[bool] = []

    def work() -> None:
        for run in (uninterrupted, CallThread("calls").run):
            seen.append(run(threading.current_thread) is threading.current_thread())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(LONG_S)
    assert seen == [True, True]
