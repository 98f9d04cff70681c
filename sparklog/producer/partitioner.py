"""Partitions of records: by murmur2 of the key as Kafka's Java client does it, or a sticky one without key."""

from __future__ import annotations

import random
from collections.abc import Sequence

from sparklog.log.data.murmur2 import key_partitions, murmur2, murmur2_column

__all__ = ["StickyPartition", "key_partitions", "murmur2", "murmur2_column"]


class StickyPartition:
    """The partition for records without a key: the same until ``batch_size`` bytes went there, then another at random.

    Source: Kafka ``BuiltInPartitioner`` (KIP-794), without its statistics of brokers.
    """

    def __init__(self, batch_size: int, *, choose: random.Random | None = None) -> None:
        self._batch_size = batch_size
        self._choose = choose or random.Random()  # noqa: S311 - spreads records, no secret
        self._current = -1
        self._bytes = 0

    def take(self, partition_count: int, size_bytes: int) -> int:
        """The partition for the next ``size_bytes`` of records."""
        if not 0 <= self._current < partition_count or self._bytes >= self._batch_size:
            others = _without(range(partition_count), self._current)
            self._current = self._choose.choice(others)
            self._bytes = 0
        self._bytes += size_bytes
        return self._current


def _without(partitions: Sequence[int], excluded: int) -> Sequence[int]:
    return [partition for partition in partitions if partition != excluded] or partitions
