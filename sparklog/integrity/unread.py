"""Findings about what couldn't be read: it may be whole, and is reported by its name beside all that was checked."""

from __future__ import annotations

from sparklog.errors import StoreError
from sparklog.integrity.findings import Code, Finding, Subject

__all__ = ["unread", "unread_code"]

_EXPECTED = "something that this client may read, and that its store can return: permissions, disk, bucket policy"


def unread(error: Exception, subject: Subject, code: Code = Code.OBJECT_UNREADABLE) -> Finding:
    """The finding that an object, or all of a topic, group or transactional id, couldn't be checked.

    Args:
        error: names the object.
    """
    is_refused = isinstance(error, StoreError)
    seen = str(error) if is_refused or str(error) else repr(error)
    expected = _EXPECTED if is_refused else "something that can be read"
    return Finding(code=code, subject=subject, seen=seen, expected=expected, is_unread=True)


def unread_code(subject: Subject) -> Code:
    """The code for all of a topic, group or transactional id."""
    if subject.topic is not None:
        return Code.TOPIC_UNREADABLE
    return Code.GROUP_UNREADABLE if subject.group is not None else Code.TRANSACTION_UNREADABLE
