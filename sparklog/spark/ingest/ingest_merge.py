"""Delta's MERGE of an ingest's rows into its stage, with settings that hold for no other write of the session."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparklog.spark.ingest.ingest_batch import ROW_COLUMNS
from sparklog.spark.ingest.ingest_staging import FILE_COLUMN
from sparklog.spark.runtime.spark_calls import session_settings
from sparklog.spark.session.connect import a_clone, is_connect
from sparklog.spark.session.session import run_sql
from sparklog.spark.views.sqltext import insert_missing, path_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["MERGED_COLUMNS", "Merge"]

MERGED_COLUMNS = (*ROW_COLUMNS, "offset_delta", FILE_COLUMN)
"""The columns of the rows that are merged into an untyped topic; into a typed one also
:data:`~sparklog.spark.ingest.ingest_values.TYPED_COLUMNS`."""
_CODECS = {"none": "uncompressed", "lz4": "lz4_raw"}
"""Kafka's names of ``compression.type`` that Spark's Parquet writer calls otherwise."""
_MERGE_SETTINGS = {
    # One file for each partition of the stage.
    "spark.databricks.delta.merge.repartitionBeforeWrite.enabled": "true",
    "spark.databricks.delta.optimizeWrite.enabled": "false",
    "spark.databricks.delta.autoCompact.enabled": "false",
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    "spark.databricks.delta.stats.collect": "true",  # offsets are given by them
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


class Merge:
    """MERGEs of one ingest."""

    def __init__(self, spark: SparkSession, *, compression: str) -> None:
        """``compression``: the topic's ``compression.type``."""
        self._spark = spark
        self._settings = dict(_MERGE_SETTINGS)
        if compression != "producer":
            self._settings["spark.sql.parquet.compression.codec"] = _CODECS.get(compression, compression)
        self._session = None if is_connect(spark) else _session_of_its_own(spark, self._settings)

    def insert_missing(self, path: str, rows: DataFrame, condition: str) -> None:
        """MERGE rows, without a base offset, into a table, but for those that ``condition`` finds there.

        Args:
            rows: :data:`MERGED_COLUMNS`, and those of a typed topic.
            condition: of the target ``t`` and the source ``s``.
        """
        values = {**{name: f"s.{name}" for name in rows.columns}, "base_offset": "CAST(NULL AS BIGINT)"}
        if self._session is None:
            self._insert_by_sql(path, rows, condition, values)
            return
        from delta.tables import DeltaTable

        merge = DeltaTable.forPath(self._session, path).alias("t").merge(rows.alias("s"), condition)
        merge.whenNotMatchedInsert(values=values).execute()

    def _insert_by_sql(self, path: str, rows: DataFrame, condition: str, values: Mapping[str, str]) -> None:
        """The same by Spark Connect: Delta's own API asks for a plugin of the server, and a client can't combine rows
        of one session with tables of another; a clone has the session's temporary views."""
        source = f"sparklog_ingest_{uuid.uuid4().hex}"
        rows.createOrReplaceTempView(source)
        try:
            with a_clone(self._spark, self._settings) as session:
                run_sql(session, insert_missing(path_table(path), source, condition, values))
        finally:
            self._spark.catalog.dropTempView(source)


def _session_of_its_own(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session like ``spark``, with settings that hold for no other."""
    from pyspark import RDD

    to_df = RDD.toDF
    session = spark.newSession()
    RDD.toDF = to_df  # PySpark binds it to the session made last, which would be ours
    known = session_settings(session)
    for name, value in {**session_settings(spark), **settings}.items():
        if known.get(name) != value and session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session
