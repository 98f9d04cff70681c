"""kafka-python's ``RangePartitionAssignor``."""

from __future__ import annotations

from sparklog.kafka.coordinator.assignors.abstract import AbstractPartitionAssignor

__all__ = ["RangePartitionAssignor"]


class RangePartitionAssignor(AbstractPartitionAssignor):
    """Of each topic a range of partitions for each member."""

    name = "range"
