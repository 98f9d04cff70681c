"""The cache of a Python process of Spark from task to task, batch to batch: stores, clusters, what is known of these.

A client of S3 takes 150 to 300 ms of CPU to connect: a process has one for each store, however many tasks it runs.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

from sparklog.log.append import TopicWriter
from sparklog.log.cluster import Cluster, open_cluster
from sparklog.storage import ObjectStore
from sparklog.streaming.cluster_ref import ClusterRef
from sparklog.txn.committing import UploadCommitter

__all__ = ["CachedCluster", "cached_cluster", "open_shared_cluster", "shared_store"]


@dataclass(frozen=True, slots=True)
class CachedCluster:
    """A cluster that this process has opened, and what it knows of it. One thread at a time uses it."""

    cluster: Cluster
    writers: dict[str, TopicWriter] = field(default_factory=dict)
    """The writers of tasks, by topic."""
    committers: dict[str, UploadCommitter] = field(default_factory=dict)
    """By transactional id."""
    warned: set[str] = field(default_factory=set)
    """The subjects that a warning was logged about: once is enough."""


_Key = tuple[int, str, str]
_STORES: dict[_Key, ObjectStore] = {}
_CLUSTERS: dict[_Key, CachedCluster] = {}


def shared_store(cluster_ref: ClusterRef) -> ObjectStore:
    """The store of a cluster: the same object for all of this process. It is never closed; nothing is read."""
    key = _key(cluster_ref)
    store = _STORES.get(key)
    if store is None:
        store = _STORES.setdefault(key, cluster_ref.store())  # of two threads one wins, and both use its store
    return store


def open_shared_cluster(cluster_ref: ClusterRef) -> Cluster:
    """The cluster of a reference, through the one client of its store that this process has. One GET.

    Raises ``InvalidArgumentError`` where there is no cluster, and as ``open_cluster``.
    """
    return open_cluster(shared_store(cluster_ref), create=False)


def cached_cluster(cluster_ref: ClusterRef) -> CachedCluster:
    """The cluster of a reference: the same object as long as it is the same cluster there. One GET.

    It is never closed. Raises ``InvalidArgumentError`` where there is no cluster, and as ``open_cluster``.
    """
    key = _key(cluster_ref)
    cached = _CLUSTERS.get(key)
    cluster = open_shared_cluster(cluster_ref)
    if cached is None or cached.cluster.cluster_id != cluster.cluster_id:  # made anew, as people do in notebooks
        cached = _CLUSTERS[key] = CachedCluster(cluster)
    return cached


def _key(cluster_ref: ClusterRef) -> _Key:
    """The process is part of it: a client that was made before a fork can't be used after it."""
    return os.getpid(), cluster_ref.uri, json.dumps(cluster_ref.storage_options, sort_keys=True, default=str)
