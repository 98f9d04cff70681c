"""Names that the worker and the inbox share: whose messages are recorded. The worker needs no SQLAlchemy for them."""

from __future__ import annotations

from contextvars import ContextVar

from sparklog.errors import SparklogError

__all__ = ["DEFAULT_GROUP", "AlreadyProcessedError", "current_group"]

DEFAULT_GROUP = None
"""There is none: outside of handlers the group is to be named."""

current_group: ContextVar[str | None] = ContextVar("sparklog_inbox_group", default=DEFAULT_GROUP)
"""The group of the worker whose handler is at work."""


class AlreadyProcessedError(SparklogError):
    """The group has dealt with this message before: there is nothing to do."""
