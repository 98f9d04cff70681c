"""The schedule by which topics' logs are polled: soon after news, then less and less often. No I/O.

No broker notifies a consumer of news, so it asks the store, and each look at a topic is a request. A topic that
had news within the last second is looked at after ever longer waits, up to three times as long as a look takes, or 10
to 100 ms. One that has been quiet for longer is looked at after a tenth of the time for which it has been quiet, or
after 200 times as long as a look takes if that is shorter, so that on a folder, where looks cost next to nothing, news
is found soon; but after a hundredth of that time at least, up to 100 ms, and after ``fetch_max_wait_ms`` at most.

Many topics share a number of looks in each ``fetch_max_wait_ms``: the quiet ones 25, which is 50 a second by default,
and those that had news within the last second 125. On a store that answers within 2 ms, such as a folder, they share as
many as take a sixtieth of the time, or for those with news a sixth, if these are more.

A topic whose newest news the store announced is looked at when it announces more, and else seldom: after 100 ms while
it has news, later after a tenth of the time for which it has been quiet, up to ``fetch_max_wait_ms``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass

__all__ = ["PollSchedule"]

_SHORTEST_WAIT_MS = 1.0
_FIRST_SHARE = 1 / 16
"""The first wait after news, as a part of the longest; it grows from look to look."""
_GROWTH = 1.5
_RECENT_MS = 1_000.0
"""A topic without news for longer is quiet."""
_RECENT_LOOKS = 3.0
"""A topic with recent news isn't looked at for so many times as long as a look takes …"""
_RECENT_WAIT_MS = (10.0, 100.0)
"""… but at most for a time between these."""
_QUIET_LOOKS = 200.0
_QUIET_SHARE = 0.1
"""The longest wait for a quiet topic, as a part of the time for which it has been quiet."""
_LEAST_QUIET_SHARE = 0.01
_LEAST_QUIET_WAIT_MS = 100.0
"""Where looks are quick the wait is so large a part of that time, up to so long: the longer a topic has been quiet, the
less it costs on any store."""
_EARLY_SHARE = 1 / 8
"""A topic may be looked at earlier by so much of its wait, in company of others."""
_MOST_QUIET = 16
"""Quiet topics in one look: the others, which are looked at together with them, wait for no more."""
_NEAR_MS = 2.0
"""A store that has answered so quickly is near: what it takes to look at one topic counts; else how long that lasts."""
_ANNOUNCED_MS = 50.0
"""News was announced if that came at most so long before it was found, or any time after."""
_WEIGHT = 0.25
"""The weight of a look that took longer than looks are known to take: one that was held up is no rule."""


@dataclass(frozen=True, slots=True)
class _Budget:
    """A bound for the looks that several topics share."""

    looks: float
    """In each ``fetch_max_wait_ms`` …"""
    parts: float
    """… or as many as take one of so many parts of the time, if these are more."""

    def wait_ms(self, topic_count: int, *, look_ms: float, longest_ms: float) -> float:
        """The time in which each of so many topics is looked at once, where a look at one takes ``look_ms``."""
        return topic_count * min(longest_ms / self.looks, self.parts * look_ms)


_QUIET_BUDGET = _Budget(looks=25.0, parts=60.0)
_RECENT_BUDGET = _Budget(looks=125.0, parts=6.0)


@dataclass(slots=True)
class _Pace:
    news_ticks_ms: float
    """When something was new last, or the topic was opened."""
    wait_ms: float
    due_ticks_ms: float
    is_quiet: bool = False
    announced_ticks_ms: float = -math.inf
    """When the store announced something last."""

    @property
    def is_announced(self) -> bool:
        """Did the store announce the newest news, so that it is likely to announce what comes next?"""
        return self.announced_ticks_ms >= self.news_ticks_ms - _ANNOUNCED_MS


