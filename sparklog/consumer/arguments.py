"""Checks of arguments that a consumer is called with: partitions, offsets, timestamps, time-outs, counts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparklog.clock import Clock
from sparklog.config.settings import LONG_MAX
from sparklog.errors import InvalidArgumentError
from sparklog.log import Cluster, open_cluster
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.paths import check_topic_name

__all__ = [
    "check_count",
    "check_offset",
    "check_offsets",
    "check_partition",
    "check_partitions",
    "check_timeout",
    "check_timestamps",
    "opened_cluster",
]


def check_partition(partition: object) -> TopicPartition:
    """The argument, if it is a partition. Raises ``TypeError``, ``InvalidTopicError``, ``InvalidArgumentError``."""
    if not isinstance(partition, tuple) or len(partition) != 2:
        raise TypeError(f"got {partition!r}, expected a TopicPartition")
    topic, number = partition
    check_topic_name(topic)
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"got {partition!r}, expected a TopicPartition")
    if number < 0:
        raise InvalidArgumentError(f"partition {number} of {topic}: expected 0 or more")
    return TopicPartition(topic, number)


def check_partitions(partitions: object) -> list[TopicPartition]:
    """The argument, if it is a collection of partitions, each once. Raises as :func:`check_partition`."""
    if not isinstance(partitions, Collection) or isinstance(partitions, str | TopicPartition):
        raise TypeError(f"got {partitions!r}, expected a list of TopicPartition")
    return list(dict.fromkeys(check_partition(partition) for partition in partitions))


def check_offset(offset: object) -> None:
    """Raises ``InvalidArgumentError``: the argument of ``seek`` is no offset."""
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= LONG_MAX:
        raise InvalidArgumentError(f"seek to {offset!r}: expected an offset, 0 or more")


def check_offsets(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """The argument, if it maps partitions to offsets. Raises as :func:`check_partition`."""
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets: got {offsets!r}, expected a dict of TopicPartition to OffsetAndMetadata")
    checked = {}
    for partition, committed in offsets.items():
        if not isinstance(committed, tuple) or not 1 <= len(committed) <= len(OffsetAndMetadata._fields):
            raise TypeError(f"offset of {partition}: got {committed!r}, expected an OffsetAndMetadata")
        checked[check_partition(partition)] = OffsetAndMetadata(*committed)
    return checked


def check_timestamps(timestamps: object) -> dict[TopicPartition, int]:
    """The argument, if it maps partitions to milliseconds, 0 or more. Raises as :func:`check_partition`."""
    if not isinstance(timestamps, Mapping):
        raise TypeError(f"timestamps: got {timestamps!r}, expected a dict of TopicPartition to milliseconds")
    checked = {check_partition(partition): at_ms for partition, at_ms in timestamps.items()}
    for partition, at_ms in checked.items():
        if isinstance(at_ms, bool) or not isinstance(at_ms, int) or at_ms < 0:
            raise InvalidArgumentError(f"timestamp {at_ms!r} for {partition}: expected milliseconds, 0 or more")
    return checked


def check_timeout(timeout_ms: object) -> None:
    """Raises ``InvalidArgumentError``: the argument is no time in milliseconds, or less than 0."""
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float) or not timeout_ms >= 0:
        raise InvalidArgumentError(f"timeout_ms={timeout_ms!r}: expected 0 or more")


def check_count(name: str, count: object) -> int:
    """The argument called ``name``, if it is a number, 1 or more. Raises ``InvalidArgumentError``."""
    if isinstance(count, bool) or not isinstance(count, int) or count <= 0:
        raise InvalidArgumentError(f"{name}={count!r}: expected a whole number, 1 or more")
    return count


def opened_cluster(
    cluster: str | Path | Cluster,
    storage_options: Mapping[str, Any] | None,
    clock: Clock | None,
    timeout_ms: float | None = None,
) -> tuple[Cluster, bool]:
    """The cluster that a consumer was given, and whether its store is the consumer's own.

    Args:
        timeout_ms: for opening it.

    Raises ``InvalidArgumentError``: there is none; options beside one that is open. ``StoreError``.
    """
    if not isinstance(cluster, Cluster):
        opened = open_cluster(
            cluster, storage_options=storage_options, clock=clock, create=False, timeout_ms=timeout_ms
        )
        return opened, True
    if storage_options is not None:
        raise InvalidArgumentError("storage_options: expected none with an open cluster")
    return (cluster if clock is None else replace(cluster, clock=clock)), False
