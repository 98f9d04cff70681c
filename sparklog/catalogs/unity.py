"""A schema of Unity Catalog, by its REST API."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from sparklog.catalogs.entries import Entry, Found, Kind
from sparklog.catalogs.types import unity_column
from sparklog.errors import InvalidArgumentError, StoreError
from sparklog.log.cluster import Cluster

__all__ = ["UnityCatalog"]

_TIMEOUT_S = 60
_API = "/api/2.1/unity-catalog"


class UnityCatalog:
    """A schema of a Unity Catalog server, which must be there. It gets an external table for each topic.

    A managed table can never be a topic: its files would lie where the catalog says, and its commits go through it. Its
    API makes no views in servers before 0.5; a Spark session with Unity's catalog makes them by SQL.
    """

    dialect = None

    def __init__(
        self, server: str, catalog: str, schema: str, *, token: str | None = None, location: str | None = None
    ) -> None:
        """
        Args:
            server: its URL, as ``https://host``.
            token: of a user who may create tables in the schema, and has the external location.
            location: the cluster's root as engines know it; None: the URI by which it was opened.
        Raises:
            InvalidArgumentError: ``server`` is no URL.
        """
        if not server.startswith(("http://", "https://")):
            raise InvalidArgumentError(f"server {server!r}: expected http://… or https://…")
        self._base = server.rstrip("/") + _API
        self._catalog, self._schema = catalog, schema
        self._token = token
        self._location = location

    def location(self, cluster: Cluster) -> str:
        return self._location or cluster.store.uri

    def found(self) -> dict[str, Found]:
        found: dict[str, Found] = {}
        token = ""
        while True:
            query = {"catalog_name": self._catalog, "schema_name": self._schema, "max_results": "100"}
            page = self._call("GET", f"/tables?{urlencode({**query, **({'page_token': token} if token else {})})}")
            for table in page.get("tables") or ():
                found[table["name"]] = _found(table)
            token = page.get("next_page_token") or ""
            if not token:
                return found

    def create(self, entry: Entry, properties: Mapping[str, str]) -> None:
        indexes = {name: index for index, name in enumerate(entry.partitioned_by)}
        columns = [unity_column(column, at, indexes.get(column.name)) for at, column in enumerate(entry.columns)]
        self._call(
            "POST",
            "/tables",
            {
                "name": entry.name,
                "catalog_name": self._catalog,
                "schema_name": self._schema,
                "table_type": "EXTERNAL",
                "data_source_format": "DELTA",
                "columns": columns,
                "storage_location": entry.location,
                "properties": dict(properties),
            },
        )

    def replace(self, entry: Entry, there: Found, properties: Mapping[str, str]) -> None:
        self.drop(there)  # its columns can't be changed
        self.create(entry, properties)

    def drop(self, there: Found) -> None:
        self._call("DELETE", f"/tables/{quote(f'{self._catalog}.{self._schema}.{there.name}', safe='')}")

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, headers, method=method)  # noqa: S310 - http(s) alone
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                return dict(json.loads(answer.read() or b"{}") or {})
        except urllib.error.HTTPError as error:
            said = error.read(2_000).decode(errors="replace")
            raise StoreError(f"Unity Catalog answered {error.code} to {method} {path}: {said}") from error
        except (urllib.error.URLError, TimeoutError) as error:
            raise StoreError(f"Unity Catalog at {self._base} can't be reached: {error}") from error


def _found(table: Mapping[str, Any]) -> Found:
    kind = Kind.VIEW if "VIEW" in str(table.get("table_type")) else Kind.TABLE
    location = table.get("storage_location") or ""
    return Found(name=table["name"], kind=kind, properties=table.get("properties") or {}, location=location)
