"""An admin's connection to its cluster: opened by the first call that needs it, or created by it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparklog.clock import Clock
from sparklog.errors import IllegalStateError
from sparklog.log.cluster import Cluster, open_cluster
from sparklog.storage import ObjectStore, open_store
from sparklog.storage.retrying import DEFAULT_RETRY_MS

__all__ = ["ClusterConnection"]


class ClusterConnection:
    """A cluster that is opened when it is needed first. May be used from several threads.

    Args:
        cluster: root URI, store or opened cluster.
        storage_options: credentials and endpoint of an S3 store; never logged.
        clock: of the opened cluster; the machine's where None.
    Raises:
        InvalidArgumentError: the URI can't be one.
    """

    def __init__(
        self,
        cluster: str | Path | ObjectStore | Cluster,
        *,
        storage_options: Mapping[str, Any] | None,
        clock: Clock | None,
    ) -> None:
        self._clock = clock
        self._closed = False
        self._opened = cluster if isinstance(cluster, Cluster) else None
        self._root: ObjectStore | None = None
        self._own: ObjectStore | None = None
        """The store that was opened here, and is closed here."""
        if isinstance(cluster, ObjectStore):
            self._root = cluster
        elif not isinstance(cluster, Cluster):
            self._root = self._own = open_store(cluster, storage_options)

    def cluster(self, *, create: bool = False, within_ms: float = DEFAULT_RETRY_MS) -> Cluster:
        """The cluster.

        Args:
            create: create it where there is none.
            within_ms: the time of a call to the store; one that isn't over by then, whatever it waits for, is given up.
        Raises:
            IllegalStateError: the connection is closed.
            InvalidArgumentError: there is no cluster.
            StoreError, UnsafeStoreError.
        """
        if self._closed:
            raise IllegalStateError("the admin is closed")
        if self._opened is None and self._root is not None:
            self._opened = open_cluster(self._root, clock=self._clock, create=create, timeout_ms=within_ms)
        if self._opened is None:
            raise IllegalStateError("the admin has no store")
        return self._opened.abandoning(within_ms)

    def close(self) -> None:
        """Close the store if it was opened here; :meth:`cluster` is an error afterwards."""
        self._closed = True
        if self._own is not None:
            self._own.close()
