"""An app's handlers without threads, without a store and on time that stands still: what goes in, what comes out.

::

    driver = AppDriver(app)
    driver.send("orders", {"id": 1, "total": 12}, key="ann")
    driver.run()
    assert driver.values("bills") == [b"…"]
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from zlib import crc32

from sparklog.errors import IllegalStateError, InvalidArgumentError
from sparklog.model import NO_HEADERS, ConsumerRecord, Headers, TopicPartition
from sparklog.processing import App, DeadLetter, Send
from sparklog.processing.frontier import Entry
from sparklog.processing.handling import Slot, outputs_of
from sparklog.processing.lanes import Lane
from sparklog.processing.moves import Output
from sparklog.processing.work import Pending, Station, Work
from sparklog.testing.manual_clock import ManualClock

__all__ = ["AppDriver"]

_MOST_STEPS = 1_000_000


class AppDriver:
    """Plays the broker, the clock and the threads for one app. Topics are made when they are first named.

    What a real worker does beyond this driver is threads, the group and the store; retries, order, dead letters and
    what is committed together are decided by the same code.

    Args:
        partitions: of each topic; keys are spread over them, not as a producer does it.
        clock: moved by :meth:`advance`.
        choose: which of so many steps that could be next is next, from 0; the first by default. A step handles records
            of one lane.
    """

    def __init__(
        self,
        app: App,
        *,
        partitions: int = 1,
        clock: ManualClock | None = None,
        choose: Callable[[int], int] | None = None,
    ) -> None:
        if partitions < 1:
            raise InvalidArgumentError(f"AppDriver: partitions={partitions}, expected 1 or more")
        if app.settings.is_shared:
            raise InvalidArgumentError(
                "AppDriver: it plays consumer groups; test a share group's app on a memory store"
            )
        self.clock = clock or ManualClock()
        self.dead_letters: list[DeadLetter] = []
        """Records that were moved to dead letters, in order."""
        self._app = app
        self._partitions = partitions
        self._choose = choose or (lambda count: 0)
        self._logs: dict[TopicPartition, list[ConsumerRecord]] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._slot = Slot()
        self._begin()

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: bytes | str | None = None,
        headers: Headers = NO_HEADERS,
        partition: int | None = None,
    ) -> ConsumerRecord:
        """Append a record to a topic, encoded as what a handler sends. Returns it as a consumer reads it."""
        [output] = outputs_of(Send(topic, value, key=key, headers=headers, partition=partition), "send")
        return self._append(output)

    def run(self) -> None:
        """Read, handle and commit until nothing is left that can be done at this time.

        Raises:
            HandlerError: as the worker would end with. The driver goes on as the next worker would.
            RuntimeError: there is no end: what a handler sends makes it send more.
        """
        for _ in range(_MOST_STEPS):
            self._read()
            if not self.step():
                self.commit()
                if not self._read():
                    return
        raise RuntimeError(f"not done after {_MOST_STEPS} steps")

    def step(self) -> bool:
        """Handle records of one lane. False: none is ready. Raises ``HandlerError``."""
        ready = self._ready()
        if not ready:
            return False
        station, lane = ready.pop(self._choose(len(ready)))
        for other, waiting in ready:
            other.lanes.ready.put(waiting)
        entries = station.lanes.take(lane)
        if not entries:
            return True
        try:
            rest: Sequence[Entry] = station.handling.work_on(entries, self._slot)
        except BaseException:
            self.commit()
            self.crash()
            raise
        station.lanes.release(lane, rest)
        return True

    def commit(self) -> None:
        """Commit what is done: its outputs are in their topics, and its offsets committed.

        Raises:
            HandlerError: a partition goes no further.
        """
        done: Pending = self._work.take()
        for entry in done.moves:
            for output in entry.outputs:
                self._append(output)
        self._committed.update({frontier.partition: offset for frontier, offset in done.offsets.items()})
        self.dead_letters += done.letters
        for error in self._work.stopped.values():
            self.crash()
            raise error

    def crash(self) -> None:
        """Go on as the next worker would: from what is committed, with nothing else."""
        self._begin()

    def advance(self, duration_ms: float) -> None:
        """Let time pass, then :meth:`run`."""
        self.clock.advance(duration_ms)
        self.run()

    def records(self, topic: str) -> list[ConsumerRecord]:
        """All that is in a topic, partition by partition."""
        return [record for at in sorted(self._logs) if at.topic == topic for record in self._logs[at]]

    def values(self, topic: str) -> list[Any]:
        """The values in a topic, as bytes or None."""
        return [record.value for record in self.records(topic)]

    def committed(self, topic: str, partition: int = 0) -> int:
        """The offset that the next worker would begin at."""
        return self._committed.get(TopicPartition(topic, partition), 0)

    def _begin(self) -> None:
        settings = self._app.settings
        self._work = Work(
            self._app.subscribers,
            group_id=settings.group_id,
            clock=self.clock,
            limits=settings.limits,
            run_async=_run_async,
        )
        self._positions = dict(self._committed)

    def _read(self) -> bool:
        """Read all that is new, within the app's limits. False: there was nothing."""
        polled = {}
        full = self._work.full(())
        for at, log in self._logs.items():
            position = self._positions.get(at, 0)
            if at.topic in self._work.topics and at not in full and position < len(log):
                polled[at] = log[position : position + self._app.settings.limits.records]
                self._positions[at] = polled[at][-1].offset + 1
        self._positions.update(self._work.feed(polled))
        self._work.wake_due()
        return bool(polled)

    def _ready(self) -> list[tuple[Station, Lane]]:
        found: list[tuple[Station, Lane]] = []
        for station in self._work.stations:
            while True:
                try:
                    lane = station.lanes.ready.get_nowait()
                except queue.Empty:
                    break
                if lane is not None:
                    found.append((station, lane))
        return found

    def _append(self, output: Output) -> ConsumerRecord:
        number = output.partition
        if output.near_partition is not None:
            number = output.near_partition % self._partitions
        elif number is None:
            number = crc32(output.key or b"") % self._partitions
        if number >= self._partitions:
            raise IllegalStateError(f"topic {output.topic!r} has no partition {number}, only {self._partitions}")
        log = self._logs.setdefault(TopicPartition(output.topic, number), [])
        record = ConsumerRecord(
            topic=output.topic,
            partition=number,
            leader_epoch=-1,
            offset=len(log),
            timestamp=self.clock.now_ms() if output.timestamp_ms is None else output.timestamp_ms,
            timestamp_type=0,
            key=output.key,
            value=output.value,
            headers=output.headers,
            checksum=None,
            serialized_key_size=-1 if output.key is None else len(output.key),
            serialized_value_size=-1 if output.value is None else len(output.value),
            serialized_header_size=-1,
        )
        log.append(record)
        return record


def _run_async(awaitable: Awaitable[Any]) -> Any:
    async def wait() -> Any:
        return await awaitable

    return asyncio.run(wait())
