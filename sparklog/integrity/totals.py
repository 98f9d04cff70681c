"""The totals that a topic's commits carry, followed entry by entry (rule L16, totals). Pure.

Counted otherwise than who commits counts them: from what each entry adds and removes, never from a look at all files.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from sparklog.log.data.segments import Segment, is_sequenced
from sparklog.log.live_totals import EMPTY, LiveTotals

__all__ = ["TotalsFollowed"]


class TotalsFollowed:
    """A topic's totals as a run of its entries adds them up. Memory grows with the files that they name."""

    def __init__(self) -> None:
        self._version = -1
        self._live: dict[str, Segment] = {}
        """The files with offsets and statistics that the entries have added, and none has removed."""
        self._oldest: list[tuple[int, str]] = []
        """A heap of their smallest timestamps, and of files that are gone."""
        self._totals: LiveTotals | None = None
        """The totals after the newest entry that was applied; None: not known."""
        self._is_complete = False
        """Do these entries name every live file?"""

    def apply(
        self, version: int, added: Sequence[Segment], removed: Sequence[str], carried: LiveTotals | None
    ) -> LiveTotals | None:
        """Go on by one entry. Behind one that is missing nothing is known of what was before it.

        Args:
            carried: the totals that it carries; None where it carries none.
        Returns:
            What it should have carried instead; None where it is right, or that is unknown.
        """
        if version != self._version + 1:
            self._live, self._oldest, self._totals, self._is_complete = {}, [], None, False
        elif version == 0:
            self._totals, self._is_complete = EMPTY, True
        self._version = version
        expected = self._totals_after(added, removed, is_own=carried is not None)
        self._totals = expected if carried is None else carried  # what follows a wrong one isn't wrong itself
        return expected if expected is not None and carried not in (None, expected) else None

    def _totals_after(self, added: Sequence[Segment], removed: Sequence[str], *, is_own: bool) -> LiveTotals | None:
        is_known = self._totals is not None
        count, size, records, oldest = self._totals or EMPTY
        new = {one.path: one for one in added}
        for path in {*removed, *new}:
            gone = self._live.pop(path, None)
            if gone is None:
                # Is it one without offsets, or, where these entries don't name all, one that nothing is known of?
                # Another engine may add a file again that is there, to give it other statistics; writers of ours don't.
                is_known = is_known and (self._is_complete or (is_own and path in new))
                continue
            count, size, records = count - 1, size - gone.size_bytes, records - (gone.record_count or 0)
            if gone.min_timestamp_ms == oldest:
                is_known = is_known and self._is_complete
                oldest = self._oldest_left()
        for one in new.values():
            if not is_sequenced(one):
                continue
            if not one.has_stats:  # what is in another engine's file, whoever loads the topic looks up
                is_known = self._is_complete = False
                continue
            self._live[one.path] = one
            count, size, records = count + 1, size + one.size_bytes, records + (one.record_count or 0)
            if one.min_timestamp_ms is not None:
                heappush(self._oldest, (one.min_timestamp_ms, one.path))
                oldest = one.min_timestamp_ms if oldest is None else min(oldest, one.min_timestamp_ms)
        return LiveTotals(count, size, records, oldest) if is_known else None

    def _oldest_left(self) -> int | None:
        while self._oldest:
            oldest_ms, path = self._oldest[0]
            if path in self._live and self._live[path].min_timestamp_ms == oldest_ms:
                return oldest_ms
            heappop(self._oldest)
        return None
