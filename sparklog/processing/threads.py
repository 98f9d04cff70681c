"""The threads that handlers run in, and the event loop of those that are async."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Sequence
from contextvars import ContextVar
from typing import Any

from sparklog.clock import Clock
from sparklog.errors import HandlerError
from sparklog.processing.deduplication import current_group
from sparklog.processing.frontier import Entry
from sparklog.processing.handling import HandlerCancelledError, Slot
from sparklog.processing.work import Station
from sparklog.workers import Worker

__all__ = ["HandlerThreads", "HandlerWatch", "LoopThread", "called_by"]


called_by: ContextVar[HandlerThreads | None] = ContextVar("sparklog_handler_threads", default=None)
"""The threads whose handler is at work here."""


class LoopThread:
    """An event loop in a thread of its own, started when it is first needed: async handlers share it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._is_stopping = False

    def run(self, awaitable: Awaitable[Any]) -> Any:
        """Run what an async function returned. Returns and raises what it does; ``HandlerCancelledError`` where the
        loop has ended meanwhile."""
        with self._lock:
            if self._is_stopping:
                if inspect.iscoroutine(awaitable):
                    awaitable.close()
                raise HandlerCancelledError
            if self._loop is None:
                self._loop = _started_loop()
            loop = self._loop
        caught = _caught(awaitable, current_group.get(), called_by.get())
        result, error = asyncio.run_coroutine_threadsafe(caught, loop).result()
        if error is not None and self._is_stopping:
            raise HandlerCancelledError from error
        if error is not None:
            raise error
        return result

    def stop(self) -> None:
        """End the loop once what is running in it has come to its next ``await``."""
        with self._lock:
            loop, self._is_stopping = self._loop, True
        if loop is not None and loop.is_running():
            loop.call_soon_threadsafe(loop.stop)


def _started_loop() -> asyncio.AbstractEventLoop:
    """A loop in a thread of its own. Raises ``RuntimeError`` where no thread can be started."""
    loop = asyncio.new_event_loop()
    try:
        Worker("processing-loop", lambda: _run_loop(loop)).start()
    except RuntimeError:
        loop.close()
        raise
    return loop


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _caught(
    awaitable: Awaitable[Any], group: str | None, threads: HandlerThreads | None
) -> tuple[Any, BaseException | None]:
    """The result or the error: a ``SystemExit`` that is raised in a loop would end the loop."""
    current_group.set(group)
    called_by.set(threads)
    try:
        return await awaitable, None
    except BaseException as error:
        return None, error


class HandlerThreads:
    """The threads of subscribers, ``concurrency`` for each. A process that exits doesn't wait for them."""

    def __init__(self, stations: Sequence[Station]) -> None:
        self.failures: deque[BaseException] = deque()
        """The error that ended a thread: its record is not done, and nothing behind it is begun."""
        self.slots: list[Slot] = []
        self._stations = stations
        self._workers: list[Worker] = []
        for station in stations:
            for number in range(station.subscriber.concurrency):
                self._add(station, f"processing-{station.subscriber.topics[0]}-{number}")

    def start(self) -> None:
        """Begin."""
        for worker in self._workers:
            worker.start()

    def stop(self) -> None:
        """Let each thread end after what it does now."""
        for station in self._stations:
            for _ in range(station.subscriber.concurrency):
                station.lanes.ready.put(None)

    def join(self, timeout_s: float) -> bool:
        """Wait for the ends of the threads, for each so long at most. True: they have ended."""
        ended = [worker.join(timeout_s) for worker in self._workers]
        return all(ended)

    def _add(self, station: Station, name: str) -> None:
        slot = Slot()
        self.slots.append(slot)
        self._workers.append(Worker(name, lambda: self._run(station, slot)))

    def _run(self, station: Station, slot: Slot) -> None:
        called_by.set(self)
        lanes, work_on = station.lanes, station.handling.work_on
        while (lane := lanes.ready.get()) is not None:
            entries = lanes.take(lane)
            if not entries:
                continue
            try:
                rest = work_on(entries, slot)
            except BaseException as error:  # whatever it is, the worker raises it in its own thread
                self.failures.append(error)
                entries[0].frontier.is_live = False  # nothing behind it is begun
                lanes.release(lane)
                return
            lanes.release(lane, rest)


class HandlerWatch:
    """Looks at the threads of handlers again and again. For the worker's own thread, but for :meth:`oldest_ms`."""

    def __init__(self, threads: HandlerThreads, clock: Clock, handler_timeout_s: float) -> None:
        self.is_hung = False
        """Did a handler hang?"""
        self._threads = threads
        self._clock = clock
        self._timeout_s = handler_timeout_s
        self._seen: dict[int, tuple[Entry, int, float]] = {}
        """By slot: the record that it was at when it was looked at, its tries, and when it was first seen there."""

    def oldest_ms(self, now_ticks_ms: float) -> float:
        """For how long the slowest handler has been at work; 0 without any. From any thread."""
        return max((now_ticks_ms - since for _, _, since in list(self._seen.values())), default=0.0)

    def look(self) -> None:
        """Raise what ended a handler's thread, or ``HandlerError`` where one hangs."""
        if self._threads.failures:
            raise self._threads.failures[0]
        now, limit_ms = self._clock.ticks_ms(), self._timeout_s * 1_000
        for number, slot in enumerate(self._threads.slots):
            entry = slot.entry
            if entry is None:
                self._seen.pop(number, None)
                continue
            seen = self._seen.get(number)
            if seen is None or seen[0] is not entry or seen[1] != slot.tries:
                self._seen[number] = (entry, slot.tries, now)
            elif now - seen[2] >= limit_ms:
                self.is_hung = True
                at = entry.frontier.partition
                raise HandlerError(
                    f"a handler has been working on {at.topic}-{at.partition}, offset {entry.record.offset}, for "
                    f"longer than handler_timeout_s={self._timeout_s:g}; the worker stops before this record, nothing "
                    "is skipped",
                    topic_partition=at,
                    offset=entry.record.offset,
                )
