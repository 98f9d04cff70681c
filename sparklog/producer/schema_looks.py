"""When a topic is looked at for a newer schema of its values: where some don't fit, and once a second at most."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sparklog.clock import Clock, Deadline
from sparklog.producer.typed_values import ValueEncoding

__all__ = ["SchemaLooks", "is_other"]

_BETWEEN_MS = 1_000.0
_MOST_IN_VAIN = 5
"""So many looks one after the other that show nothing new are waited for; values that are never of the schema, as a
client with a defect sends them all the time, would slow all others down."""
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
        self._began_ticks_ms = float("-inf")
        """When the newest look began."""
        self._vain_count = 0

    def newer_than(
        self, known: ValueEncoding | None, read: Callable[[], object], deadline: Deadline
    ) -> ValueEncoding | None:
        """The encoding as of now, for values that don't fit the one that is known; None: there is no other one.

        Waits for the rest of a second since the look before, unless that began after this was called.

        Args:
            read: makes the newest commits known. What it raises is raised.
            deadline: until it a look may wait.
        """
        asked = self._clock.ticks_ms()
        with self._looking:
            if self._began_ticks_ms <= asked and not is_other(self._current(), known):
                if not self._may_look(deadline):
                    return None
                self._began_ticks_ms = self._clock.ticks_ms()
                read()
                self._vain_count = 0 if is_other(self._current(), known) else self._vain_count + 1
            newest = self._current()
        return newest if is_other(newest, known) else None

    def _may_look(self, deadline: Deadline) -> bool:
        """Wait until there may be a look; False: there may be none now."""
        now = self._clock.ticks_ms()
        wait_ms = self._began_ticks_ms + _BETWEEN_MS - now
        if wait_ms <= 0:
            if now - self._began_ticks_ms > _FORGET_MS:
                self._vain_count = 0
            return True
        if self._vain_count >= _MOST_IN_VAIN or deadline.left_ms < wait_ms:
            return False
        self._clock.sleep_ms(wait_ms)
        return True
