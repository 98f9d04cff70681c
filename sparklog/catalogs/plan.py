"""Changes that a catalog needs: a function of what a cluster has and what the catalog has. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparklog.catalogs.entries import CLUSTER_ID, CONTENT, TABLES, Entry, Found, Kind

__all__ = ["SyncPlan", "plan_sync"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPlan:
    """The changes of a catalog, in the order in which they are made."""

    creates: Sequence[Entry]
    """Tables before the views over them."""
    replacements: Sequence[Entry]
    drops: Sequence[Found]
    """Tables before views, which may be all that says whose a table is."""
    taken: Mapping[str, str]
    """Why an entry isn't made, by its name: something of another has the name."""
    unchanged: int = 0


def plan_sync(wanted: Sequence[Entry], found: Mapping[str, Found], cluster_id: str, root: str) -> SyncPlan:
    """Compare what should be in a catalog with what is.

    Whatever doesn't carry this cluster's id stays as it is. A table without properties carries the id of the view that
    names it (:data:`~sparklog.catalogs.entries.TABLES`), if it lies in the cluster's folder: somebody may have put
    another in its place. One at the very location of a topic, under the very name, is taken as made by a run that was
    ended before it made the view.

    Args:
        wanted: of entries with the same name the first is made.
        found: by name.
        root: the URI of the cluster's folder as the catalog has it.
    """
    ours = _owned(found, cluster_id, root)
    creates: dict[str, Entry] = {}
    replacements: dict[str, Entry] = {}
    taken: dict[str, str] = {}
    seen: dict[str, Entry] = {}
    for entry in wanted:
        first = seen.setdefault(entry.name, entry)
        if first is not entry:
            taken[entry.source] = f"{first.source} has the name {entry.name}"
            continue
        there = found.get(entry.name)
        if there is None:
            creates[entry.name] = entry
        elif entry.name in ours:
            if there.kind is not entry.kind or _differs(entry, there, cluster_id):
                replacements[entry.name] = entry
        elif not _is_left_over(entry, there):
            taken[entry.source] = f"a {there.kind.value} {entry.name} is there that isn't this cluster's"
    blocked = {entry.name for entry in wanted if entry.source in taken}
    drops = [found[name] for name in ours if name not in seen]
    return SyncPlan(
        creates=_tables_first([entry for entry in creates.values() if not blocked.intersection(entry.tables)]),
        replacements=_tables_first([*replacements.values()]),
        drops=sorted(drops, key=lambda one: one.kind is Kind.VIEW),
        taken=taken,
        unchanged=len(seen) - len(creates) - len(replacements) - len(taken),
    )


def _owned(found: Mapping[str, Found], cluster_id: str, root: str) -> set[str]:
    marked = {name: one for name, one in found.items() if one.properties.get(CLUSTER_ID) == cluster_id}
    of_views = {
        table
        for one in marked.values()
        for table in one.properties.get(TABLES, "").split(",")
        if table in found and _is_nameless_table_in(root, found[table])
    }
    return {*marked, *of_views}


def _is_nameless_table_in(root: str, one: Found) -> bool:
    is_there = one.location.startswith(f"{root.rstrip('/')}/")
    return one.kind is Kind.TABLE and CLUSTER_ID not in one.properties and is_there


def _differs(entry: Entry, there: Found, cluster_id: str) -> bool:
    if CONTENT in there.properties:
        return there.properties[CONTENT] != entry.properties(cluster_id)[CONTENT]
    return bool(there.location) and not _is_left_over(entry, there)


def _is_left_over(entry: Entry, there: Found) -> bool:
    """Is a table without properties the very one that sync would make?"""
    return (
        entry.kind is there.kind is Kind.TABLE
        and CLUSTER_ID not in there.properties
        and there.location.rstrip("/") == entry.location.rstrip("/")
    )


def _tables_first(entries: Sequence[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: entry.kind is Kind.VIEW)
