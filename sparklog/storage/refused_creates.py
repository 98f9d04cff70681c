"""A create that was answered with a refusal for good: whether that is the whole truth (rule L2, unknown).

A proxy may have passed the request on and answered with an error of its own, or have sent it twice and reported the
second's refusal. So the name is read back once, on this path alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from sparklog.errors import CommitStateUnknownError, StoreError

__all__ = ["read_refused"]

E_co = TypeVar("E_co", covariant=True)


class _Entries(Protocol[E_co]):
    """A log whose entries can be read."""

    def path_of(self, version: int) -> str: ...

    def read_raw_entries(self, versions: Sequence[int]) -> Sequence[tuple[E_co, bytes] | None]: ...


def read_refused(
    log: _Entries[E_co], version: int, refusal: StoreError, *, verify: Callable[[], None]
) -> tuple[E_co, bytes]:
    """The entry that is there although its create was refused, with its bytes: the caller's own, or another's. One GET
    where a server gave the refusal.

    Args:
        refusal: not retriable, and of the only attempt.
        verify: checks that what was read may be trusted (rule L1, trust).
    Raises:
        StoreError: ``refusal``, which the store itself gave, or which came before anything was sent; nothing is there.
        CommitStateUnknownError: nothing is there, or that can't be seen, and the answer has no code that only a store
            has: it may be there yet.
        CorruptLogError, UnsupportedVersionError: what is there can't be read.
    """
    if refusal.code is None:
        raise refusal
    found: tuple[E_co, bytes] | None
    try:
        found = log.read_raw_entries([version])[0]
        if found is not None:
            verify()
    except StoreError as unreadable:
        found, seen = None, f"it can't be read back: {unreadable}"
    else:
        seen = "it isn't there"
    if found is not None:
        return found
    if refusal.code:
        raise refusal
    raise CommitStateUnknownError(
        f"whether {log.path_of(version)} was or will be created is unknown; read the log back before anything else: "
        f"the create was refused without a code of the store's own, so by whoever is in between: {refusal}; {seen}"
    ) from refusal
