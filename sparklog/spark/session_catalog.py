"""A schema of a Spark session's catalog, such as a Hive metastore, as topics are made known in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sparklog.catalogs.content import Dialect
from sparklog.catalogs.entries import Entry, Found, Kind
from sparklog.errors import StoreError
from sparklog.log.cluster import Cluster
from sparklog.spark.session.storage_access import configure_storage_access
from sparklog.spark.views.sqltext import quoted_name
from sparklog.streaming.cluster_ref import ClusterRef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HIVE", "SessionCatalog", "cloud_of"]

HIVE = {"spark.sql.catalogImplementation": "hive"}
"""The setting of a new session whose catalog is a Hive metastore: that of ``hive-site.xml``, else Derby in a folder."""


def cloud_of(cluster_ref: ClusterRef) -> dict[str, bool]:
    """The argument of :func:`sparklog.spark.session` by which Spark reaches a cluster; none for a folder."""
    scheme = cluster_ref.delta_path("").partition("://")[0]
    option = {"s3a": "s3", "gs": "gcs", "abfss": "adls"}.get(scheme)
    return {} if option is None else {option: True}


class SessionCatalog:
    """A schema of the catalog that a session has: a Hive metastore, Glue as one, Unity Catalog's own.

    A property of a Delta table would be a commit to its log, so what is ours is written into the properties of views.
    """

    def __init__(self, spark: SparkSession, cluster_ref: ClusterRef, schema: str) -> None:
        """
        Args:
            schema: its parts separated by dots; it must be there.
        """
        configure_storage_access(spark, cluster_ref)
        self._spark = spark
        self._root = cluster_ref.delta_path("").rstrip("/")
        self.dialect: Dialect = Dialect(
            quote="`", schema=quoted_name(schema), timestamp_type="timestampType", escapes=True
        )

    def location(self, cluster: Cluster) -> str:
        return self._root

    def found(self) -> dict[str, Found]:
        schema = self.dialect.schema
        views = {row.viewName for row in self._rows(f"SHOW VIEWS IN {schema}") if not row.isTemporary}
        names = {row.tableName for row in self._rows(f"SHOW TABLES IN {schema}") if not row.isTemporary}
        return {name: self._found(name, is_view=name in views) for name in sorted(names | views)}

    def create(self, entry: Entry, properties: Mapping[str, str]) -> None:
        name = self.dialect.table(entry.name)
        if entry.kind is Kind.TABLE:
            self._rows(f"CREATE TABLE {name} USING delta LOCATION {self.dialect.literal(entry.location)}")
            return
        written = ", ".join(
            f"{self.dialect.literal(key)} = {self.dialect.literal(value)}" for key, value in properties.items()
        )
        self._rows(f"CREATE VIEW {name} TBLPROPERTIES ({written}) AS {entry.text}")

    def replace(self, entry: Entry, there: Found, properties: Mapping[str, str]) -> None:
        self.drop(there)
        self.create(entry, properties)

    def drop(self, there: Found) -> None:
        what = "VIEW" if there.kind is Kind.VIEW else "TABLE"  # an external one: its files stay
        self._rows(f"DROP {what} {self.dialect.table(there.name)}")

    def _found(self, name: str, *, is_view: bool) -> Found:
        table = self.dialect.table(name)
        if is_view:
            properties = {row.key: row.value for row in self._rows(f"SHOW TBLPROPERTIES {table}")}
            return Found(name=name, kind=Kind.VIEW, properties=properties)
        described = {row.col_name: row.data_type for row in self._rows(f"DESCRIBE EXTENDED {table}")}
        location = str(described.get("Location", ""))
        return Found(name=name, kind=Kind.TABLE, location=location.removeprefix("file:").replace("///", "/"))

    def _rows(self, statement: str) -> list[Any]:
        from pyspark.errors import PySparkException

        try:
            rows: list[Any] = self._spark.sql(statement).collect()
        except PySparkException as error:
            raise StoreError(f"the catalog of Spark's session: {error}") from error
        return rows
