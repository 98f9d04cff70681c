"""Turns: when a writer that shares its topic with others lists and creates, and when it looks for what they created.

Politeness; nothing depends on it but latency and cost. Calls no store.

Where few write, each takes a random turn. Where several do, versions come at a *pace*: the same entries show each
writer how long a listing and a create take, when the newest version came and who is likely to have a flush, so that all
expect the next one at the same moment, and one of them begins it.
"""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Callable, Collection
from statistics import median_low
from typing import NamedTuple

__all__ = ["LEAST_ROUND_TRIP_MS", "LONGEST_WAIT_MS", "Turns", "is_on"]

LEAST_ROUND_TRIP_MS = 4.0
"""Group commit is worth while where a create takes as long: where a round trip is shorter, races are cheap."""

_ON_FOR_MS = 5_000
_RECENT_MS = 1_000
_LEAST_TOOK_MS, _LONGEST_TOOK_MS = 1.0, 1_000.0
_FIRST_LISTING_MS, _FIRST_CREATE_MS = 20.0, 50.0
_SAMPLES = 15
_LOOKS = 31
LONGEST_WAIT_MS = 1_500.0
"""The longest wait that is drawn; and from its beginning on no append is put off for longer, unless three paces are."""
_LOOKS_PER_CYCLE = 0.35
_MOST_AHEAD = 8
_MOST_LOSSES = 8
_PACED_FROM = 4
"""So many others make versions come at a pace."""
_QUICKEST = 5
"""One create of so many counts for the pace, by the quickest of them: busy machines don't slow it down further."""
_LONGEST_PACE_MS = 1_000.0
_INTERVALS, _MOST_PACES = 7, 3.0
_LOOK_BEFORE_TURN = 0.25
"""Whoever steps in for another looks so many cycles before its turn."""
_RANDOM_FROM = 1.2
"""Writers that aren't known, or far behind in the order, draw a turn from so many cycles after the first one's on."""
_PUT_OFF_PACES = 3.0


class _Pace(NamedTuple):
    """How often versions come, and when they are looked for. Each version costs who reads it a GET, and a flush waits
    for half of the time between two."""

    creates_per_version: float
    """The pace: a version each time that so many creates take."""
    first_look: float
    """The first look for a version is so many cycles later than it is expected."""
    next_look: float
    """And the next one, if it isn't there, so many cycles after that, each further one half of that later."""
    step: float
    """The next one in the order begins so many cycles after the one before it."""


_APART = _Pace(creates_per_version=3.2, first_look=0.1, next_look=0.5, step=1.0)
_TOGETHER = _Pace(creates_per_version=2.7, first_look=0.05, next_look=0.3, step=0.6)
"""Where others in the process read for this writer as it does for them, a look costs it a part of a GET."""
_TOGETHER_FROM = 0.45
"""Such a part of the newest looks others have made, where that is so."""


def is_on(last_seen_ticks_ms: float, now_ticks_ms: float) -> bool:
    """Does a writer announce and include? For five seconds after an entry that asked for it."""
    return now_ticks_ms - last_seen_ticks_ms <= _ON_FOR_MS


