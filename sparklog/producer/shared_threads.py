"""The threads of a producer, which its topics share: as many as each topic may use, up to a bound of all.

A topic that has something to do is looked at by one thread; what that thread finds it does, then it looks again, or at
another topic that waits. Up to the bound it is as if each topic had threads of its own.

A call that a store doesn't answer holds up a thread for as long as it takes. Such threads don't count: others take
their place, up to a second bound, so topics whose store answers go on.
"""

from __future__ import annotations

import heapq
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from sparklog.errors import NoThreadError
from sparklog.interrupts import bounded_s
from sparklog.workers import Worker

__all__ = ["MOST_HELD_UP", "MOST_THREADS", "Look", "SharedThreads", "Turns"]

_LOGGER = logging.getLogger("sparklog.producer")

MOST_THREADS = 24
"""Threads of a producer that work at once, whatever the number of its topics: by them alone a process of one producer
stays below 64."""
MOST_HELD_UP = 256
"""Threads with those that wait for a store that doesn't answer."""
_HELD_UP_S = 5.0
"""A thread that has done the same for as long is held up."""
_GUARD_INTERVAL_S = 1.0
_GUARD = 0
"""The number of the thread that replaces others."""


class Look(NamedTuple):
    """The result of a thread's look at a topic."""

    act: Callable[[], object] | None = None
    """Is to be done now, without the lock; None: nothing is."""
    wait_ms: float | None = None
    """Where there is nothing to do: the time after which there may be; None: once the topic's turns are notified."""


class Turns:
    """A topic's share in the threads. Guarded by the buffer's lock, which is held by whoever calls.

    It is notified as a condition is: from calls that Ctrl-C may end between any two steps.
    """

    def __init__(self) -> None:
        self.places = 0
        """How many threads may work for the topic at once; 0 before it has any, and once it is closed."""
        self.at_work_count = 0
        """How many do."""
        self.is_ready = False
        """Does it wait for a thread?"""
        self.due_s: float | None = None
        """When a thread is to look at it, on the clock of ``time.monotonic``; None: once it is notified."""
        self.look: Callable[[], Look] = Look
        """Decides what there is to do."""
        self.fail: Callable[[BaseException], None] = _unknown_failure
        """Called by a thread that ends by a defect, without the lock."""
        self.threads: SharedThreads | None = None

    def notify(self) -> None:
        """Let a thread look whether there is something to do. Those that work for the topic look by themselves before
        they leave it."""
        if not self.is_ready and self.at_work_count < self.places and self.threads is not None:
            self.threads.take_up(self)


