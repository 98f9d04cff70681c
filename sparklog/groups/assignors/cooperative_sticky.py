"""Cooperative-sticky: the sticky assignment, reached without stopping members that keep their partitions."""

from __future__ import annotations

from sparklog.groups.assignors.sticky import StickyAssignor

__all__ = ["CooperativeStickyAssignor"]


class CooperativeStickyAssignor(StickyAssignor):
    """Gives what :class:`StickyAssignor` gives; members go on with what stays theirs while the rest changes hands.

    Kafka's leaves out, in a first rebalance, the partitions whose owner has to give them up, and hands them out in a
    second one. Here one generation says where each partition shall end up, and the new owner of a partition waits until
    the old one has released it: the second rebalance isn't needed. Where all subscribe to the same topics the same
    partitions change hands as in Kafka; but its second rebalance divides them anew, so which of the members in need
    gets which of them may differ.

    Source: Kafka ``CooperativeStickyAssignor``.
    """

    name = "cooperative-sticky"
    is_cooperative = True
