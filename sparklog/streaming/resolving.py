"""Resolving options to offsets: the partitions that a query reads, and the offsets between which it does."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping

from sparklog.errors import (
    InvalidConfigurationError,
    OffsetOutOfRangeError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.cluster import Cluster, topic_names
from sparklog.log.follow import TopicFollower
from sparklog.log.head import TopicHead
from sparklog.log.typed_records import ValueReading
from sparklog.model import CREATE_TIME, LOG_APPEND_TIME, OffsetAndTimestamp, TopicPartition
from sparklog.parallel import parallel_map
from sparklog.streaming.planning import OffsetRange
from sparklog.streaming.source_options import EARLIEST, LATEST, Limit, SourceOptions, Subscription

__all__ = [
    "handle_data_loss",
    "offset_range",
    "plan_batch",
    "readable_offset",
    "resolve_offsets",
    "subscribed_partitions",
]

_LOGGER = logging.getLogger("sparklog.spark")


def plan_batch(cluster: Cluster, options: SourceOptions) -> list[OffsetRange]:
    """The ranges that a batch query reads, as of now.

    Raises:
        UnknownTopicOrPartitionError: a topic or partition isn't there.
        InvalidConfigurationError: a limit doesn't name each of the partitions.
        OffsetOutOfRangeError: it starts at what was deleted, or ends at what isn't there.
    """
    subscription = options.subscription
    names = subscription.topics or sorted({topic for topic, _ in subscription.partitions})
    if subscription.pattern:
        names = [name for name in topic_names(cluster) if re.fullmatch(subscription.pattern, name)]
    opened = parallel_map(lambda name: TopicFollower(cluster.topic_log(name), name), names)
    followers = dict(zip(names, opened, strict=True))
    partitions = [
        TopicPartition(topic, partition)
        for topic, follower in followers.items()
        for partition in subscribed_partitions(subscription, topic, follower.head.partition_count)
    ]
    starts = resolve_offsets(followers, partitions, options.starting, "starting", latest=options.latest_without_match)
    ends = resolve_offsets(followers, partitions, options.ending, "ending", latest=True)
    ranges = []
    for at in partitions:
        follower = followers[at.topic]
        start = readable_offset(follower.head, at, starts[at], fail_on_data_loss=options.fail_on_data_loss)
        end = readable_offset(follower.head, at, ends[at], fail_on_data_loss=options.fail_on_data_loss)
        ranges.append(offset_range(follower, at.partition, start, end))
    return ranges


def subscribed_partitions(subscription: Subscription, topic: str, partition_count: int) -> list[int]:
    """The partitions of a topic that are read. Raises ``UnknownTopicOrPartitionError`` for one that isn't there."""
    if not subscription.partitions:
        return list(range(partition_count))
    wanted = [partition for name, partition in subscription.partitions if name == topic]
    for partition in wanted:
        if partition >= partition_count:
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} has no partition {partition}; it has 0 to {partition_count - 1}"
            )
    return wanted


def resolve_offsets(
    followers: Mapping[str, TopicFollower],
    partitions: Collection[TopicPartition],
    limit: Limit,
    name: str,
    *,
    latest: bool,
) -> dict[TopicPartition, int]:
    """Resolve a limit to the offset that it means in each partition.

    Args:
        latest: whether a time after the last record means the log end; else it is an error.
    Raises:
        InvalidConfigurationError: the limit doesn't name exactly these partitions.
        OffsetOutOfRangeError: no record is young enough.
    """
    if limit.timestamp is not None:
        return _at_times(followers, dict.fromkeys(partitions, limit.timestamp), latest)
    if limit.timestamps is not None:
        _check_all_named(limit.timestamps, partitions, f"{name}OffsetsByTimestamp")
        return _at_times(followers, {at: limit.timestamps[at] for at in partitions}, latest)
    if limit.offsets is not None:
        _check_all_named(limit.offsets, partitions, f"{name}Offsets")
        given: Mapping[TopicPartition, int] = limit.offsets
    else:
        given = dict.fromkeys(partitions, EARLIEST if limit.everywhere is None else limit.everywhere)
    return {at: _offset(followers[at.topic].head, at.partition, given[at]) for at in partitions}


