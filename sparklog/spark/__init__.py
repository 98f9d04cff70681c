"""Spark over topics (extra ``spark``): a session with Delta, SQL views, ``format("sparklog")``. Alone imports pyspark.

Importing this package doesn't import pyspark yet; its functions do.
"""

from sparklog.spark.ingest import DEDUP_WINDOW_MS, IngestResult, merge_ingest
from sparklog.spark.session import register_source, session
from sparklog.spark.views import read_topic, register

__all__ = ["DEDUP_WINDOW_MS", "IngestResult", "merge_ingest", "read_topic", "register", "register_source", "session"]
