"""The listener that is called when the assignment of a consumer changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection

from sparklog.model import TopicPartition

__all__ = ["ConsumerRebalanceListener"]


class ConsumerRebalanceListener(ABC):
    """Called inside ``poll`` (``unsubscribe``, ``close``), in its thread, when the consumer's partitions change.

    It may call the consumer: ``seek`` in :meth:`on_partitions_assigned` sets where reading a partition begins.
    If it raises an error, ``poll`` raises that error, and the change is made nevertheless.
    """

    @abstractmethod
    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Called with the partitions, at least one, that are about to be revoked."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Called with the partitions, at least one, that were added to the consumer's assignment.

        Kafka's Java client also calls this with an empty list if a rebalance assigned nothing to the member. Then a
        listener that calls ``seek_to_beginning(*assigned)`` would seek in all assigned partitions.
        """

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Called with partitions that another member already owns."""
        self.on_partitions_revoked(lost)