def readable_offset(head: TopicHead, at: TopicPartition, offset: int, *, fail_on_data_loss: bool) -> int:
    """An offset that can be read from; the nearest one if data loss is to be passed over.

    Raises:
        OffsetOutOfRangeError: below the log start or above the log end.
    """
    start, end = head.log_start_offsets[at.partition], head.log_end_offsets[at.partition]
    if start <= offset <= end:
        return offset
    message = f"offset {offset} of {at.topic}-{at.partition} is out of range: log start {start}, log end {end}"
    handle_data_loss(
        lambda text: OffsetOutOfRangeError(text, topic_partition=at, offset=offset), message, fail_on_data_loss
    )
    return min(max(offset, start), end)


def handle_data_loss(error: Callable[[str], SparklogError], message: str, fail_on_data_loss: bool) -> None:
    """Raise that records to be read aren't there, or log it where ``fail_on_data_loss`` is false."""
    if fail_on_data_loss:
        raise error(f"{message}; records may have been lost, set failOnDataLoss=false to go on without them")
    _LOGGER.warning("%s; going on, as failOnDataLoss is false", message)


def offset_range(follower: TopicFollower, partition: int, start: int, end: int) -> OffsetRange:
    """The offsets of a partition, with the files that hold them, from ``start`` to ``end``, both within the log."""
    head = follower.head
    segments = follower.segments(partition, start) if start < end else iter(())
    is_append_time = head.config["message.timestamp.type"] == "LogAppendTime"
    return OffsetRange(
        topic=follower.topic,
        topic_id=head.topic_id,
        partition=partition,
        start=start,
        end=end,
        timestamp_type=LOG_APPEND_TIME if is_append_time else CREATE_TIME,
        segments=tuple(segment for segment in segments if segment.first_offset < end),
        values=ValueReading.of(head),
    )


def _at_times(
    followers: Mapping[str, TopicFollower], timestamps_ms: Mapping[TopicPartition, int], latest: bool
) -> dict[TopicPartition, int]:
    by_topic: dict[str, dict[int, int]] = {}
    for at, timestamp_ms in timestamps_ms.items():
        by_topic.setdefault(at.topic, {})[at.partition] = timestamp_ms
    looks = parallel_map(lambda topic: followers[topic].offsets_for_times(by_topic[topic]), by_topic)
    found = dict(zip(by_topic, looks, strict=True))
    return {
        at: _offset_of(found[at.topic][at.partition], followers[at.topic], at, timestamp_ms, latest)
        for at, timestamp_ms in timestamps_ms.items()
    }


def _offset_of(
    found: OffsetAndTimestamp | None, follower: TopicFollower, at: TopicPartition, timestamp_ms: int, latest: bool
) -> int:
    if found is not None:
        return found.offset
    if not latest:
        raise OffsetOutOfRangeError(
            f"no record of {at.topic}-{at.partition} is as young as {timestamp_ms} (milliseconds since the epoch); set "
            "startingOffsetsByTimestampStrategy=latest to begin at its end",
            topic_partition=at,
        )
    return follower.head.log_end_offsets[at.partition]


def _offset(head: TopicHead, partition: int, offset: int) -> int:
    if offset == EARLIEST:
        return head.log_start_offsets[partition]
    return head.log_end_offsets[partition] if offset == LATEST else offset


def _check_all_named(given: Mapping[TopicPartition, int], partitions: Collection[TopicPartition], name: str) -> None:
    """Source: Spark ``KafkaOffsetReaderAdmin``, "you must specify all TopicPartitions"."""
    differing = sorted(set(given) ^ set(partitions))
    if differing:
        shown = ", ".join(f"{topic}-{partition}" for topic, partition in differing[:5])
        raise InvalidConfigurationError(
            f"{name} must name each partition that is read, and no other; use {LATEST} for latest and {EARLIEST} for "
            f"earliest. It differs in {shown}{' …' if len(differing) > 5 else ''}"
        )
