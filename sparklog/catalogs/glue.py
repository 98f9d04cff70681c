"""A database of the AWS Glue Data Catalog. Alone imports boto3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sparklog.catalogs.entries import Entry, Found, Kind
from sparklog.catalogs.types import hive_type
from sparklog.errors import InvalidConfigurationError, StoreError
from sparklog.log.cluster import Cluster

__all__ = ["GlueCatalog", "glue_client"]

_AS_DELTA = {
    "EXTERNAL": "TRUE",
    "classification": "delta",
    "table_type": "DELTA",  # by which Athena knows it
    "spark.sql.sources.provider": "delta",  # by which Spark and Trino do
}


def glue_client(**options: Any) -> Any:
    """A client of Glue, with credentials and region from AWS's usual places, or from options of ``boto3.client``.

    Raises ``InvalidConfigurationError``: boto3 isn't installed.
    """
    try:
        import boto3
    except ImportError as error:
        raise InvalidConfigurationError("Glue needs boto3: pip install 'sparklog[glue]'") from error
    return boto3.client("glue", **options)


class GlueCatalog:
    """A database of Glue, which must be there. It gets a table for each topic; views that all engines read aren't to be
    had in Glue."""

    dialect = None

    def __init__(self, client: Any, database: str, *, location: str | None = None) -> None:
        """
        Args:
            client: of boto3, or what has its methods.
            location: the cluster's root as engines know it; None: the URI by which it was opened.
        """
        self._client = client
        self._database = database
        self._location = location

    def location(self, cluster: Cluster) -> str:
        return self._location or cluster.store.uri

    def found(self) -> dict[str, Found]:
        with _told():
            pages = self._client.get_paginator("get_tables").paginate(DatabaseName=self._database)
            return {table["Name"]: _found(table) for page in pages for table in page["TableList"]}

    def create(self, entry: Entry, properties: Mapping[str, str]) -> None:
        with _told():
            self._client.create_table(DatabaseName=self._database, TableInput=_table_input(entry, properties))

    def replace(self, entry: Entry, there: Found, properties: Mapping[str, str]) -> None:
        with _told():
            self._client.update_table(DatabaseName=self._database, TableInput=_table_input(entry, properties))

    def drop(self, there: Found) -> None:
        with _told():
            self._client.delete_table(DatabaseName=self._database, Name=there.name)


@contextmanager
def _told() -> Iterator[None]:
    """Raise what Glue says as ``StoreError``."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise StoreError(f"Glue: {error}") from error


def _found(table: Mapping[str, Any]) -> Found:
    kind = Kind.VIEW if table.get("TableType") == "VIRTUAL_VIEW" else Kind.TABLE
    location = table.get("StorageDescriptor", {}).get("Location", "")
    return Found(name=table["Name"], kind=kind, properties=table.get("Parameters", {}), location=location)


def _table_input(entry: Entry, properties: Mapping[str, str]) -> dict[str, Any]:
    return {
        "Name": entry.name,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {**_AS_DELTA, **properties},
        "StorageDescriptor": {
            "Location": entry.location,
            "Columns": [{"Name": column.name, "Type": hive_type(column.type)} for column in entry.columns],
            "SerdeInfo": {"Parameters": {"path": entry.location, "serialization.format": "1"}},
        },
    }
