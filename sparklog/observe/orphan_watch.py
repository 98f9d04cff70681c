"""Watching for unneeded files: a listing of one topic's folder after the other, so that each is searched once
in a long while."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil

from sparklog.delta.checkpoint_content import CheckpointReader
from sparklog.errors import SparklogError
from sparklog.log.cluster import Cluster
from sparklog.logs import about
from sparklog.observe import loading_room
from sparklog.observe.figures import OrphanFigures
from sparklog.storage.each_alone import each_alone
from sparklog.txn.orphans import find_orphans

__all__ = ["OrphanWatch", "share_of"]

_LOGGER = logging.getLogger("sparklog.observe")


class OrphanWatch:
    """The orphans of a cluster's topics, as they were found when their folders were last listed. Not for several
    threads at once."""

    def __init__(
        self, cluster: Cluster, *, every_ms: float, at_once: int, read_checkpoint: CheckpointReader | None = None
    ) -> None:
        """Reads nothing.

        Args:
            every_ms: how often a topic is searched; 0: all in each look.
            at_once: topics that are searched side by side.
            read_checkpoint: see :class:`~sparklog.delta.log.DeltaLog`.
        """
        self._cluster = cluster
        self._every_ms = every_ms
        self._at_once = at_once
        self._read_checkpoint = read_checkpoint
        self._looked_ticks_ms: float | None = None
        self._searched_ticks_ms: dict[str, float] = {}
        self._found: dict[str, OrphanFigures] = {}

    def look(self, topics: Iterable[str]) -> list[OrphanFigures]:
        """The orphans that are known, by topic, after some more topics were searched: each for as many requests as
        loading it takes, and a LIST for each 1,000 objects in its folder.

        Args:
            topics: those that there are.
        """
        now = self._cluster.clock.ticks_ms()
        elapsed_ms = 0.0 if self._looked_ticks_ms is None else now - self._looked_ticks_ms
        self._looked_ticks_ms = now
        names = sorted(topics)
        there = {*names}
        self._searched_ticks_ms = {name: at for name, at in self._searched_ticks_ms.items() if name in there}
        self._found = {name: one for name, one in self._found.items() if name in self._searched_ticks_ms}
        wanted = share_of(names, self._searched_ticks_ms, now, elapsed_ms=elapsed_ms, every_ms=self._every_ms)
        for name, result in zip(
            wanted, each_alone(self._cluster.store, self._search, wanted, at_once=self._at_once), strict=True
        ):
            self._searched_ticks_ms[name] = now
            if isinstance(result, OrphanFigures):
                self._found[name] = result
            else:  # also by a defect: it hinders no other topic
                defect = None if isinstance(result, SparklogError) else result
                extra = about(topic=name)
                _LOGGER.warning(
                    "topic %r can't be searched for orphans: %s", name, result, extra=extra, exc_info=defect
                )
        return [self._found[name] for name in names if name in self._found]

    def _search(self, name: str) -> OrphanFigures:
        now_ms, search = self._cluster.clock.now_ms(), object()

        def wait_for_room(checkpoint_bytes: int, entry_bytes: int) -> None:
            loading_room.ROOM.enter(search, loading_room.needed_bytes(checkpoint_bytes, entry_bytes))

        log = self._cluster.topic_log(name)
        log = replace(log, read_checkpoint=self._read_checkpoint, before_load=wait_for_room)
        try:
            orphans = find_orphans(self._cluster, name, now_ms=now_ms, log=log)
        finally:
            loading_room.ROOM.leave(search)
        size_bytes = sum(one.size_bytes for one in orphans)
        return OrphanFigures(topic=name, file_count=len(orphans), size_bytes=size_bytes, searched_ms=now_ms)


def share_of(
    names: Sequence[str],
    searched_ticks_ms: dict[str, float],
    now_ticks_ms: float,
    *,
    elapsed_ms: float,
    every_ms: float,
) -> list[str]:
    """The topics to search in this look, those that waited longest first: no more than their share of the time since
    the look before, so that all are searched in ``every_ms``, none of them all at once. Pure."""
    waited = {name: now_ticks_ms - searched_ticks_ms.get(name, float("-inf")) for name in names}
    due = sorted((name for name in names if waited[name] >= every_ms), key=lambda name: -waited[name])
    if not every_ms:
        return due
    return due[: max(1, ceil(len(names) * elapsed_ms / every_ms))]
