"""Making a cluster: only where nobody's data lies around it or in it, and only in a store that is proved to be safe."""

from __future__ import annotations

import json
import uuid
from itertools import islice

from sparklog.clock import Clock
from sparklog.errors import CorruptLogError, InvalidArgumentError
from sparklog.paths import (
    CLUSTER_FILE,
    CREATE_ONLY_FILE,
    GROUPS_FOLDER,
    SHARE_GROUPS_FOLDER,
    TOPICS_FOLDER,
    TRANSACTIONS_FOLDER,
)
from sparklog.storage import probe_create_only
from sparklog.storage.ground import CLUSTER_FORMAT_VERSION, cluster_id_of, read_cluster_id
from sparklog.storage.path_proof import create_only_bytes
from sparklog.storage.retrying import RetryingStore, retry

__all__ = ["make_cluster", "remains_at"]

_OWN_FOLDERS = (TOPICS_FOLDER, GROUPS_FOLDER, SHARE_GROUPS_FOLDER, TRANSACTIONS_FOLDER)


def make_cluster(store: RetryingStore, *, clock: Clock, retry_ms: float) -> str:
    """Make a cluster at the root of a store, and return its id, or that of the cluster that another client made there
    first.

    Costs a read in each folder above the root, a LIST of four folders, and the race.

    Raises:
        InvalidArgumentError: the root lies in another cluster, or holds what is left of one.
        UnsafeStoreError: the store lets two racers win.
        UnsupportedVersionError, CorruptLogError, StoreError.
    """
    _refuse_to_nest(store)
    remains = remains_at(store)
    if remains:
        cluster_id = read_cluster_id(store)  # another client may have made it, and a topic, a moment ago
        if cluster_id is not None:
            return cluster_id
        raise InvalidArgumentError(f"no cluster can be made at {store.uri}: {remains}")
    probe_create_only(store, clock=clock)
    deadline = clock.deadline_in(retry_ms)
    if store.is_remote:  # there before the cluster is: each client that opens it tries its way by creating it again
        retry(lambda: store.create(CREATE_ONLY_FILE, create_only_bytes()), deadline=deadline)
    created = {"cluster_id": uuid.uuid4().hex, "format_version": CLUSTER_FORMAT_VERSION}
    # Whoever wins: what is there afterwards is the cluster.
    retry(lambda: store.create(CLUSTER_FILE, json.dumps(created).encode(), sync=True), deadline=deadline)
    cluster_id = read_cluster_id(store)
    if cluster_id is None:
        raise CorruptLogError(f"{store.uri}/{CLUSTER_FILE} vanished right after it was created")
    return cluster_id


def remains_at(store: RetryingStore) -> str:
    """Why a root without ``cluster.json`` may be that of a cluster which has lost it, and what to do then; empty where
    nothing is there. Four LISTs of a page."""
    folders = [folder for folder in _OWN_FOLDERS if next(islice(store.list(folder), 1), None) is not None]
    if not folders:
        return ""
    example = json.dumps({"cluster_id": "<32 hex digits>", "format_version": CLUSTER_FORMAT_VERSION})
    return (
        f"there is no {CLUSTER_FILE}, but there are objects below {', '.join(folders)}. If they are a cluster's, put "
        f"its {CLUSTER_FILE} back from a backup; without one write {example} under that name, with digits of your own, "
        "while no client of the cluster runs. If they are not needed, delete them, or choose another root"
    )


def _refuse_to_nest(store: RetryingStore) -> None:
    for uri, data in store.read_above(CLUSTER_FILE):
        cluster_id = cluster_id_of(data)
        if cluster_id is not None:
            raise InvalidArgumentError(
                f"no cluster can be made at {store.uri}: it lies in the cluster at {uri}, whose id is {cluster_id}; "
                "the maintenance of a cluster deletes files below its root, so choose a root outside of it"
            )
