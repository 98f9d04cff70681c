"""The store's own time: the only clock that all processes of a cluster share."""

from __future__ import annotations

import logging

from sparklog.errors import StoreError, StoreUnavailableError
from sparklog.log.cluster import Cluster

__all__ = ["store_time_ms"]

_LOGGER = logging.getLogger("sparklog.log")
_ATTEMPTS = 5
_LEFT_MS = 86_400_000
"""A probe that is older was left by a process that was killed."""


def store_time_ms(cluster: Cluster, probe: str) -> int:
    """The store's time, milliseconds since the epoch: it is given to an object that is written for this.

    A PUT, a LIST and a DELETE. Probes beside it that are older than a day go, too.

    Args:
        probe: a fresh name in a folder that holds nothing but such objects.
    Raises:
        StoreUnavailableError: the object was gone again and again before it was listed: this process is slower than
            those that sweep.
        StoreError.
    """
    store, folder = cluster.store, f"{probe.rpartition('/')[0]}/"
    doomed = [probe]
    try:
        for _ in range(_ATTEMPTS):
            store.put(probe, b"")
            listed = {found.path: found.modified_ms for found in store.list(folder)}
            now_ms = listed.get(probe)
            if now_ms is not None:
                doomed += [path for path, modified_ms in listed.items() if now_ms - modified_ms > _LEFT_MS]
                return now_ms
    finally:
        try:
            store.delete(doomed)
        except StoreError as error:  # what was learned counts; probes that are left go with a later call
            _LOGGER.warning("%s/%s is left over: %s", store.uri, folder, error)
    raise StoreUnavailableError(f"{store.uri}/{probe} was deleted by others {_ATTEMPTS} times before it was listed")
