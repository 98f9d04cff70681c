"""The identity of a cluster's store: what ``cluster.json`` says, and whether it still says so.

A folder may be unmounted, moved or made again under a running client, a link be switched, a prefix be emptied and used
for another cluster. What a client knows of its logs then is of a store that isn't there any more.
"""

from __future__ import annotations

import json

from sparklog.errors import (
    CorruptLogError,
    ObjectNotFoundError,
    StoreReplacedError,
    UnsupportedVersionError,
)
from sparklog.paths import CLUSTER_FILE
from sparklog.storage.base import ObjectStore

__all__ = ["CLUSTER_FORMAT_VERSION", "Ground", "cluster_id_of", "read_cluster_id"]

CLUSTER_FORMAT_VERSION = 1


class Ground:
    """The cluster that a store was opened as; for any thread.

    Args:
        store: whose ``cluster.json`` is compared.
        cluster_id: what ``cluster.json`` said when the cluster was opened.
    """

    def __init__(self, store: ObjectStore, cluster_id: str) -> None:
        self._store = store
        self.cluster_id = cluster_id

    def check(self) -> None:
        """Compare ``cluster.json`` with what it was when the cluster was opened. One GET.

        Raises:
            StoreReplacedError: it is missing, or is another cluster's.
            CorruptLogError, UnsupportedVersionError, StoreError.
        """
        found = read_cluster_id(self._store)
        if found is None:
            raise StoreReplacedError(
                f"the cluster at {self._store.uri} is gone: there is no {CLUSTER_FILE} any more, expected that of "
                f"cluster {self.cluster_id}"
            )
        if found != self.cluster_id:
            raise StoreReplacedError(
                f"another cluster is at {self._store.uri} now: its id is {found}, expected {self.cluster_id}"
            )


def read_cluster_id(store: ObjectStore) -> str | None:
    """The id in ``cluster.json``; None where there is none. One GET.

    Raises:
        CorruptLogError: it can't be understood.
        UnsupportedVersionError: a newer sparklog made the cluster.
        StoreError.
    """
    try:
        body = json.loads(store.read(CLUSTER_FILE))
        version, cluster_id = int(body["format_version"]), str(body["cluster_id"])
    except ObjectNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptLogError(f"{store.uri}/{CLUSTER_FILE} is malformed: {error!r}") from error
    if version > CLUSTER_FORMAT_VERSION:
        raise UnsupportedVersionError(
            f"the cluster at {store.uri} has format {version}; "
            f"this sparklog knows up to {CLUSTER_FORMAT_VERSION}: upgrade it"
        )
    return cluster_id


def cluster_id_of(data: bytes) -> str | None:
    """The id in the bytes of a ``cluster.json``, of whichever format; None where it is no file of a cluster."""
    try:
        body = json.loads(data)
        return str(body["cluster_id"]) if int(body["format_version"]) > 0 else None
    except (ValueError, KeyError, TypeError):
        return None
