"""What a Python process of Spark keeps from task to task, from batch to batch: stores, clusters, what it knows of them.

A client of S3 takes 150 to 300 ms of CPU to connect: a process has one for each store, however many tasks it runs.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

from sparklog.log.append import TopicWriter
from sparklog.log.cluster import Cluster, open_cluster
from sparklog.storage import ObjectStore
from sparklog.streaming.cluster_ref import Place
from sparklog.txn.committing import UploadCommitter

__all__ = ["Opened", "cluster_at", "opened", "shared_store"]


@dataclass(frozen=True, slots=True)
class Opened:
    """A cluster that this process has open. One thread at a time uses it."""

    cluster: Cluster
    writers: dict[str, TopicWriter] = field(default_factory=dict)
    """Of tasks, by topic."""
    committers: dict[str, UploadCommitter] = field(default_factory=dict)
    """By transactional id."""
    warned: set[str] = field(default_factory=set)
    """What a warning was logged about: once is enough."""


_Key = tuple[int, str, str]
_STORES: dict[_Key, ObjectStore] = {}
_OPENED: dict[_Key, Opened] = {}


def shared_store(place: Place) -> ObjectStore:
    """The store at ``place``: the same object for all of this process. It is never closed; nothing is read."""
    key = _key(place)
    store = _STORES.get(key)
    if store is None:
        store = _STORES.setdefault(key, place.store())  # of two threads one wins, and both use its store
    return store


def cluster_at(place: Place) -> Cluster:
    """The cluster at ``place``, through the one client of its store that this process has. One GET.

    Raises ``InvalidArgumentError`` where there is no cluster, and as ``open_cluster``.
    """
    return open_cluster(shared_store(place), create=False)


def opened(place: Place) -> Opened:
    """The cluster at ``place``: the same object as long as it is the same cluster there. One GET.

    It is never closed. Raises ``InvalidArgumentError`` where there is no cluster, and as ``open_cluster``.
    """
    key = _key(place)
    known = _OPENED.get(key)
    found = cluster_at(place)
    if known is None or known.cluster.cluster_id != found.cluster_id:  # made anew, as people do in notebooks
        known = _OPENED[key] = Opened(found)
    return known


def _key(place: Place) -> _Key:
    """The process is part of it: a client that was made before a fork can't be used after it."""
    return os.getpid(), place.uri, json.dumps(place.storage_options, sort_keys=True, default=str)
