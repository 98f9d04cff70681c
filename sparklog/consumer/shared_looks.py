"""Polls of topics' logs that the consumers of a process share: if one finds no new entry, the others don't ask.

Only absence is shared, never an entry: what is there each consumer reads for itself, with its own store and rights.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Hashable
from dataclasses import dataclass

from sparklog.log import Cluster

__all__ = ["Absence", "SharedLooks", "shared_looks_of"]

_LONGEST_LOOK_MS = 250.0
"""A look that takes longer is waited for no more: whoever waits looks for itself."""


@dataclass(frozen=True, slots=True)
class Absence:
    """Something that a look found: the log had no entry of this name yet."""

    path: str
    began_ticks_ms: float
    """When the look began; the entry was not there at some time since."""
    ended_ticks_ms: float


class SharedLooks:
    """The newest look at each topic of a cluster, by whichever consumer of this process.

    For several threads, without a lock: each call reads or writes one value of a dict, and a look that another one
    overwrites costs a request more, nothing else.
    """

    def __init__(self) -> None:
        self._under_way: dict[str, tuple[str, float]] = {}
        """The entry asked for, and when the look began; by topic."""
        self._absences: dict[str, Absence] = {}

    def begin(self, topic: str, path: str, began_ticks_ms: float) -> None:
        """Note that a look begins which asks for the entry ``path``."""
        self._under_way[topic] = (path, began_ticks_ms)

    def end(self, topic: str, absence: Absence | None) -> None:
        """Note that a look has ended, and which entry it found not to be there; None: it found no end of the log."""
        if absence is not None:
            self._absences[topic] = absence
        self._under_way.pop(topic, None)

    def absence(self, topic: str, path: str, *, after_ticks_ms: float) -> Absence | None:
        """The newest look that found ``path`` not to be there, if it began later than ``after_ticks_ms``."""
        newest = self._absences.get(topic)
        is_wanted = newest is not None and newest.path == path and newest.began_ticks_ms > after_ticks_ms
        return newest if is_wanted else None

    def is_under_way(self, topic: str, path: str, *, now_ticks_ms: float) -> bool:
        """Does a look ask for ``path`` now, which is likely to end soon?"""
        asked, began_ticks_ms = self._under_way.get(topic, ("", 0.0))
        return asked == path and now_ticks_ms - began_ticks_ms < _LONGEST_LOOK_MS


_SHARED: weakref.WeakValueDictionary[Hashable, SharedLooks] = weakref.WeakValueDictionary()


def shared_looks_of(cluster: Cluster) -> SharedLooks:
    """The looks that this process shares for a cluster, kept as long as somebody holds them.

    Shared by those who have one store object, or have opened stores by the same URI and options; and one clock, since
    ticks of two can't be compared. Two threads that come first at once may get one each, and then don't share.
    """
    key = (os.getpid(), cluster.sharing_key)
    looks = _SHARED.get(key)
    if looks is None:
        looks = _SHARED[key] = SharedLooks()
    return looks
