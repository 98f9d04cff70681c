"""Unexpected failures with one topic: its part of an answer tells them, and the others' parts are answered."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sparklog.errors import IllegalStateError, SparklogError
from sparklog.logs import about

__all__ = ["topic_defects"]

_LOGGER = logging.getLogger("sparklog.gateway")


@contextmanager
def topic_defects(topic: str) -> Iterator[None]:
    """Within: what isn't an error of sparklog's is logged and raised as one, which ``UNKNOWN_SERVER_ERROR`` answers.
    Else the whole request would end, and with it the connection, of a client that uses other topics, too."""
    try:
        yield
    except SparklogError:
        raise
    except Exception as error:
        _LOGGER.exception("topic %r can't be read: a defect", topic, extra=about(topic=topic))
        raise IllegalStateError(f"reading topic {topic!r} failed unexpectedly: {error!r}") from error
