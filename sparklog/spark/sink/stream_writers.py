"""The class of a streaming sink that is given Arrow batches, in the PySpark that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import datasource

__all__ = ["ArrowStreamWriter"]

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as ArrowStreamWriter
elif hasattr(datasource, "DataSourceStreamArrowWriter"):
    ArrowStreamWriter = datasource.DataSourceStreamArrowWriter
else:

    class ArrowStreamWriter(datasource.DataSourceArrowWriter, datasource.DataSourceStreamWriter):
        """PySpark 4.0 has none, but hands Arrow batches to whatever is a ``DataSourceArrowWriter``. Source:
        ``pyspark/sql/worker/write_into_data_source.py`` of 4.0.1, ``data_source_write_func``."""
