"""What a step can ask of a messaging system, and the plain values in which it answers."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sparklog.model import Headers, TopicPartition

__all__ = ["PATIENCE_S", "TICK_MS", "Committed", "Listener", "PlayedError", "Player", "Seen", "ToSend"]

PATIENCE_S = 60.0
"""How long what must come is waited for."""
TICK_MS = 50


class PlayedError(Exception):
    """An error that a client showed, by Kafka's name for it."""


@dataclass(frozen=True, slots=True)
class ToSend:
    """A record to be sent."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as a consumer got it."""

    partition: TopicPartition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    is_append_time: bool


@dataclass(frozen=True, slots=True)
class Committed:
    """What a group has committed of a partition."""

    offset: int
    metadata: str = ""


class Listener(ABC):
    """Is told of a group member's partitions, inside :meth:`Player.poll` and :meth:`Player.close_consumer`."""

    @abstractmethod
    def assigned(self, partitions: Collection[TopicPartition]) -> None: ...

    @abstractmethod
    def revoked(self, partitions: Collection[TopicPartition]) -> None: ...

    @abstractmethod
    def lost(self, partitions: Collection[TopicPartition]) -> None: ...


class Player(ABC):
    """A system that scenarios are played on. Topics, groups, producers and consumers go by the scenario's names.

    Every method raises :class:`PlayedError` where the client does.
    """

    quiet_s = 1.0
    """So long nothing must come for a scenario to say that nothing does."""

    def __init__(self) -> None:
        self._early: dict[str, list[Seen]] = {}

    # Administration

    @abstractmethod
    def create_topic(self, topic: str, partition_count: int, configs: Mapping[str, str]) -> None: ...

    @abstractmethod
    def delete_topic(self, topic: str) -> None: ...

    @abstractmethod
    def topics(self) -> list[str]: ...

    @abstractmethod
    def partition_count(self, topic: str) -> int: ...

    @abstractmethod
    def create_partitions(self, topic: str, total_count: int) -> None: ...

    @abstractmethod
    def configs(self, topic: str) -> dict[str, tuple[str, bool]]:
        """Each setting's value, and whether it is a default."""

    @abstractmethod
    def alter_configs(self, topic: str, changes: Mapping[str, str | None]) -> None: ...

    @abstractmethod
    def delete_records(self, partition: TopicPartition, offset: int) -> int: ...

    @abstractmethod
    def list_offset(self, partition: TopicPartition, spec: int) -> tuple[int, int]:
        """Offset and timestamp; -1 latest, -2 earliest, -3 greatest timestamp, else a time in ms."""

    @abstractmethod
    def compact(self, topic: str, remaining: int) -> None:
        """Let the cleaner come, until so many records are left (or patience ends)."""

    @abstractmethod
    def groups(self) -> list[str]: ...

    @abstractmethod
    def group_state(self, group: str) -> tuple[str, int]:
        """State and number of members."""

    @abstractmethod
    def delete_group(self, group: str) -> None: ...

    @abstractmethod
    def group_offsets(self, group: str) -> dict[TopicPartition, Committed]: ...

    @abstractmethod
    def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None: ...

    # Producing

    @abstractmethod
    def open_producer(self, name: str, settings: Mapping[str, str]) -> None: ...

    @abstractmethod
    def send(
        self, producer: str, records: Collection[ToSend], *, lose_answer: bool
    ) -> list[tuple[TopicPartition, int]]:
        """Send, and wait until it is stored; within a transaction: until it is uploaded, and then offsets are -1.

        ``lose_answer``: the system carries it out, and its answer doesn't reach the producer.
        """

    @abstractmethod
    def init_transactions(self, producer: str) -> None: ...

    @abstractmethod
    def begin(self, producer: str) -> None: ...

    @abstractmethod
    def outlast(self, transaction_timeout_ms: int) -> None:
        """Wait until a transaction that was just begun is past its time, and whoever watches has seen it."""

    @abstractmethod
    def commit_transaction(self, producer: str) -> None: ...

    @abstractmethod
    def abort(self, producer: str) -> None: ...

    @abstractmethod
    def send_offsets(self, producer: str, consumer: str, offsets: Mapping[TopicPartition, int]) -> None: ...

    @abstractmethod
    def close_producer(self, producer: str) -> None: ...

    # Consuming

    @abstractmethod
    def read(self, topic: str, isolation: str) -> list[Seen]:
        """All that a new consumer finds from the beginning to the end, by partition."""

    @abstractmethod
    def open_consumer(self, name: str, settings: Mapping[str, str]) -> None: ...

    @abstractmethod
    def assign(self, consumer: str, partitions: Mapping[TopicPartition, int | None]) -> None:
        """With the offset to begin at; None: where the group stands, or the reset policy says."""

    @abstractmethod
    def subscribe(self, consumer: str, topics: Collection[str], listener: Listener | None = None) -> None: ...

    @abstractmethod
    def unsubscribe(self, consumer: str) -> None: ...

    @abstractmethod
    def assignment(self, consumer: str) -> set[TopicPartition]: ...

    @abstractmethod
    def poll(self, consumer: str, timeout_ms: float, max_records: int) -> list[Seen]: ...

    @abstractmethod
    def commit(self, consumer: str, offsets: Mapping[TopicPartition, Committed] | None) -> None: ...

    @abstractmethod
    def committed(self, consumer: str, partition: TopicPartition, timeout_ms: float) -> Committed | None: ...

    @abstractmethod
    def position(self, consumer: str, partition: TopicPartition) -> int: ...

    @abstractmethod
    def seek(self, consumer: str, partition: TopicPartition, offset: int) -> None:
        """-1: to the end, -2: to the beginning."""

    @abstractmethod
    def pause(self, consumer: str, partition: TopicPartition) -> None: ...

    @abstractmethod
    def resume(self, consumer: str, partition: TopicPartition) -> None: ...

    @abstractmethod
    def close_consumer(self, consumer: str) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """End what is still open."""

    # What both do alike

    def poll_until(self, consumer: str, count: int) -> list[Seen]:
        """The next ``count`` records; fewer where they don't come. What came early, while an assignment was waited for,
        is among them."""
        found = self._early.pop(consumer, [])
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count and time.monotonic() < deadline:
            found += self.poll(consumer, TICK_MS, count - len(found))
        return found

    def poll_quietly(self, consumer: str) -> list[Seen]:
        """What comes within ``quiet_s``, which should be nothing."""
        found: list[Seen] = []
        deadline = time.monotonic() + self.quiet_s
        while not found and time.monotonic() < deadline:
            found += self.poll(consumer, TICK_MS, 1)
        return found

    def poll_until_assigned(
        self, consumers: Collection[str], wanted: set[TopicPartition], stable: str | None
    ) -> list[set[TopicPartition]]:
        """Poll them in turn until together they have all partitions.

        Args:
            stable: a group that they, and no others, must have become the stable members of; without it each must
                have a partition.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for consumer in consumers:
                self._early[consumer] = self._early.get(consumer, []) + self.poll(consumer, TICK_MS, 1)
            assigned = [self.assignment(consumer) for consumer in consumers]
            is_whole = sum(map(len, assigned)) == len(wanted) and set().union(*assigned) == wanted
            is_whole &= all(assigned) if stable is None else self.group_state(stable) == ("Stable", len(consumers))
            if is_whole or time.monotonic() > deadline:
                return assigned
