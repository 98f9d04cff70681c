"""Calls that Ctrl-C may end at any moment: waits that leave no lock behind, and calls that go on without their caller.

Python runs signal handlers in the main thread alone, between any two instructions there. A KeyboardInterrupt can so
part what a caller's method changes in several steps, and leave held what it has just acquired. So what a client does
for its caller either changes something by one step, or is done in another thread, for which the caller waits.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

__all__ = ["CallAbandonedError", "CallThread", "EventCount", "SafeEvent", "SafeQueue", "bounded_s", "uninterrupted"]

T = TypeVar("T")

_LONGEST_WAIT_S = threading.TIMEOUT_MAX / 2
_SIGNAL_CHECK_INTERVAL_S = 0.25
"""The main thread waits so long at once: a signal that comes just before it begins to wait doesn't end that wait."""
_ITEM_CHECK_INTERVAL_S = 1.0
"""``get`` with a timeout waits so long at once: an interrupt may end ``put`` before it notified of its item."""


def bounded_s(timeout_s: float | None) -> float:
    """A time to wait as locks accept it: they refuse Kafka's Long.MAX_VALUE milliseconds, infinity and less than 0.

    There is a limit for None, too: a wait without one is not interrupted by Ctrl-C where a library (Polars 2.1 is one)
    has SIGINT restart what it interrupts.
    """
    return _LONGEST_WAIT_S if timeout_s is None else min(max(0.0, timeout_s), _LONGEST_WAIT_S)


