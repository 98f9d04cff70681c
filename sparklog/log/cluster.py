"""A cluster is a root URI: its store, its identity, and whether its store can be trusted (``docs/architecture.md``, A
cluster is a root URI)."""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from sparklog.clock import Clock, SystemClock
from sparklog.delta.log import DeltaLog
from sparklog.errors import InvalidArgumentError, is_no_topic
from sparklog.log.key_lengths import check_root_length
from sparklog.log.new_cluster import make_cluster, remains_at
from sparklog.log.state import open_state
from sparklog.paths import CLUSTER_FILE, TOPICS_FOLDER, topic_table
from sparklog.storage import ObjectStore, open_store
from sparklog.storage.each_alone import each_alone
from sparklog.storage.ground import CLUSTER_FORMAT_VERSION, Ground, NewestCheck, newest_check_of, read_cluster_id
from sparklog.storage.position import DEFAULT_TAIL_TRUST_MS
from sparklog.storage.retrying import DEFAULT_RETRY_MS, Patience, RetryingStore

__all__ = ["CLUSTER_FORMAT_VERSION", "Cluster", "TopicListing", "open_cluster", "topic_listings", "topic_names"]

_CLOUD_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_")
"""Beginnings of environment variables that stores read where options are missing."""
_LEAST_MS = 1_000.0
"""The time that opening has at least: a client that is told to wait for nothing is still opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A store that holds topics, and the clock that is used with it."""

    cluster_id: str
    store: RetryingStore
    clock: Clock
    tail_trust_ms: float = DEFAULT_TAIL_TRUST_MS
    opened_by: str | None = field(default=None, compare=False, repr=False)
    """The same for clusters whose stores were opened by the same URI and options, neither of which it reveals; None:
    that isn't known."""

    @property
    def sharing_key(self) -> Hashable:
        """A value that is equal where clusters are one, and their clocks and rights, too: they have one store object,
        or have opened stores by the same URI and options."""
        store = self.store if self.opened_by is None else self.opened_by
        return (self.cluster_id, store, self.clock)

    def abandoning(self, within_ms: float) -> Cluster:
        """The same for somebody who waits in store calls: one that isn't over in time is given up, whatever it waits
        for."""
        return replace(self, store=self.store.abandoning(within_ms))

    def topic_log(self, topic: str) -> DeltaLog:
        """The Delta log of a topic's table. Raises ``InvalidTopicError``; reads nothing."""
        return DeltaLog(store=self.store, table=topic_table(topic), clock=self.clock, tail_trust_ms=self.tail_trust_ms)


def open_cluster(
    root: str | Path | ObjectStore,
    *,
    storage_options: Mapping[str, Any] | None = None,
    clock: Clock | None = None,
    create: bool = True,
    tail_trust_ms: float = DEFAULT_TAIL_TRUST_MS,
    retry_ms: float = DEFAULT_RETRY_MS,
    timeout_ms: float | None = None,
) -> Cluster:
    """Open the cluster at ``root``; make one there if there is none and ``create`` is true.

    Making one first proves by a race that the store has an atomic create-only put. Where it is there already, the
    client's first write tries the same by one create, on object stores.

    Args:
        retry_ms: how long a call is repeated while the store is away, here and by who uses the cluster.
        timeout_ms: for opening it, whatever the store's calls wait for; None: ``retry_ms``, if that is
            a second or more; else calls are only not repeated for longer.
    Raises:
        UnsafeStoreError: the store lets two racers win.
        UnsupportedVersionError: a newer sparklog made the cluster.
        InvalidArgumentError: there is no cluster and ``create`` is false; or one can't be made here: the root lies in
            another cluster, or holds what is left of one.
        CorruptLogError: ``cluster.json`` can't be understood.
    """
    clock = clock or SystemClock()
    bare = root if isinstance(root, ObjectStore) else open_store(root, storage_options)
    store = RetryingStore(bare, clock=clock, retry_ms=retry_ms)
    bound_ms = retry_ms if timeout_ms is None else max(timeout_ms, _LEAST_MS)
    patience = Patience(deadline=clock.deadline_in(bound_ms), abandons=bound_ms >= _LEAST_MS)
    with store.patience(patience):
        cluster_id, began = _identify(bare, store, clock, create=create, retry_ms=retry_ms)
    opened_by = None if isinstance(root, ObjectStore) else _opened_by(store.uri, storage_options or {})
    newest = NewestCheck() if opened_by is None else newest_check_of((cluster_id, opened_by, clock))
    newest.ticks_ms = max(newest.ticks_ms, began)
    store.ground = Ground(store, cluster_id, newest)
    store.stand_on(store.ground.check)
    return Cluster(cluster_id=cluster_id, store=store, clock=clock, tail_trust_ms=tail_trust_ms, opened_by=opened_by)


def _identify(
    bare: ObjectStore, store: RetryingStore, clock: Clock, *, create: bool, retry_ms: float
) -> tuple[str, float]:
    """The id of the cluster that is there, or is made, and when looking for it began."""
    check_root_length(store)
    began = clock.ticks_ms()
    cluster_id = read_cluster_id(store)
    is_new = cluster_id is None
    if cluster_id is None:
        if not create:
            remains = remains_at(store) or f"there is no {CLUSTER_FILE}"
            raise InvalidArgumentError(f"no sparklog cluster at {store.uri}: {remains}")
        store.stand_on(None)
        cluster_id = make_cluster(store, clock=clock, retry_ms=retry_ms)
    if bare.is_remote and not is_new:  # whoever makes a cluster has just proved it
        store.prove_before_writing()
    return cluster_id, began


def _opened_by(uri: str, storage_options: Mapping[str, Any]) -> str | None:
    """A digest of the URI, the options and what the environment adds to them, which may be secrets; None where the
    options aren't plain values."""
    environment = {name: value for name, value in os.environ.items() if name.startswith(_CLOUD_VARIABLES)}
    try:
        text = json.dumps([uri, dict(storage_options), environment], sort_keys=True)
    except TypeError:
        return None
    return sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicListing:
    """A topic, or what is called like one and can't be read."""

    name: str
    error: Exception | None = None
    """Why it can't be read; None where it can."""


def topic_names(cluster: Cluster) -> list[str]:
    """The topics of a cluster, by name: those of :func:`topic_listings`."""
    return [topic.name for topic in topic_listings(cluster)]


def topic_listings(cluster: Cluster) -> list[TopicListing]:
    """The topics of a cluster, by name; deleted ones are left out.

    Costs one listing of the folder of topics and, since a deleted topic's log goes on (rule L8, one log), one look at
    the newest commit of each, 32 at a time. A topic that can't be read or understood is listed, with the error. A
    folder that isn't a topic's is passed over.

    Raises:
        StoreError: the store can't be read.
    """
    names = cluster.store.list_names(TOPICS_FOLDER)
    looks = each_alone(cluster.store, lambda name: not open_state(cluster.topic_log(name)).head.deleted, names)
    return [
        TopicListing(name=name, error=look if isinstance(look, Exception) else None)
        for name, look in zip(names, looks, strict=True)
        if look is not False and not is_no_topic(look)
    ]
