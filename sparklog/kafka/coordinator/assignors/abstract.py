"""The common base of kafka-python's assignors."""

from __future__ import annotations

from typing import ClassVar

__all__ = ["AbstractPartitionAssignor"]


class AbstractPartitionAssignor:
    """Stands for the assignor of its name; sparklog's own does the work.

    A program's own subclass is refused: derive it from :class:`sparklog.groups.assignors.Assignor`, whose ``assign`` is
    given partition counts and subscriptions, not Kafka's requests.
    """

    name: ClassVar[str] = ""
    """Kafka's."""
