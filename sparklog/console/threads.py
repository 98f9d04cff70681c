"""Calls that may hang, as those to a store that is away: each in a thread of a bounded number, and awaited only as long
as it makes sense."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from sparklog.interrupts import SafeQueue
from sparklog.workers import Worker

__all__ = ["GivesUp", "Threads", "result_of"]

T = TypeVar("T")

GivesUp = Callable[[], Exception | None]
"""Asked again and again while a call is awaited: an error ends the wait, though not the call."""

_LOOK_S = 0.2
_IDLE_S = 5.0
"""A thread without work ends after so long."""


class Threads:
    """Threads for calls. At most so many; later calls wait for one. A process that exits doesn't wait for them."""

    def __init__(self, name: str, most: int) -> None:
        """Starts nothing."""
        self._name = name
        self._most = most
        self._lock = threading.Lock()
        self._waiting: SafeQueue[tuple[Future[Any], Callable[[], Any]]] = SafeQueue()
        self._thread_count = 0
        self._open_count = 0
        """Calls that wait or are under way."""

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Have a call made, with the caller's context variables. Raises ``RuntimeError`` where no thread can be
        started."""
        future: Future[T] = Future()
        with self._lock:
            if self._open_count >= self._thread_count < self._most:
                Worker(self._name, self._work).start()
                self._thread_count += 1
            self._open_count += 1
            self._waiting.put((future, partial(copy_context().run, call)))
        return future

    def _work(self) -> None:
        while True:
            try:
                future, call = self._waiting.get(_IDLE_S)
            except queue.Empty:
                with self._lock:
                    if self._waiting.empty():
                        self._thread_count -= 1
                        return
                continue
            try:
                if future.set_running_or_notify_cancel():
                    _settle(future, call)
            finally:
                with self._lock:
                    self._open_count -= 1
            del future, call  # nothing of an answer is kept while the thread waits


def _settle(future: Future[Any], call: Callable[[], Any]) -> None:
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


async def result_of(future: Future[T], gives_up: GivesUp) -> T:
    """The result of a call in a thread, or what it raises; what ``gives_up`` returns where the wait ends before."""
    waiting = asyncio.wrap_future(future)
    try:
        while True:
            done, _ = await asyncio.wait([waiting], timeout=_LOOK_S)
            if done:
                return waiting.result()
            error = gives_up()
            if error is not None:
                raise error
    finally:
        future.cancel()  # a call that waits isn't made
        waiting.cancel()  # and nobody asks any more of one that is under way
