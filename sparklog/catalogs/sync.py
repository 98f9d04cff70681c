"""Bringing a catalog up to date with a cluster: reads both, plans, and carries the plan out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from sparklog.catalogs.content import Dialect, wanted_entries
from sparklog.catalogs.entries import TABLES, Entry, Found
from sparklog.catalogs.plan import SyncPlan, plan_sync
from sparklog.log.cluster import Cluster

__all__ = ["Catalog", "sync_catalog"]


class Catalog(Protocol):
    """One schema of a catalog."""

    @property
    def dialect(self) -> Dialect | None:
        """How views are written; None where there are none."""

    def location(self, cluster: Cluster) -> str:
        """The URI of the cluster's root as the catalog's engines know it."""

    def found(self) -> Mapping[str, Found]:
        """Everything that is in the schema, by name."""

    def create(self, entry: Entry, properties: Mapping[str, str]) -> None:
        """Make a table or a view. Nothing of the name is there."""

    def replace(self, entry: Entry, there: Found, properties: Mapping[str, str]) -> None:
        """Make a table or a view in place of what is there."""

    def drop(self, there: Found) -> None:
        """Take a table or a view away. No file of a topic is touched."""


def sync_catalog(
    catalog: Catalog,
    cluster: Cluster,
    *,
    topics: Iterable[str] | None = None,
    drop: bool = False,
    dry_run: bool = False,
) -> SyncPlan:
    """Make the topics of a cluster known in a catalog, and mend what is there of them.

    What doesn't carry the cluster's id is never changed or dropped. Safe to run again, and to end at any point.

    Args:
        topics: those alone; nothing is dropped then. None: all, and the lag of groups where the catalog has views.
        drop: take away what shows topics and groups that aren't there any more; else they are only in the plan.
        dry_run: change nothing.
    Returns:
        What was planned; of it all is done but drops, unless they were asked for.
    Raises:
        StoreError: the catalog refused something, or can't be reached; what was done by then stays, and the next
            run goes on.
        What reading logs raises.
    """
    root = catalog.location(cluster)
    wanted = wanted_entries(cluster, root, catalog.dialect, topics)
    found = catalog.found()
    plan = plan_sync(wanted, found, cluster.cluster_id, root)
    if topics is not None:
        plan = SyncPlan(
            creates=plan.creates,
            replacements=plan.replacements,
            drops=(),
            taken=plan.taken,
            unchanged=plan.unchanged,
        )
    if dry_run:
        return plan
    for entry in plan.creates:
        catalog.create(entry, entry.properties(cluster.cluster_id))
    for entry in plan.replacements:
        left = () if drop else [one.name for one in plan.drops]
        catalog.replace(entry, found[entry.name], _properties(entry, found[entry.name], left, cluster.cluster_id))
    for there in plan.drops if drop else ():
        catalog.drop(there)
    return plan


def _properties(entry: Entry, there: Found, left: Collection[str], cluster_id: str) -> dict[str, str]:
    """The properties of an entry in place of another, which goes on naming tables that are left as they are: nothing
    else says that they are ours."""
    properties = entry.properties(cluster_id)
    named = [table for table in there.properties.get(TABLES, "").split(",") if table in left]
    return {**properties, TABLES: ",".join([*entry.tables, *named])} if named else properties
