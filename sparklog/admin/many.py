"""Calls about several topics: what was given, checked; one topic after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from sparklog.errors import InvalidArgumentError, SparklogError
from sparklog.model import TopicPartition
from sparklog.paths import check_topic_name

__all__ = ["by_topic", "check_once", "checked_names", "each", "listed", "partition_of"]

S = TypeVar("S")
T = TypeVar("T")


def each(items: Mapping[str, S], act: Callable[[str, S], T]) -> dict[str, T]:
    """Act on one topic after the other; an error tells of the others."""
    done: dict[str, T] = {}
    for name, item in items.items():
        try:
            done[name] = act(name, item)
        except SparklogError as error:
            if len(items) > 1:
                rest = [other for other in items if other != name and other not in done]
                told = [f"{what}: {', '.join(names)}" for what, names in (("done", done), ("not tried", rest)) if names]
                error.args = (f"{error} ({'; '.join(told)})",)
            raise
    return done


def listed(given: Iterable[S]) -> list[S]:
    """A list of what was given; a single text is a slip, not a list of letters."""
    if isinstance(given, str):
        raise InvalidArgumentError(f"got the text {given!r}, expected a list")
    return list(given)


def checked_names(topics: Iterable[str]) -> list[str]:
    """A list of topic names. Raises ``InvalidTopicError``."""
    return [check_topic_name(name) for name in listed(topics)]


def check_once(names: list[str]) -> None:
    """Raise ``InvalidArgumentError`` if a name is there twice."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise InvalidArgumentError(f"given twice: {', '.join(twice)}")


def partition_of(given: tuple[str, int]) -> TopicPartition:
    """A partition that may have been given as a tuple."""
    return TopicPartition(*given)


def by_topic(given: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    """What was given per partition, by topic and partition."""
    grouped: dict[str, dict[int, int]] = {}
    for at, offset in given.items():
        topic, partition = at
        grouped.setdefault(check_topic_name(topic), {})[partition] = offset
    return grouped
