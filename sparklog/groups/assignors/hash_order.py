"""The order in which Java's HashMap and HashSet give what they hold: in two places it decides what Kafka's sticky
assignors give to whom.

Java keeps entries in a table of 2**n buckets that doubles when it is filled by more than three quarters, and gives them
bucket by bucket, those of one bucket as they came. (Buckets of nine and more are kept otherwise; hashes of names don't
meet like that.)

Source: Java ``HashMap.hash``, ``resize``; ``String.hashCode``; Kafka ``TopicPartition.hashCode``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from sparklog.model import TopicPartition

__all__ = ["HashedPartitions", "hash_order", "string_hash"]

FIRST_CAPACITY = 16


def hash_order(names: Iterable[str]) -> list[str]:
    """Names as a HashMap gives its keys that were put into it sorted."""
    ordered = sorted(names)
    capacity = FIRST_CAPACITY
    while _is_full(len(ordered), capacity):
        capacity *= 2
    return sorted(ordered, key=lambda name: _bucket(string_hash(name), capacity))


class HashedPartitions:
    """A HashSet of partitions; its table grows and, as in Java, never shrinks."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, None] = {}
        self._capacity = FIRST_CAPACITY

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, partition: TopicPartition) -> None:
        """Add a partition; one that is there already stays where it is. The table grows as Java's does."""
        self._partitions[partition] = None
        if _is_full(len(self._partitions), self._capacity):
            self._capacity *= 2

    def remove(self, partition: TopicPartition) -> None:
        """Remove a partition. Raises ``KeyError`` where it isn't there."""
        del self._partitions[partition]

    def first(self) -> TopicPartition:
        """The partition that its iterator would give first."""
        return min(self._partitions, key=lambda each: _bucket(_partition_hash(each), self._capacity))


@lru_cache(maxsize=10_000)
def string_hash(text: str) -> int:
    """``String.hashCode``, unsigned."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


def _partition_hash(partition: TopicPartition) -> int:
    return (31 * (31 + partition.partition) + string_hash(partition.topic)) & 0xFFFFFFFF


def _bucket(value: int, capacity: int) -> int:
    return (value ^ value >> 16) & (capacity - 1)


def _is_full(count: int, capacity: int) -> bool:
    return count > capacity * 3 // 4
