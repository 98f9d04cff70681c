"""Names that the worker and the inbox share: whose messages are recorded. The worker needs no SQLAlchemy for them."""

from __future__ import annotations

from contextvars import ContextVar

from sparklog.errors import SparklogError

__all__ = ["DEFAULT_GROUP", "AlreadyProcessedError", "current_group"]

DEFAULT_GROUP = "default"

current_group: ContextVar[str] = ContextVar("sparklog_inbox_group", default=DEFAULT_GROUP)
"""The group for which messages are recorded where none is given."""


class AlreadyProcessedError(SparklogError):
    """The group has dealt with this message before: there is nothing to do."""