class PollSchedule:
    """Says which of a consumer's topics to look at, and when the next is due.

    Args:
        longest_wait_ms: ``fetch_max_wait_ms``; 0 means to look without a rest.
    """

    def __init__(self, longest_wait_ms: float) -> None:
        self._longest_ms = max(_SHORTEST_WAIT_MS, longest_wait_ms)
        self._paces: dict[str, _Pace] = {}
        self._call_ms = math.inf
        """The time that a look takes, whatever the number of its topics; not known before the first."""
        self._each_ms = math.inf
        """The time that a look takes for each of its topics."""
        self._is_near = False

    def keep(self, topics: Collection[str]) -> None:
        """Forget all other topics."""
        for topic in self._paces.keys() - set(topics):
            del self._paces[topic]

    def due(self, topics: Iterable[str], until_ms: float) -> set[str]:
        """The topics among these to look at: all that had recent news and are due by then, and of the quiet ones those
        that have been due for longest. A topic that is new is due at once."""
        due, quiet = set(), []
        for topic in topics:
            pace = self._paces.get(topic)
            if pace is None:
                due.add(topic)
            elif pace.due_ticks_ms - pace.wait_ms * _EARLY_SHARE <= until_ms:
                if pace.is_quiet:
                    quiet.append((pace.due_ticks_ms, topic))
                else:
                    due.add(topic)
        return due | {topic for _, topic in sorted(quiet)[:_MOST_QUIET]}

    def next_due_ms(self, topics: Collection[str]) -> float:
        """When to look at the first of the topics: long ago if one is new, never if there is none."""
        if not self._paces.keys() >= set(topics):
            return -math.inf
        return min((self._paces[topic].due_ticks_ms for topic in topics), default=math.inf)

    def postpone(self, topics: Set[str], *, now_ms: float) -> None:
        """Look at topics half the time later that a look takes: one by somebody else is under way."""
        wait_ms = max(_SHORTEST_WAIT_MS, min(self._call_ms, _RECENT_WAIT_MS[1]) / 2)
        for topic in topics & self._paces.keys():
            self._paces[topic].due_ticks_ms = now_ms + wait_ms

    def announced(self, topics: Set[str], *, now_ms: float) -> None:
        """Note that the store announced something new in topics, which are looked at now."""
        for topic in topics:
            self._paces.setdefault(topic, _Pace(now_ms, 0.0, now_ms)).announced_ticks_ms = now_ms

    def arrived(self, topic: str, *, now_ms: float) -> None:
        """Note that a look has found all that was announced of a topic, and the end behind it.

        One that had news a moment ago is looked at when it would have been: what is announced needs no other pace.
        """
        pace = self._paces.get(topic)
        if pace is not None and pace.is_announced and not pace.is_quiet:
            pace.announced_ticks_ms = pace.news_ticks_ms = now_ms
            return
        topics = frozenset((topic,))
        self.announced(topics, now_ms=now_ms)
        self.looked({topic: True}, now_ms=now_ms, took_ms=None, ended=topics)

    def looked(
        self, news: Mapping[str, bool], *, now_ms: float, took_ms: float | None, ended: Set[str] = frozenset()
    ) -> None:
        """Note that a look at topics has ended.

        Args:
            news: whether something was new, by topic; that may mean that there is more.
            took_ms: how long the look took for all of them; None: it was somebody else's.
            ended: topics of which it is known that nothing more is there: what the store announces is waited for then.
        """
        if not news:
            return
        if took_ms is not None:
            self._learn(took_ms, len(news))
        for topic, is_new in news.items():
            pace = self._paces.setdefault(topic, _Pace(now_ms, 0.0, now_ms))
            if is_new:
                pace.news_ticks_ms, pace.wait_ms = now_ms, 0.0
            pace.is_quiet = now_ms - pace.news_ticks_ms > _RECENT_MS
        quiet_count = sum(pace.is_quiet for pace in self._paces.values())
        for topic, is_new in news.items():
            pace = self._paces[topic]
            if not is_new or (pace.is_announced and topic in ended):
                longest_ms = self._longest_wait_ms(pace, now_ms, quiet_count)
                first_ms = max(_SHORTEST_WAIT_MS, longest_ms * (1.0 if pace.is_announced else _FIRST_SHARE))
                pace.wait_ms = min(max(pace.wait_ms * _GROWTH, first_ms), longest_ms)
            pace.due_ticks_ms = now_ms + pace.wait_ms

    def _longest_wait_ms(self, pace: _Pace, now_ms: float, quiet_count: int) -> float:
        low_ms, high_ms = _RECENT_WAIT_MS
        recent_ms = min(max(low_ms, min(_RECENT_LOOKS * self._call_ms, high_ms)), self._longest_ms)
        if pace.is_announced:
            recent_ms = min(high_ms, self._longest_ms)
        if not pace.is_quiet:
            return max(recent_ms, self._shared_ms(_RECENT_BUDGET, len(self._paces) - quiet_count))
        quiet_ms = now_ms - pace.news_ticks_ms
        quick_ms = max(_QUIET_LOOKS * self._call_ms, min(_LEAST_QUIET_SHARE * quiet_ms, _LEAST_QUIET_WAIT_MS))
        if pace.is_announced:
            quick_ms = math.inf
        alone_ms = max(recent_ms, min(quick_ms, _QUIET_SHARE * quiet_ms, self._longest_ms))
        return max(alone_ms, self._shared_ms(_QUIET_BUDGET, quiet_count))

    def _shared_ms(self, budget: _Budget, topic_count: int) -> float:
        look_ms = self._each_ms if self._is_near else self._call_ms
        return budget.wait_ms(topic_count, look_ms=look_ms, longest_ms=self._longest_ms)

    def _learn(self, took_ms: float, topic_count: int) -> None:
        self._call_ms = _learned(self._call_ms, took_ms)
        self._each_ms = _learned(self._each_ms, took_ms / topic_count)
        self._is_near = self._is_near or took_ms < _NEAR_MS


def _learned(known_ms: float, took_ms: float) -> float:
    return took_ms if took_ms <= known_ms else known_ms + _WEIGHT * (took_ms - known_ms)
