"""Tasks that wait for records of one consumer, and the one poll in its thread that serves all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sparklog import consumer as sync
from sparklog.aio.call_thread import LoopThread, result_of
from sparklog.aio.unclaimed import FoundBatches, UnclaimedRecords
from sparklog.consumer.record_buffer import Records
from sparklog.errors import IllegalStateError, WakeupError
from sparklog.model import ConsumerRecord, TopicPartition

__all__ = ["Reading"]

_LONGEST_WAIT_MS = 3_600_000.0
"""The longest wait of a poll; then it begins again."""
Only = frozenset[TopicPartition] | None
"""The partitions whose records are wanted; None: all."""
T = TypeVar("T")


class Reading:
    """Reads for any number of tasks of one loop; all but what says so is the loop's.

    At most one poll for records is in the thread. It polls for all that wait, ends with the first records or with the
    first whose time is over, and leaves the records in :class:`UnclaimedRecords`: no position moves before a task runs
    that takes them.
    """

    def __init__(self, consumer: sync.Consumer, thread: LoopThread) -> None:
        self.consumer = consumer
        self._thread = thread
        self._runtime = consumer._runtime
        self._unclaimed = UnclaimedRecords(self._runtime.fetch_state)
        self._waiting: dict[_Waiter, None] = {}
        self._newest = 0
        """The number of the newest call."""
        self._poll: asyncio.Future[_Goal | None] | None = None
        self._goal: _Goal | None = None
        """The aim of the poll in the thread; None: none. Replaced by the loop, read by the thread."""
        self._batch_polls = 0
        """Polls for batches that the thread is to make; a poll for records gives way to them."""
        self._error: BaseException | None = None
        """The error of a poll for which nobody waited any more."""
        self._is_closed = False

    def next_unclaimed(self, only: Only = None) -> ConsumerRecord | None:
        """The next record, if one was polled already."""
        return self._unclaimed.claim_one(only)

    async def next_record(self, timeout_ms: float, only: Only = None) -> ConsumerRecord | None:
        """The next record; its position alone moves. None: there is none in time.

        Args:
            only: of these partitions; None: of all.
        """
        limit = self._runtime.config.max_poll_records
        return await self._claimed(lambda: self._unclaimed.claim_one(only), timeout_ms, limit, only)

    async def records(self, timeout_ms: float, limit: int, only: Only = None) -> Records:
        """The next records, at most ``limit``; none if there are none in time."""
        return await self._claimed(lambda: self._unclaimed.claim(limit, only), timeout_ms, limit, only) or {}

    async def batches(self, timeout_ms: float, limit: int | None) -> dict[TopicPartition, Any]:
        """The next records as Arrow batches. What was polled as records, and nobody has claimed, is polled again."""
        deadline_s = time.monotonic() + min(timeout_ms, _LONGEST_WAIT_MS) / 1000
        given_up: list[bool] = []

        def poll_once() -> FoundBatches | None:
            if given_up or self._is_closed:
                return None
            with self.consumer._guard:
                handover = self.consumer._begin_poll()
                left_ms = max(0.0, 1000 * (deadline_s - time.monotonic()))
                found = self._runtime.poll_batches(limit, handover, left_ms)
                return FoundBatches(found, handover)

        self._check_caller()
        self._batch_polls += 1
        done = self._thread.submit(lambda: self._again_if_woken(poll_once), is_poll=True)
        done.add_done_callback(self._end_batch_poll)
        try:
            found = await result_of(done)
        except asyncio.CancelledError:
            given_up.append(True)
            self._thread.wake_poll()
            done.add_done_callback(self._give_back)
            raise
        if self._is_closed:
            raise _closed()
        return {} if found is None else found.claim(self._runtime)

    def look_again(self) -> None:
        """Let those who wait look at what was polled before: a partition was resumed."""
        self._notify(lambda waiter: False)

    def close(self) -> None:
        """Let those who wait raise ``IllegalStateError``."""
        self._is_closed = True
        self._goal = None
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            if not waiter.woken.done():
                waiter.woken.set_exception(_closed())

    async def _claimed(self, claim: Callable[[], T | None], timeout_ms: float, limit: int, only: Only) -> T | None:
        until_s = time.monotonic() + min(timeout_ms, _LONGEST_WAIT_MS) / 1000
        self._newest += 1
        number = self._newest
        while True:
            found = claim()
            if found:
                return found
            self._check_caller()
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            waiter = _Waiter(asyncio.get_running_loop().create_future(), number, until_s, limit, only)
            self._waiting[waiter] = None
            self._poll_for_all()
            try:
                is_over = await waiter.woken
            finally:
                if self._waiting.pop(waiter, self) is not self:  # cancelled
                    self._poll_for_all()
            if is_over:
                return claim()

    def _check_caller(self) -> None:
        if self._thread.is_callback:
            raise IllegalStateError("a rebalance listener can't wait for records: the poll waits for the listener")
        if self._is_closed:
            raise _closed()

    def _poll_for_all(self) -> None:
        """Have the thread poll for all that wait now, and for nobody else."""
        self._goal = _Goal.of(self._waiting, self._newest) if self._waiting else None
        if self._poll is not None:
            self._thread.wake_poll()
        elif self._goal is not None:
            self._poll = self._thread.submit(self._poll_in_thread, is_poll=True)
            self._poll.add_done_callback(self._polled)

    def _polled(self, done: asyncio.Future[_Goal | None]) -> None:
        """The poll has ended: wake those it was for, the first by its error."""
        self._poll = None
        error = done.exception()
        if error is not None:
            for waiter in self._waiting:
                if not waiter.woken.done():
                    waiter.woken.set_exception(error)
                    del self._waiting[waiter]
                    break
            else:
                self._error = error
        goal = None if error is not None else done.result()
        self._notify(lambda waiter: goal is not None and goal.ends(waiter))

    def _notify(self, is_over: Callable[[_Waiter], bool]) -> None:
        waiting, self._waiting, self._goal = self._waiting, {}, None
        for waiter in waiting:
            if not waiter.woken.done():
                waiter.woken.set_result(is_over(waiter))

    # In the thread.

    def _poll_in_thread(self) -> _Goal | None:
        """Poll until there are records, or the time of the goal is over, whatever it is meanwhile.

        Returns:
            The goal of the last poll; None: nobody waits any more, or a poll for batches does.
        """
        polled: list[_Goal] = []

        def poll_once() -> bool:
            goal = self._goal
            if goal is None or self._batch_polls or self._is_closed:
                return False
            left_ms = max(0.0, 1000 * (goal.until_s - time.monotonic()))
            with self.consumer._guard:
                self._unclaimed.poll(self._runtime, goal.limit, left_ms, goal.only)
            polled.append(goal)
            return True

        self._again_if_woken(poll_once)
        return polled[0] if polled else None

    def _again_if_woken(self, attempt: Callable[[], T | None]) -> T | None:
        while True:
            try:
                return self._thread.poll(attempt)
            except WakeupError:  # another call is to be made first, or something else is wanted now
                continue

    # Polls for batches.

    def _end_batch_poll(self, done: asyncio.Future[Any]) -> None:
        self._batch_polls -= 1

    def _give_back(self, done: asyncio.Future[FoundBatches | None]) -> None:
        """Have what a cancelled poll took polled again."""
        if not done.cancelled() and done.exception() is None:
            found = done.result()
            if found is not None:
                found.give_back(self._runtime)


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """A task that waits for records."""

    woken: asyncio.Future[bool]
    """Its result: True, a poll that began after the call found nothing, and the time is over."""
    number: int
    until_s: float
    limit: int
    only: Only


@dataclass(frozen=True, slots=True)
class _Goal:
    """The aim of a poll for several tasks."""

    only: Only
    limit: int
    until_s: float
    newest: int
    """The number of the newest call that it is for."""

    @classmethod
    def of(cls, waiting: dict[_Waiter, None], newest: int) -> _Goal:
        only: Only = frozenset()
        for waiter in waiting:
            only = None if only is None or waiter.only is None else only | waiter.only
        return cls(
            only=only,
            limit=max(waiter.limit for waiter in waiting),
            until_s=min(waiter.until_s for waiter in waiting),
            newest=newest,
        )

    def ends(self, waiter: _Waiter) -> bool:
        """Has the poll with this goal ended the waiter's time?"""
        return waiter.number <= self.newest and waiter.until_s <= max(self.until_s, time.monotonic())


def _closed() -> IllegalStateError:
    return IllegalStateError("this consumer is closed")