class EventCount:
    """Lets threads wait until a predicate holds, and others say that it may hold now: a condition without a lock.

    ``threading.Condition`` and ``threading.Event`` are written in Python and have a lock inside, which an interrupt can
    leave held: then whoever notifies waits for ever. Here each thread that waits has a lock of its own, which it holds
    and waits for, and which a notification releases. Source: Reed and Kanodia, "Synchronization with eventcounts and
    sequencers" (1979). A ``SimpleQueue`` in place of the lock wouldn't do: in Python 3.10 to 3.12 ``get`` never returns
    if its timeout ends just before it begins to wait, as it does if the process is suspended at that moment.
    """

    def __init__(self) -> None:
        self._waiting: dict[threading.Lock, None] = {}

    @property
    def waiting_count(self) -> int:
        """Threads that wait now. One that was interrupted twice may be counted until the next notification."""
        return len(self._waiting)

    def wait_for(self, predicate: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Wait until ``predicate`` holds; False: not within the time.

        Args:
            predicate: called without any lock: at first, and after each notification.
            timeout_s: None for as long as it takes.
        """
        if predicate():
            return True
        deadline_s = time.monotonic() + bounded_s(timeout_s)
        is_main = threading.current_thread() is threading.main_thread()
        while True:
            own = threading.Lock()
            own.acquire()
            try:
                self._waiting[own] = None  # before the second look: what is notified after that look ends the wait
                if predicate():
                    return True
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return False
                own.acquire(timeout=min(left_s, _SIGNAL_CHECK_INTERVAL_S) if is_main else left_s)
            finally:
                self._waiting.pop(own, None)

    def notify_all(self) -> None:
        """Let all threads that wait now look again. Call it after the change that they wait for."""
        for waiting in list(self._waiting):
            with suppress(RuntimeError):  # another notification has released it
                waiting.release()
            self._waiting.pop(waiting, None)


def uninterrupted(call: Callable[[], T]) -> T:
    """Make a call that no interrupt can part: for the main thread another one makes it. An interrupt ends the wait; the
    call goes on by itself, and nobody learns how it ended."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    made = _Call(call, None)
    try:
        threading.Thread(target=made.run, name="sparklog-call", daemon=True).start()
    except RuntimeError:  # no more threads, or the interpreter is shutting down
        return call()
    made.wait()
    return made.result()


class SafeEvent:
    """An event that a signal handler may set, whatever the main thread is doing: waiting for it, say.

    ``threading.Event`` hangs then: its ``wait`` holds a lock, which its ``set`` in the same thread waits for.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._changed = EventCount()

    def is_set(self) -> bool:
        """Was it set?"""
        return self._is_set

    def set(self) -> None:
        """Set it, for good."""
        self._is_set = True
        self._changed.notify_all()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set; False: not within the time."""
        return self._changed.wait_for(self.is_set, timeout_s)


class SafeQueue(Generic[T]):
    """A queue as ``queue.SimpleQueue``, but ``get`` with a timeout always ends: see :class:`EventCount`."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._changed = EventCount()
        """For those who wait with a timeout; others are woken by the queue itself."""

    def empty(self) -> bool:
        """Is nothing in it now?"""
        return self._items.empty()

    def put(self, item: T) -> None:
        """Add an item at the end; it never waits."""
        self._items.put(item)
        self._changed.notify_all()

    def get(self, timeout_s: float | None = None) -> T:
        """Take the first item, once there is one. Raises ``queue.Empty`` where there is none in time.

        Args:
            timeout_s: None for as long as it takes; the main thread gives a time, or Ctrl-C may not end its wait.
        """
        if timeout_s is None:
            return self._items.get()
        deadline_s = time.monotonic() + bounded_s(timeout_s)
        while True:
            left_s = deadline_s - time.monotonic()
            if self._changed.wait_for(lambda: not self._items.empty(), min(left_s, _ITEM_CHECK_INTERVAL_S)):
                with suppress(queue.Empty):  # another thread has taken it
                    return self._items.get_nowait()
            elif left_s <= _ITEM_CHECK_INTERVAL_S:
                raise queue.Empty


class CallThread:
    """Makes calls as :func:`uninterrupted` does, where they come often: a thread that is kept makes them, one after the
    other.

    Who was interrupted while a call was under way, or has waited long enough, may make the same call again, and learns
    how it ended. For one caller at a time; what another thread than the main one calls without a time-out, it does
    itself.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()
        self._has_thread = False
        self._turn = threading.Lock()
        """Held by the thread. An interrupt at the wrong moment makes a second one, which then waits here."""
        self._pending: _Call[Any] | None = None

    @property
    def interrupted(self) -> object:
        """The key of the call whose caller was interrupted and hasn't come back; None without."""
        return None if self._pending is None else self._pending.key

    @property
    def is_held_up(self) -> bool:
        """Is that call still under way?"""
        pending = self._pending
        return pending is not None and not pending.wait(0.0)

    def run(self, call: Callable[[], T], *, key: object = None, timeout_s: float | None = None) -> T:
        """Make a call, after those before it. Returns and raises what it does.

        Args:
            key: equal for what is the same call; None: equal to no other.
            timeout_s: how long its caller waits, who may be another thread than the main one, too; None: as long as it
                takes.
        Raises:
            CallAbandonedError: it isn't over in time, and goes on; its caller may come back as after an interrupt.
        """
        if timeout_s is None and threading.current_thread() is not threading.main_thread():
            return call()
        pending = self._pending
        if pending is None or key is None or pending.key != key:
            self._pending = pending = _Call(call, key)
        self._calls.put(pending)  # if it was put before, it is passed over
        try:
            self._start()
        except RuntimeError:  # no more threads, or the interpreter is shutting down
            pending.run()
        if not pending.wait(timeout_s):
            raise CallAbandonedError(f"no end within {timeout_s} s")
        if self._pending is pending:
            self._pending = None
        return pending.result()  # type: ignore[no-any-return]

    def run_within(self, call: Callable[[], T], timeout_s: float) -> T:
        """Make a call in the thread, whoever asks for it, and wait for it so long. Returns and raises what it does.

        Raises:
            CallAbandonedError: it isn't over in time; it goes on by itself, and nobody learns how it ended.
        """
        made = _Call(call, None)
        self._calls.put(made)
        try:
            self._start()
        except RuntimeError:  # no more threads, or the interpreter is shutting down
            made.run()
        if not made.wait(timeout_s):
            raise CallAbandonedError(f"no end within {timeout_s:.1f} s")
        return made.result()

    def stop(self) -> None:
        """Let the thread end once it has made the calls that were asked for."""
        self._calls.put(None)

    def _start(self) -> None:
        if not self._has_thread:
            threading.Thread(target=self._make_calls, name=self._name, daemon=True).start()
            self._has_thread = True

    def _make_calls(self) -> None:
        with self._turn:
            while (call := self._calls.get()) is not None:
                call.run()
                del call  # it may hold whoever has this thread
        self._calls.put(None)  # for a second thread


class CallAbandonedError(Exception):
    """A call wasn't over in time, and goes on by itself."""


class _Call(Generic[T]):
    """A call that another thread makes."""

    def __init__(self, call: Callable[[], T], key: object) -> None:
        self.key = key
        self._call: Callable[[], T] | None = call
        self._is_done = False
        self._returned: list[T] = []
        self._error: BaseException | None = None
        self._news = EventCount()

    def run(self) -> None:
        """Make the call, unless it was made before."""
        call, self._call = self._call, None
        if call is None:
            return
        try:
            self._returned.append(call())
        except BaseException as error:
            self._error = error
        self._is_done = True
        self._news.notify_all()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is made; False: not within the time."""
        return self._news.wait_for(lambda: self._is_done, timeout_s)

    def result(self) -> T:
        """The call's result; raises the error that the call raised."""
        if self._error is not None:
            raise self._error
        return self._returned[0]