class Turns:
    """One writer's turns at its topic. Belongs to the thread that commits."""

    def __init__(self, random: Callable[[], float]) -> None:
        """
        Args:
            random: draws from [0, 1).
        """
        self._random = random
        self._took: deque[tuple[float, float]] = deque(maxlen=_SAMPLES)
        self._listing_ms, self._create_ms = _FIRST_LISTING_MS, _FIRST_CREATE_MS
        self._quick_create_ms = _FIRST_CREATE_MS
        self._looks_took: deque[float] = deque(maxlen=_SAMPLES)
        """How long this writer's own newest looks took."""
        self._recent: deque[tuple[float, int, frozenset[str]]] = deque()
        """The entries of the last second: when they were applied, their versions, the ``txn`` appIds of their
        writers."""
        self._version = -1
        self._created_ticks_ms = -math.inf
        """When the newest version took effect, as far as that is known."""
        self._tail_seen_ticks_ms = -math.inf
        """When the newest look began that found nothing."""
        self._misses = 0
        """How many looks behind the newest version found nothing."""
        self._intervals_ms: deque[float] = deque(maxlen=_INTERVALS)
        """The times between the newest versions."""
        self._is_shared: deque[bool] = deque(maxlen=_LOOKS)
        """Which of the newest looks others in this process have made."""

    def observe(
        self, writers: Collection[str], now_ticks_ms: float, *, version: int = 0, age_ms: float | None = None
    ) -> None:
        """Note an entry that was applied.

        Args:
            writers: the ``txn`` appIds of the announcers and producers in it.
            age_ms: how long ago its creator began to create it, by two wall clocks, which may differ: counts as far as
                looks allow it. None: this writer created it, just now.
        """
        since_ms = self._create_ms / 2 if age_ms is None else age_ms - self._create_ms / 2
        least = min(max(self._tail_seen_ticks_ms, self._created_ticks_ms), now_ticks_ms)
        created_ticks_ms = max(now_ticks_ms - max(since_ms, 0.0), least)
        if self._created_ticks_ms > -math.inf:
            self._intervals_ms.append(created_ticks_ms - self._created_ticks_ms)
        self._created_ticks_ms, self._misses = created_ticks_ms, 0
        self._version = version
        self._recent.append((now_ticks_ms, version, frozenset(writers)))
        self._forget(now_ticks_ms)

    def note_tail(self, began_ticks_ms: float) -> None:
        """Note a look that found no version behind the newest."""
        self._tail_seen_ticks_ms = began_ticks_ms
        self._misses += 1

    def note_look(self, took_ms: float | None) -> None:
        """Note a look for the next version, and how long it took. None: another writer in this process made it."""
        self._is_shared.append(took_ms is None)
        if took_ms is not None:
            self._looks_took.append(took_ms)

    def note_took(self, listing_ms: float, create_ms: float) -> None:
        """Note how long a listing and a create of this writer or another took; 0: there was none."""
        self._took.append((min(listing_ms, _LONGEST_TOOK_MS), min(create_ms, _LONGEST_TOOK_MS)))
        listings, creates = ([one for one in each if one >= _LEAST_TOOK_MS] for each in zip(*self._took, strict=True))
        self._listing_ms = median_low(listings) if listings else self._listing_ms
        if creates:
            self._create_ms = median_low(creates)
            self._quick_create_ms = sorted(creates)[len(creates) // _QUICKEST]

    def note_lost(self, took_ms: float) -> None:
        """Note how long it took to lose a create and to read its winner: until more is known, a create takes no
        longer."""
        if not any(create_ms for _, create_ms in self._took):
            self._create_ms = self._quick_create_ms = max(_LEAST_TOOK_MS, min(self._create_ms, took_ms))

    def draw(
        self, now_ticks_ms: float, *, is_creator: bool, left_ms: float, own: Collection[str] = frozenset()
    ) -> float:
        """The tick from which on the writer may create.

        Args:
            is_creator: did it create the newest version?
            left_ms: how much time its oldest flush has left.
            own: the appIds of the writer itself.
        """
        self._forget(now_ticks_ms)
        others = len(self._others(own))
        latest = now_ticks_ms + max(0.0, min(LONGEST_WAIT_MS, left_ms / 4))
        wait_ms = self._random() * others * self.cycle_ms / 3
        if others < _PACED_FROM:
            return now_ticks_ms if is_creator else min(now_ticks_ms + wait_ms, latest)
        first = self._created_ticks_ms + self.pace_ms - self._lead_ms
        at = first + _RANDOM_FROM * self.cycle_ms + wait_ms
        rank = self._rank(own)
        if rank is not None:
            at = min(at, first + rank * self._pace.step * self.cycle_ms)
        return min(max(at, now_ticks_ms), latest)

    def draw_after_loss(self, now_ticks_ms: float, *, lost_races: int, left_ms: float) -> float:
        """The same for a writer that lost a create."""
        wait_ms = self._random() * min(lost_races, _MOST_LOSSES) * self.cycle_ms
        return now_ticks_ms + max(0.0, min(wait_ms, LONGEST_WAIT_MS, left_ms / 4))

    def put_off_ms(self, own: Collection[str], *, left_ms: float) -> float:
        """For how long after an append's beginning an entry of another may put its turn off; 0: none may."""
        return min(_PUT_OFF_PACES * self.pace_ms, max(left_ms, 0.0) / 4) if self._is_paced(own) else 0.0

    @property
    def cycle_ms(self) -> float:
        """How long a listing and a create take together."""
        return min(self._listing_ms + self._create_ms, _LONGEST_TOOK_MS)

    @property
    def look_beside_listing_ms(self) -> float:
        """For how long a look waits that is made beside a listing: what it finds is the newer, the later it begins, and
        it delays the create no more if it ends with the listing, as with the quickest of those that are known."""
        listings = [one for one, _ in self._took if one > 0]
        if not (listings and self._looks_took):
            return 0.0
        return max(0.0, min(listings) - self.look_ms)

    @property
    def look_ms(self) -> float:
        """How long a look takes that this writer makes itself; 0: it isn't known."""
        return median_low(self._looks_took) if self._looks_took else 0.0

    @property
    def pace_ms(self) -> float:
        """The time from one version to the next, where several write."""
        return min(max(self._pace.creates_per_version * self._quick_create_ms, self._lead_ms), _LONGEST_PACE_MS)

    def next_look(
        self, now_ticks_ms: float, *, turn_at: float, uploaded_ticks_ms: float, own: Collection[str] = frozenset()
    ) -> float:
        """The tick at which a writer that waits for its turn looks for the next version: once it is expected, or later
        where the writer's flush isn't in it, but before it may be that writer's turn.

        Args:
            uploaded_ticks_ms: when the writer's newest flush was uploaded.
        """
        if not self._is_paced(own):
            return now_ticks_ms + max(1.0, self.cycle_ms * _LOOKS_PER_CYCLE)
        expected = self._created_ticks_ms + self._interval_ms
        late_ms = self._pace.first_look * self.cycle_ms
        if uploaded_ticks_ms > expected - self._lead_ms + self.cycle_ms / 2:  # later than whoever creates it has listed
            late_ms = max(late_ms, (self.pace_ms - self._lead_ms) / 2)
        first = max(expected, min(expected + late_ms, turn_at - _LOOK_BEFORE_TURN * self.cycle_ms))
        if self._tail_seen_ticks_ms < first - 1.0:
            return max(now_ticks_ms, first)
        next_ms = self._pace.next_look * (1 + self._misses) / 2 * self.cycle_ms
        return max(now_ticks_ms, self._tail_seen_ticks_ms + next_ms)

    def is_behind(self, now_ticks_ms: float, own: Collection[str] = frozenset()) -> bool:
        """Was a version expected by now that nobody has looked for?"""
        expected = self._created_ticks_ms + self._interval_ms + self._pace.first_look * self.cycle_ms
        return self._is_paced(own) and self._tail_seen_ticks_ms < expected - 1.0 <= now_ticks_ms - 1.0

    def ahead(self, now_ticks_ms: float, own: Collection[str] = frozenset()) -> int:
        """How many versions a look reads at once: as many as are to be expected."""
        self._forget(now_ticks_ms)
        if self._is_paced(own):
            late_ms = now_ticks_ms - self._created_ticks_ms - self._pace.first_look * self.cycle_ms
            expected = min(max(late_ms, 0.0) / self._interval_ms, _MOST_AHEAD)
            return max(1, math.floor(expected))
        looks_ms = max(1.0, self.cycle_ms * _LOOKS_PER_CYCLE)
        return max(1, min(_MOST_AHEAD, round(len(self._recent) * looks_ms / _RECENT_MS)))

    @property
    def _pace(self) -> _Pace:
        looks = self._is_shared
        return _TOGETHER if looks and sum(looks) >= _TOGETHER_FROM * len(looks) else _APART

    @property
    def _lead_ms(self) -> float:
        """The time from the beginning of a listing until the version that follows it takes effect."""
        return self._listing_ms + self._create_ms / 2

    @property
    def _interval_ms(self) -> float:
        """The time after which the next version is expected: the pace, unless the newest ones came more slowly, as on
        a busy machine."""
        seen_ms = median_low(self._intervals_ms) if self._intervals_ms else 0.0
        return max(self.pace_ms, min(seen_ms, _MOST_PACES * self.pace_ms))

    def _is_paced(self, own: Collection[str]) -> bool:
        return len(self._others(own)) >= _PACED_FROM

    def _others(self, own: Collection[str]) -> frozenset[str]:
        return frozenset().union(*(writers for _, _, writers in self._recent)).difference(own)

    def _rank(self, own: Collection[str]) -> int | None:
        """The writer's place in the order of those who may begin the next version, the same for all who know the same
        entries: those first who are due by how often announcers are in a version, by chance among them, a different one
        for each version. None: it is in no entry of the last second."""
        newest: dict[str, int] = {}
        count = 0
        for _, version, writers in self._recent:
            announcers = [one for one in writers if not one.isdecimal()]
            newest.update(dict.fromkeys(announcers, version))
            count += len(announcers)
        mine = [one for one in own if one in newest]
        if not mine:
            return None
        usual_age = math.ceil(len(newest) * len(self._recent) / count - 0.1)

        def key(announcer: str) -> tuple[bool, int, int]:
            age = self._version + 1 - newest[announcer]
            drawn = zlib.crc32(f"{self._version}/{announcer}".encode())
            return age < usual_age, abs(age - usual_age), drawn

        own_key = min(key(one) for one in mine)
        return sum(key(one) < own_key for one in newest if one not in own)

    def _forget(self, now_ticks_ms: float) -> None:
        while self._recent and now_ticks_ms - self._recent[0][0] > _RECENT_MS:
            self._recent.popleft()
