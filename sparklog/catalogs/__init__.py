"""Topics in data catalogs, so that other engines find them by name: what should be there, and what has to change.

A catalog is anything with the methods of :class:`~sparklog.catalogs.sync.Catalog`. Those that need no Spark are here:
AWS Glue, Unity Catalog, Trino; a Spark session's own, such as a Hive metastore, is ``sparklog.spark.session_catalog``.
"""

from sparklog.catalogs.plan import SyncPlan
from sparklog.catalogs.sync import Catalog, sync_catalog

__all__ = ["Catalog", "SyncPlan", "sync_catalog"]
