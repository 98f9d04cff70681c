"""Clusters and tables of others in the folders of a cluster: they don't belong there, and aren't checked."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from sparklog.delta.others_folders import OthersFolders
from sparklog.integrity.findings import Code, Finding, Subject
from sparklog.log.cluster import Cluster
from sparklog.paths import CLUSTER_FILE, GROUPS_FOLDER, TOPICS_FOLDER, TRANSACTIONS_FOLDER
from sparklog.storage.each_alone import list_each_folder, read_each
from sparklog.storage.ground import cluster_id_of

__all__ = ["Nested", "look_for_nested", "nested_folder"]

_OWN_TABLES = re.compile(rf"{GROUPS_FOLDER}[^/]+/offsets")
_PARTS_OF_GROUPS = frozenset({"offsets", "generations", "members", "probes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested:
    """The contents of the folders of groups, transactions and topics that aren't the cluster's own."""

    findings: tuple[Finding, ...]
    group_parts: Collection[str]
    """The folders of groups that have a part which groups have; others are of somebody else."""


def nested_folder(folder: str, subject: Subject) -> Finding:
    """The finding about a folder that holds a cluster or a table of others."""
    return Finding(
        code=Code.NESTED_FOLDER,
        subject=subject,
        seen=f"{folder} holds another cluster or another table, which this cluster's maintenance and check leave alone",
        expected="a root outside of this cluster: other engines' VACUUM of a topic deletes such files, and older "
        "clients' maintenance does",
    )


def look_for_nested(cluster: Cluster, strangers: Collection[str]) -> Nested:
    """Look for clusters and tables of others. A LIST for each 1,000 objects of groups and transactional ids, and a GET
    for each of ``strangers``.

    Args:
        strangers: folders of topics in which there is no topic.
    """
    others = OthersFolders(cluster.store, "", _OWN_TABLES)
    parts: set[str] = set()
    for folder in (GROUPS_FOLDER, TRANSACTIONS_FOLDER):
        unlisted: dict[str, Exception] = {}
        beside: list[str] = []
        for file in list_each_folder(cluster.store, folder, unlisted):
            others.note(file.path)
            if folder == GROUPS_FOLDER:
                name, _, rest = file.path[len(folder) :].partition("/")
                if rest.partition("/")[0] in _PARTS_OF_GROUPS:
                    parts.add(name)
                elif not rest:
                    beside.append(name)
        if folder == GROUPS_FOLDER:  # of those that can't be read, the check of each says why
            contents = read_each(cluster.store, [f"{folder}{name}" for name in beside]) if beside else ()
            parts.update(unlisted)
            parts.update(name for name, data in zip(beside, contents, strict=True) if isinstance(data, Exception))
    paths = [f"{TOPICS_FOLDER}{CLUSTER_FILE}", *(f"{TOPICS_FOLDER}{name}/{CLUSTER_FILE}" for name in strangers)]
    contents = read_each(cluster.store, paths)
    folders = [*others.found()]
    folders += [
        path.removesuffix(CLUSTER_FILE)
        for path, data in zip(paths, contents, strict=True)
        if isinstance(data, bytes) and cluster_id_of(data) is not None
    ]
    return Nested(findings=tuple(nested_folder(folder, Subject(path=folder)) for folder in folders), group_parts=parts)
