"""Ids of topics: random, and where a topic is created under a name that another had, which one in turn it is."""

from __future__ import annotations

import uuid

__all__ = ["first_topic_id", "incarnation_of", "is_of_same_creation", "next_topic_id"]

_INCARNATION_DIGITS = 8
_MOST = 2**31 - 1
"""Kafka's clients get the number as a leader epoch, an int32."""
_VERSION_DIGIT = 12
_OURS = "8"
"""UUID version 8: what its bits mean is the maker's own. Source: RFC 9562."""
_RANDOM_DIGITS = 16
"""The last digits, which :func:`next_topic_id` keeps."""


def first_topic_id() -> str:
    """An id for a topic whose name none had before: 32 hex digits."""
    return uuid.uuid4().hex


def next_topic_id(before: str, random_id: str) -> str:
    """An id for a topic whose name one with the id ``before`` had: the first 32 bits are the number of topics that had
    the name before, the last 64 those of ``random_id``."""
    incarnation = min(_MOST, incarnation_of(before) + 1)
    middle = random_id[_INCARNATION_DIGITS:_VERSION_DIGIT]
    return f"{incarnation:0{_INCARNATION_DIGITS}x}{middle}{_OURS}{random_id[_VERSION_DIGIT + 1 :]}"


def incarnation_of(topic_id: str) -> int:
    """How many topics had the name before, 0 to 2**31 - 1, as far as it is known: sparklogs that didn't count them made
    random ids, which are as those of the first."""
    try:
        is_counted = uuid.UUID(topic_id).version == int(_OURS)
    except ValueError:
        return 0
    digits = topic_id.replace("-", "")[:_INCARNATION_DIGITS]
    return min(_MOST, int(digits, 16)) if is_counted else 0


def is_of_same_creation(one: str, other: str) -> bool:
    """Were two ids made of the same random one?"""
    return one[-_RANDOM_DIGITS:] == other[-_RANDOM_DIGITS:]
