"""The topics as Metadata tells them: their ids and numbers of partitions, kept and followed.

To open ten thousand topics takes seconds of CPU, and clients ask for all of them again and again. Their newest commits
are read once; from then on a look is one listing, and one call to the store that finds no entry behind the newest ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from sparklog.errors import StoreError, is_no_topic
from sparklog.log.cluster import Cluster
from sparklog.log.state import open_state
from sparklog.log.topic_ids import incarnation_of
from sparklog.paths import TOPICS_FOLDER
from sparklog.storage.each_alone import each_alone

__all__ = ["TopicDirectory", "TopicFacts"]

_TOGETHER = 1_000
"""Topics that are looked at in one call. Between two calls others have their turn."""
_TURN_S = 0.000_5
_MANY = 1_000
"""So many topics make a look expensive, and of those a second one rests for a while."""
_RESTS = 4
"""Times that a look took, for which no other is made."""
_LONGEST_MS = 4_500.0
"""Greatest age of what is told, as long as a look takes less."""
_OPENED_MS = 600_000.0
"""After so long a topic is opened anew, whatever was seen of it: its log may have been set back from a backup."""
_OPENED_TOGETHER = 500


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as Metadata has it."""

    name: str
    topic_id: str
    uuid: UUID
    """The topic's id, as the wire has it."""
    partition_count: int
    leader_epoch: int
    """The epoch of its partitions."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A topic that was opened."""

    facts: TopicFacts | None
    """None: it was deleted; its log goes on where it is created again."""
    next_path: str
    """The name of the entry that comes next: as long as it isn't there, the facts hold."""
    opened_ms: float
    seen_ms: float
    """When it was last seen that the entry isn't there; a moment before that."""


class TopicDirectory:
    """The topics of a cluster. For several threads; its methods may block."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._looking = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._found: Mapping[str, TopicFacts | Exception] = {}
        self._began_ms = float("-inf")
        """When the newest look began, which has found :attr:`_found`."""
        self._fresh_until_ms = float("-inf")
        self._asked_ms = float("-inf")
        self._changes = self._seen_changes = 0

    @property
    def unasked_ms(self) -> float:
        """How long ago somebody asked for all topics."""
        return self._cluster.clock.ticks_ms() - self._asked_ms

    @property
    def is_large(self) -> bool:
        """Are there so many topics that it is of use to follow them while nobody asks?"""
        return len(self._known) > _MANY

    def changed(self) -> None:
        """Look anew when somebody asks next: a topic was changed through this gateway."""
        self._changes += 1

    def all(self, *, is_sure: bool = False) -> Mapping[str, TopicFacts | Exception]:
        """All topics by name, and for one that can't be read the error; as they are now, or, where there are many, as
        they were less than five seconds ago.

        Args:
            is_sure: as they are now, in any case.
        Raises:
            StoreError: the store can't be read.
        """
        asked_ms = self._asked_ms = self._cluster.clock.ticks_ms()
        with self._looking:
            is_fresh = asked_ms < self._fresh_until_ms and self._changes == self._seen_changes
            if self._began_ms < asked_ms and (is_sure or not is_fresh):
                self._look()
            return self._found

    def follow(self) -> None:
        """Keep what is known of the topics, for the next one who asks. Raises as :meth:`all`."""
        with self._looking:
            self._look()

    def _look(self) -> None:
        clock, store, changes = self._cluster.clock, self._cluster.store, self._changes
        began_ms = clock.ticks_ms()
        # Cleanup can't have deleted an entry that came after a topic was last seen, unless that was too long ago (rule
        # L1, trust): then it isn't known any more. To open many topics may take longer than that, so each has its time.
        trust_ms = self._cluster.tail_trust_ms
        known = {name: one for name, one in self._known.items() if began_ms - one.seen_ms <= trust_ms}
        if known:
            self._cluster.topic_log(next(iter(known))).check_cluster()
        names = store.list_names(TOPICS_FOLDER)
        same = self._same({name: known[name] for name in names if name in known}, began_ms)
        unknown = [name for name in names if name not in same]
        looks = each_alone(store, self._opened, unknown)
        errors: dict[str, Exception] = {}
        for name, look in zip(unknown, looks, strict=True):
            if isinstance(look, _Known):
                same[name] = look
            elif not is_no_topic(look):
                errors[name] = look
        self._known = same
        facts = {name: errors[name] if name in errors else _facts(same.get(name)) for name in names}
        self._found = {name: one for name, one in facts.items() if one is not None}
        self._began_ms, self._seen_changes = began_ms, changes
        ended_ms = clock.ticks_ms()
        rests_until_ms = min(ended_ms + _RESTS * (ended_ms - began_ms), began_ms + _LONGEST_MS)
        self._fresh_until_ms = rests_until_ms if len(names) > _MANY else began_ms

    def _same(self, known: Mapping[str, _Known], now_ms: float) -> dict[str, _Known]:
        """Topics that have no entry behind the one that is known; but for some that were opened longest ago."""
        store, same = self._cluster.store, dict(known)
        old = sorted((one.opened_ms, name) for name, one in known.items() if now_ms - one.opened_ms > _OPENED_MS)
        for _, name in old[:_OPENED_TOGETHER]:
            del same[name]
        names = [*same]
        for start in range(0, len(names), _TOGETHER):
            some, asked_ms = names[start : start + _TOGETHER], self._cluster.clock.ticks_ms()
            try:
                entries = store.read_many([same[name].next_path for name in some])
            except StoreError as error:
                if error.retriable:
                    raise
                entries = [b""] * len(some)  # each is opened, which tells whose error it is
            for name, entry in zip(some, entries, strict=True):
                if entry is not None:
                    del same[name]
                else:
                    one = same[name]
                    same[name] = _Known(one.facts, one.next_path, one.opened_ms, asked_ms)
            time.sleep(_TURN_S)
        return same

    def _opened(self, name: str) -> _Known:
        now_ms = self._cluster.clock.ticks_ms()
        state = open_state(self._cluster.topic_log(name))
        head = state.head
        topic_id = head.topic_id
        facts = TopicFacts(name, topic_id, UUID(topic_id), head.partition_count, incarnation_of(topic_id))
        return _Known(None if head.deleted else facts, state.log.path_of(state.position.version + 1), now_ms, now_ms)


def _facts(known: _Known | None) -> TopicFacts | None:
    return None if known is None else known.facts
