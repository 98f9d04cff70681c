"""Errors that end a relay: it couldn't go on without losing a row or sending one twice."""

from __future__ import annotations

from sparklog.errors import SparklogError

__all__ = ["OutboxError", "RelayTakenOverError"]


class OutboxError(SparklogError):
    """A row can't be sent, or can't be settled; the message names it. No row is skipped: the relay stops until the row
    is repaired."""


class RelayTakenOverError(SparklogError):
    """Another relay of the same name has started; this one can't send any more."""

    fatal = True
