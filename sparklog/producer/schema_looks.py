"""When a topic is looked at for a newer schema of its values: where some don't fit, and once a second at most."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from itertools import islice

from sparklog.clock import Clock, Deadline
from sparklog.producer.typed_values import ValueEncoding

__all__ = ["SchemaLooks", "is_other"]

_NEVER = float("-inf")
_BETWEEN_MS = 1_000.0
_MOST_IN_VAIN = 5
"""After so many looks one after the other that showed nothing new, none is waited for because of values of which the
same was wrong then: a client with a defect, which sends them all the time, would slow all others down."""
_MOST_SEEN = 64
"""Different things that were wrong with values, of which is known that a look was in vain; with more all are alike."""
_FORGET_MS = 10_000.0
"""After so long without a look, those that were in vain count no more."""


def is_other(one: ValueEncoding | None, other: ValueEncoding | None) -> bool:
    """Do two encodings of a topic take different values?"""
    return _marks(one) != _marks(other)


def _marks(encoding: ValueEncoding | None) -> object:
    if encoding is None:
        return None
    return encoding.schema_id, encoding.codec.value_format, encoding.keeps_undecodable, encoding.keeps_bytes


class SchemaLooks:
    """Looks at one topic, by one producer. May be used from several threads."""

    def __init__(self, clock: Clock, current: Callable[[], ValueEncoding | None]) -> None:
        """Args:
        current: the encoding as of the newest commit that is known.
        """
        self._clock = clock
        self._current = current
        self._looking = threading.Lock()
        """Held by who looks, or waits until it may."""
        self._began_ticks_ms = _NEVER
        """When the newest look began."""
        self._vain_count = 0
        self._seen: set[str] = set()
        """Reasons why values were unfit that led to looks in vain."""

    @property
    def may_wait(self) -> bool:
        """Was there a look within the last second, so that the next one may wait?"""
        began = self._began_ticks_ms
        return began != _NEVER and self._clock.ticks_ms() - began < _BETWEEN_MS

    def newer_than(
        self, known: ValueEncoding | None, why: Collection[str], read: Callable[[], object], deadline: Deadline
    ) -> ValueEncoding | None:
        """The encoding as of now, for values that don't fit the one that is known; None: there is no other one.

        Waits for the rest of a second since the look before, unless that began after this was called.

        Args:
            why: what is wrong with the values.
            read: makes the newest commits known. What it raises is raised.
            deadline: until it a look may wait.
        """
        asked = self._clock.ticks_ms()
        with self._looking:
            if self._began_ticks_ms <= asked and not is_other(self._current(), known):
                if not self._may_look(why, deadline):
                    return None
                self._began_ticks_ms = self._clock.ticks_ms()
                read()
                self._note(why, in_vain=not is_other(self._current(), known))
            newest = self._current()
        return newest if is_other(newest, known) else None

    def _note(self, why: Collection[str], *, in_vain: bool) -> None:
        if not in_vain:
            self._vain_count, self._seen = 0, set()
            return
        self._vain_count += 1
        self._seen.update(islice(why, _MOST_SEEN - len(self._seen)))

    def _may_look(self, why: Collection[str], deadline: Deadline) -> bool:
        """Wait until there may be a look; False: there may be none now."""
        now = self._clock.ticks_ms()
        wait_ms = self._began_ticks_ms + _BETWEEN_MS - now
        if wait_ms <= 0:
            if now - self._began_ticks_ms > _FORGET_MS:
                self._vain_count, self._seen = 0, set()
            return True
        is_known = len(self._seen) >= _MOST_SEEN or self._seen.issuperset(why)
        if (self._vain_count >= _MOST_IN_VAIN and is_known) or deadline.left_ms < wait_ms:
            return False
        self._clock.sleep_ms(wait_ms)
        return True
