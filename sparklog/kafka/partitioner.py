"""kafka-python's partitioners. The two that it ships are built into the producer, which has no need to call them."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import Any

from sparklog.errors import InvalidArgumentError
from sparklog.producer.partitioner import murmur2

__all__ = ["DefaultPartitioner", "Partitioner", "StickyPartitioner", "murmur2"]


class Partitioner(ABC):
    """Chooses a partition for each record that was sent without one."""

    @abstractmethod
    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: Any,
    ) -> int:
        """The partition for a record.

        Args:
            cluster: has ``topics()``, ``partitions_for_topic(topic)`` and ``available_partitions_for_topic(topic)``,
                which are the same here.
        """


class DefaultPartitioner(Partitioner):
    """Chooses by the key's murmur2 hash, as Kafka's Java client; at random without key.

    Given as it is to a producer, it stands for the producer's own: the same for keys, sticky without.
    """

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: Any,
    ) -> int:
        partitions = sorted(cluster.partitions_for_topic(topic) or ())
        if not partitions:
            raise InvalidArgumentError(f"topic {topic!r} has no partitions")
        if serialized_key is None:
            return int(random.choice(partitions))  # noqa: S311 - spreads records, no secret
        return int(partitions[(murmur2(bytes(serialized_key)) & 0x7FFFFFFF) % len(partitions)])


class StickyPartitioner(DefaultPartitioner):
    """Given to a producer, it stands for the producer's own (KIP-794): sticky without key. A subclass isn't called for
    new batches."""
