"""Spark over topics (extra ``spark``): a session with Delta, SQL views, ``format("sparklog")``, ingest and maintenance.
Alone imports pyspark.

Importing this package doesn't import pyspark yet; its functions do. A name is imported when it is first used.
"""

from typing import TYPE_CHECKING

from sparklog.lazy_imports import import_on_use

# At once, as the function has the name of the package that its modules lie in: imported later, the package would be it.
from sparklog.spark.session.session import register_source, session

if TYPE_CHECKING:
    from sparklog.spark.distribution import by_partition
    from sparklog.spark.ingest.ingest import DEDUP_WINDOW_MS, IngestResult, merge_ingest
    from sparklog.spark.lag import LagListener
    from sparklog.spark.maintenance.maintenance import maintain, optimize, run_compaction, run_retention, vacuum
    from sparklog.spark.views.views import create_view, read_consistent, read_topic, register
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "sparklog.spark.distribution": ("by_partition",),
            "sparklog.spark.ingest.ingest": ("DEDUP_WINDOW_MS", "IngestResult", "merge_ingest"),
            "sparklog.spark.lag": ("LagListener",),
            "sparklog.spark.maintenance.maintenance": (
                "maintain",
                "optimize",
                "run_compaction",
                "run_retention",
                "vacuum",
            ),
            "sparklog.spark.views.views": ("create_view", "read_consistent", "read_topic", "register"),
        },
    )

__all__ = [
    "DEDUP_WINDOW_MS",
    "IngestResult",
    "LagListener",
    "by_partition",
    "create_view",
    "maintain",
    "merge_ingest",
    "optimize",
    "read_consistent",
    "read_topic",
    "register",
    "register_source",
    "run_compaction",
    "run_retention",
    "session",
    "vacuum",
]
