"""For Spark, which looks for the data source ``sparklog`` in the package of this name where none is registered.

Source: ``pyspark/sql/worker/lookup_data_sources.py``.
"""

from sparklog.spark.source.data_source import DefaultSource

__all__ = ["DefaultSource"]
