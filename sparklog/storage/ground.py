"""The identity of a cluster's store: what ``cluster.json`` says, and whether it still says so.

A folder may be unmounted, moved or made again under a running client, a link be switched, a prefix be emptied and used
for another cluster. What a client knows of its logs then is of a store that isn't there any more.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Hashable

from sparklog.clock import Clock
from sparklog.errors import (
    CorruptLogError,
    ObjectNotFoundError,
    StoreReplacedError,
    UnsupportedVersionError,
)
from sparklog.paths import CLUSTER_FILE
from sparklog.storage.base import ObjectStore

__all__ = [
    "CLUSTER_FORMAT_VERSION",
    "Ground",
    "NewestCheck",
    "cluster_id_of",
    "newest_check_of",
    "read_cluster_id",
]

CLUSTER_FORMAT_VERSION = 1


class NewestCheck:
    """When a process last compared ``cluster.json``; for any thread, without a lock: where two compare at once, a
    request more is made."""

    def __init__(self) -> None:
        self.ticks_ms = -math.inf
        """A tick of the process's clock at which the newest comparison began that found no difference."""
        self.doubted_ticks_ms = -math.inf
        """When the store last said that there is no such bucket."""


class Ground:
    """The cluster that a store was opened as; for any thread.

    Args:
        store: whose ``cluster.json`` is compared.
        cluster_id: what ``cluster.json`` said when the cluster was opened.
        newest: shared by those for whom one comparison is enough; None: this ground's own.
    """

    def __init__(self, store: ObjectStore, cluster_id: str, newest: NewestCheck | None = None) -> None:
        self._store = store
        self._newest = newest or NewestCheck()
        self.cluster_id = cluster_id

    def is_due(self, now_ticks_ms: float, *, tail_trust_ms: float) -> bool:
        """Was ``cluster.json`` last compared longer than ``tail_trust_ms`` ago, or before :meth:`doubt`? No request."""
        newest = self._newest
        return newest.doubted_ticks_ms >= newest.ticks_ms or now_ticks_ms - newest.ticks_ms > tail_trust_ms

    def doubt(self, now_ticks_ms: float) -> None:
        """The store says that there is no such bucket: it may be another one afterwards, without the logs of this one.
        So ``cluster.json`` and each log are checked before anything is created in it. No request."""
        self._newest.doubted_ticks_ms = now_ticks_ms

    @property
    def doubted_ticks_ms(self) -> float:
        """When a client of this process was last told that there is no such bucket; -inf: never."""
        return self._newest.doubted_ticks_ms

    def check_if_due(self, clock: Clock, *, tail_trust_ms: float) -> None:
        """Do :meth:`check` unless it was done within ``tail_trust_ms`` (rule L17, ground). Raises as that."""
        began = clock.ticks_ms()
        if self.is_due(began, tail_trust_ms=tail_trust_ms):
            self.check()
            self._newest.ticks_ms = began

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


_NEWEST: dict[Hashable, NewestCheck] = {}
"""Not by weak references: an interrupt that comes while one of these is cleared away is lost."""
_MOST_KNOWN = 256


def newest_check_of(key: Hashable) -> NewestCheck:
    """The newest check that the clients of this process share. Of those that were asked for first, some are forgotten
    where there are many: then a request more is made.

    Args:
        key: equal for those alone who read the same ``cluster.json``, by the same clock.
    """
    full = (os.getpid(), key)
    found = _NEWEST.get(full)
    if found is None:  # where two threads do this at once, a request more is made
        for oldest in list(_NEWEST)[: max(0, len(_NEWEST) - _MOST_KNOWN + 1)]:
            _NEWEST.pop(oldest, None)
        found = _NEWEST[full] = NewestCheck()
    return found
