"""Spark over topics (extra ``spark``): a session with Delta, SQL views, ``format("sparklog")``, ingest and maintenance.
Alone imports pyspark.

Importing this package doesn't import pyspark yet; its functions do.
"""

# ``session`` is the function here, though the modules it comes from lie in a package of the same name.
from sparklog.spark.distribution import by_partition
from sparklog.spark.ingest.ingest import DEDUP_WINDOW_MS, IngestResult, merge_ingest
from sparklog.spark.maintenance.maintenance import maintain, optimize, run_compaction, run_retention, vacuum
from sparklog.spark.session.session import register_source, session
from sparklog.spark.views.views import create_view, read_topic, register

__all__ = [
    "DEDUP_WINDOW_MS",
    "IngestResult",
    "by_partition",
    "create_view",
    "maintain",
    "merge_ingest",
    "optimize",
    "read_topic",
    "register",
    "register_source",
    "run_compaction",
    "run_retention",
    "session",
    "vacuum",
]
