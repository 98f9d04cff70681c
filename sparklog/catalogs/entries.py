"""Entries of a catalog: tables and views, and the properties by which sparklog knows its own. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa

__all__ = ["CLUSTER_ID", "CONTENT", "TABLES", "Entry", "Found", "Kind", "entry_name", "table_name"]

CLUSTER_ID = "sparklog.cluster_id"
"""The property of each entry that sync has made: the id of the cluster that it shows."""
CONTENT = "sparklog.content"
"""The property with a fingerprint of what an entry should be: another one is replaced."""
TABLES = "sparklog.tables"
"""The property of a view that names the tables, separated by commas, which were made for it and carry no properties of
their own: in some catalogs a property of a table would be a commit to its Delta log."""


class Kind(str, Enum):
    """A table, or a view."""

    TABLE = "table"
    VIEW = "view"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A table or a view that should be in a catalog."""

    name: str
    kind: Kind
    source: str
    """The thing that it shows, for messages: ``topic orders``."""
    location: str = ""
    """The URI of a table's folder."""
    columns: Sequence[pa.Field] = ()
    """A table's columns: those in its files first, then those that it is partitioned by."""
    partitioned_by: Sequence[str] = ()
    text: str = ""
    """The query of a view."""
    tables: Sequence[str] = ()
    """The names of the tables that are there for a view alone."""

    def properties(self, cluster_id: str) -> dict[str, str]:
        """The properties that say whose it is, and what it was made from."""
        shape = [self.kind.value, self.location, [(one.name, str(one.type)) for one in self.columns], self.text]
        digest = hashlib.sha256(json.dumps([*shape, list(self.tables)]).encode()).hexdigest()[:16]
        known = {CLUSTER_ID: cluster_id, CONTENT: digest}
        return {**known, TABLES: ",".join(self.tables)} if self.tables else known


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A table or a view that is in a catalog, whoever made it."""

    name: str
    kind: Kind
    properties: Mapping[str, str] = field(default_factory=dict)
    location: str = ""
    """The URI of a table's folder, where the catalog tells it."""


def entry_name(name: str) -> str:
    """A name that every catalog takes: lower case, with ``_`` for what is neither a letter nor a digit."""
    return re.sub(r"[^a-z0-9_]", "_", name.lower())


def table_name(name: str) -> str:
    """The name of a topic's table where a view has its own."""
    return f"{entry_name(name)}_raw"
