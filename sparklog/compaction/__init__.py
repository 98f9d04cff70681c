"""The maintenance of topics: retention, compaction by key, merging small files (optimize), vacuum.

Pure functions plan what is to be done (``retention``, ``plan_cleaning``, ``plan_optimize``). Records are read and
written by two functions that another engine may replace (``rewrite_arrow.Rewrite``, ``clean_arrow.Clean``); sparklog's
own committer commits the result in either case.
"""

from typing import TYPE_CHECKING

from sparklog.lazy_imports import import_on_use

if TYPE_CHECKING:
    from sparklog.compaction.commit_replacement import Outcome
    from sparklog.compaction.compact import CleanedPartition, CompactReport, compact_topic
    from sparklog.compaction.group_cleanup import GroupReport, expire_groups
    from sparklog.compaction.maintenance import maintain
    from sparklog.compaction.optimize import MergedRange, OptimizeReport, optimize_topic
    from sparklog.compaction.plan_optimize import OptimizePolicy
    from sparklog.compaction.reports import MaintenanceReport, SequenceReport, TopicMaintenance
    from sparklog.compaction.retention import RetentionReport, retain_topic
    from sparklog.compaction.steps import Step
    from sparklog.compaction.vacuum import VacuumReport, vacuum_topic
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "sparklog.compaction.commit_replacement": ("Outcome",),
            "sparklog.compaction.compact": ("CleanedPartition", "CompactReport", "compact_topic"),
            "sparklog.compaction.group_cleanup": ("GroupReport", "expire_groups"),
            "sparklog.compaction.maintenance": ("maintain",),
            "sparklog.compaction.optimize": ("MergedRange", "OptimizeReport", "optimize_topic"),
            "sparklog.compaction.plan_optimize": ("OptimizePolicy",),
            "sparklog.compaction.reports": ("MaintenanceReport", "SequenceReport", "TopicMaintenance"),
            "sparklog.compaction.retention": ("RetentionReport", "retain_topic"),
            "sparklog.compaction.steps": ("Step",),
            "sparklog.compaction.vacuum": ("VacuumReport", "vacuum_topic"),
        },
    )

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
    "expire_groups",
    "maintain",
    "optimize_topic",
    "retain_topic",
    "vacuum_topic",
]
