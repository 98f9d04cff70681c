"""When to look at each topic again: soon after news, then ever less often. Pure.

Nobody tells a consumer that there is news, so it asks the store, and each look is a request. A topic that had news
within the last second is looked at after 1 ms, 1.5 ms, 2.25 ms, … up to three times as long as a look takes, 10 to
100 ms. One that has been quiet for longer is looked at less and less often: after a tenth of the time for which it has
been quiet, up to ``fetch_max_wait_ms``, or up to 200 times as long as a look takes if that is shorter. So on a folder,
where looks cost next to nothing, news is found soon whenever it comes.

Many quiet topics share 25 looks in each ``fetch_max_wait_ms``, which is 50 a second by default, or as many as take a
thirtieth of the time if those are more.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Rhythm"]

_SHORTEST_WAIT_MS = 1.0
_GROWTH = 1.5
_LATELY_MS = 1_000.0
_LATELY_LOOKS = 3.0
"""A topic with news lately isn't looked at for so many times as long as a look takes …"""
_LATELY_WAIT_MS = (10.0, 100.0)
"""… but at most for a time between these."""
_QUIET_LOOKS = 200.0
_QUIET_SHARE = 0.1
"""The longest wait for a quiet topic, as a part of the time for which it has been quiet."""
_SHARED_LOOKS = 25.0
"""Looks at quiet topics in each ``fetch_max_wait_ms``."""
_IDLE_PARTS = 30.0
"""Looks at quiet topics take at most one of so many parts of the time, if the number of looks isn't to bound them."""
_EARLY_SHARE = 1 / 8
"""A topic may be looked at earlier by so much of its wait, in company of others."""
_MOST_QUIET = 16
"""Quiet topics in one look: the active ones, which are looked at together with them, wait for no more."""
_WEIGHT = 0.25
"""Of the newest look in what looks are known to take."""


@dataclass(slots=True)
class _Pace:
    news_ticks_ms: float
    """When something was new last, or the topic was opened."""
    wait_ms: float
    due_ticks_ms: float
    is_quiet: bool = False


class Rhythm:
    """The paces of a consumer's topics.

    Args:
        longest_wait_ms: ``fetch_max_wait_ms``; 0 means to look without a rest.
    """

    def __init__(self, longest_wait_ms: float) -> None:
        self._longest_ms = max(_SHORTEST_WAIT_MS, longest_wait_ms)
        self._paces: dict[str, _Pace] = {}
        self._has_looked = False
        self._call_ms = 0.0
        """How long a look takes, whatever the number of its topics."""
        self._each_ms = 0.0
        """How long a look takes for each of its topics."""

    def keep(self, topics: Collection[str]) -> None:
        """Forget all other topics."""
        for topic in self._paces.keys() - set(topics):
            del self._paces[topic]

    def due(self, topics: Iterable[str], now_ms: float) -> set[str]:
        """Those of the topics to look at now: all that had news lately and are due, and of the quiet ones those that
        have been due for longest. A topic that is new is due at once."""
        due, quiet = set(), []
        for topic in topics:
            pace = self._paces.get(topic)
            if pace is None:
                due.add(topic)
            elif pace.due_ticks_ms - pace.wait_ms * _EARLY_SHARE <= now_ms:
                if pace.is_quiet:
                    quiet.append((pace.due_ticks_ms, topic))
                else:
                    due.add(topic)
        return due | {topic for _, topic in sorted(quiet)[:_MOST_QUIET]}

    def next_due_ms(self, topic: str) -> float:
        """When to look at a topic next; long ago for one that is new."""
        pace = self._paces.get(topic)
        return -math.inf if pace is None else pace.due_ticks_ms

    def looked(self, news: Mapping[str, bool], *, now_ms: float, took_ms: float) -> None:
        """A look at topics has ended.

        Args:
            news: whether something was new, by topic; that may mean that there is more.
            took_ms: how long the look took for all of them.
        """
        if not news:
            return
        self._learn(took_ms, len(news))
        for topic, is_new in news.items():
            pace = self._paces.setdefault(topic, _Pace(now_ms, 0.0, now_ms))
            if is_new:
                pace.news_ticks_ms, pace.wait_ms = now_ms, 0.0
            pace.is_quiet = now_ms - pace.news_ticks_ms > _LATELY_MS
        quiet_count = sum(pace.is_quiet for pace in self._paces.values())
        for topic, is_new in news.items():
            pace = self._paces[topic]
            if not is_new:
                longest_ms = self._longest_wait_ms(now_ms - pace.news_ticks_ms, quiet_count)
                pace.wait_ms = min(max(pace.wait_ms * _GROWTH, _SHORTEST_WAIT_MS), longest_ms)
            pace.due_ticks_ms = now_ms + pace.wait_ms

    def _longest_wait_ms(self, quiet_ms: float, quiet_count: int) -> float:
        """How long a topic isn't looked at that has had no news for ``quiet_ms``, as so many others haven't."""
        low_ms, high_ms = _LATELY_WAIT_MS
        lately_ms = min(max(low_ms, min(_LATELY_LOOKS * self._call_ms, high_ms)), self._longest_ms)
        if quiet_ms <= _LATELY_MS:
            return lately_ms
        alone_ms = max(lately_ms, min(_QUIET_LOOKS * self._call_ms, quiet_ms * _QUIET_SHARE, self._longest_ms))
        each_ms = min(self._longest_ms / _SHARED_LOOKS, _IDLE_PARTS * self._each_ms)
        return max(alone_ms, quiet_count * each_ms)

    def _learn(self, took_ms: float, topic_count: int) -> None:
        each_ms = took_ms / min(topic_count, _MOST_QUIET)
        weight = _WEIGHT if self._has_looked else 1.0
        self._call_ms += weight * (took_ms - self._call_ms)
        self._each_ms += weight * (each_ms - self._each_ms)
        self._has_looked = True
