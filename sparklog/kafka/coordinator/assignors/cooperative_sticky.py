"""kafka-python's ``CooperativeStickyAssignor``."""

from __future__ import annotations

from sparklog.kafka.coordinator.assignors.abstract import AbstractPartitionAssignor

__all__ = ["CooperativeStickyAssignor"]


class CooperativeStickyAssignor(AbstractPartitionAssignor):
    """Assigns as evenly as can be, and with the fewest moves; members keep what stays theirs."""

    name = "cooperative-sticky"
