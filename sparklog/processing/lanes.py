"""Which records may be handled concurrently: those of different lanes. A lane is a partition, a key or a record."""

from __future__ import annotations

import heapq
import queue
import threading
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Literal

from sparklog.clock import Clock
from sparklog.model import TopicPartition
from sparklog.processing.frontier import Entry

__all__ = ["Lane", "Lanes", "OrderBy", "lane_id"]

OrderBy = Literal["partition", "key", "none"]

_IDLE, _READY, _RUNNING, _WAITING = "idle", "ready", "running", "waiting"


def lane_id(entry: Entry, order_by: OrderBy) -> Hashable:
    """The lane of a record. One without a key is ordered after nothing, but by ``partition``."""
    record, partition = entry.record, entry.frontier.partition
    if order_by == "partition":
        return partition
    if order_by == "key" and record.key is not None:
        return partition, record.key
    return partition, record.offset


class Lane:
    """Entries that are handled one after the other."""

    __slots__ = ("due_ticks_ms", "entries", "id", "partition", "state")

    def __init__(self, id_: Hashable, partition: TopicPartition) -> None:
        self.id = id_
        self.partition = partition
        self.entries: deque[Entry] = deque()
        self.state = _IDLE
        self.due_ticks_ms = 0.0


class Lanes:
    """The lanes of one subscriber. For several threads; the lock is held for a few steps, and never while one waits.

    Args:
        most: entries that are taken at once.
    """

    def __init__(self, order_by: OrderBy, clock: Clock, *, most: int) -> None:
        self.ready: queue.SimpleQueue[Lane | None] = queue.SimpleQueue()
        """Lanes whose first entry may be handled; each is taken by one thread. None ends a thread."""
        self._order_by: OrderBy = order_by
        self._clock = clock
        self._most = most
        self._lock = threading.Lock()
        self._lanes: dict[Hashable, Lane] = {}
        self._running: set[Lane] = set()
        self._waiting: list[tuple[float, int, Lane]] = []
        """A heap of lanes that are due later; what isn't ``_WAITING`` for that moment any more is passed over."""
        self._count = 0

    def add(self, entries: Iterable[Entry]) -> None:
        """Add entries behind those that are there."""
        by_partition = self._order_by == "partition"
        with self._lock:
            lane: Lane | None = None
            for entry in entries:
                if lane is None or not by_partition:
                    lane = self._lane_of(entry)
                lane.entries.append(entry)
                if not by_partition:
                    self._schedule(lane)
            if lane is not None and by_partition:
                self._schedule(lane)

    def take(self, lane: Lane) -> list[Entry]:
        """The next entries of a lane that came out of ``ready``, which is the caller's now until :meth:`release`; none
        where its partition was taken away meanwhile: then it isn't."""
        with self._lock:
            entries, now = lane.entries, self._clock.ticks_ms()
            taken: list[Entry] = []
            while entries and len(taken) < self._most and entries[0].due_ticks_ms <= now:
                if taken and (entries[0].is_alone or taken[0].is_alone):
                    break
                taken.append(entries.popleft())
            if taken:
                lane.state = _RUNNING
                self._running.add(lane)
            else:
                lane.state = _IDLE
                self._schedule(lane)
            return taken

    def release(self, lane: Lane, rest: Sequence[Entry] = ()) -> None:
        """Give a lane back.

        Args:
            rest: of what was taken, what is to be taken again; dropped where its partition was taken away.
        """
        with self._lock:
            lane.entries.extendleft(entry for entry in reversed(rest) if entry.frontier.is_live)
            self._running.discard(lane)
            lane.state = _IDLE
            self._schedule(lane)

    def wake_due(self) -> float | None:
        """Make ready what is due by now. Returns when the next is due, in ticks; None: nothing waits."""
        with self._lock:
            now = self._clock.ticks_ms()
            while self._waiting:
                due, _, lane = self._waiting[0]
                is_stale = lane.state != _WAITING or lane.due_ticks_ms != due
                if not is_stale and due > now:
                    return due
                heapq.heappop(self._waiting)
                if not is_stale:
                    lane.state = _IDLE
                    self._schedule(lane)
            return None

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what isn't begun of these partitions."""
        with self._lock:
            for lane in [each for each in self._lanes.values() if each.partition in partitions]:
                lane.entries.clear()
                if lane.state == _WAITING:
                    lane.state = _IDLE
                    self._schedule(lane)

    def is_running(self, partitions: Collection[TopicPartition]) -> bool:
        """Is something of these partitions being handled?"""
        with self._lock:
            return any(lane.partition in partitions for lane in self._running)

    def _lane_of(self, entry: Entry) -> Lane:
        id_ = lane_id(entry, self._order_by)
        lane = self._lanes.get(id_)
        if lane is None:
            lane = self._lanes[id_] = Lane(id_, entry.frontier.partition)
        return lane

    def _schedule(self, lane: Lane) -> None:
        """Put an idle lane where it belongs."""
        if lane.state != _IDLE:
            return
        if not lane.entries:
            self._lanes.pop(lane.id, None)
            return
        due = lane.entries[0].due_ticks_ms
        if due <= self._clock.ticks_ms():
            lane.state = _READY
            self.ready.put(lane)
            return
        lane.state, lane.due_ticks_ms = _WAITING, due
        self._count += 1
        heapq.heappush(self._waiting, (due, self._count, lane))
