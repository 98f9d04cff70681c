"""Notes that a writer takes of its topic's entries, and learns from later: most writers never ask (rule L14, announced
uploads)."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from sparklog.delta.actions import Entry, SetTransaction
from sparklog.log.announced.turns import Turns
from sparklog.log.commit import GROUP_COMMIT_TOOK_INFO
from sparklog.log.producer_state import is_of_announcer

__all__ = ["MOST_MS", "Notes"]

MOST_MS = 2**50
"""No time and no duration that an entry states is as large."""
_MOST_NOTES = 8
"""So many are kept before the writer learns from them: from several at once in a small part of the time, as a commit
finds the code for it in no cache."""
_MOST_ACTIONS = 6
"""An entry of more actions is learned from at once: a note keeps it in memory."""


class Notes:
    """The notes of one writer, in their order, and what it has learned from them: the same as if it had at once.

    Belongs to the thread that commits, but for :attr:`company_ticks_ms`.
    """

    def __init__(self, own_app_ids: Callable[[], frozenset[str]]) -> None:
        """``own_app_ids``: the appIds that stand for this writer's own flushes; more may be added, never removed."""
        self._own_app_ids = own_app_ids
        self._turns = Turns(random.random)
        self._unlearned: list[tuple[Entry, float, float | None, bool] | tuple[float, float]] = []
        """Entries, when they were applied, their age, and whether this writer created them; and how long a listing and
        a create took."""
        self._newest: deque[tuple[int, float]] = deque(maxlen=2)
        """The newest versions with a producer's records, but this writer's own, and when they were applied."""

    @property
    def turns(self) -> Turns:
        """The writer's turns, as of all that was noted."""
        self.learn()
        return self._turns

    @property
    def company_ticks_ms(self) -> float:
        """When the newest entry of another producer was applied, of those that were learned from; minus infinity: there
        is none. For any thread."""
        return max((ticks_ms for _, ticks_ms in tuple(self._newest)), default=float("-inf"))

    def note_entry(self, entry: Entry, now_ticks_ms: float, age_ms: float | None) -> None:
        """Note an entry that was applied; ``age_ms`` as for :meth:`Turns.observe`."""
        self._unlearned.append((entry, now_ticks_ms, age_ms, False))
        if len(self._unlearned) >= _MOST_NOTES or len(entry.actions) > _MOST_ACTIONS:
            self.learn()

    def note_created(self, version: int) -> None:
        """Note that the writer has created the entry that was noted last."""
        noted = self._unlearned[-1] if self._unlearned else None
        if noted is not None and len(noted) == 4 and noted[0].version == version:
            self._unlearned[-1] = (*noted[:3], True)
        elif self._newest and self._newest[-1][0] == version:
            self._newest.pop()

    def note_took(self, listing_ms: float, create_ms: float) -> None:
        """Note how long a listing and a create of the writer took; 0: there was none."""
        self._unlearned.append((listing_ms, create_ms))

    def learn(self) -> None:
        """Learn from all that was noted."""
        unlearned, self._unlearned = self._unlearned, []
        for noted in unlearned:
            if len(noted) == 2:
                self._turns.note_took(*noted)
            else:
                self._learn_entry(*noted)

    def _learn_entry(self, entry: Entry, now_ticks_ms: float, age_ms: float | None, is_own: bool) -> None:
        app_ids = {a.app_id for a in entry.actions if isinstance(a, SetTransaction)}
        writers = {one for one in app_ids if one.isdecimal() or is_of_announcer(one)}
        if not is_own and writers - self._own_app_ids():
            self._newest.append((entry.version, now_ticks_ms))
        took = _took_ms(entry)
        if took is not None:
            self._turns.note_took(*took)
        self._turns.observe(writers, now_ticks_ms, version=entry.version, age_ms=age_ms)


def _took_ms(entry: Entry) -> tuple[float, float] | None:
    """How long a listing and a create took, as an entry says; None where it doesn't."""
    found = (entry.info or {}).get(GROUP_COMMIT_TOOK_INFO)
    if not isinstance(found, (list, tuple)) or len(found) != 2:
        return None
    took = [float(one) for one in found if isinstance(one, (int, float)) and 0 <= one < MOST_MS]
    return (took[0], took[1]) if len(took) == 2 else None