class SharedThreads:
    """Threads that work for the topics of a producer. Guarded by the buffer's lock."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._idle = threading.Condition(lock)
        """Threads that wait for a topic that is ready, or due."""
        self._idle_count = 0
        self._ready: deque[Turns] = deque()
        self._due: list[tuple[float, int, Turns]] = []
        """A heap of moments at which topics are due, each with a number; those that don't hold any more stay in it."""
        self._due_number = 0
        self._timer_s = math.inf
        """The moment that an idle thread waits for."""
        self._workers: dict[int, Worker] = {}
        """Threads that were started and haven't ended, by their numbers."""
        self._number = 0
        self._places = 0
        """The sum of all topics' places."""
        self._at_work: dict[int, tuple[Turns, float]] = {}
        """By thread: for which topic it works, and since when."""
        self._exhausted = threading.Condition(lock)
        """Notified where no thread is idle, and a topic waits: the guard alone waits for it."""
        self._is_guard_idle = False

    def add(self, turns: Turns, places: int) -> None:
        """Let a topic use the threads. Raises ``NoThreadError`` where there is none, and none can be started."""
        with self._lock:
            turns.threads, turns.places = self, places
            self._places += places
        try:
            self._start_missing()
        except NoThreadError as error:
            with self._lock:
                if not self._workers:
                    self.remove(turns)
                    raise
            _LOGGER.info("a producer has fewer threads than it might use: %s", error)

    def add_place(self, turns: Turns) -> bool:
        """Let a topic use one thread more. False: no thread can be started for it. The lock is held."""
        turns.places += 1
        self._places += 1
        missing = self._new_worker()
        try:
            if missing is not None:
                self._start(*missing)
        except NoThreadError as error:
            self.remove_place(turns)
            _LOGGER.info("a producer has fewer threads than it might use: %s", error)
            return False
        return True

    def remove_place(self, turns: Turns) -> None:
        """Take a place from a topic: the thread that had it ends. The lock is held."""
        turns.places -= 1
        self._places -= 1

    def remove(self, turns: Turns) -> None:
        """Let a topic use the threads no more; those that nobody needs end. The lock is held."""
        self._places -= turns.places
        turns.places, turns.due_s = 0, None
        self._idle.notify_all()
        self._exhausted.notify_all()

    def take_up(self, turns: Turns) -> None:
        """Let a thread look at a topic. The lock is held; an interrupt may end this between any two steps, after which
        the topic is looked at once too often, at most."""
        self._ready.append(turns)
        if self._idle_count:
            self._idle.notify()
        elif self._is_guard_idle:
            self._exhausted.notify()
        turns.is_ready = True

    def works_for(self, turns: Turns) -> bool:
        """Does the current thread work for a topic?"""
        at_work = self._at_work.get(threading.get_ident())
        return at_work is not None and at_work[0] is turns

    @property
    def owns_current_thread(self) -> bool:
        """Does the current thread work for any topic?"""
        return threading.get_ident() in self._at_work

    def join(self, timeout_s: float) -> bool:
        """Wait until all threads have ended: no topic is left. False: not in time, or one of them asks."""
        until_s = time.monotonic() + bounded_s(timeout_s)
        with self._lock:
            workers = [*self._workers.values()]
        have_ended = [worker.join(until_s - time.monotonic()) for worker in workers]
        return all(have_ended)

    def _start_missing(self) -> None:
        """Start threads as far as topics have places for them. The lock isn't held: a thread takes a while to start."""
        while True:
            with self._lock:
                missing = self._new_worker()
            if missing is None:
                return
            self._start(*missing)

    def _new_worker(self) -> tuple[int, Worker] | None:
        """A thread that is to be started; it counts from now on. None: there are enough. The lock is held."""
        if self._places > MOST_THREADS and _GUARD not in self._workers:
            number, worker = _GUARD, Worker("sender-guard", self._watch)
        elif self._count < self._most():
            self._number = number = self._number + 1
            worker = Worker(f"sender-{number}", lambda: self._run(number))
        else:
            return None
        self._workers[number] = worker
        return number, worker

    def _start(self, number: int, worker: Worker) -> None:
        try:
            worker.start()
        except NoThreadError:
            self._workers.pop(number, None)
            raise

    @property
    def _count(self) -> int:
        return len(self._workers) - (_GUARD in self._workers)

    def _most(self) -> int:
        """How many threads there are to be. The lock is held."""
        most = min(MOST_THREADS, self._places)
        if self._count < most or self._places <= MOST_THREADS:
            return most
        return min(MOST_HELD_UP, self._places, most + self._held_up_count())

    def _held_up_count(self) -> int:
        before_s = time.monotonic() - _HELD_UP_S
        return sum(since_s <= before_s for _, since_s in self._at_work.values())

    def _run(self, number: int) -> None:
        turns: Turns | None = None
        ident = threading.get_ident()
        while True:
            with self._lock:
                found = self._next(turns, number, ident)
            if found is None:
                return
            turns, act = found
            try:
                act()
            except BaseException as error:  # a defect
                self._end_by(error, turns, number, ident)
                raise
            del found, act  # a thread that waits holds no batches

    def _end_by(self, error: BaseException, turns: Turns, number: int, ident: int) -> None:
        """End this thread; others take over what it leaves."""
        turns.fail(error)
        with self._lock:
            self._at_work.pop(ident, None)
            turns.at_work_count -= 1
            self._workers.pop(number, None)
            turns.notify()
        try:
            self._start_missing()
        except NoThreadError as why:
            _LOGGER.warning("a producer has fewer threads than it might use: %s", why)

    def _next(self, turns: Turns | None, number: int, ident: int) -> tuple[Turns, Callable[[], object]] | None:
        """Wait for something to do; None: this thread is to end. The lock is held.

        Args:
            turns: of the topic that this thread has worked for, which it looks at again; None: for none.
        """
        if turns is not None and self.is_exhausted:  # it gets in line
            self._leave(turns, ident)
            turns.notify()
            turns = None
        while True:
            if turns is None:
                turns = self._wait_for_topic(number)
                if turns is None:
                    return None
                turns.at_work_count += 1
            self._at_work[ident] = (turns, time.monotonic())
            try:
                act, wait_ms = turns.look()
            except BaseException as error:  # a defect, as one in what is done
                return turns, partial(_raise, error)
            if act is not None:
                return turns, act
            self._leave(turns, ident)
            self._set_due(turns, wait_ms)
            turns = None

    def _leave(self, turns: Turns, ident: int) -> None:
        turns.at_work_count -= 1
        self._at_work.pop(ident, None)

    def _set_due(self, turns: Turns, wait_ms: float | None) -> None:
        if wait_ms is None or turns.places == 0:
            turns.due_s = None
            return
        turns.due_s = time.monotonic() + bounded_s(wait_ms / 1000)
        self._due_number += 1
        heapq.heappush(self._due, (turns.due_s, self._due_number, turns))

    def _wait_for_topic(self, number: int) -> Turns | None:
        """Wait until a topic is ready or due; None: there are more threads than are needed. The lock is held."""
        while True:
            turns = self._take()
            if turns is not None:
                if self.is_exhausted and self._is_guard_idle:
                    self._exhausted.notify()
                first_s = self._first_due_s()
                if first_s is not None and first_s < self._timer_s:
                    self._idle.notify()  # another thread waits for that
                return turns
            if self._count > self._most():
                self._workers.pop(number, None)
                self._idle.notify()  # what this thread may have been woken for, others look at
                return None
            first_s = self._first_due_s()
            self._wait(first_s if first_s is not None and first_s < self._timer_s else None)

    def _take(self) -> Turns | None:
        """The next topic that a thread is to look at; None: there is none now."""
        while self._ready:
            turns = self._ready.popleft()
            turns.is_ready = False
            if turns.at_work_count < turns.places:
                turns.due_s = None
                return turns
        while (first_s := self._first_due_s()) is not None and first_s <= time.monotonic():
            _, _, turns = heapq.heappop(self._due)
            turns.due_s = None
            if turns.at_work_count < turns.places:
                return turns
        return None

    def _wait(self, until_s: float | None) -> None:
        """Wait until a topic is ready; ``until_s``: or until this moment, for all threads that wait. More threads than
        usual don't wait for long."""
        self._idle_count += 1
        try:
            if until_s is None:
                self._idle.wait(None if self._count <= MOST_THREADS else _HELD_UP_S)
            else:
                self._timer_s = until_s
                self._idle.wait(max(0.0, until_s - time.monotonic()))
        finally:
            self._idle_count -= 1
            if until_s == self._timer_s:
                self._timer_s = math.inf

    def _first_due_s(self) -> float | None:
        """The first moment at which a topic is due; None: none is."""
        while self._due and self._due[0][2].due_s != self._due[0][0]:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def _watch(self) -> None:
        """Start threads in place of those that are held up, while topics wait. For the guard, a thread of its own."""
        while True:
            with self._lock:
                while self._places > MOST_THREADS and not self.is_exhausted:
                    self._is_guard_idle = True
                    self._exhausted.wait()
                self._is_guard_idle = False
                if self._places > MOST_THREADS:
                    self._exhausted.wait(_GUARD_INTERVAL_S)
                if self._places <= MOST_THREADS:
                    self._workers.pop(_GUARD, None)
                    return
                is_exhausted = self.is_exhausted
            if is_exhausted:
                try:
                    self._start_missing()
                except NoThreadError as error:
                    _LOGGER.warning("threads that wait for a store can't be replaced: %s", error)

    @property
    def is_exhausted(self) -> bool:
        """Does a topic wait, and no thread is idle? Whoever works for a topic lets others have a turn."""
        return bool(self._ready) and not self._idle_count


def _unknown_failure(error: BaseException) -> None:
    """Nobody is to be told."""


def _raise(error: BaseException) -> None:
    raise error
