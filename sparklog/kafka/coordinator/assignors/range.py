"""kafka-python's ``RangePartitionAssignor``."""

from __future__ import annotations

from sparklog.kafka.coordinator.assignors.abstract import AbstractPartitionAssignor

__all__ = ["RangePartitionAssignor"]


class RangePartitionAssignor(AbstractPartitionAssignor):
    """Assigns to each member a range of each topic's partitions."""

    name = "range"
