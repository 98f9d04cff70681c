"""The memory that all records of a producer share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from sparklog.interrupts import EventCount

if TYPE_CHECKING:
    from sparklog.producer.topic_queue import TopicQueue

__all__ = ["Buffer"]

_ROOM_BYTES = 262_144
"""Part of the buffer that a batch takes at a time where much is left: to ask for each record would cost too much."""


class Buffer:
    """Memory that all records of a producer share (``buffer_memory``): a batch takes room, its end gives it back."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.lock = threading.Lock()
        self.waited_ms = 0.0
        """For how long callers have waited for room, all together."""
        self.exhausted_count = 0
        """How many of them in vain."""
        self._room = EventCount()
        self._queues: list[TopicQueue] = []

    @property
    def used_bytes(self) -> int:
        """The size of all records that aren't finished. The lock is held, or the number is of a moment ago."""
        return sum(batch.held_bytes for queue in list(self._queues) for batch in queue.unfinished())

    @property
    def waiting_count(self) -> int:
        """Threads that wait for room."""
        return self._room.waiting_count

    def add(self, queue: TopicQueue) -> None:
        """Count what a queue holds."""
        with self.lock:
            self._queues.append(queue)

    def remove(self, queue: TopicQueue) -> None:
        """Count no more what a queue holds: its committer has ended."""
        with self.lock:
            self._queues.remove(queue)

    def take_room(self, size_bytes: int, *, at_most: int) -> int:
        """Take room for a batch to grow into. The lock is held.

        Returns:
            Bytes, ``size_bytes`` at least and ``at_most`` at most; 0: there isn't any.
        """
        free_bytes = self.limit_bytes - sum(queue.held_bytes() for queue in self._queues)
        if free_bytes < size_bytes:  # others have taken room ahead, for records that may never come
            for queue in self._queues:
                queue.give_back_room()
            used_bytes = self.used_bytes
            free_bytes = self.limit_bytes - used_bytes
            if free_bytes < size_bytes and used_bytes:
                return 0
        return max(size_bytes, min(_ROOM_BYTES, free_bytes // 8, at_most))

    def wait_for_room(self, size_bytes: int, timeout_ms: float, *, given_up: Callable[[], bool]) -> bool:
        """Wait until ``size_bytes`` fit in, or nothing else is in the buffer; False: not within the time. The lock
        isn't held.

        Nothing lingers meanwhile, in whichever topic.

        Args:
            given_up: whether there is nothing to wait for any more; looked at after :meth:`notify_room`.
        """

        def has_room() -> bool:
            if given_up():
                return True
            with self.lock:
                used_bytes = self.used_bytes
                if used_bytes + size_bytes <= self.limit_bytes or used_bytes == 0:
                    return True
                for queue in self._queues:
                    queue.changed.notify()
            return False

        return self._room.wait_for(has_room, timeout_ms / 1000)

    def notify_room(self) -> None:
        """Let those who wait for room look again."""
        self._room.notify_all()
