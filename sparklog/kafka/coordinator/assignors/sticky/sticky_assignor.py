"""kafka-python's ``StickyPartitionAssignor``."""

from __future__ import annotations

from sparklog.kafka.coordinator.assignors.abstract import AbstractPartitionAssignor

__all__ = ["StickyPartitionAssignor"]


class StickyPartitionAssignor(AbstractPartitionAssignor):
    """Assigns as evenly as can be, and with the fewest moves; members give up everything first."""

    name = "sticky"
