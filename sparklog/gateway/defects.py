"""Unexpected errors: they are logged; if one concerns a topic, only this topic's part of the answer is an error."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparklog.errors import IllegalStateError, SparklogError
from sparklog.gateway.repeats import Repeats
from sparklog.logs import about, short

__all__ = ["log_defect", "topic_defects"]

_LOGGER = logging.getLogger("sparklog.gateway")


def log_defect(
    repeats: Repeats,
    text: str,
    *names: object,
    error: BaseException | None = None,
    extra: dict[str, Any] | None = None,
) -> None:
    """Log an exception with its trace, which is long: of each kind, which ``text`` and the exception's class are, one a
    second, since a client may cause it as often as it likes.

    Args:
        names: what stands in the text.
        error: None: the exception that is being handled.
    """
    failure = sys.exc_info()[1] if error is None else error
    left_out = repeats.left_out(text if failure is None else f"{text} {type(failure).__name__}")
    if left_out is not None:
        _LOGGER.error("%s%s", text % names if names else text, left_out, exc_info=failure, extra=extra)


@contextmanager
def topic_defects(repeats: Repeats, topic: str) -> Iterator[None]:
    """Within: what isn't an error of sparklog's is logged and raised as one, which ``UNKNOWN_SERVER_ERROR`` answers.
    Else the whole request would end, and with it the connection, of a client that uses other topics, too."""
    try:
        yield
    except SparklogError:
        raise
    except Exception as error:
        log_defect(repeats, "topic %r can't be read: a defect", short(topic), extra=about(topic=short(topic)))
        raise IllegalStateError(f"reading topic {topic!r} failed unexpectedly: {error!r}") from error
