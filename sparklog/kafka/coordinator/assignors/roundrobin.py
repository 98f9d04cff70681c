"""kafka-python's ``RoundRobinPartitionAssignor``."""

from __future__ import annotations

from sparklog.kafka.coordinator.assignors.abstract import AbstractPartitionAssignor

__all__ = ["RoundRobinPartitionAssignor"]


class RoundRobinPartitionAssignor(AbstractPartitionAssignor):
    """The partitions of all topics in turn."""

    name = "roundrobin"
