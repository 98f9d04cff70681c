"""Log records: what they are about, for handlers that write JSON; and errors in them without what records hold."""

from __future__ import annotations

import logging

from sparklog.errors import InvalidRecordError, InvalidTypeError, RecordDeserializationError

__all__ = ["about", "short", "warn_of_member", "without_content"]

_QUOTING = (InvalidRecordError, InvalidTypeError, RecordDeserializationError)
"""Errors whose text may quote a value."""
_DEEPEST = 10
"""Causes that are looked at."""
_MOST_CHARACTERS = 200


def about(**names: object) -> dict[str, object]:
    """The ``extra`` of a log record: a dict as its attribute ``sparklog``.

    Args:
        names: of ``topic``, ``partition``, ``group``, ``member``, ``transactional_id``, ``relay``; of Spark's queries
            ``query`` and the figures of their lag; of a console's users ``user``, ``client``, ``request``; of a
            gateway's clients ``client``, ``client_id``, ``user``, ``api``, ``reason``.
    """
    return {"sparklog": names}


def short(text: object) -> str:
    """The beginning of a text that somebody else has chosen, for a log: a name may have megabytes."""
    whole = str(text)
    return whole if len(whole) <= _MOST_CHARACTERS else f"{whole[:_MOST_CHARACTERS]}…"


def warn_of_member(logger: logging.Logger, text: str, group: str, member: str) -> None:
    """Warn by a text with places for a group and one of its members."""
    logger.warning(text, group, member, extra=about(group=group, member=member))


def without_content(error: BaseException) -> str:
    """The text of an error for a log; only its class, and that of its cause, where it may quote a record's value."""
    cause: BaseException | None = error
    for _ in range(_DEEPEST):
        if isinstance(cause, _QUOTING):
            name = type(error).__name__
            return name if cause is error else f"{name}, by {type(cause).__name__}"
        cause = None if cause is None else cause.__cause__
    return str(error)
