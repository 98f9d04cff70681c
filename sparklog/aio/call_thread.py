"""The one thread of a client for asyncio: it makes the calls that wait, one after the other."""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from sparklog.errors import IllegalStateError
from sparklog.interrupts import SafeQueue
from sparklog.workers import Worker

__all__ = ["LoopThread", "result_of"]

T = TypeVar("T")

_CALLBACK: contextvars.ContextVar[object] = contextvars.ContextVar("sparklog_callback", default=None)
"""The callback that is running, a rebalance listener's, for which a client's thread waits; or has waited, where the
callback has begun other tasks."""
_LOOK_S = 1.0
"""How often the thread that waits for code of the loop looks whether there still is a loop."""


class _Call:
    """A call on its way. ``done`` belongs to the loop; the thread touches nothing but through it."""

    __slots__ = ("context", "done", "function", "is_nested", "is_poll")

    def __init__(self, function: Callable[[], Any], done: asyncio.Future[Any], *, is_nested: bool, is_poll: bool):
        self.function = function
        self.context = contextvars.copy_context()
        """The caller's: what is done for it belongs to its trace, say."""
        self.done = done
        self.is_nested = is_nested
        self.is_poll = is_poll


class LoopThread:
    """Makes calls for one event loop. The thread is started by the first call, and ended by :meth:`end`.

    Args:
        client: what it is the thread of, for errors.
        wake: ends a poll that waits, so that other calls are made meanwhile.
    """

    def __init__(self, client: str, wake: Callable[[], None] | None = None) -> None:
        self._client = client
        self._wake = wake
        self._calls: SafeQueue[_Call | None] = SafeQueue()
        self._set_aside: deque[_Call] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()
        self._worker: Worker | None = None
        self._is_polling = False
        self._callback: object = None
        """The callback for which the thread waits."""
        self._callback_task: asyncio.Task[Any] | None = None
        self.pending_count = 0
        """Calls that were submitted and haven't ended, as the loop knows it."""
        self.is_ended = False

    def bind(self) -> asyncio.AbstractEventLoop:
        """The running loop, which is this client's from now on.

        Raises:
            IllegalStateError: the client is used by another loop, outside of one, or in a forked process; or is closed.
        """
        if os.getpid() != self._process:
            raise IllegalStateError(
                f"this {self._client} was made before the process was forked, and its thread is not in the child: "
                "make a new one there"
            )
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise IllegalStateError(f"this {self._client} was called outside of a running event loop") from None
        if self._loop is None:
            self._loop = loop
        if loop is not self._loop:
            state = "is closed" if self._loop.is_closed() else "is another one than that which runs now"
            raise IllegalStateError(f"this {self._client} belongs to the event loop that used it first, which {state}")
        if self.is_ended:
            raise IllegalStateError(f"this {self._client} is closed")
        return loop

    @property
    def is_nested(self) -> bool:
        """Does the thread wait for the code that asks this: a callback of its client, or a task that it began?"""
        return self._callback is not None and _CALLBACK.get() is self._callback

    @property
    def is_callback(self) -> bool:
        """Is the code that asks this a callback for which the thread waits, and no task that it began?"""
        return self._callback is not None and asyncio.current_task() is self._callback_task

    def submit(self, function: Callable[[], T], *, is_poll: bool = False) -> asyncio.Future[T]:
        """Have a call made, after those before it; a poll lets other calls pass. Returns a future that nobody should
        cancel: see :func:`result_of`."""
        loop = self.bind()
        done: asyncio.Future[T] = loop.create_future()
        call = _Call(function, done, is_nested=self.is_nested and not is_poll, is_poll=is_poll)
        if self._worker is None:
            worker = Worker("aio", self._run)
            worker.start()
            self._worker = worker
        self.pending_count += 1
        done.add_done_callback(self._ended)
        self._calls.put(call)
        self.wake_poll()
        return done

    def wake_poll(self) -> None:
        """End the wait of the poll that is in the thread, if one is."""
        if self._is_polling and self._wake is not None:
            self._wake()

    async def call(self, function: Callable[[], T]) -> T:
        """Have a call made and wait for it. Who is cancelled meanwhile doesn't end the call, nor undo it."""
        return await result_of(self.submit(function))

    def end(self) -> None:
        """Let the thread end after the calls that were submitted; no more are taken."""
        self.is_ended = True
        self._calls.put(None)

    def poll(self, attempt: Callable[[], T | None]) -> T | None:
        """In the thread: attempt something that waits until it is woken; make the calls that came before it."""
        self._is_polling = True
        try:
            self._make_waiting()
            return attempt()
        finally:
            self._is_polling = False

    def run_on_loop(self, start: Callable[[], Any]) -> Any:
        """In the thread: run a coroutine on the loop and wait for it; make the calls that it makes meanwhile.

        Args:
            start: returns an awaitable, or the result.
        """
        loop, answers = self._loop, self._calls
        if loop is None or loop.is_closed():
            raise IllegalStateError(f"the event loop of this {self._client} is closed")
        outcome: list[tuple[Any, BaseException | None]] = []
        callback = object()

        async def run() -> None:
            _CALLBACK.set(callback)
            self._callback_task = asyncio.current_task()
            try:
                made = start()
                outcome.append((await made if hasattr(made, "__await__") else made, None))
            except BaseException as error:
                outcome.append((None, error))
            answers.put(_NOTHING)

        tasks: list[asyncio.Task[None]] = []
        self._callback, former = callback, self._callback
        try:
            loop.call_soon_threadsafe(lambda: tasks.append(loop.create_task(run())))
            self._make_nested(loop, outcome)
        finally:
            self._callback, self._callback_task = former, None
        result, error = outcome[0]
        if error is not None:
            raise error if isinstance(error, Exception) else IllegalStateError(f"a callback ended with {error!r}")
        return result

    def _make_nested(self, loop: asyncio.AbstractEventLoop, outcome: list[Any]) -> None:
        """Make the calls of a callback until it has an outcome; others wait."""
        while not outcome:
            try:
                call = self._calls.get(_LOOK_S)
            except queue.Empty:
                if loop.is_closed():
                    raise IllegalStateError(f"the event loop of this {self._client} was closed") from None
                continue
            if call is not None and call.is_nested:
                self._make(call)
            elif call is not _NOTHING:
                self._set_aside.append(call if call is not None else _END)

    def _ended(self, done: asyncio.Future[Any]) -> None:
        self.pending_count -= 1
        if not done.cancelled():
            done.exception()  # whoever was cancelled doesn't ask for it

    def _run(self) -> None:
        while True:
            call = self._set_aside.popleft() if self._set_aside else self._calls.get()
            if call is None or call is _END:
                return
            if call is not _NOTHING:
                self._make(call)

    def _make_waiting(self) -> None:
        """Make the calls that wait, but for polls, which wait for their turn."""
        aside = [*self._set_aside]
        self._set_aside.clear()
        while not self._calls.empty():
            call = self._calls.get()
            aside.append(_END if call is None else call)
        for call in aside:
            if call.is_poll or call is _END:
                self._set_aside.append(call)
            elif call is not _NOTHING:
                self._make(call)

    def _make(self, call: _Call) -> None:
        result, error = None, None
        try:
            result = call.context.run(call.function)
        except Exception as raised:
            error = raised
        except BaseException as raised:  # a future takes no SystemExit from another thread
            error = IllegalStateError(f"a call ended with {raised!r}")
        loop, done = self._loop, call.done
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(_settle, done, result, error)
        except RuntimeError:  # the loop was closed: nobody waits any more
            return


class _Mark(_Call):
    def __init__(self) -> None:
        self.is_nested = self.is_poll = False


_NOTHING, _END = _Mark(), _Mark()


async def result_of(done: asyncio.Future[T]) -> T:
    """Wait for a call; being cancelled doesn't cancel it."""
    if not done.done():
        await asyncio.wait([done])
    return done.result()


def _settle(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
