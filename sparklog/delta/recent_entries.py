"""The entries that a writer created or read a moment ago: when it writes a checkpoint it needn't read them again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice

__all__ = ["RecentEntries"]

_MOST_BYTES = 4 * 2**20


class RecentEntries:
    """Bytes of one log's entries that were created or read here, each kept for ``keep_ms`` and until a checkpoint holds
    it; of more than 4 MiB the newest.

    An entry never changes, and is cleaned away no sooner than ten times ``tail_trust_ms`` after its successor came
    (rule L3, cleanup): so what was created less than ``tail_trust_ms`` ago is what a read would find, and what was read
    from a position that was trusted is what was created. Entries that are read are kept only where others were created
    within ``keep_ms``: whoever only reads writes no checkpoint.

    One thread adds, another one may read: each step is one operation on a dict.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[bytes, float, int]] = {}
        """By version, in the order of their times: the bytes, when they were added, and how many bytes were ever added
        by then."""
        self._added_bytes = 0
        self._created_ticks_ms = -math.inf
        """When the newest entry was created here."""

    def add_created(self, version: int, data: bytes, *, now_ticks_ms: float, keep_ms: float) -> None:
        """Keep the entry that was created as ``version``, and forget what is too old or too much."""
        self._created_ticks_ms = now_ticks_ms
        self._add(version, data, now_ticks_ms=now_ticks_ms, keep_ms=keep_ms)

    def add_read(self, version: int, data: bytes, *, now_ticks_ms: float, keep_ms: float) -> None:
        """Keep the entry that was read as ``version``, if others were created here lately."""
        if now_ticks_ms - self._created_ticks_ms <= keep_ms:
            self._add(version, data, now_ticks_ms=now_ticks_ms, keep_ms=keep_ms)

    def _add(self, version: int, data: bytes, *, now_ticks_ms: float, keep_ms: float) -> None:
        self._added_bytes += len(data)
        self._entries.pop(version, None)  # entries stand in the order of their times
        self._entries[version] = (data, now_ticks_ms, self._added_bytes)
        while first := list(islice(self._entries.items(), 1)):  # at once: it may be changed between two steps
            ((oldest, (each, added_ticks_ms, added_bytes)),) = first
            kept_bytes = self._added_bytes - added_bytes + len(each)
            if kept_bytes <= _MOST_BYTES and now_ticks_ms - added_ticks_ms <= keep_ms:
                return
            self._entries.pop(oldest, None)

    def young(self, *, now_ticks_ms: float, keep_ms: float) -> Mapping[int, bytes]:
        """The entries that were added no longer than ``keep_ms`` ago, by version."""
        found = list(self._entries.items())
        return {version: data for version, (data, at_ms, _) in found if now_ticks_ms - at_ms <= keep_ms}

    def forget_until(self, version: int) -> None:
        """Forget the entries up to a version: a checkpoint holds them."""
        for older in list(self._entries):
            if older <= version:
                self._entries.pop(older, None)
