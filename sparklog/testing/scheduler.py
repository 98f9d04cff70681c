"""Several processes in one, one at a time, in an order that a seed decides: each store call is where to switch."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import TypeVar

from sparklog.storage.base import ObjectStore
from sparklog.testing.wrapped_store import WrappedStore

__all__ = ["Scheduler", "SteppedStore"]

T = TypeVar("T")


class Scheduler:
    """Runs tasks in threads of which exactly one moves at any time; the same seed gives the same order.

    A task gives up its turn at every call to a :class:`SteppedStore` of this scheduler. Tasks must not wait for one
    another by other means.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a replayable order is the point
        self._tasks: list[_Task] = []
        self.order: list[str] = []
        """The names of the tasks in the order in which they had their turns."""

    def spawn(self, name: str, work: Callable[[], object]) -> None:
        """Add a task; it starts at :meth:`run`."""
        self._tasks.append(_Task(name, work))

    def store(self, store: ObjectStore) -> SteppedStore:
        """``store`` as the tasks of this scheduler must see it."""
        return SteppedStore(store, self)

    def run(self) -> None:
        """Run all tasks to their end, then raise the first error that one of them ended with."""
        waiting = list(self._tasks)
        while waiting:
            task = self._random.choice(waiting)
            self.order.append(task.name)
            task.turn()
            if task.done:
                waiting.remove(task)
        for task in self._tasks:
            if task.error is not None:
                raise task.error

    def switch(self) -> None:
        """Called by a task: let the scheduler choose who goes on. Elsewhere it does nothing."""
        current = threading.current_thread()
        for task in self._tasks:
            if task.thread is current:
                task.give_up_turn()


class SteppedStore(WrappedStore):
    """Another store, each call of which is a point where the scheduler may switch."""

    def __init__(self, store: ObjectStore, scheduler: Scheduler) -> None:
        super().__init__(store)
        self._scheduler = scheduler

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        self._scheduler.switch()
        return call()


class _Task:
    def __init__(self, name: str, work: Callable[[], object]) -> None:
        self.name = name
        self.error: BaseException | None = None
        self.done = False
        self._work = work
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def turn(self) -> None:
        self._go.release()
        self._stopped.acquire()

    def give_up_turn(self) -> None:
        self._stopped.release()
        self._go.acquire()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._work()
        except BaseException as error:  # raised by run(), whatever it is
            self.error = error
        finally:
            self.done = True
            self._stopped.release()
