"""Claims: the client that does a piece of work which many clients would otherwise do at once.

A claim is an object that its holder creates, rewrites while it works, and deletes. It is no lock: the work has to be
right however many do it at once, and nothing may depend on a claim. So no clock is shared either: who has watched a
claim for a while, and saw it unchanged, takes it over.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass

from sparklog.clock import Clock
from sparklog.errors import ObjectNotFoundError, StoreError
from sparklog.storage.base import CreateResult, ObjectStore
from sparklog.storage.entry_log import new_token

__all__ = ["Claim", "OthersClaim", "take_claim"]

_LOGGER = logging.getLogger(__name__)
_RENEWED_MS = 5_000.0
EXPIRES_MS = 20_000.0
"""A claim that hasn't changed for so long, by the ticks of whoever watches it, was left by a process that died."""


@dataclass(frozen=True, slots=True)
class OthersClaim:
    """A claim that another holds, as it was seen."""

    content: bytes
    since_ticks_ms: float
    """When it was first seen with this content."""


class Claim:
    """A claim that this process holds. Not for several threads at once."""

    def __init__(self, store: ObjectStore, clock: Clock, path: str, token: str) -> None:
        self._store = store
        self._clock = clock
        self._path = path
        self._token = token
        self._renewals = 0
        self._renewed_ticks_ms = clock.ticks_ms()

    def renew(self) -> None:
        """Show that the work goes on: a PUT every five seconds, else nothing. Raises ``StoreError``."""
        now = self._clock.ticks_ms()
        if now - self._renewed_ticks_ms >= _RENEWED_MS:
            self._renewed_ticks_ms = now
            self._renewals += 1
            self._store.put(self._path, _content(self._token, self._renewals))

    def release(self) -> None:
        """The work is over. Where the claim can't be deleted, others take it over after 20 seconds."""
        try:
            self._store.delete([self._path])
        except StoreError as error:
            _LOGGER.info("the claim %s could not be deleted; others take it over later: %s", self._path, error)


def take_claim(store: ObjectStore, clock: Clock, path: str, seen: OthersClaim | None) -> Claim | OthersClaim:
    """Take a claim, or see who holds it. A create, and a GET where it is held.

    Args:
        path: in the store.
        seen: what an earlier call returned, if another held it then.
    Raises ``StoreError``.
    """
    token = new_token()
    try:
        is_free = store.create(path, _content(token, 0)) is CreateResult.CREATED
    except StoreError as error:
        if not error.retriable:
            raise
        is_free = False  # or it is ours, and the answer was lost
    if is_free:
        return Claim(store, clock, path, token)
    try:
        found = store.read(path)
    except ObjectNotFoundError:
        return OthersClaim(b"", clock.ticks_ms())  # its holder has just finished
    if found == _content(token, 0):
        return Claim(store, clock, path, token)
    if seen is None or found != seen.content:
        return OthersClaim(found, clock.ticks_ms())
    if clock.ticks_ms() - seen.since_ticks_ms < EXPIRES_MS:
        return seen
    store.put(path, _content(token, 0))
    return Claim(store, clock, path, token)


def _content(token: str, renewals: int) -> bytes:
    return json.dumps({"token": token, "renewals": renewals}).encode()
