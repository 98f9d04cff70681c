"""Coroutines for threads that wait for them: one event loop per process, in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from sparklog.clock import Deadline
from sparklog.storage.call_limit import CallLimit, call_limit
from sparklog.workers import no_thread

__all__ = ["gather", "run_in_loop"]

S = TypeVar("S")
T = TypeVar("T")

_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}
"""By process id: a thread doesn't survive a fork."""


def run_in_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the process's loop, within this thread's :func:`~sparklog.storage.call_limit.call_limit`, and
    wait for its result. Not for the main thread, which an interrupt could part between making the loop and starting
    it."""
    loop = _loop()
    return asyncio.run_coroutine_threadsafe(_within(call_limit(), coroutine), loop).result()


async def _within(limit: Deadline | None, coroutine: Coroutine[Any, Any, T]) -> T:
    with CallLimit(limit):
        return await coroutine


def _loop() -> asyncio.AbstractEventLoop:
    process = os.getpid()
    running = _LOOPS.get(process)
    if running is not None:
        return running
    new = _started_loop()
    running = _LOOPS.setdefault(process, new)
    if running is not new:  # another thread was faster
        new.call_soon_threadsafe(new.stop)
    return running


def _started_loop() -> asyncio.AbstractEventLoop:
    """A loop in a thread of its own. Raises ``NoThreadError`` where no thread can be started: nobody may wait for a
    loop that doesn't run."""
    loop = asyncio.new_event_loop()
    try:
        threading.Thread(target=_run, args=(loop,), name="sparklog-requests", daemon=True).start()
    except RuntimeError as error:
        loop.close()
        raise no_thread("sparklog-requests", error) from error
    return loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


async def gather(call: Callable[[S], Awaitable[T]], arguments: Sequence[S], at_once: int) -> list[T]:
    """Await ``call`` for each argument, at most ``at_once`` at a time; raise the first error once all have ended."""
    slots = asyncio.Semaphore(at_once)

    async def one(argument: S) -> T:
        async with slots:
            return await call(argument)

    results = await asyncio.gather(*(one(argument) for argument in arguments), return_exceptions=True)
    answers = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        answers.append(result)
    return answers
