"""Calls about several topics or groups: the arguments are checked, then the items are handled concurrently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from sparklog.errors import (
    InvalidArgumentError,
    InvalidTypeError,
    KafkaTimeoutError,
    SparklogError,
    StoreError,
    UnknownTopicOrPartitionError,
    is_no_topic,
)
from sparklog.log.cluster import Cluster, topic_names
from sparklog.log.topic import TopicDescription, describe_topic
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.parallel import parallel_map
from sparklog.paths import TOPICS_FOLDER, check_topic_name, encode_id
from sparklog.storage.each_alone import each_alone

__all__ = [
    "all_described",
    "by_topic",
    "check_group",
    "check_once",
    "check_transactional_id",
    "checked_names",
    "checked_offsets",
    "checked_partitions",
    "described",
    "each",
    "listed",
    "partition_of",
]

S = TypeVar("S")
T = TypeVar("T")


def each(items: Mapping[str, S], act: Callable[[str, S], T]) -> dict[str, T]:
    """Act on each topic or group, up to 32 at once; none waits for another or fails with it.

    Where the store fails, or something isn't done in time, those that haven't begun by then are not tried: they would
    fail in the same way.

    Raises:
        The error of the first that failed. Its message says which others were done, failed or were not tried.
    """
    done: dict[str, T] = {}
    errors: dict[str, Exception] = {}

    def attempt(name: str) -> None:
        if any(isinstance(error, StoreError | KafkaTimeoutError) for error in [*errors.values()]):
            return
        try:
            done[name] = act(name, items[name])
        except Exception as error:
            errors[name] = error

    parallel_map(attempt, items)
    if errors:
        raise _telling_of_others(items, done, errors)
    return {name: done[name] for name in items}


def described(cluster: Cluster, names: Iterable[str] | None) -> list[TopicDescription]:
    """Topics as of now; all of them for None, without those that are deleted meanwhile. Raises
    ``UnknownTopicOrPartitionError``."""

    def describe(name: str) -> TopicDescription | None:
        try:
            return describe_topic(cluster.topic_log(name), name)
        except UnknownTopicOrPartitionError:
            if names is None:
                return None
            raise

    wanted = topic_names(cluster) if names is None else names
    return [topic for topic in parallel_map(describe, wanted) if topic is not None]


def all_described(cluster: Cluster) -> dict[str, TopicDescription | Exception]:
    """All topics as of now, by name; the error for one that can't be read.

    Raises:
        StoreError: the store can't be read.
    """
    names = cluster.store.list_names(TOPICS_FOLDER)
    looks = each_alone(cluster.store, lambda name: describe_topic(cluster.topic_log(name), name), names)
    return {name: look for name, look in zip(names, looks, strict=True) if not is_no_topic(look)}


def _telling_of_others(items: Collection[str], done: Collection[str], errors: Mapping[str, Exception]) -> Exception:
    first, *failed = [name for name in items if name in errors]
    error = errors[first]
    if len(items) > 1 and isinstance(error, SparklogError):
        others = {
            "done": [name for name in items if name in done],
            "also failed": failed,
            "not tried": [name for name in items if name not in done and name not in errors],
        }
        summary = "; ".join(f"{what}: {', '.join(names)}" for what, names in others.items() if names)
        error.args = (f"{error} ({summary})",)
    return error


def listed(given: Iterable[S]) -> list[S]:
    """A list of what was given; a single text is a slip, not a list of letters."""
    if isinstance(given, str):
        raise InvalidArgumentError(f"got the text {given!r}, expected a list")
    return list(given)


def checked_names(topics: Iterable[str]) -> list[str]:
    """A list of topic names. Raises ``InvalidTopicError``."""
    return [check_topic_name(name) for name in listed(topics)]


def check_group(group: object) -> str:
    """Return ``group`` if a group may have this name. Raises ``InvalidArgumentError``."""
    return _check_id(group, "group")


def check_transactional_id(name: object) -> str:
    """Return ``name`` if a transactional id may be called so. Raises ``InvalidArgumentError``."""
    return _check_id(name, "transactional id")


def checked_partitions(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """A list of partitions. Raises ``InvalidTopicError``, ``InvalidTypeError``."""
    return [_checked_partition(partition) for partition in listed(partitions)]


def checked_offsets(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to commit, by partition. Raises ``InvalidTopicError``, ``InvalidTypeError``."""
    if not isinstance(offsets, Mapping):
        raise InvalidTypeError(f"offsets: got {offsets!r}, expected a dict of TopicPartition to OffsetAndMetadata")
    checked = {}
    for partition, value in offsets.items():
        committed: object = value
        if not isinstance(committed, tuple) or not 1 <= len(committed) <= len(OffsetAndMetadata._fields):
            raise InvalidTypeError(f"offset of {partition}: got {committed!r}, expected an OffsetAndMetadata")
        checked[_checked_partition(partition)] = OffsetAndMetadata(*committed)
    return checked


def check_once(names: list[str]) -> None:
    """Raise ``InvalidArgumentError`` if a name is there twice."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise InvalidArgumentError(f"given twice: {', '.join(twice)}")


def partition_of(given: tuple[str, int]) -> TopicPartition:
    """A partition that may have been given as a tuple."""
    return TopicPartition(*given)


def _check_id(name: object, what: str) -> str:
    if not isinstance(name, str):
        raise InvalidArgumentError(f"invalid {what}: got {type(name).__name__}, expected str")
    encode_id(name)
    return name


def _checked_partition(given: object) -> TopicPartition:
    if isinstance(given, tuple) and len(given) == 2:
        topic, number = given
        if isinstance(number, int) and not isinstance(number, bool):
            return TopicPartition(check_topic_name(topic), number)
    raise InvalidTypeError(f"got {given!r} for a partition, expected a TopicPartition")


def by_topic(given: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    """The values given per partition, grouped by topic."""
    grouped: dict[str, dict[int, int]] = {}
    for at, offset in given.items():
        topic, partition = at
        grouped.setdefault(check_topic_name(topic), {})[partition] = offset
    return grouped
