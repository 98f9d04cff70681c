"""Simulated time in which calls side by side overlap: what something takes on a store that answers after so long.

Nothing runs in threads. A call that is handed to an executor is made at once, in the caller's thread, but its time
passes beside that of the calls that are under way: it begins once one of the executor's threads is free, and the
caller's time goes on only where it waits for a result. So the figures are exact, and the same in each run.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

from sparklog.clock import Clock
from sparklog.paths import TOPICS_FOLDER
from sparklog.storage.base import ObjectStore
from sparklog.testing import CountingStore
from tests.support import T0_MS

__all__ = ["OverlappingClock", "SlowStore", "copy_topic", "overlapping"]

T = TypeVar("T")
AT_ONCE = 32
"""Requests that the store's client sends side by side in one call for many objects."""


class OverlappingClock(Clock):
    """Stands still but for :meth:`advance` and sleeping; may be set back to where another call began."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ends: list[float] = []
        """When the calls end that are under way, the first one first."""

    def now_ms(self) -> int:
        return T0_MS + int(self.now)

    def ticks_ms(self) -> float:
        return self.now

    def sleep_ms(self, duration_ms: float) -> None:
        self.advance(max(0.0, duration_ms))

    def advance(self, duration_ms: float) -> None:
        """Let time pass."""
        self.now += duration_ms

    def wait_until(self, at_ms: float) -> None:
        """Let time pass until a moment, unless it is over."""
        self.now = max(self.now, at_ms)

    def next_end_ms(self) -> float:
        """When the first of the calls ends that are under way; never if none is."""
        while self.ends and self.ends[0] <= self.now:
            heapq.heappop(self.ends)
        return self.ends[0] if self.ends else math.inf


class SlowStore(CountingStore):
    """Each request takes ``latency_ms``, a hundred times as long for a path with ``slow`` in it; of one call for many
    objects 32 requests are under way at once."""

    def __init__(self, store: ObjectStore, clock: OverlappingClock, *, latency_ms: float, slow: str = "") -> None:
        super().__init__(store)
        self._clock = clock
        self._latency_ms = latency_ms
        self._slow = slow

    def read_many(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        self._pass(paths)
        return super().read_many(paths)

    def put_many(self, objects: Mapping[str, bytes], *, sync: bool = False) -> None:
        self._pass([*objects])
        super().put_many(objects, sync=sync)

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        self._pass([path])
        return super()._call(op, path, call)

    def _pass(self, paths: Sequence[str]) -> None:
        is_slow = bool(self._slow) and any(self._slow in path for path in paths)
        self._clock.advance(self._latency_ms * (100 if is_slow else -(-len(paths) // AT_ONCE)))


class _Future(Future[Any]):
    """Ends at a time."""

    def __init__(self, clock: OverlappingClock, ends_ms: float) -> None:
        super().__init__()
        self._clock = clock
        self._ends_ms = ends_ms

    def done(self) -> bool:
        return self._clock.now >= self._ends_ms

    def result(self, timeout: float | None = None) -> Any:
        self._clock.wait_until(self._ends_ms)
        return super().result(timeout)

    def cancel(self) -> bool:
        return False


def _executor_of(clock: OverlappingClock) -> type:
    class OverlappingExecutor:
        """As ``ThreadPoolExecutor``."""

        def __init__(self, max_workers: int, *_: object) -> None:
            self._free = [clock.now] * max_workers
            heapq.heapify(self._free)

        def __enter__(self) -> OverlappingExecutor:
            return self

        def __exit__(self, *_: object) -> None:
            clock.wait_until(max(self._free))

        def submit(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
            submitted = clock.now
            clock.now = max(submitted, heapq.heappop(self._free))
            result: Any = None
            error: Exception | None = None
            try:
                result = call(*args)
            except Exception as raised:
                error = raised
            future, ends, clock.now = _Future(clock, clock.now), clock.now, submitted
            heapq.heappush(self._free, ends)
            heapq.heappush(clock.ends, ends)
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
            return future

        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            if wait:
                clock.wait_until(max(self._free))

    return OverlappingExecutor


@contextmanager
def overlapping() -> Iterator[OverlappingClock]:
    """Within: sparklog's threads are simulated, on the clock that is returned."""
    clock = OverlappingClock()
    executor = _executor_of(clock)
    with (
        mock.patch("sparklog.parallel.ThreadPoolExecutor", executor),
        mock.patch("sparklog.consumer.topic_opening.ThreadPoolExecutor", executor),
    ):
        yield clock


def copy_topic(store: ObjectStore, topic: str, names: Sequence[str]) -> None:
    """Let there be a topic of each name with what another one holds: cheaper than to create and to fill them."""
    objects = {found.path: store.read(found.path) for found in store.list(f"{TOPICS_FOLDER}{topic}/")}
    for name in names:
        for path, data in objects.items():
            store.put(path.replace(f"{TOPICS_FOLDER}{topic}/", f"{TOPICS_FOLDER}{name}/", 1), data)
