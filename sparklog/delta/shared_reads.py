"""Entries of one log that the writers of a process read: what one of them has read, no other asks for."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Hashable
from dataclasses import dataclass

from sparklog.delta.actions import Entry

__all__ = ["SharedEntry", "SharedReads", "shared_reads_of"]

_MOST_ENTRIES = 16
KEPT_MS = 5_000.0
"""Entries that were read longer ago each reads for itself."""


@dataclass(frozen=True, slots=True)
class SharedEntry:
    """An entry as it was read from a position that was trusted (rule L1, trust)."""

    entry: Entry
    data: bytes
    began_ticks_ms: float
    """When the look began that found it."""


class SharedReads:
    """The newest entries that any writer has read, its newest look that found none, and the one that is under way.

    For several threads, without a lock: each step is one operation on a dict or sets one attribute, and a look that
    another one overwrites costs a request more, nothing else.
    """

    def __init__(self, writer_count: int = 0) -> None:
        self.writer_count = writer_count
        """How many writers have asked for these reads, ever: for one alone nothing is kept."""
        self._entries: dict[int, SharedEntry] = {}
        self._absence = (-1, -math.inf, -math.inf)
        """The version that wasn't there, when the look began, and when it ended."""
        self._under_way = (-1, -math.inf)
        """The version that is asked for, and since when."""

    def begin(self, version: int, now_ticks_ms: float) -> None:
        """Note that a look begins which asks for ``version``."""
        self._under_way = (version, now_ticks_ms)

    def end(self, version: int) -> None:
        """Note that the look has ended."""
        if self._under_way[0] == version:
            self._under_way = (-1, -math.inf)

    def add(self, entry: Entry, data: bytes, *, began_ticks_ms: float) -> None:
        """Keep an entry that was read from a trusted position, where there is a writer beside the one that read it."""
        if self.writer_count < 2:
            return
        self._entries[entry.version] = SharedEntry(entry, data, began_ticks_ms)
        for version in list(self._entries)[:-_MOST_ENTRIES]:  # those kept first: a topic that is made again begins at 0
            self._entries.pop(version, None)

    def add_absence(self, version: int, *, began_ticks_ms: float, ended_ticks_ms: float) -> None:
        """Keep that a look from a trusted position found ``version`` not to be there."""
        self._absence = (version, began_ticks_ms, ended_ticks_ms)

    def entries_from(self, version: int, *, since_ticks_ms: float, now_ticks_ms: float) -> list[SharedEntry]:
        """The entries from ``version`` on, without a gap, that looks found which began at ``since_ticks_ms`` or later,
        and lately."""
        least = max(since_ticks_ms, now_ticks_ms - KEPT_MS)
        found: list[SharedEntry] = []
        while (one := self._entries.get(version + len(found))) is not None and one.began_ticks_ms >= least:
            found.append(one)
        return found

    def absence(self, version: int, *, after_ticks_ms: float, ended_from_ticks_ms: float) -> float | None:
        """When the newest look began, if it found ``version`` not to be there, began later than ``after_ticks_ms`` and
        ended no sooner than ``ended_from_ticks_ms``."""
        absent, began, ended = self._absence
        return began if absent == version and began > after_ticks_ms and ended >= ended_from_ticks_ms else None

    def under_way_since(self, version: int, *, since_ticks_ms: float) -> float | None:
        """When the look began that asks for ``version`` now; None: there is none, or it began before
        ``since_ticks_ms``."""
        asked, began = self._under_way
        return began if asked == version and began >= since_ticks_ms else None


_SHARED: weakref.WeakValueDictionary[Hashable, SharedReads] = weakref.WeakValueDictionary()


def shared_reads_of(key: Hashable, table: str) -> SharedReads:
    """The reads of a table's log that this process shares, kept as long as somebody holds them.

    Args:
        key: equal for those alone who may read the same, by the same clock.
    """
    full = (os.getpid(), key, table)
    found = _SHARED.get(full)
    if found is None:
        found = _SHARED[full] = SharedReads()
    found.writer_count += 1  # where two threads do this at once and one is lost, a request more is made
    return found
