"""Keeping topics in shape: retention, compaction by key, merging small files, vacuum.

What is to be done is decided by pure functions (``retention``, ``cleaner``, ``optimizing``). Records are read and
written by two functions that another engine may replace (``rewriting.Rewrite``, ``cleaning.Clean``). Whoever did that,
sparklog's own committer commits it.
"""

from sparklog.compaction.commit_replacement import Outcome
from sparklog.compaction.compact import CleanedPartition, CompactReport, compact_topic
from sparklog.compaction.group_cleanup import GroupReport, forget_groups
from sparklog.compaction.maintain import maintain
from sparklog.compaction.optimize import MergedRange, OptimizeReport, optimize_topic
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.compaction.reports import MaintenanceReport, SequenceReport, Step, TopicMaintenance
from sparklog.compaction.retention import RetentionReport, retain_topic
from sparklog.compaction.vacuum import VacuumReport, vacuum_topic

__all__ = [
    "CleanedPartition",
    "CompactReport",
    "GroupReport",
    "MaintenanceReport",
    "MergedRange",
    "OptimizePolicy",
    "OptimizeReport",
    "Outcome",
    "RetentionReport",
    "SequenceReport",
    "Step",
    "TopicMaintenance",
    "VacuumReport",
    "compact_topic",
    "forget_groups",
    "maintain",
    "optimize_topic",
    "retain_topic",
    "vacuum_topic",
]
