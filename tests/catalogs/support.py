"""Clusters whose topics are put into catalogs, and a catalog in memory."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.catalogs.content import Dialect
from sparklog.catalogs.entries import Entry, Found, Kind
from sparklog.log.cluster import Cluster

ROOT = "s3://bucket/cluster"
DIALECT = Dialect(quote='"', schema='"lake"', timestamp_type="timestamp_type", escapes=False)


class MemoryCatalog:
    """A catalog with views, whose tables have no properties, as Trino's and Spark's."""

    def __init__(self, dialect: Dialect | None = DIALECT) -> None:
        self.dialect = dialect
        self.there: dict[str, Found] = {}
        self.entries: dict[str, Entry] = {}
        self.calls: list[str] = []

    def location(self, cluster: Cluster) -> str:
        return ROOT

    def found(self) -> Mapping[str, Found]:
        return dict(self.there)

    def create(self, entry: Entry, properties: Mapping[str, str]) -> None:
        assert entry.name not in self.there
        self._put(f"create {entry.name}", entry, properties)

    def replace(self, entry: Entry, there: Found, properties: Mapping[str, str]) -> None:
        assert self.there[entry.name] == there
        self._put(f"replace {entry.name}", entry, properties)

    def drop(self, there: Found) -> None:
        self.calls.append(f"drop {there.name}")
        del self.there[there.name]

    def _put(self, call: str, entry: Entry, properties: Mapping[str, str]) -> None:
        self.calls.append(call)
        kept = {} if self.dialect is not None and entry.kind is Kind.TABLE else dict(properties)
        self.there[entry.name] = Found(name=entry.name, kind=entry.kind, properties=kept, location=entry.location)
        self.entries[entry.name] = entry
