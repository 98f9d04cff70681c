"""The schedule of a delay topic, from its records: what is waiting, due or cancelled. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from sparklog.producer.delayed_records import CancelAll, Ended, Waiting

__all__ = ["Place", "Schedule"]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A record of a delay topic that waits, or cancels others."""

    deliver_at_ms: int
    """Milliseconds since the epoch; 0 of what is to be ended without being delivered."""
    offset: int
    partition: int
    id: bytes
    key: bytes | None = field(compare=False)


@dataclass(slots=True)
class Schedule:
    """Applies the records of a delay topic, each partition's in its order.

    A record of end marks what is done, so a schedule that is read again is the same."""

    _waiting: dict[bytes, Place] = field(default_factory=dict)
    _by_key: dict[tuple[int, bytes], set[bytes]] = field(default_factory=dict)
    """Ids of what waits, by partition and key."""
    _due: list[Place] = field(default_factory=list)
    """A heap; what waits no more is passed over when it comes up."""
    _cancelled: dict[bytes, Place] = field(default_factory=dict)
    """Cancellations, and what they have cancelled: a record of end is to be written for each."""

    def __len__(self) -> int:
        return len(self._waiting)

    def apply(self, found: Waiting | Ended | CancelAll, *, partition: int, offset: int) -> None:
        """Go on by one record."""
        if isinstance(found, Ended):
            self.end(found.id)
        elif isinstance(found, CancelAll):
            for name in self._by_key.pop((partition, found.key), ()):
                self._cancelled[name] = self._waiting.pop(name)
            self._cancelled[found.id] = Place(0, offset, partition, found.id, found.key)
        else:
            place = Place(found.deliver_at_ms, offset, partition, found.id, found.key)
            self._waiting[found.id] = place
            heapq.heappush(self._due, place)
            if found.key is not None:
                self._by_key.setdefault((partition, found.key), set()).add(found.id)

    def end(self, name: bytes) -> None:
        """Forget what was delivered or cancelled."""
        self._cancelled.pop(name, None)
        place = self._waiting.pop(name, None)
        if place is not None and place.key is not None:
            ids = self._by_key.get((place.partition, place.key), set())
            ids.discard(name)
            if not ids:
                self._by_key.pop((place.partition, place.key), None)

    def due(self, now_ms: int, *, most: int, but_not: Collection[int] = ()) -> list[Place]:
        """Places that are due, ``most`` at most: the earliest first, those of one moment in the order of offsets.

        Args:
            but_not: none of these partitions.
        """
        due: list[Place] = []
        passed: list[Place] = []
        while self._due and len(due) < most and self._due[0].deliver_at_ms <= now_ms:
            place = heapq.heappop(self._due)
            if self._waiting.get(place.id) == place:
                (passed if place.partition in but_not else due).append(place)
        for place in (*due, *passed):  # it is due until it is ended
            heapq.heappush(self._due, place)
        return due

    def cancelled(self, *, most: int) -> list[Place]:
        """Cancellations, and what they cancelled, ``most`` at most: a cancellation comes behind what it cancelled."""
        return sorted(self._cancelled.values(), key=lambda place: place.offset)[:most]

    def waiting(self) -> Iterator[Place]:
        """All that waits, the earliest first."""
        return iter(sorted(self._waiting.values()))

    def first_offset(self, partition: int, end: int) -> int:
        """The first offset of a partition that is still needed; ``end`` where none is."""
        places = (*self._waiting.values(), *self._cancelled.values())
        return min((place.offset for place in places if place.partition == partition), default=end)
