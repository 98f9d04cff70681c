"""References to clusters, by which every process of a Spark job can open them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparklog.errors import InvalidArgumentError
from sparklog.log.cluster import Cluster, open_cluster
from sparklog.storage import AzureStore, LocalStore, MemoryStore, ObjectStore, S3Store, open_store

__all__ = ["ClusterRef", "cluster_ref_of", "is_relative_folder"]


@dataclass(frozen=True, slots=True)
class ClusterRef:
    """A reference to a cluster: its root URI and access to it. May be sent to other processes."""

    uri: str
    """Absolute."""
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def open(self) -> Cluster:
        """The cluster. Raises ``InvalidArgumentError`` where there is none."""
        return open_cluster(self.store(), create=False)

    def store(self) -> ObjectStore:
        """The store; nothing is read yet."""
        return open_store(self.uri, self.storage_options)

    def delta_path(self, table: str) -> str:
        """The path by which Delta in Spark finds a table, once
        :func:`sparklog.spark.session.session.configure_storage_access` was called."""
        store = self.store()
        if isinstance(store, LocalStore):
            return f"{store.root}/{table}"
        if isinstance(store, AzureStore):
            return f"{store.abfss_uri}/{table}"
        root = f"s3a://{store.uri.removeprefix('s3://')}" if isinstance(store, S3Store) else store.uri
        return f"{root}/{table}"


def is_relative_folder(cluster: str | Path) -> bool:
    """Does a root URI name a folder by a relative path? Raises ``InvalidArgumentError``."""
    if os.path.isabs(cluster) or isinstance(cluster, Path):
        return not os.path.isabs(cluster)
    return isinstance(open_store(cluster), LocalStore) and not cluster.lower().startswith("file:")


def cluster_ref_of(cluster: str | Path, storage_options: Mapping[str, Any] | None = None) -> ClusterRef:
    """A reference to the cluster at a root URI.

    Raises:
        InvalidArgumentError: no URI of a store, or memory, which other processes can't see.
    """
    store = open_store(cluster, storage_options)
    if isinstance(store, MemoryStore):
        raise InvalidArgumentError(f"{store.uri}: Spark's processes don't share memory; use a folder or a bucket")
    return ClusterRef(store.uri, dict(storage_options or {}))
