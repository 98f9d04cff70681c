"""What a Python process of Spark keeps from task to task, from batch to batch: clusters, and what it knows of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from sparklog.log.append import TopicWriter
from sparklog.log.cluster import Cluster, open_cluster
from sparklog.spark.place import Place
from sparklog.storage import ObjectStore
from sparklog.txn.committing import UploadCommitter

__all__ = ["Opened", "opened"]


@dataclass(frozen=True, slots=True)
class Opened:
    """A cluster that this process has open. One thread at a time uses it."""

    store: ObjectStore
    cluster: Cluster
    writers: dict[str, TopicWriter] = field(default_factory=dict)
    """Of tasks, by topic."""
    committers: dict[str, UploadCommitter] = field(default_factory=dict)
    """By transactional id."""


_OPENED: dict[tuple[str, str], Opened] = {}


def opened(place: Place) -> Opened:
    """The cluster at ``place``: the same object as long as it is the same cluster there. One GET.

    It is never closed. Raises ``InvalidArgumentError`` where there is no cluster, and as ``open_cluster``.
    """
    key = (place.uri, json.dumps(place.storage_options, sort_keys=True, default=str))
    known = _OPENED.get(key)
    store = place.store() if known is None else known.store
    found = open_cluster(store, create=False)
    if known is None or known.cluster.cluster_id != found.cluster_id:  # made anew, as people do in notebooks
        known = _OPENED[key] = Opened(store, found)
    return known
