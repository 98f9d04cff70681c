"""What the worker and the inbox share, so that the worker needs no SQLAlchemy: whose messages, and if one is known."""

from __future__ import annotations

from contextvars import ContextVar

from sparklog.errors import SparklogError

__all__ = ["DEFAULT_GROUP", "AlreadyProcessedError", "current_group"]

DEFAULT_GROUP = "default"

current_group: ContextVar[str] = ContextVar("sparklog_inbox_group", default=DEFAULT_GROUP)
"""The group for which messages are recorded where none is given."""


class AlreadyProcessedError(SparklogError):
    """The group has dealt with this message before: there is nothing to do."""
