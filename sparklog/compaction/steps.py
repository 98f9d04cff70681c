"""The steps of a maintenance run."""

from __future__ import annotations

from enum import Enum

__all__ = ["Step"]


class Step(str, Enum):
    """The steps of :func:`~sparklog.compaction.maintenance.maintain`, in their order."""

    TRANSACTIONS = "transactions"
    """Finish decided transactions, abort those past their time-out, expire ids that were unused for a week."""
    SEQUENCE = "sequence"
    """Give offsets to what other engines wrote without."""
    RETENTION = "retention"
    """Remove what is too old or too much."""
    COMPACT = "compact"
    """Drop records whose keys came again, in compacted topics."""
    OPTIMIZE = "optimize"
    """Merge small files."""
    VACUUM = "vacuum"
    """Clean the logs up, delete unneeded files."""
    GROUPS = "groups"
    """Forget committed offsets that are past their time."""
