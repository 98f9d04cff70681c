"""The listener that an application is called with when its partitions change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection

from sparklog.model import TopicPartition

__all__ = ["ConsumerRebalanceListener"]


class ConsumerRebalanceListener(ABC):
    """Called inside ``poll`` (``unsubscribe``, ``close``), in its thread, when the consumer's partitions change.

    It may call the consumer: ``seek`` in :meth:`on_partitions_assigned` decides where a partition is read from.
    What it raises, ``poll`` raises; the change is made all the same.
    """

    @abstractmethod
    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """These partitions, never none, are about to be taken away."""

    @abstractmethod
    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """These partitions, never none, were added to those that the consumer had.

        Kafka's Java client also calls this with nothing, for a member that a rebalance gave nothing: what was written
        for members that are given all they have, as ``seek_to_beginning(*assigned)``, would then mean every partition.
        """

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """These partitions belong to somebody else already."""
        self.on_partitions_revoked(lost)
