"""What commits say that all live files of a topic hold (rule L16, totals), seen as they are created."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest import mock

from sparklog.delta.actions import AddFile, RemoveFile, decode_entry
from sparklog.integrity.totals import TotalsFollowed
from sparklog.log import commit
from sparklog.log.data.segments import segment_of_add
from sparklog.log.live_totals import TOTALS_INFO, totals_after, totals_of_info
from sparklog.log.state import TopicState

__all__ = ["TOTALS", "WatchedTotals", "whoever_lost_a_race_counts_its_files_twice"]

TOTALS = ": totals: "
"""Of what a commit says that all live files hold."""


class WatchedTotals:
    """What the commits of a topic say that its live files hold (rule L16).

    Args:
        violate: told what isn't so.
        counts: where versions are counted that carry some.
    """

    def __init__(self, violate: Callable[[str], object], counts: Counter[str]) -> None:
        self._violate = violate
        self._counts = counts
        self._followed = TotalsFollowed()

    def see(self, number: int, path: str, data: bytes) -> None:
        """The topic's next version was created."""
        entry = decode_entry(number, path, data)
        carried = totals_of_info((entry.info or {}).get(TOTALS_INFO))
        added = [segment_of_add(action, number) for action in entry.actions if isinstance(action, AddFile)]
        removed = [action.path for action in entry.actions if isinstance(action, RemoveFile)]
        expected = self._followed.apply(number, added, removed, carried)
        self._counts["totals carried"] += carried is not None
        if expected is not None:
            self._violate(f"{path}: totals: {carried} are carried, expected {expected}")


def whoever_lost_a_race_counts_its_files_twice() -> AbstractContextManager[object]:
    """Rule L16: the totals that a commit carries have its files as often as it was decided."""
    decide = commit._TopicTarget.decide

    def again(self: Any, state: TopicState) -> commit.Commit | None:
        wanted = decide(self, state)
        counted_twice, self.counted_twice = getattr(self, "counted_twice", False), True
        if wanted is None or not counted_twice:
            return wanted
        adds = [action for action in wanted.actions if isinstance(action, AddFile)]
        totals = totals_after(wanted.head.totals, None, adds)
        return replace(wanted, head=replace(wanted.head, totals=totals))

    return mock.patch.object(commit._TopicTarget, "decide", again)
