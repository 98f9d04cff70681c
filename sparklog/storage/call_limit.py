"""The moment by which a store call that is made now should be over: attempts of the clients below look at it."""

from __future__ import annotations

from contextvars import ContextVar, Token

from sparklog.clock import Deadline

__all__ = ["CallLimit", "call_limit"]

_LIMIT: ContextVar[Deadline | None] = ContextVar("limit", default=None)


def call_limit() -> Deadline | None:
    """No attempt begins after this moment; None: nobody has set one."""
    return _LIMIT.get()


class CallLimit:
    """A context in which calls of this thread have a limit, which other threads and event loops are handed on."""

    __slots__ = ("_limit", "_token")

    def __init__(self, limit: Deadline | None) -> None:
        self._limit = limit

    def __enter__(self) -> None:
        self._token: Token[Deadline | None] = _LIMIT.set(self._limit)

    def __exit__(self, *_: object) -> None:
        _LIMIT.reset(self._token)
