"""Telling of what is left out of views, as it can't be read."""

from __future__ import annotations

import logging
from collections.abc import Mapping

__all__ = ["log_unread"]

_LOGGER = logging.getLogger("sparklog.sql")


def log_unread(unread: Mapping[str, Exception]) -> None:
    """Name in the log what is left out.

    Args:
        unread: the errors, each by what it is of: ``topic orders``, say.
    """
    for name, error in unread.items():
        _LOGGER.warning("%s isn't shown: %s", name, error)
