"""Whether the way to a store keeps the condition of a create-only put: tried once by each client, before it writes.

A cluster's store is proved safe when the cluster is made. Another client may reach the same objects by another way: a
proxy, a cache, an older endpoint that drops the condition. Each create would then overwrite what is there, and say
"created". So a client first creates an object that is there already, which must be refused
(docs/decisions/0087-each-way-to-a-store-is-tried.md).
"""

from __future__ import annotations

import secrets

from sparklog.clock import Clock
from sparklog.errors import StoreError, UnsafeStoreError
from sparklog.paths import CREATE_ONLY_FILE
from sparklog.storage.base import CreateResult, ObjectStore

__all__ = ["PathProof", "create_only_bytes"]

_FIRST_WAIT_MS = 500.0
_MOST_WAIT_MS = 60_000.0


class PathProof:
    """Tries one client's way to a store. For several threads at once: two that begin together may each try.

    Args:
        store: sends each request once.
        clock: spaces attempts that proved nothing.
    """

    def __init__(self, store: ObjectStore, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._refusal = ""
        self._is_proved = False
        self._due_ticks_ms = float("-inf")
        self._wait_ms = _FIRST_WAIT_MS

    def prove(self) -> bool:
        """Create the object that is there already; in an older cluster make it, and create it again.

        An answer that was lost, and a refusal for another reason (no permission, throttled), prove nothing: a later
        call tries again, after half a second at first, a minute at most.

        Returns:
            Is the way proved, so that no further call is needed?
        Raises:
            UnsafeStoreError: two creates of one name were both carried out: nothing may be written this way.
        """
        if self._refusal:
            raise UnsafeStoreError(self._refusal)
        if self._is_proved:
            return True
        if self._clock.ticks_ms() < self._due_ticks_ms:
            return False
        try:
            is_proved = self._is_refused() or self._is_refused()
        except UnsafeStoreError:  # a client that has no create-only put says so itself
            raise
        except StoreError:
            self._due_ticks_ms = self._clock.ticks_ms() + self._wait_ms
            self._wait_ms = min(2 * self._wait_ms, _MOST_WAIT_MS)
            return False
        if not is_proved:
            self._refusal = (
                f"{self._store.uri}: {CREATE_ONLY_FILE} was created twice: on its way to the store a create-only put "
                "loses its condition (If-None-Match), so that writers would overwrite each other's records; expected "
                "the second create to be refused"
            )
            raise UnsafeStoreError(self._refusal)
        self._is_proved = True
        return True

    def _is_refused(self) -> bool:
        return self._store.create(CREATE_ONLY_FILE, create_only_bytes()) is CreateResult.EXISTS


def create_only_bytes() -> bytes:
    """New bytes for that object. No two are the same: one that is read back is not taken for another."""
    return (
        f"clients of sparklog create this object again, which the store must refuse; {secrets.token_hex(8)}\n".encode()
    )
